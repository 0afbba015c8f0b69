# SPDX-License-Identifier: Apache-2.0
"""Writes measured numbers into the prose of docs/ and README.md: none of those is typed.

docs/figures.yaml gives each number a name, a query of DuckDB over files in Git, and how its columns are written. In a
page it stands between `<!-- = name -->` and `<!-- / -->`, which no reader sees.

The queries' views are benchmarks/results/NAME.json or studies/results/NAME.json as NAME, the fields of its result as
columns, and studies/training/full-grid.json as full_grid.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import duckdb
import yaml

import studies
from benchmarks.machine import RESULTS
from sagecc.common.errors import SageccError
from sagecc.common.files import write_atomically
from studies.training.render import GRID

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "docs" / "figures.yaml"
NUMBER = re.compile(r"<!-- = (?P<name>[\w-]+) -->(?P<text>.*?)<!-- / -->", re.DOTALL)


def pages() -> list[Path]:
    """Return the pages that may hold numbers."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def names(page: str) -> set[str]:
    """Return the names of a page's numbers."""
    return {found["name"] for found in NUMBER.finditer(page)}


@cache
def figures() -> Mapping[str, str]:
    """Return every number of docs/figures.yaml as it is written.

    Raises SageccError, naming the number, where its query does not yield just one row.
    """
    listed = yaml.safe_load(LIST.read_text())
    with duckdb.connect() as connection:
        for path in (*RESULTS.glob("*.json"), *studies.RESULTS.glob("*.json")):
            connection.execute(f"CREATE VIEW \"{path.stem}\" AS SELECT unnest(result) FROM read_json('{path}')")
        connection.execute(f"CREATE VIEW full_grid AS FROM read_json('{GRID}')")
        return {name: _written(connection, name, **entry) for name, entry in listed.items()}


def _written(connection: duckdb.DuckDBPyConnection, name: str, query: str, text: str = "{}") -> str:
    try:
        rows = connection.execute(query).fetchall()
    except duckdb.Error as error:
        raise SageccError(f"{LIST.name}: {name}: {error}") from None
    if len(rows) != 1 or None in rows[0]:
        raise SageccError(f"{LIST.name}: {name}: its query must yield one row without NULL, not {rows}")
    return text.format(*rows[0])


def fill(page: str) -> str:
    """Return the page with its numbers as they are now; raises SageccError for a name that is not listed."""

    def now(found: re.Match[str]) -> str:
        if found["name"] not in figures():
            raise SageccError(f"no figure '{found['name']}' in {LIST.name}")
        return f"<!-- = {found['name']} -->{figures()[found['name']]}<!-- / -->"

    return NUMBER.sub(now, page)


if __name__ == "__main__":
    for path in pages():
        text = path.read_text()
        if (filled := fill(text)) != text:
            with write_atomically(path) as beside:
                beside.write_text(filled)
