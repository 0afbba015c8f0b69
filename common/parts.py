# SPDX-License-Identifier: Apache-2.0
"""Tables in numbered Parquet files, written in full row groups and read in whole runs of equal values of a column."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sagecc.common.arrays import Ints
from sagecc.common.files import sync
from sagecc.common.inputs import errors_naming


class PartWriter:
    """Append tables to `STEM-000.parquet`, `STEM-001.parquet`, …, each synced to the disk.

    Args:
        folder: the files' folder; made if it does not exist.
        schema: schema to which rows are cast, with the files' metadata.
        group_rows: rows per row group.
        options: options of pyarrow's ParquetWriter besides the compression, which is zstd.
        stem: beginning of the files' names.
        first: number of the first file.
        carry: whether rows beyond a full row group are carried over to the next; otherwise a row group ends with the
            table that fills it.
        file_rows: rows at which a file ends, after the row group that reaches them.
        file_bytes: size at which a file ends (bytes), likewise.
    """

    def __init__(
        self,
        folder: Path,
        schema: pa.Schema,
        group_rows: int,
        options: Mapping[str, Any],
        *,
        stem: str = "part",
        first: int = 0,
        carry: bool = True,
        file_rows: float = math.inf,
        file_bytes: float = math.inf,
    ) -> None:
        self._folder, self._stem, self._number = folder, stem, first
        self._file_rows, self._file_bytes = file_rows, file_bytes
        self._schema, self._group_rows, self._options, self._carry = schema, group_rows, options, carry
        self._pending: list[pa.Table] = []
        self._pending_rows = self._written_rows = 0
        self._path = folder
        self._sink: pa.NativeFile | None = None
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> PartWriter:
        return self

    @property
    def rows(self) -> int:
        """Rows of the current file, written or pending."""
        return self._written_rows + self._pending_rows

    @property
    def next_number(self) -> int:
        """Number of the current file, or of the next one if none is open."""
        return self._number

    def write(self, table: pa.Table) -> None:
        """Append rows."""
        self._pending.append(table)
        self._pending_rows += table.num_rows
        while self._pending_rows >= self._group_rows:
            self._flush(self._group_rows if self._carry else self._pending_rows)

    def end_file(self) -> None:
        """Write the pending rows and close the current file; later rows go into the next."""
        if self._pending_rows:
            self._flush(self._pending_rows)
        self._close()

    def _flush(self, rows: int) -> None:
        table = pa.concat_tables(self._pending)
        self._pending = [table.slice(rows)]
        self._pending_rows -= rows
        with errors_naming(self._path):
            if self._writer is None:
                self._path = self._folder / f"{self._stem}-{self._number:03}.parquet"
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._sink = pa.OSFile(str(self._path), "wb")
                self._writer = pq.ParquetWriter(self._sink, self._schema, compression="zstd", **self._options)
            self._writer.write_table(table.slice(0, rows).cast(self._schema), row_group_size=self._group_rows)
        self._written_rows += rows
        if self._written_rows >= self._file_rows or (self._sink and self._sink.tell() >= self._file_bytes):
            self._close()

    def _close(self) -> None:
        if self._writer is None or self._sink is None:
            return
        with errors_naming(self._path):
            self._writer.close()
            self._sink.close()
            sync(self._path)
        self._writer = self._sink = None
        self._written_rows = 0
        self._number += 1

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.end_file()
        else:
            self._close()


class Runs:
    """Runs of equal values in a column: `values`, `starts` (first rows) and `lengths`, each of shape [runs].

    Args:
        column: the column [rows].
    """

    def __init__(self, column: pa.ChunkedArray) -> None:
        runs = pc.run_end_encode(column.combine_chunks())
        ends = runs.run_ends.to_numpy().astype(np.int64)
        self.values: list[Any] = runs.values.to_pylist()
        self.starts: Ints = np.concatenate([[0], ends[:-1]]).astype(np.int64)
        self.lengths: Ints = ends - self.starts

    def slices(self, table: pa.Table) -> Iterator[tuple[Any, pa.Table]]:
        """Yield each run's value and its rows of `table`, which is as long as the column."""
        for value, start, length in zip(self.values, self.starts.tolist(), self.lengths.tolist(), strict=True):
            yield value, table.slice(start, length)


def whole_runs(tables: Iterable[pa.Table], column: str) -> Iterator[pa.Table]:
    """Regroup consecutive tables, so that no run of equal values spans two of them.

    Holds one table and the incomplete run before it in memory.

    Args:
        tables: consecutive pieces of one table.
        column: the column whose runs stay whole.

    Yields:
        All rows, in tables that end where a run ends.
    """
    incomplete: list[pa.Table] = []
    for table in tables:
        if not table.num_rows:
            continue
        last = Runs(table[column]).starts[-1]
        runs = pa.concat_tables([*incomplete, table.slice(0, last)])
        if last or (incomplete and incomplete[-1][column][0] != table[column][0]):
            yield runs
            incomplete = []
        incomplete.append(table.slice(last))
    if incomplete:
        yield pa.concat_tables(incomplete)
