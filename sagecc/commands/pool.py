# SPDX-License-Identifier: Apache-2.0
"""`sagecc pool`: from raw trajectories to what a learner and an analyst read."""

from __future__ import annotations

import os
from pathlib import Path

import click

from collector.features import Windows
from collector.pool import PoolOptions, build_pool
from sagecc.options import RAW
from schemas.pool import REWARD_ALIGNMENTS

POOL = Path("datasets/pool")


@click.command()
@click.option("--raw", type=click.Path(path_type=Path), default=RAW, show_default=True, help="What was collected.")
@click.option("--out", type=click.Path(path_type=Path), default=POOL, show_default=True)
@click.option(
    "--windows",
    default=str(Windows()),
    show_default=True,
    help="Small, medium and large observation window in ticks of 10 ms; one number stands for all three.",
)
@click.option(
    "--reward-alignment",
    type=click.Choice(REWARD_ALIGNMENTS),
    default=REWARD_ALIGNMENTS[0],
    show_default=True,
    help="A row's reward: measured a tick after its action, or a tick earlier as Sage's public code has it.",
)
@click.option("--jobs", type=click.IntRange(min=1), default=os.cpu_count(), help="Partitions at a time.")
def command(raw: Path, out: Path, windows: str, reward_alignment: str, jobs: int) -> None:
    """Derive the pool: 69 features, action and reward for every tick of the raw trajectories.

    Nothing is collected again: other windows or another reward take seconds to minutes. Partitions (a
    set and a scheme each) that are up to date are left alone; those whose raw data is gone are removed.
    """
    result = build_pool(raw, out, PoolOptions(Windows.parse(windows), reward_alignment), jobs)
    click.echo(
        f"{result.episodes} episodes, {result.rows:,} rows in {out}: {result.derived} partitions derived,"
        f" {result.unchanged} unchanged, {result.removed} removed"
    )
