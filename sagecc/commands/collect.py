# SPDX-License-Identifier: Apache-2.0
"""`sagecc collect`: run schemes over environments and keep what they saw and did."""

from __future__ import annotations

import os
from pathlib import Path

import click

from collector.collect import collect
from collector.grid import PROFILES, profile_environments
from sagecc.options import RAW, kernel_option, parse_schemes


@click.command()
@click.option("--profile", type=click.Choice(PROFILES), default="small", show_default=True, help="Which environments.")
@click.option("--schemes", default="all", show_default=True, help="Comma-separated; 'all' is the pool's 13.")
@click.option("--set", "only", type=click.Choice(["I", "II"]), help="Only this set (default: both).")
@click.option("--out", type=click.Path(path_type=Path), default=RAW, show_default=True)
@click.option("--jobs", type=click.IntRange(min=1), default=os.cpu_count(), help="Episodes at a time.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--prune", is_flag=True, help="Drop episodes in --out that this call did not ask for.")
@kernel_option()
def command(
    profile: str, schemes: str, only: str | None, out: Path, jobs: int, seed: int, prune: bool, kernel: Path
) -> None:
    """Collect raw trajectories: every scheme in every environment of the profile.

    Each episode is one real kernel in virtual time, sampled every 10 ms. What --out already holds (from
    the same kernel) is not run again, and a killed run goes on where it was. The files are the same
    bytes on every machine.
    """
    environments = [e for e in profile_environments(profile) if only in (None, e.set)]
    names = parse_schemes(schemes)
    collect(environments, names, out, kernel, jobs, seed, prune=prune)
    click.echo(f"{len(environments) * len(names)} episodes of {len(names)} schemes in {out}")
