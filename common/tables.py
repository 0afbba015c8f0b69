# SPDX-License-Identifier: Apache-2.0
"""Checks of Parquet files before they are used."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

import pyarrow as pa

from sagecc.common.errors import SageccError

UNREADABLE = (pa.ArrowException, OSError, UnicodeDecodeError)
"""Exceptions that pyarrow raises over a file that it cannot read: `is_damage` tells which of them are the file's."""

_OF_THE_MACHINE = {"IOException", "OutOfMemoryException", "PermissionException"}
"""DuckDB's exceptions that prove nothing of a file."""


def is_damage(error: BaseException) -> bool:
    """Tell whether an error of pyarrow, polars or DuckDB proves that a file's bytes are wrong.

    Memory, rights, descriptors and disks do not: what lies in the file may be whole.
    """
    return not isinstance(error, MemoryError) and _errno(error) is None and type(error).__name__ not in _OF_THE_MACHINE


def reading_error(path: object, error: BaseException, remedy: str) -> SageccError:
    """Return the error to raise for a file that cannot be read.

    Args:
        path: the file, or what else the message is to name.
        error: what reading it raised.
        remedy: what to do about a damaged file; left out where no damage is proved.
    """
    if is_damage(error):
        return SageccError(f"{path} is damaged ({first_line(error)}): {remedy}")
    if isinstance(error, MemoryError):
        return SageccError(f"{path} cannot be read: out of memory")
    number = _errno(error)
    return SageccError(f"{path} cannot be read: {os.strerror(number) if number else first_line(error)}")


def _errno(error: BaseException) -> int | None:
    """Return the number of the system's error behind an exception; polars has it in the text alone."""
    if (number := getattr(error, "errno", None)) is not None:
        return int(number)
    match = re.search(r"\(os error (\d+)\)", str(error))
    return int(match[1]) if match else None


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type where it has none."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def column_fault(schema: pa.Schema, required: pa.Schema) -> str | None:
    """Return what is wrong with a table's columns, or None.

    Args:
        schema: the table's schema; columns that are not required are ignored.
        required: columns that it must have, each exactly once and of this type.
    """
    for column in required:
        count = schema.names.count(column.name)
        if count != 1:
            return f"has {count or 'no'} column{'s' if count else ''} '{column.name}'"
        if (kind := schema.field(column.name).type) != column.type:
            return f"column '{column.name}' holds {kind}, not {column.type}"
    return None


def select_columns(schema: pa.Schema, names: Iterable[str]) -> pa.Schema:
    """Return the part of a schema with the columns of these names, in this order."""
    return pa.schema([schema.field(name) for name in names])
