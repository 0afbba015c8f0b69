# SPDX-License-Identifier: Apache-2.0
"""What a golden run comes to, as it is pinned."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq


@dataclass(frozen=True)
class Made:
    """Bytes, and where they are the result of training, what is near them on every processor."""

    text: str
    numbers: tuple[float, ...] = ()

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def of_floats(arrays: Sequence[npt.NDArray[Any]]) -> Made:
    """Return the digest of arrays, and of all their values mean, norm, and two sums with weights of both signs."""
    text = "".join(f"{array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}" for array in arrays)
    values = np.concatenate([array.ravel().astype(np.float64) for array in arrays])
    along = np.arange(len(values))
    numbers = (
        values.mean(),
        np.sqrt((values**2).sum()),
        (values * np.cos(along)).sum(),
        (values * np.sin(along)).sum(),
    )
    return Made(text, tuple(float(number) for number in numbers))


def of_table(path: Path, metadata: bool = True) -> str:
    """Return a digest of a Parquet file's schema, perhaps its metadata, and values, however they are laid out."""
    table = pq.read_table(path, partitioning=None)
    table = table if metadata else table.replace_schema_metadata(None)
    digest = hashlib.sha256(
        str((table.schema.names, table.schema.types, sorted((table.schema.metadata or {}).items()))).encode()
    )
    for column in table.combine_chunks().columns:
        digest.update(repr(column.to_pylist()).encode())
    return digest.hexdigest()
