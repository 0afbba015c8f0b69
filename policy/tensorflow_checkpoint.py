# SPDX-License-Identifier: Apache-2.0
"""TensorFlow checkpoints of other programs, of version 1 or 2: finds the files, reads variables."""

from __future__ import annotations

import glob
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy.typing as npt

from sagecc.common.errors import SageccError
from sagecc.common.inputs import check_regular, read_regular
from sagecc.policy.tensor_bundle import BundleError, Entry, read_index

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
    """Read variables of a checkpoint; no TensorFlow is needed.

    Args:
        prefix: the common prefix of its files.
        wanted: tells by a variable's name whether to read it.

    Returns:
        The variables by name.

    Raises:
        SageccError: The checkpoint cannot be read, or is damaged.
    """
    try:
        index = read_index(read_regular(prefix.with_name(f"{prefix.name}.index")))
        chosen = {name: entry for name, entry in index.entries.items() if wanted(name)}
        return {name: _variable(prefix, index.shards, name, entry) for name, entry in chosen.items()}
    except (BundleError, OSError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SageccError(f"{prefix} is truncated, corrupt or no TensorFlow checkpoint ({reason})") from error


def _variable(prefix: Path, shards: int, name: str, entry: Entry) -> npt.NDArray[Any]:
    file = prefix.with_name(f"{prefix.name}.data-{entry.shard:05d}-of-{shards:05d}")
    if not file.is_file():
        raise SageccError(f"{prefix}.index is there, its data {file.name} is not: fetch it again")
    if file.stat().st_size < entry.offset + entry.size:
        raise BundleError(f"{file.name} ends before '{name}'")
    with file.open("rb") as data:
        data.seek(entry.offset)
        content = data.read(entry.size)
    try:
        return entry.array(content)
    except BundleError as error:
        raise BundleError(f"'{name}' {error}") from None
