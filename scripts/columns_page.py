# SPDX-License-Identifier: Apache-2.0
"""Writes docs/reference/columns.md, the data dictionary, from schemas/: no row there is typed."""

from __future__ import annotations

from pathlib import Path

from sagecc.common.files import write_atomically
from sagecc.schemas.pool import POOL_VERSION, WINDOW_NAMES, dictionary

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "columns.md"

TABLES = {
    "transitions": "A row per tick of 10 ms: state, action, reward. In `set=.../scheme=.../part-*.parquet`; SQL adds"
    " the columns `set` and `scheme`.",
    "episodes": "A row per episode. In `episodes.parquet`.",
    "raw": "A row per tick as the kernel and the bottleneck counted it, from which the others are derived. In"
    " `datasets/raw`, not in the pool.",
}


def page() -> str:
    """Return the page."""
    parts = [
        "# Every column\n",
        "Written by `make columns` from `schemas/pool.py` and `schemas/raw.py`, which are the contract: the files'"
        " schemas and metadata, the view `columns` of [SQL](../guide/query.md) and the checks of `sagecc pool check`"
        f" come from there too. Pool version {POOL_VERSION}, observation windows of"
        f" {', '.join(map(str, WINDOW_NAMES['all']))} ticks.\n",
        "Table 1: the row of the paper's table. Bounds: what every value keeps; numbers are finite everywhere.\n",
    ]
    rows = dictionary().to_pylist()
    for table, about in TABLES.items():
        lines = [
            f"| `{row['name']}` | {row['dtype']} | {row['unit']} | {row['formula']} | {row['paper_index'] or ''} | "
            f"{_bounds(row['low'], row['high'])} |"
            for row in rows
            if row["table"] == table
        ]
        parts.append(f"## {table}\n\n{about}\n")
        parts.append(
            "\n".join(["| name | type | unit | meaning | Table 1 | bounds |", "|---|---|---|---|---:|---|", *lines])
        )
        parts.append("")
    return "\n".join(parts)


def _bounds(low: float | None, high: float | None) -> str:
    if low is None and high is None:
        return ""
    if high is None:
        return f"at least {low:g}"
    return f"at most {high:g}" if low is None else f"{low:g} to {high:g}"


if __name__ == "__main__":
    with write_atomically(PAGE) as beside:
        beside.write_text(page())
