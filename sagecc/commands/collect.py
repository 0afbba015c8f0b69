# SPDX-License-Identifier: Apache-2.0
"""`sagecc collect`: run schemes over environments and store their trajectories."""

from __future__ import annotations

from pathlib import Path

import click

from sagecc.collector.run.collect import collect
from sagecc.collector.run.engines import local
from sagecc.collector.run.ray_engine import on_ray
from sagecc.collector.run.sets import EnvironmentSet
from sagecc.common.errors import SageccError
from sagecc.common.limits import usable_cores
from sagecc.options import kernel_option, networks_options, parse_schemes, raw_folder, raw_option


@click.command()
@networks_options
@click.option("--schemes", default="all", show_default=True, help="Comma-separated; 'all' is the pool's 13.")
@click.option("--set", "only", type=click.Choice(["I", "II"]), help="Only this set of the profile (default: both).")
@raw_option("--out", "Folder of the trajectories.")
@click.option("--jobs", type=click.IntRange(min=1), help="Episodes at a time on this machine (default: one per CPU).")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--prune", is_flag=True, help="Drop other episodes of the sets and schemes asked for.")
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="Where episodes run: on this machine, or on a Ray cluster.",
)
@click.option("--ray-address", help="The cluster's head, HOST:PORT (default: the one that runs on this machine).")
@kernel_option()
def command(
    networks: EnvironmentSet,
    schemes: str,
    only: str | None,
    out: Path | None,
    jobs: int | None,
    seed: int,
    prune: bool,
    engine: str,
    ray_address: str | None,
    kernel: Path,
) -> None:
    """Collect raw trajectories: every scheme in every environment of a profile or set.

    Each episode is one real kernel in virtual time, sampled every 10 ms. What --out already holds (from a
    kernel of the same identity) is not run again, and a killed run goes on where it was. The files are the
    same bytes on every machine and with either engine.
    """
    if engine == "local" and ray_address:
        raise SageccError("--ray-address goes with --engine ray")
    if engine == "ray" and jobs:
        raise SageccError("--jobs goes with --engine local: a Ray cluster runs as many episodes as it has CPUs")
    if only and networks.own_name:
        raise SageccError("--set goes with --profile: leave it out")
    environments = [e for e in networks.environments if only in (None, e.set)]
    out = out or raw_folder(networks.own_name)
    names = parse_schemes(schemes)
    episodes_engine = on_ray(ray_address or "auto") if engine == "ray" else local(jobs or usable_cores())
    collect(environments, names, out, kernel, episodes_engine, seed, prune=prune)
    click.echo(f"{len(environments) * len(names)} episodes of {len(names)} schemes in {out}")
