# SPDX-License-Identifier: Apache-2.0
"""`sagecc league`: score schemes over environments and rank them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from sagecc.command import Command
from sagecc.common.limits import usable_cores
from sagecc.common.locks import sole_writer
from sagecc.common.remote import Place
from sagecc.common.shipped import A_POLICY
from sagecc.execution.lab.giving_up import GiveUp
from sagecc.leagues import table
from sagecc.leagues.league import LEAGUE_MARK, PlayOptions, Rules, lab_runner, play, save, summary
from sagecc.leagues.presets import PRESETS, preset_schemes
from sagecc.leagues.standings import FriendlyMargin
from sagecc.options import (
    kernel_option,
    league_folder,
    league_option,
    parse_schemes,
    policy_options,
    raw_folder,
    raw_option,
)
from sagecc.places import PLACE, raw_copy
from sagecc.playing import batch_option
from sagecc.schemas.environment_set import EnvironmentSet
from sagecc.schemas.schemes import POLICY_PREFIX
from sagecc.sets import networks_options, repeats_options


@click.command(cls=Command)
@networks_options
@repeats_options
@click.option("--schemes", help="Comma-separated; 'all' is the pool's 13, and the default.")
@click.option(
    "--preset",
    type=click.Choice(list(PRESETS)),
    help="A league of the paper, to which --schemes and --policy add. "
    + "; ".join(f"{name}: {preset.about}" for name, preset in PRESETS.items())
    + ".",
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="PATH",
    help=f"Plays too (repeatable): {A_POLICY}.",
)
@raw_option("--raw", "Trajectories of the heuristics.", PLACE)
@league_option("--out", "Folder of the league.")
@click.option("--alpha", type=float, default=2.0, show_default=True, help="Weight of throughput in S_p = r^alpha / d.")
@click.option("--margin", type=float, default=0.1, show_default=True, help="A winner is at most this much worse.")
@click.option(
    "--friendly-margin",
    type=click.Choice(["score", "rate"]),
    default="rate",
    show_default=True,
    help="Margin in Set II: on the distance from the fair share, or the rate (docs/method/leagues.md).",
)
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(min=1),
    default=usable_cores,
    help="Processes that run policies' episodes (default: one per CPU).",
)
@batch_option
@policy_options
@click.option(
    "--give-up",
    is_flag=True,
    help=f"End an episode of a policy that floods, and count it as lost. It floods with {GiveUp()}.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Which episodes to score.")
@click.option("--allow-missing", is_flag=True, help="A heuristic without an episode loses there, instead of an error.")
@click.option(
    "--report/--no-report", "with_report", default=True, show_default=True, help="Leave pictures and report.html too."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print what league.json holds, but for hashes, as one JSON object."
)
@kernel_option()
def command(
    networks: EnvironmentSet,
    schemes: str | None,
    preset: str | None,
    policies: tuple[str, ...],
    raw: Place | None,
    out: Path | None,
    alpha: float,
    margin: float,
    friendly_margin: FriendlyMargin,
    jobs: int,
    batch: int,
    decision_latency: float,
    sample: bool,
    give_up: bool,
    seed: int,
    allow_missing: bool,
    with_report: bool,
    as_json: bool,
    kernel: Path,
) -> None:
    """Rank schemes by winning rates over many networks.

    \b
    sagecc league --schemes vegas,cubic --policy models/mine
    sagecc league --policy sagecc-10 --environments cellular
    sagecc league --profile heldout --policy sagecc-10 --repeats 3

    The heuristics' trajectories are those that 'sagecc collect' left in --raw. Policies run in the lab now, in the same
    networks on the same kernel; what was run before with the same policy is kept. Tables go to --out, and so do
    pictures and report.html.
    """
    rules = Rules(alpha, margin, friendly_margin)
    policy_schemes = tuple(f"{POLICY_PREFIX}{policy.rstrip('/')}" for policy in policies)
    others = parse_schemes(schemes or ("" if preset else "all"))
    if preset:
        all_policies = [name for name in (*others, *policy_schemes) if name.startswith(POLICY_PREFIX)]
        others = (*preset_schemes(preset, all_policies), *others)
    names = dict.fromkeys((*others, *policy_schemes))
    out = out or league_folder(networks.own_name)
    LEAGUE_MARK.check(out)
    trajectories = raw_copy(raw or raw_folder(networks.own_name), names)
    options = PlayOptions(decision_latency, sample, GiveUp() if give_up else None)
    runner = lab_runner(kernel, jobs, seed, batch, options, networks.seeds(seed))
    with sole_writer(out):
        league = play(
            networks,
            tuple(names),
            trajectories,
            out,
            runner,
            rules=rules,
            seed=seed,
            allow_missing=allow_missing,
            options=options,
        )
        save(league, out)
        told = summary(league)
        click.echo(json.dumps(told, indent=1) if as_json else table.text(told))
        if with_report:
            # A league is its tables: what draws is imported only where a report is wanted.
            from sagecc.leagues.report.files import write_beside
            from sagecc.leagues.report.made import Made

            click.echo(f"report: {write_beside(out, trajectories, Made.by(sys.argv[1:]))}", err=as_json)
