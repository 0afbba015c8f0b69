# SPDX-License-Identifier: Apache-2.0
"""`sagecc collect`: run schemes over environments and store their trajectories."""

from __future__ import annotations

from pathlib import Path

import click

from sagecc.collector.run.collect import collect
from sagecc.collector.run.engines import local
from sagecc.collector.run.grid import PROFILES, profile_environments
from sagecc.collector.run.ray_engine import on_ray
from sagecc.common.limits import usable_cores
from sagecc.engine import engine_options, ray_cluster
from sagecc.options import RAW, kernel_option, parse_schemes


@click.command()
@click.option("--profile", type=click.Choice(PROFILES), default="small", show_default=True, help="Which environments.")
@click.option("--schemes", default="all", show_default=True, help="Comma-separated; 'all' is the pool's 13.")
@click.option("--set", "only", type=click.Choice(["I", "II"]), help="Only this set (default: both).")
@click.option("--out", type=click.Path(path_type=Path), default=RAW, show_default=True)
@click.option("--jobs", type=click.IntRange(min=1), help="Episodes at a time on this machine (default: one per CPU).")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--prune", is_flag=True, help="Drop other episodes of the sets and schemes asked for.")
@engine_options
@kernel_option()
def command(
    profile: str,
    schemes: str,
    only: str | None,
    out: Path,
    jobs: int | None,
    seed: int,
    prune: bool,
    engine: str,
    ray_address: str | None,
    kernel: Path,
) -> None:
    """Collect raw trajectories: every scheme in every environment of the profile.

    Each episode is one real kernel in virtual time, sampled every 10 ms. What --out already holds (from a
    kernel of the same identity) is not run again, and a killed run goes on where it was. The files are the
    same bytes on every machine and with either engine.
    """
    cluster = ray_cluster(engine, ray_address, jobs)
    environments = [e for e in profile_environments(profile) if only in (None, e.set)]
    names = parse_schemes(schemes)
    episodes_engine = on_ray(cluster) if cluster else local(jobs or usable_cores())
    collect(environments, names, out, kernel, episodes_engine, seed, prune=prune)
    click.echo(f"{len(environments) * len(names)} episodes of {len(names)} schemes in {out}")
