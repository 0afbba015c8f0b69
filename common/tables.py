# SPDX-License-Identifier: Apache-2.0
# Not followed as an import: a table that is refused ends a run, and changes none.
"""Parquet files held against what they must be, before anything is made of them."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

UNREADABLE = (pa.ArrowException, OSError, UnicodeDecodeError)
"""What pyarrow raises over a damaged file."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or its kind where it has none."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def column_fault(found: pa.Schema, wanted: pa.Schema) -> str | None:
    """Return why `found` has not each column of `wanted` once and of its type; None where it has. More is no fault."""
    for column in wanted:
        count = found.names.count(column.name)
        if count != 1:
            return f"has {count or 'no'} column{'s' if count else ''} '{column.name}'"
        if (kind := found.field(column.name).type) != column.type:
            return f"column '{column.name}' holds {kind}, not {column.type}"
    return None


def chosen(schema: pa.Schema, names: Iterable[str]) -> pa.Schema:
    """Return a schema's columns of these names."""
    return pa.schema([schema.field(name) for name in names])
