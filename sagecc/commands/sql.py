# SPDX-License-Identifier: Apache-2.0
"""`sagecc sql`: ask the pool."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
import duckdb

from sagecc.commands.pool import POOL
from schemas.errors import SageccError
from schemas.views import open_pool

TABLE_ROWS = 10_000
BATCH_ROWS = 10_000

Row = tuple[Any, ...]


@click.command()
@click.argument("query")
@click.option("--pool", type=click.Path(path_type=Path), default=POOL, show_default=True)
@click.option(
    "--format",
    "layout",
    type=click.Choice(["table", "csv", "json"]),
    default="table",
    show_default=True,
    help="json: one array of objects.",
)
def command(query: str, pool: Path, layout: str) -> None:
    """Ask the pool a question in SQL (DuckDB).

    Views: transitions (a row a tick), episodes, environments, schemes, and columns, which explains every
    column of transitions with its unit and formula. For example:

    \b
    sagecc sql "SELECT * FROM columns"
    sagecc sql "SELECT scheme, avg(reward_mean) FROM episodes GROUP BY ALL ORDER BY 2 DESC"
    sagecc sql "SELECT t_s, srtt, dr, action FROM transitions WHERE episode_id = '...'" --format csv
    """
    with open_pool(pool) as connection:
        names, batches = _ask(connection, query)
        if layout == "csv":
            _print_csv(names, batches)
        elif layout == "json":
            _print_json(names, batches)
        else:
            _print_table(names, batches)


def _ask(connection: duckdb.DuckDBPyConnection, query: str) -> tuple[list[str], Iterator[list[Row]]]:
    """Return the result's column names and its rows in batches."""
    with _one_line_errors():
        result = connection.execute(query)
        names = [column[0] for column in result.description or ()]

    def batches() -> Iterator[list[Row]]:
        while True:
            with _one_line_errors():
                rows = result.fetchmany(BATCH_ROWS)
            if not rows:
                return
            yield rows

    return names, batches()


@contextmanager
def _one_line_errors() -> Iterator[None]:
    try:
        yield
    except duckdb.InterruptException:
        raise KeyboardInterrupt from None
    except duckdb.Error as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip(" ^")]
        raise SageccError("; ".join(lines)) from error


def _print_csv(names: Sequence[str], batches: Iterator[list[Row]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for rows in batches:
        writer.writerows(rows)
        click.echo(text.getvalue(), nl=False)
        text.seek(0)
        text.truncate()
    click.echo(text.getvalue(), nl=False)


def _print_json(names: Sequence[str], batches: Iterator[list[Row]]) -> None:
    before = "["
    for rows in batches:
        for row in rows:
            values = {name: _json_value(value) for name, value in zip(names, row, strict=True)}
            click.echo(f"{before}\n  {json.dumps(values)}", nl=False)
            before = ","
    click.echo("[]" if before == "[" else "\n]")


def _json_value(value: Any) -> Any:
    """Return what JSON has for a DuckDB value; what is not a finite number becomes null."""
    if isinstance(value, Decimal):
        value = float(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        return [_json_value(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _json_value(item) for key, item in value.items()}
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _print_table(names: Sequence[str], batches: Iterator[list[Row]]) -> None:
    rows: list[Row] = []
    for batch in batches:
        rows += batch
        if len(rows) > TABLE_ROWS:
            break
    more = len(rows) > TABLE_ROWS
    del rows[TABLE_ROWS:]
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
        click.echo(f"(the first {TABLE_ROWS:,} rows; --format csv prints all)")
    else:
        click.echo(f"({len(rows):,} row{'s' if len(rows) != 1 else ''})")


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float | Decimal):
        return f"{value:.6g}"
    return " ".join(str(value).split())
