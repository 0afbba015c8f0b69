# SPDX-License-Identifier: Apache-2.0
"""TensorFlow and Sonnet, imported without messages and configured so that a seed determines a training run bit by bit.

Every module of the learner imports `tf` and `snt` from here, so that TensorFlow's messages about the machine never
reach a user's terminal.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import cast

from sagecc.common.errors import SageccError
from sagecc.common.optional import requires_extra


@contextmanager
def quietly() -> Iterator[None]:
    """Discard what C++ code writes to file descriptor 2 within this context; Python's exceptions are unaffected."""
    sys.stderr.flush()
    stderr = os.dup(2)
    devnull = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(devnull, 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(devnull)


@contextmanager
def absent(module: str) -> Iterator[None]:
    """Let imports of a module that is not loaded fail within this context."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = cast(ModuleType, None)  # importlib takes it for one that cannot be found
    try:
        yield
    finally:
        del sys.modules[module]


@contextmanager
def uncollected() -> Iterator[None]:
    """Collect no garbage within this context, and never look for any in what it makes: all of it lasts."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collects:
            gc.enable()


os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Sonnet and TensorFlow Probability need Keras 2, which tf-keras provides under TensorFlow 2.21
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
# Triton's kernels, chosen untried as deterministic ones are, took an H200 twice as long as cuBLAS's
os.environ.setdefault("XLA_FLAGS", "--xla_gpu_enable_triton_gemm=false")
# TensorFlow loads Keras if it can, a quarter of its start; whoever asks `tf.keras` for something loads it then
with quietly(), requires_extra("train"), absent("tf_keras.src.optimizers"), uncollected():
    import sonnet as snt
    import tensorflow as tf

    tf.config.list_physical_devices()

__all__ = ["configure", "quietly", "snt", "tf"]


def configure(seed: int, tensorfloat32: bool = False) -> None:
    """Make this process's TensorFlow deterministic; to be called before the first operation.

    One thread within an operation, so that sums are always taken in the same order, and one thread per core between
    operations: policy and critic are independent until the advantage, so two cores still help.

    Args:
        seed: seed of TensorFlow's random numbers.
        tensorfloat32: whether a GPU may round the factors of float32 products to 11 bits of mantissa, as TensorFlow
            does by default.

    Raises:
        SageccError: TensorFlow has already started with other settings.
    """
    try:
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(max(2, len(os.sched_getaffinity(0))))
    except RuntimeError as error:
        raise SageccError(f"training must start before TensorFlow is used in this process: {error}") from error
    tf.random.set_seed(seed)
    tf.config.experimental.enable_op_determinism()
    tf.config.experimental.enable_tensor_float_32_execution(tensorfloat32)
