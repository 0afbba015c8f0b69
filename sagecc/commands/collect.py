# SPDX-License-Identifier: Apache-2.0
"""`sagecc collect`: run schemes over environments and store their trajectories."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from sagecc.collector.run.collect import EpisodesFailedError, collect, drawn
from sagecc.collector.run.engines import local
from sagecc.collector.run.ray_engine import on_ray
from sagecc.collector.run.task import Task
from sagecc.command import Command
from sagecc.common.errors import SageccError
from sagecc.common.limits import usable_cores
from sagecc.common.terminals import one_line
from sagecc.engine import engine_options, ray_cluster
from sagecc.options import SHARE, kernel_option, parse_schemes, quiet_option, raw_folder, raw_option
from sagecc.schemas.disturbance import Disturbance, Kicks
from sagecc.schemas.environment_set import EnvironmentSet
from sagecc.schemas.partitions import FAILURES
from sagecc.schemas.schemes import check_scheme, is_driven
from sagecc.sets import networks_options, repeats_options

SHOWN_FAILURES = 20
"""The most failed episodes that are named one by one."""

_KICKS = ":".join(f"{number:g}" for number in (Kicks().every, *Kicks().by))


@click.command(cls=Command)
@networks_options
@repeats_options
@click.option("--schemes", default="all", show_default=True, help="Comma-separated; 'all' is the pool's 13.")
@click.option(
    "--share",
    type=SHARE,
    default=1.0,
    help="Share of each set's networks that a scheme plays in, such as 25%; each scheme in others. Default: all.",
)
@click.option("--set", "only", type=click.Choice(["I", "II"]), help="Only this set of the profile (default: both).")
@raw_option("--out", "Folder of the trajectories.")
@click.option(
    "-j", "--jobs", type=click.IntRange(min=1), help="Episodes at a time on this machine (default: one per CPU)."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--kicks",
    is_flag=False,
    flag_value="",
    metavar="[EVERY:FACTOR:...]",
    help="Multiply the window now and then, and let each scheme recover. Mean interval (s) and factors; by "
    f"default {_KICKS}. The trajectories are those of SCHEME+kicks.",
)
@click.option("--jitter", is_flag=False, flag_value="", metavar="[MS]", help="Jitter of the links; by default 1 ms.")
@click.option("--starts", is_flag=False, flag_value="", metavar="[S]", help="Start up to so much later; default 5 s.")
@click.option("--prune", is_flag=True, help="Drop other episodes of the sets and schemes asked for.")
@click.option(
    "--skip-failed",
    is_flag=True,
    help="Go on without episodes that fail, instead of ending with exit status 2. Either way they are named, the others"
    " are kept, and the same command tries them again.",
)
@click.option("-n", "--dry-run", is_flag=True, help="Say how many episodes these are and how long they take; run none.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: schemes, networks, episodes, failures.")
@quiet_option
@engine_options
@kernel_option()
def command(
    networks: EnvironmentSet,
    schemes: str,
    share: float,
    only: str | None,
    out: Path | None,
    jobs: int | None,
    seed: int,
    kicks: str | None,
    jitter: str | None,
    starts: str | None,
    prune: bool,
    skip_failed: bool,
    dry_run: bool,
    as_json: bool,
    quiet: bool,
    engine: str,
    ray_address: str | None,
    kernel: Path,
) -> None:
    """Collect raw trajectories of schemes in many networks.

    \b
    sagecc collect --schemes vegas,cubic
    sagecc collect --environments cellular --schemes all --jobs 4
    sagecc collect --schemes vegas,cubic --kicks --out datasets/kicked/raw

    Each episode is one real kernel in virtual time, sampled every 10 ms. Episodes that --out holds, from a kernel of
    the same identity, are not run again, and a killed run resumes. The files are the same bytes on every machine and
    with either engine.
    """
    cluster = ray_cluster(engine, ray_address, jobs)
    if only and networks.own_name:
        raise SageccError("--set goes with --profile: leave it out")
    environments = [e for e in networks.environments if only in (None, e.set)]
    rivalries = [e for e in environments if any(is_driven(cross.scheme) for cross in e.cross)]
    if 0 < len(rivalries) < len(environments):
        environments = [e for e in environments if e not in rivalries]
        click.echo(
            f"left out: {len(rivalries)} networks beside what the host drives, in which 'sagecc league' lets all play",
            err=as_json,
        )
    out = out or raw_folder(networks.own_name)
    names = _disturbed(schemes, {"kicks": kicks, "jitter": jitter, "starts": starts})
    if not names:
        raise SageccError("--schemes names none: there is nothing to collect")
    if not 0 < share <= 1:
        raise SageccError("--share is more than 0 % and at most 100 %")
    episodes = [(environment, name) for name in names for environment in drawn(environments, name, share)]
    count = len(episodes)
    about = {"out": str(out), "schemes": names, "networks": len(environments), "episodes": count}
    if dry_run:
        cost_s = sum(Task(environment, scheme, 0, identity="").cost for environment, scheme in episodes)
        told = json.dumps({**about, "cpu_s": cost_s}, indent=1)
        extent = f"{count} episodes, {len(names)} schemes in {len(environments)} networks"
        click.echo(told if as_json else f"{extent}: about {cost_s / 60:.1f} CPU minutes")
        return
    episodes_engine = on_ray(cluster) if cluster else local(jobs or usable_cores())
    user_space: Mapping[str, Any] = {}
    if any(map(is_driven, names)):
        from sagecc.user_space import players  # what runs policies takes as long to load as all the rest

        user_space = vars(players(names))
    seeds = networks.seeds(seed)
    failures: Mapping[str, str] = {}
    try:
        collect(
            environments,
            names,
            out,
            kernel,
            episodes_engine,
            seed,
            share=share,
            progress=not quiet,
            prune=prune,
            seeds=seeds,
            **user_space,
        )
    except EpisodesFailedError as error:
        failures = error.failures
        _name_each(failures, out)
        if not skip_failed:
            raise SageccError(
                f"{len(failures)} of {count} episodes failed, all others are in {out}: mend what is named above, or go"
                " on without them with --skip-failed"
            ) from None
    if as_json:
        click.echo(json.dumps({**about, "failures": dict(failures)}, indent=1))
        return
    remark = f"; skipped {len(failures)} that failed" if failures else ""
    click.echo(f"{count - len(failures)} episodes of {len(names)} schemes in {out}{remark}")


def _disturbed(schemes: str, numbers: Mapping[str, str | None]) -> tuple[str, ...]:
    """Return the schemes of a list as they are disturbed: by what has numbers, "" for the usual ones."""
    parts = (":".join(filter(None, (name, text))) for name, text in numbers.items() if text is not None)
    suffix = Disturbance.parse(*parts).suffix
    return tuple(check_scheme(name + suffix) for name in parse_schemes(schemes))


def _name_each(failures: Mapping[str, str], out: Path) -> None:
    """Name episodes that failed on standard error, each with the reason."""
    for name, reason in list(failures.items())[:SHOWN_FAILURES]:
        click.echo(f"failed: {one_line(name)}: {one_line(reason.removeprefix(f'episode {name}: '))}", err=True)
    if len(failures) > SHOWN_FAILURES:
        click.echo(f"failed: {len(failures) - SHOWN_FAILURES} more; {out / FAILURES} name them all", err=True)
