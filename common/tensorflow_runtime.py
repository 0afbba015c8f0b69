# SPDX-License-Identifier: Apache-2.0
"""TensorFlow and Sonnet, imported quietly and set up so that a seed fixes every bit of a training run.

Every module of the learner takes `tf` and `snt` from here, so that nothing TensorFlow says about the machine
while it loads reaches a user's terminal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from sagecc.common.errors import SageccError
from sagecc.common.optional import brought_by


@contextmanager
def quietly() -> Iterator[None]:
    """Send what C++ code writes to file descriptor 2 to nowhere; Python's own errors still surface as exceptions."""
    sys.stderr.flush()
    saved = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)


os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Sonnet and TensorFlow Probability speak to Keras 2, which tf-keras keeps alive under TensorFlow 2.21.
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
with quietly(), brought_by("train"):
    import sonnet as snt
    import tensorflow as tf

    tf.config.list_physical_devices()

__all__ = ["configure", "quietly", "snt", "tf"]


def configure(seed: int) -> None:
    """Make this process's TensorFlow deterministic; call it before the first operation.

    One thread inside an operation, so that sums are always taken in the same order, and one a core between
    operations: the policy and the critic are independent until the advantage, so two cores still help.

    Raises SageccError if TensorFlow has already started with other settings.
    """
    try:
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(max(2, len(os.sched_getaffinity(0))))
    except RuntimeError as error:
        raise SageccError(f"training must start before TensorFlow is used in this process: {error}") from error
    tf.random.set_seed(seed)
    tf.config.experimental.enable_op_determinism()
