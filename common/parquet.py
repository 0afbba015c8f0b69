# SPDX-License-Identifier: Apache-2.0
"""How Parquet files are opened: only regular ones and objects of stores, with row groups about as large as ours.

A few kilobytes can claim gigabytes. What a file claims is in its footer, which is looked at before anything else is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sagecc.common.errors import SageccError
from sagecc.common.files import FOOTER_BYTES
from sagecc.common.inputs import check_regular
from sagecc.common.remote import Place, Remote

MAX_GROUP_ROWS = 2**20
MAX_GROUP_BYTES = 2**30
"""Of a row group, uncompressed; ours have 122,880 rows and some 60 MB."""

MAX_TABLE_ROWS = 2**24
MAX_TABLE_BYTES = 2**31
"""Of a table that is read whole, such as a list of episodes."""

SLACK_BYTES = 2**26
"""What a file may have next to its columns, uncompressed, and its footer: indexes, padding."""


def open_parquet(path: Place, **options: Any) -> pq.ParquetFile:
    """Open a file to read it by row groups; the checksums of its pages are verified.

    Args:
        path: the file.
        options: of pyarrow's ParquetFile.

    Raises:
        SageccError: it is no regular file, or claims more than is read at once.
        pa.ArrowException, OSError, UnicodeDecodeError: it cannot be read.
    """
    file = _open(path, **options)
    _begin_columns(path, file)
    _check(path, file)
    return file


def read_parquet(path: Place, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a file whole; the checksums of its pages are verified.

    Args:
        path: the file.
        columns: the columns to read; None for all.

    Raises:
        SageccError: it is no regular file, or claims more than is read at once.
        pa.ArrowException, OSError, UnicodeDecodeError: it cannot be read.
        KeyError: it lacks a column.
    """
    with open_parquet(path) as file:
        check_whole(path, file)
        names = file.schema_arrow.names
        if missing := [name for name in columns or () if name not in names]:
            raise KeyError(f"there is no column '{missing[0]}'")
        return file.read(columns=columns and list(columns))


def check_parquet(path: Place) -> None:
    """Check a file that another library is going to read whole; errors as those of `read_parquet`."""
    with open_parquet(path) as file:
        check_whole(path, file)


def check_whole(path: Place, file: pq.ParquetFile) -> None:
    """Raise SageccError where a file claims more than is read at once of a table."""
    meta = file.metadata
    size_bytes = sum(_group_bytes(meta.row_group(index)) for index in range(meta.num_row_groups))
    if meta.num_rows > MAX_TABLE_ROWS or size_bytes > MAX_TABLE_BYTES:
        raise SageccError(
            f"{path} claims {meta.num_rows:,} rows and {size_bytes:,} bytes; a table has {MAX_TABLE_ROWS:,} and"
            f" {MAX_TABLE_BYTES:,} at most"
        )


def parquet_schema(path: Place) -> pa.Schema:
    """Return a file's schema with its metadata; errors as those of `open_parquet`."""
    with _open(path) as file:
        return file.schema_arrow


def parquet_metadata(path: Place) -> dict[bytes, bytes]:
    """Return a file's own keys and values, whatever its writer put into the schema; errors as `open_parquet`."""
    with _open(path) as file:
        return dict(file.metadata.metadata or {})


def parquet_rows(path: Place) -> int:
    """Return the number of a file's rows, as it says; errors as those of `open_parquet`."""
    with _open(path) as file:
        return int(file.metadata.num_rows)


def _open(path: Place, **options: Any) -> pq.ParquetFile:
    size_bytes = path.size_bytes() if isinstance(path, Remote) else check_regular(path).st_size
    with path.open("rb") as file:
        file.seek(max(0, size_bytes - 8))
        ending = file.read(8)
    footer_bytes = int.from_bytes(ending[:4], "little")
    if ending[4:] == b"PAR1" and footer_bytes > FOOTER_BYTES:
        raise SageccError(f"{path} claims a footer of {footer_bytes:,} bytes; {FOOTER_BYTES:,} are the most")
    parquet = pq.ParquetFile(_source(path), page_checksum_verification=True, **options)
    meta = parquet.metadata
    described_bytes = sum(meta.row_group(index).total_byte_size for index in range(meta.num_row_groups))
    if size_bytes > described_bytes + footer_bytes + SLACK_BYTES:
        raise SageccError(f"{path} has {size_bytes:,} bytes, and describes {described_bytes:,}: it is no file of ours")
    return parquet


def _begin_columns(path: Place, file: pq.ParquetFile) -> None:
    """Begin to read every column of each row group, which raises where a footer contradicts itself.

    `RowGroupMetaData.column` ends the process there: it declares a C++ function as one that raises nothing.
    """
    for index in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(index)
        _check_group(path, group, group.total_byte_size)
        next(file.iter_batches(1, row_groups=[index], use_threads=False), None)


def _source(path: Place) -> str | BinaryIO:
    """Return what pyarrow opens: a path, if it is a file's and UTF-8."""
    if isinstance(path, Remote):
        return path.open()
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return path.open("rb")
    return str(path)


def _check(path: Place, file: pq.ParquetFile) -> None:
    for index in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(index)
        _check_group(path, group, _group_bytes(group))
        for column in _columns(group):
            may_be_bytes = group.num_rows * column.total_uncompressed_size
            if column.physical_type == "BYTE_ARRAY" and may_be_bytes > MAX_GROUP_BYTES:
                _check_texts(path, index, column.path_in_schema)


def _check_group(path: Place, group: Any, size_bytes: int) -> None:
    if not (0 <= group.num_rows <= MAX_GROUP_ROWS and size_bytes <= MAX_GROUP_BYTES):
        raise SageccError(
            f"{path} claims a row group of {group.num_rows:,} rows and {size_bytes:,} bytes; {MAX_GROUP_ROWS:,} and"
            f" {MAX_GROUP_BYTES:,} are the most that are read at once"
        )


def _check_texts(path: Place, group: int, name: str) -> None:
    """Raise SageccError where a column's texts are too long in all: one long text may be repeated a million times."""
    with pq.ParquetFile(_source(path), read_dictionary=[name]) as file:
        column = file.read_row_group(group, columns=[name])[0]
    size_bytes = 0
    for chunk in column.chunks:
        if not isinstance(chunk, pa.DictionaryArray):
            continue  # a list, or another kind that is not repeated
        lengths = pc.cast(pc.binary_length(chunk.dictionary), pa.int64())
        size_bytes += pc.sum(lengths.take(chunk.indices)).as_py() or 0
    if size_bytes > MAX_GROUP_BYTES:
        raise SageccError(f"{path} has {size_bytes:,} bytes of '{name}' in a row group; {MAX_GROUP_BYTES:,} are read")


def _columns(group: Any) -> list[Any]:
    return [group.column(index) for index in range(group.num_columns)]


def _group_bytes(group: Any) -> int:
    """Return the uncompressed size of a row group, as it or its columns claim, or as its numbers take it."""
    claims = (group.total_byte_size, sum(column.total_uncompressed_size for column in _columns(group)))
    return int(max(*claims, 8 * group.num_rows * group.num_columns))
