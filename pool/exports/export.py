# SPDX-License-Identifier: Apache-2.0
# Not followed as an import: for `sagecc pool export` alone, which is no stage.
"""Takes a pool, or part of it, to another ecosystem's form."""

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

PACKAGES = {"minari": "minari", "rlds": "tensorflow_datasets", "huggingface": "datasets"}
"""The library of each form."""
UNCOMPRESSED = ("minari", "rlds")
ROW_BYTES = 4 * (len(FEATURE_NAMES) + 2)
"""Forms whose rows take at least four bytes a number, and what that comes to."""

__all__ = ["Choice", "Exported", "export", "names"]


@dataclass(frozen=True)
class Exported:
    """What was written. reading: how to read it."""

    episodes: int
    rows: int
    reading: str


def export(
    path: Path, form: str, pool: Path, choice: Choice | None = None, action: str = "log2", progress: bool = True
) -> Exported:
    """Write the chosen episodes of `pool` to the new folder `path`: whole, or nothing.

    form: minari, rlds or huggingface. action: one of episodes.ACTIONS. Memory does not grow with the pool. Raises
    SageccError where there is something at `path`, the form's library is missing, or the pool is not right.
    """
    refuse_existing(path)
    if path.resolve().is_relative_to(pool.resolve()):
        raise SageccError(f"{path} is in the pool: choose a path outside")
    source = open_pool(pool, choice or Choice(), action)
    import_library(PACKAGES[form], form)
    writer = importlib.import_module(f"sagecc.pool.exports.to_{form}")
    with write_folder_atomically(path) as folder:
        needed, free = source.rows * ROW_BYTES, shutil.disk_usage(folder).free
        if form in UNCOMPRESSED and needed > free:
            raise SageccError(
                f"{path} needs {needed / 1e9:.1f} GB and its disk has {free / 1e9:.1f} GB free:"
                " choose another disk, or fewer episodes"
            )
        with tqdm(total=source.rows, desc="export", unit=" rows", unit_scale=True, disable=not progress) as bar:
            reading = writer.write(folder, source, bar.update)
    return Exported(len(source.listing), source.rows, reading.format(path=path))


def names(text: str) -> tuple[str, ...]:
    """Return the names that a comma-separated list holds."""
    return tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))
