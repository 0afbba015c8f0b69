# SPDX-License-Identifier: Apache-2.0
"""`sagecc pool`: derive the pool from raw trajectories.

`sagecc pool check` verifies it; `sagecc pool export` writes it for other ecosystems' libraries.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import click

from sagecc.command import Command
from sagecc.common.limits import usable_cores
from sagecc.common.terminals import one_line
from sagecc.options import POOL, RAW, environments_option, quiet_option, refuse_both
from sagecc.paths import PATH
from sagecc.pool.checks import GRIDS, PoolReport, check_pool
from sagecc.pool.derivation import PoolOptions, build_pool
from sagecc.pool.features import Windows
from sagecc.schemas.pool import REWARD_ALIGNMENTS, WINDOW_NAMES
from sagecc.schemas.schemes import ANY_CODE
from sagecc.skipped import telling_skipped

EXIT_FOUND = 1
FORMS = ("minari", "rlds", "huggingface", "samples")


@click.group(invoke_without_command=True)
@click.option("--raw", type=PATH, default=RAW, show_default=True, help="Raw trajectories.")
@click.option("-o", "--out", type=PATH, default=POOL, show_default=True)
@click.option(
    "--windows",
    default=str(Windows()),
    show_default=True,
    help="Small, medium and large observation window in ticks of 10 ms. One number stands for all three; small,"
    " medium or large stands for that of the paper. Default: all of the paper's.",
)
@click.option(
    "--reward-alignment",
    type=click.Choice(REWARD_ALIGNMENTS),
    default=REWARD_ALIGNMENTS[0],
    show_default=True,
    help="Reward measured a tick after the action, or a tick earlier. Sage's public code has it earlier.",
)
@click.option(
    "--effective-windows",
    is_flag=False,
    flag_value="true",
    type=bool,
    default=False,
    show_default=True,
    help="Take min(cwnd, pacing rate x sRTT / MSS) for the window of schemes that pace (bbr, bbr2).",
)
@click.option("-j", "--jobs", type=click.IntRange(min=1), default=usable_cores, help="Partitions at a time.")
@quiet_option
@click.pass_context
def command(
    ctx: click.Context,
    raw: Path,
    out: Path,
    windows: str,
    reward_alignment: str,
    effective_windows: bool,
    jobs: int,
    quiet: bool,
) -> None:
    """Derive the pool: features, action and reward of every tick.

    \b
    sagecc pool
    sagecc pool --raw datasets/kicked/raw --out datasets/kicked/pool
    sagecc pool check

    Nothing is collected again: other windows or another reward take seconds to minutes. Partitions (one per set and
    scheme) that are up to date are left alone; those whose raw data is gone are removed.
    """
    if ctx.invoked_subcommand is not None:
        return
    options = PoolOptions(parse_windows(windows), reward_alignment, effective_windows)
    result = build_pool(raw, out, options, jobs, progress=not quiet)
    click.echo(
        f"{result.episodes} episodes, {result.rows:,} rows in {out}: {result.derived} partitions derived,"
        f" {result.unchanged} unchanged, {result.removed} removed"
    )
    if result.failed:
        name, reason = next(iter(result.failed.items()))
        click.echo(
            f"not in it: {len(result.failed)} episodes that failed in 'sagecc collect', such as {one_line(name)}:"
            f" {one_line(reason)}",
            err=True,
        )


def parse_windows(text: str) -> Windows:
    """Return the windows of `10,200,1000`, of `200` (all three), or of one of schemas.pool.WINDOW_NAMES."""
    return Windows(*WINDOW_NAMES[text]) if text in WINDOW_NAMES else Windows.parse(text)


@command.command()
@click.option("--pool", type=PATH, default=POOL, show_default=True)
@click.option(
    "--profile",
    type=click.Choice(GRIDS),
    help="The grid that every scheme must have been in. Default: the smallest profile with all"
    " environments of the pool; a scheme that is in a set must then have all of its environments.",
)
@environments_option(text="That grid, instead of a profile:")
@click.option("-j", "--jobs", type=click.IntRange(min=1), default=usable_cores, help="Partitions at a time.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: findings, files, bytes, episodes, rows.")
@quiet_option
@click.pass_context
def check(
    ctx: click.Context,
    pool: Path,
    profile: str | None,
    environments: str | None,
    jobs: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Check every byte, row and episode of a pool.

    \b
    sagecc pool check
    sagecc pool check --pool datasets/kicked/pool
    sagecc pool check --profile small

    Prints a line for each thing that is wrong. Exit status: 0 nothing is wrong, 1 something is, 2 there is no pool that
    could be checked.
    """
    began_s = time.monotonic()
    from sagecc.collector.run.set_file import chosen_set  # pydantic takes time to load

    refuse_both("profile", environments)
    grid = telling_skipped(chosen_set(profile, environments, ANY_CODE)) if profile or environments else None
    report = check_pool(pool, grid, jobs, progress=not quiet)
    if as_json:
        click.echo(json.dumps(_as_json(report), indent=1))
    for fault in () if as_json else report.faults:
        click.echo(pool / fault.path, nl=False)
        click.echo(f": {fault.reason}")
    extent = f"the grid of {report.grid.title}" if report.grid else "no profile's grid"
    click.echo(
        f"{len(report.faults) or 'no'} finding{'s' if len(report.faults) != 1 else ''}: {report.files} files,"
        f" {report.bytes / 1e6:,.1f} MB, {report.episodes:,} episodes, {report.rows:,} rows, {extent};"
        f" {time.monotonic() - began_s:.1f} s",
        err=True,
    )
    if report.faults:
        ctx.exit(EXIT_FOUND)


