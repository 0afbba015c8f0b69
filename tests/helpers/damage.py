# SPDX-License-Identifier: Apache-2.0
"""Damage to files, for tests of those who read them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def flip_a_value(path: Path, column: str) -> None:
    """Flip a bit of a column's last value, where only its page's checksum tells."""
    with pq.ParquetFile(path) as file:
        table = file.read()
    settings = {"use_dictionary": False, "compression": "none", "write_statistics": False}
    pq.write_table(table, path, write_page_checksum=True, **settings)
    group = pq.read_metadata(path).row_group(0)
    chunk = next(group.column(i) for i in range(group.num_columns) if group.column(i).path_in_schema == column)
    data = bytearray(path.read_bytes())
    data[chunk.data_page_offset + chunk.total_compressed_size - 1] ^= 1
    path.write_bytes(data)
    assert not pq.read_table(path, partitioning=None)[column].equals(table[column])  # it can be read as it lies


def rewrite(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Write a changed table in a file's place, whole, with right checksums."""
    with pq.ParquetFile(path) as file:
        table = file.read()
    pq.write_table(change(table), path, write_page_checksum=True)
