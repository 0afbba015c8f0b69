# SPDX-License-Identifier: Apache-2.0
# Not followed as an import: a table that is refused ends a run, and changes none.
"""Checks of Parquet files before they are used."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

UNREADABLE = (pa.ArrowException, OSError, UnicodeDecodeError)
"""Exceptions that pyarrow raises over a damaged file."""


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
