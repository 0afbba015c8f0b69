# SPDX-License-Identifier: Apache-2.0
"""TensorFlow checkpoints of other programs, of version 1 or 2: finds the files, reads variables."""

from __future__ import annotations

import glob
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sagecc.common.errors import SageccError
from sagecc.common.inputs import check_regular

CHECKPOINT_FILE_BYTES = 2**32
"""Limit of each of a checkpoint's files: gigabytes, for a graph or an optimiser may lie beside an actor."""


def prefix_of(checkpoint: Path) -> Path:
    """Return the common prefix of a checkpoint's files.

    Args:
        checkpoint: their folder, one of them, or the prefix itself.

    Raises:
        SageccError: There is no checkpoint, several, or not all of its files.
    """
    if checkpoint.is_dir():
        indexes = sorted(checkpoint.glob("*.index"))
        if len(indexes) != 1:
            count = f"{len(indexes)} checkpoints" if indexes else "no checkpoint (*.index)"
            raise SageccError(f"{checkpoint} holds {count}: name one, by its .index file")
        checkpoint = indexes[0]
    name = checkpoint.name
    for suffix in (".index", ".meta"):
        name = name.removesuffix(suffix)
    prefix = checkpoint.with_name(name.partition(".data-")[0])
    if not prefix.with_name(f"{prefix.name}.index").is_file():
        raise SageccError(f"no TensorFlow checkpoint at {checkpoint}: expected {prefix.name}.index and its data there")
    if not list(prefix.parent.glob(f"{glob.escape(prefix.name)}.data-*")):
        raise SageccError(f"{prefix}.index is there, its data ({prefix.name}.data-...) is not: fetch it again")
    for file in prefix.parent.glob(f"{glob.escape(prefix.name)}.*"):
        check_regular(file, CHECKPOINT_FILE_BYTES)
    return prefix


def read(prefix: Path, wanted: Callable[[str], bool]) -> dict[str, npt.NDArray[Any]]:
    """Read variables of a checkpoint.

    Args:
        prefix: the common prefix of its files.
        wanted: tells by a variable's name whether to read it.

    Returns:
        The variables by name.

    Raises:
        SageccError: TensorFlow is missing, or cannot read the checkpoint.
    """
    try:
        # Seconds to load, and nothing but a checkpoint needs it.
        from sagecc.common.tensorflow_runtime import quietly, tf
    except ImportError as error:
        raise SageccError(
            f"reading a TensorFlow checkpoint needs TensorFlow, which cannot be loaded here ({error}): 'make setup'"
        ) from error
    try:
        with quietly():
            reader = tf.train.load_checkpoint(str(prefix))
            names = [name for name in reader.get_variable_to_shape_map() if wanted(name)]
            return {name: np.asarray(reader.get_tensor(name)) for name in names}
    except (tf.errors.OpError, ValueError, RuntimeError, OSError, LookupError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SageccError(f"{prefix} is truncated, corrupt or no TensorFlow checkpoint ({reason})") from error
