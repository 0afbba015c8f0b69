# SPDX-License-Identifier: Apache-2.0
"""`sagecc compile`: from the pool to one file for random reading."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import click

from sagecc.common.files import write_atomically
from sagecc.common.remote import Place
from sagecc.learner.compiled import compile_pool
from sagecc.learner.rows import ROW_BYTES
from sagecc.options import pool_cache_option
from sagecc.paths import PATH
from sagecc.places import PLACE, pool_copy


@click.command()
@click.option("--pool", type=PLACE, default="datasets/pool", show_default=True)
@pool_cache_option("Where the compiled pool lies, in a folder named after the pool's contents; safe to delete.")
@click.option("--summary", type=PATH, help="Write what the pool holds there, as JSON.")
def command(pool: Place, cache: Path, summary: Path | None) -> None:
    """Compile the pool into one file for random reading.

    \b
    sagecc compile
    sagecc compile --pool datasets/kicked/pool
    sagecc compile --summary compiled.json

    Training does it where it was not done. As a step of its own it runs once for many runs, without a GPU.
    A pool that is compiled already is not compiled again.
    """
    table = compile_pool(pool_copy(pool, cache), cache)
    t = table.trajectories
    sets: dict[str, dict[str, dict[str, int]]] = defaultdict(dict)
    for set_name, scheme, rows in zip(t.sets.tolist(), t.schemes.tolist(), table.lengths.tolist(), strict=True):
        counts = sets[set_name].setdefault(scheme, {"episodes": 0, "rows": 0})
        counts["episodes"] += 1
        counts["rows"] += rows
    if summary:
        summary.parent.mkdir(parents=True, exist_ok=True)
        content = {"pool": table.identity, "rows": table.rows, "episodes": len(table.starts), "sets": sets}
        with write_atomically(summary) as temporary:
            temporary.write_text(json.dumps(content, indent=1) + "\n")
    click.echo(f"{table.folder}: {len(table.starts):,} episodes, {table.rows:,} rows")
    click.echo(f"{table.rows * ROW_BYTES / 1e9:.2f} GB; sets {', '.join(sets)}; {len(set(t.schemes.tolist()))} schemes")
