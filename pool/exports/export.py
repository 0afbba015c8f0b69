# SPDX-License-Identifier: Apache-2.0
"""Exports a pool, or a part of it, to another ecosystem's form."""

from __future__ import annotations

import importlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from sagecc.common.errors import SageccError
from sagecc.common.optional import import_library
from sagecc.pool.exports.episodes import Choice, open_pool
from sagecc.pool.exports.folder import refuse_existing, write_folder_atomically
from sagecc.schemas.pool import FEATURE_NAMES

PACKAGES = {"minari": "minari", "rlds": "tensorflow_datasets", "huggingface": "datasets", "samples": "duckdb"}
"""The library of each form."""
UNCOMPRESSED = ("minari", "rlds")
"""Forms whose rows take at least four bytes per number."""
ROW_BYTES = 4 * (len(FEATURE_NAMES) + 2)
"""Least size of a row in those forms."""

__all__ = ["Choice", "PoolExport", "export", "names"]


@dataclass(frozen=True)
class PoolExport:
    """What an export wrote."""

    episodes: int
    """Number of episodes."""
    rows: int
    """Number of rows."""
    reading: str
    """Code that reads the result."""


def export(
    path: Path, form: str, pool: Path, choice: Choice | None = None, action: str = "log2", progress: bool = True
) -> PoolExport:
    """Write episodes of a pool to a new folder: whole, or nothing. Memory does not grow with the pool.

    Args:
        path: the new folder.
        form: minari, rlds, huggingface or samples.
        pool: the pool's folder.
        choice: which episodes; all by default.
        action: form of the actions: one of episodes.ACTIONS.
        progress: whether to show a progress bar on stderr.

    Raises:
        SageccError: `path` exists already, the form's library is missing, the disk has too little room, or the pool is
            missing or damaged.
    """
    if form not in PACKAGES:
        raise SageccError(f"a pool is exported to {', '.join(PACKAGES)}, not to '{form}'")
    refuse_existing(path)
    if path.resolve().is_relative_to(pool.resolve()):
        raise SageccError(f"{path} is in the pool: choose a path outside")
    source = open_pool(pool, choice or Choice(), action)
    import_library(PACKAGES[form], form)
    writer = importlib.import_module(f"sagecc.pool.exports.to_{form}")
    with write_folder_atomically(path) as folder:
        needed_bytes, free = source.rows * ROW_BYTES, shutil.disk_usage(folder).free
        if form in UNCOMPRESSED and needed_bytes > free:
            raise SageccError(
                f"{path} needs {needed_bytes / 1e9:.1f} GB and its disk has {free / 1e9:.1f} GB free:"
                " choose another disk, or fewer episodes"
            )
        with tqdm(
            total=source.rows, desc="export", unit=" rows", unit_scale=True, disable=None if progress else True
        ) as bar:
            reading = writer.write(folder, source, bar.update)
    return PoolExport(len(source.listing), source.rows, reading.format(path=path))


def names(text: str) -> tuple[str, ...]:
    """Return the distinct names of a comma-separated list."""
    return tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))
