# SPDX-License-Identifier: Apache-2.0
"""Results of SQL queries as tables, CSV or JSON."""

from __future__ import annotations

import csv
import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise
from typing import Any, TypeVar

import click
import duckdb

from sagecc.common.errors import SageccError
from sagecc.common.paths import spelled_out
from sagecc.common.terminals import one_line

ALLOW = "--allow-files-and-extensions"
"""The option that leaves a question free."""

TABLE_ROWS = 10_000
"""The most that a table shows."""
BATCH_ROWS = 10_000

Row = tuple[Any, ...]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Asked:
    """What questions are put to."""

    connection: duckdb.DuckDBPyConnection
    """To the pool."""
    missing_views: Mapping[str, str] = field(default_factory=dict)
    """Views that the connection does not have, each with what to do about it."""
    confined: bool = False
    """Whether a question may read the views' files alone (pool.views.confine)."""


def run_query(asked: Asked, query: str) -> tuple[list[str], Iterator[list[Row]]]:
    """Run a query.

    Args:
        asked: what the question is put to.
        query: SQL.

    Returns:
        The last statement's column names, and its rows in batches.

    Raises:
        SageccError: DuckDB refuses, or the question is confined and would write files; the message is one line.
    """
    connection = asked.connection
    with one_line_errors(asked):
        text = query.encode()
        if asked.confined:
            _refuse_copying(query, text)
        result: duckdb.DuckDBPyConnection | None = _interruptible(connection, lambda: connection.execute(query))
    if result is None:
        raise SageccError("the question is empty")
    names = [column[0] for column in result.description or ()]

    def batches() -> Iterator[list[Row]]:
        while True:
            with one_line_errors(asked):
                rows = _interruptible(connection, lambda: result.fetchmany(BATCH_ROWS))
            if not rows:
                return
            yield rows

    return names, batches()


def _refuse_copying(query: str, text: bytes) -> None:
    """Raise SageccError where a statement, or one within it (of EXPLAIN, PREPARE, WITH), copies to or from files.

    Args:
        query: SQL.
        text: the same in UTF-8: DuckDB counts bytes.
    """
    for (start, kind), (end, _) in pairwise([*duckdb.tokenize(query), (len(text), None)]):
        if kind not in _NO_CODE and (word := _COPYING.search(text[start:end])):
            raise SageccError(f"{word[0].decode().upper()} reads or writes files: {_HOW}")


_NO_CODE = (duckdb.token_type.string_const, duckdb.token_type.comment)
_COPYING = re.compile(rb"(?<![0-9a-z_])(?:copy|export|import)(?![0-9a-z_])", re.IGNORECASE)
_HOW = f"{ALLOW} allows that, for a question that you wrote or have read"


def _interruptible(connection: duckdb.DuckDBPyConnection, work: Callable[[], Result]) -> Result:
    """Run `work` in a thread and end it when this one is interrupted: DuckDB by itself does not always see a Ctrl-C."""
    with ThreadPoolExecutor(1) as worker:
        future = worker.submit(work)
        try:
            return future.result()
        except BaseException:
            if not future.done():
                connection.interrupt()
            raise


@contextmanager
def one_line_errors(asked: Asked) -> Iterator[None]:
    """Turn DuckDB's errors into a SageccError of one line.

    Args:
        asked: what the question is put to.
    """
    try:
        yield
    except UnicodeEncodeError as error:
        raise SageccError("the question is no UTF-8") from error
    except duckdb.Error as error:
        text = spelled_out(str(error)).rpartition("executing the UDF: SageccError: ")[2]
        for view, advice in asked.missing_views.items():
            if isinstance(error, duckdb.CatalogException) and f"name {view} does not exist" in text:
                raise SageccError(f"there is no view '{view}': {advice}") from error
        lines = [line.strip() for line in text.splitlines() if line.strip(" ^")]
        if type(error) is duckdb.Error:  # in a Parquet file's own structures: DuckDB does not name the file
            lines = [f"a file is damaged ({'; '.join(lines)})", "'sagecc pool check' says which"]
        if isinstance(error, duckdb.BinderException) and _OLD_STEP.search(text):
            lines = [*lines[:1], "the step of a link's rate is capacity_step in episodes and environments"]
        if asked.confined and _REFUSAL.search(text):
            lines = [*lines[:1], _HOW]
        raise SageccError("; ".join(lines)) from error


_OLD_STEP = re.compile(r'column "step" not found|not have a column named "step"')
"""In DuckDB's errors about the name that the view's column had before."""

_REFUSAL = re.compile(
    r"disabled (?:by|through) configuration|configuration has been locked|secrets are disabled|\bextension\b"
    r"|Table with name \S*[./]\S* does not exist"  # a file's name as a table's
)
"""In DuckDB's errors about what a confined question may not do."""


def print_csv(names: Sequence[str], batches: Iterator[list[Row]]) -> None:
    """Print a header and all rows."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    for rows in batches:
        writer.writerows(rows)
    click.echo(nl=False)  # whoever reads a pipe may be gone: before the program's end


def print_json(names: Sequence[str], batches: Iterator[list[Row]]) -> None:
    """Print one array of objects."""
    separator = "["
    for rows in batches:
        for row in rows:
            values = {name: _json_value(value) for name, value in zip(names, row, strict=True)}
            click.echo(f"{separator}\n  {json.dumps(values)}", nl=False)
            separator = ","
    click.echo("[]" if separator == "[" else "\n]")


def _json_value(value: Any) -> Any:
    """Return a DuckDB value as JSON takes it; a number that is not finite becomes null."""
    if isinstance(value, Decimal):
        value = float(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        return [_json_value(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _json_value(item) for key, item in value.items()}
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def print_table(
    names: Sequence[str],
    batches: Iterator[list[Row]],
    limit: int = TABLE_ROWS,
    how_to_see_all: str = "--format csv prints all",
) -> None:
    """Print an aligned table and the number of its rows; a plan of EXPLAIN is printed as it is.

    Args:
        names: of the columns.
        batches: the rows.
        limit: the most rows that are printed.
        how_to_see_all: printed where there are more.
    """
    if list(names) == ["explain_key", "explain_value"]:
        for batch in batches:
            click.echo("\n".join(str(row[1]) for row in batch), nl=False)
        return
    rows: list[Row] = []
    for batch in batches:
        rows += batch
        if len(rows) > limit:
            break
    more = len(rows) > limit
    del rows[limit:]
    cells = [[_text(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    numbers = [all(isinstance(row[index], int | float | Decimal | None) for row in rows) for index in range(len(names))]

    def line(values: Sequence[str]) -> str:
        padded = [
            value.rjust(width) if number else value.ljust(width)
            for value, width, number in zip(values, widths, numbers, strict=True)
        ]
        return "  ".join(padded).rstrip()

    click.echo(line(names))
    click.echo("  ".join("-" * width for width in widths))
    for row in cells:
        click.echo(line(row))
    if more:
        click.echo(f"(the first {limit:,} rows; {how_to_see_all})")
    else:
        click.echo(f"({len(rows):,} row{'s' if len(rows) != 1 else ''})")


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float | Decimal):
        return f"{value:.6g}"
    return one_line(str(value))


Print = Callable[[Sequence[str], Iterator[list[Row]]], None]

LAYOUTS: Mapping[str, Print] = {"table": print_table, "csv": print_csv, "json": print_json}
