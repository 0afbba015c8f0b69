# SPDX-License-Identifier: Apache-2.0
"""`sagecc sql`: query the pool."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from sagecc.answers import ALLOW, LAYOUTS, Asked, run_query
from sagecc.common.remote import Place, Remote
from sagecc.options import LEAGUE, POOL
from sagecc.places import PLACE
from sagecc.pool.views import LEAGUE_VIEW, RAW_VIEW, SAMPLES_VIEW, VIEWS, has_league, has_pool, has_raw, open_pool
from sagecc.shell import Shell


@click.command()
@click.argument("query", required=False)
@click.option("--shell", is_flag=True, help="Ask one question after another; .help says what else it takes.")
@click.option("--pool", type=PLACE, help=f"[default: {POOL}]")
@click.option(
    "--raw",
    type=PLACE,
    help="Raw trajectories, for the views raw and samples.  [default: raw next to the pool]",
)
@click.option(
    "--league",
    type=PLACE,
    help=f"Results of a league, for the view league.  [default: {LEAGUE}]",
)
@click.option(
    "--table",
    "given",
    multiple=True,
    metavar="NAME=FILE",
    help="One more view, of a file: Parquet, CSV, JSON or lines of JSON (repeatable). With one, no pool is needed.",
)
@click.option(
    "--format",
    "layout",
    type=click.Choice(list(LAYOUTS)),
    default="table",
    show_default=True,
    help="json: one array of objects.",
)
@click.option(
    ALLOW,
    "free",
    is_flag=True,
    help="Let the question read and write any file that you may, load extensions and change DuckDB's settings. Without "
    "it, it reads the views' files alone. For questions that you wrote or have read.",
)
def command(
    query: str | None,
    shell: bool,
    pool: Place | None,
    raw: Place | None,
    league: Place | None,
    given: tuple[str, ...],
    layout: str,
    free: bool,
) -> None:
    """Ask the pool a question in SQL (DuckDB).

    \b
    sagecc sql "SELECT * FROM columns"
    sagecc sql "SELECT scheme, avg(reward_mean) FROM episodes GROUP BY ALL ORDER BY 2 DESC"
    sagecc sql "SELECT t_s, srtt, dr, action FROM episode('...')" --format csv
    sagecc sql < question.sql
    sagecc sql --shell

    Views are transitions (one row per tick), samples (the same in physical units), episodes, environments, schemes,
    rounds (of a grown pool), raw and league. columns explains every column. episode('...') finds one episode fast,
    rewards('NAME') has another reward of each row (docs/guide/query.md). Without a QUERY, or with -, it is read from
    standard input.
    """
    if query is None and not shell and not sys.stdin.isatty():
        query = "-"
    if (query is None) != shell:
        raise click.UsageError("give either a QUERY, or - for one on standard input, or --shell")
    if query == "-":
        query = sys.stdin.read()
    missing_views: dict[str, str] = {}
    tables = dict(map(_table, given))
    if pool is None:
        pool = POOL
        if tables and not has_pool(pool):
            missing_views |= dict.fromkeys(VIEWS, f"{pool} holds no pool; make it with 'sagecc pool'")
            pool = None
    if raw is None:
        raw = (pool or POOL).parent / "raw"
        if isinstance(raw, Remote) or not has_raw(raw):  # in a store, who may read the pool may not read beside it
            missing = f"no raw trajectories are read from {raw}; say where they are with --raw"
            missing_views |= dict.fromkeys((RAW_VIEW, SAMPLES_VIEW), missing)
            raw = None
    if league is None:
        league = LEAGUE
        if not has_league(league):
            missing_views[LEAGUE_VIEW] = (
                f"{league} holds no league; play one with 'sagecc league', or name another with --league"
            )
            league = None
    with open_pool(pool, raw, league, confined=not free, tables=tables) as connection:
        asked = Asked(connection, missing_views, confined=not free)
        if query is None:
            Shell(asked, layout).run()
        else:
            LAYOUTS[layout](*run_query(asked, query))


def _table(given: str) -> tuple[str, Path]:
    name, equals, path = given.partition("=")
    if not equals or not path:
        raise click.UsageError(f"--table {given}: write NAME=FILE")
    return name, Path(path)