def _as_json(report: PoolReport) -> dict[str, object]:
    return {
        "findings": [{"path": str(fault.path), "reason": fault.reason} for fault in report.faults],
        "grid": report.grid.title if report.grid else None,
        "files": report.files,
        "bytes": report.bytes,
        "episodes": report.episodes,
        "rows": report.rows,
    }


@command.command(cls=Command, renamed={"--scheme": "--schemes"})
@click.argument("path", type=PATH)
@click.option("--to", "form", type=click.Choice(FORMS), required=True, help="The form it gets.")
@click.option("--pool", type=PATH, default=POOL, show_default=True)
@click.option("--set", "sets", default="", metavar="SETS", help="Only these sets: I, II or I,II.")
@click.option("--schemes", default="", metavar="SCHEMES", help="Only these schemes, such as vegas,cubic.")
@click.option("--limit", type=click.IntRange(min=1), help="At most this many episodes of each set and scheme.")
@click.option(
    "--action",
    type=click.Choice(["log2", "ratio"]),
    default="log2",
    show_default=True,
    help="An action is log2 of the ratio of two windows, as the lab's environment takes it; or the ratio itself.",
)
@quiet_option
def export(
    path: Path, form: str, pool: Path, sets: str, schemes: str, limit: int | None, action: str, quiet: bool
) -> None:
    """Write the pool, or a part of it, for another library.

    \b
    sagecc pool export minari-pool --to minari
    sagecc pool export part --to huggingface --set I --schemes vegas,cubic
    sagecc pool export some --to rlds --limit 10

    PATH is the new folder. minari: a Minari dataset. rlds: TFRecords for TensorFlow Datasets. huggingface: Parquet with
    a card. Each needs its library: pip install 'sagecc[minari]', 'sagecc[rlds]' or 'sagecc[huggingface]'. samples:
    Parquet in physical units. It reads the raw trajectories too.
    """
    from sagecc.pool.exports import export as run  # the libraries take seconds to load: not for --help

    result = run.export(path, form, pool, run.Choice(run.names(sets), run.names(schemes), limit), action, not quiet)
    click.echo(f"{result.episodes:,} episodes, {result.rows:,} rows in {path}; read it with {result.reading}")
