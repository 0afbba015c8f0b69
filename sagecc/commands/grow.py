# SPDX-License-Identifier: Apache-2.0
"""`sagecc grow`: rounds of training on a pool and playing into it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sagecc.command import Command
from sagecc.common.errors import SageccError
from sagecc.common.limits import usable_cores
from sagecc.common.locks import sole_writer
from sagecc.learner.specification import load
from sagecc.options import POOL, kernel_option, pool_cache_option
from sagecc.paths import PATH
from sagecc.sets import networks_options

if TYPE_CHECKING:
    from sagecc.execution.agent.exploration import Exploration
    from sagecc.execution.lab.giving_up import GiveUp
    from sagecc.growth.places import Places
    from sagecc.growth.settings import Growth
    from sagecc.schemas.environment_set import EnvironmentSet

STEPS = ("train", "play", "pool")


@click.command(cls=Command)
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True, help="How often the policy plays.")
@networks_options
@click.option(
    "-o",
    "--out",
    type=PATH,
    default=Path("runs/grown"),
    show_default=True,
    help="Folder of the rounds; what is there already of the same rounds is not done again.",
)
@click.option("--name", help="NAME in the episodes' schemes, policy:NAME@ROUND.  [default: --out's name]")
@click.option(
    "--config", "config_name", default="small", show_default=True, help="Of the training, as in 'sagecc train'."
)
@click.option("--pool", type=PATH, default=POOL, show_default=True, help="The first pool.")
@click.option("--steps", type=click.IntRange(min=1), help="Optimiser steps of the first round, in place of --config's.")
@click.option(
    "--round-steps", type=click.IntRange(min=1), help="Steps of every later round.  [default: as many as the first]"
)
@click.option(
    "--own-share",
    type=float,
    default=0.3,
    show_default=True,
    help="Share of the windows drawn that the policy's own episodes have; at most 0.8, the heuristics keep the rest.",
)
@click.option(
    "--decay", type=float, default=0.5, show_default=True, help="Share of a round over that of the round after it."
)
@click.option(
    "--sample/--mean", default=True, show_default=True, help="Play actions drawn from the mixture, or its mean."
)
@click.option(
    "--noise",
    type=float,
    default=0.0,
    show_default=True,
    help="Add normal noise of this deviation to each action played, in log2 of the window's ratio.",
)
@click.option(
    "--give-up/--to-the-end",
    default=True,
    show_default=True,
    help="End an episode with more than a fifth of its packets lost in 5 s; what was played is kept, for floods teach.",
)
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True)
@pool_cache_option("Compiled pools.")
@click.option(
    "--checkpoint-every", type=click.FloatRange(min=0), default=30.0, show_default=True, help="Seconds of work at risk."
)
@click.option("-j", "--jobs", type=click.IntRange(min=1), default=usable_cores, help="Processes that play and derive.")
@click.option("--only", type=click.Choice(STEPS), help="One step of one round, --round; the steps before are done.")
@click.option("--round", "only_round", type=click.IntRange(min=0), help="Which, for --only.")
@kernel_option()
def command(
    rounds: int,
    networks: EnvironmentSet,
    out: Path,
    name: str | None,
    config_name: str,
    pool: Path,
    steps: int | None,
    round_steps: int | None,
    own_share: float,
    decay: float,
    sample: bool,
    noise: float,
    give_up: bool,
    seed: int,
    cache: Path,
    checkpoint_every: float,
    jobs: int,
    only: str | None,
    only_round: int | None,
    kernel: Path,
) -> None:
    """Let the pool grow: train, play, add the episodes, train on.

    \b
    sagecc grow
    sagecc grow --rounds 2 --config tiny --profile smoke
    sagecc grow --out runs/mine --name mine --sample

    Round K's policy is trained on the pool with the episodes of all rounds before; the last one does not play. So
    --rounds 3 trains four times and leaves OUT/round-3/policy and OUT/round-2/pool. Killed, the same command resumes.
    """
    if (only is None) != (only_round is None):
        raise SageccError("--only and --round go together: one step of one round")
    # numpy and more take time to load: not for --help.
    from sagecc.execution.agent.exploration import Exploration
    from sagecc.execution.lab.giving_up import GiveUp
    from sagecc.growth.places import Places
    from sagecc.growth.settings import Growth

    specification = load(config_name, **({} if steps is None else {"steps": steps}))
    growth = Growth(
        name=name or out.name,
        specification=specification,
        round_steps=round_steps or specification.steps,
        seed=seed,
        own_share=own_share,
        decay=decay,
    )
    exploration = Exploration(sample, noise, seed) if sample or noise else None
    rule = GiveUp() if give_up else None
    places = Places(out)
    stages: dict[str, Callable[[int], str]] = {
        "train": lambda number: _train(growth, places, number, pool, cache, checkpoint_every),
        "play": lambda number: _play(growth, places, number, networks, kernel, exploration, rule, jobs),
        "pool": lambda number: _pool(places, number, pool, jobs),
    }
    every = [(number, step) for number in range(rounds) for step in STEPS] + [(rounds, "train")]
    todo = every if only is None or only_round is None else [(only_round, only)]
    with sole_writer(out):
        for number, step in todo:
            began_s = time.monotonic()
            did = stages[step](number)
            click.echo(f"round {number}  {step:<5}  {did} ({time.monotonic() - began_s:.0f} s)")
    if only is None:
        click.echo(f"policy   {places.policy(rounds)}\npool     {places.pool(rounds - 1)}")


def _train(growth: Growth, places: Places, number: int, pool: Path, cache: Path, checkpoint_s: float) -> str:
    from sagecc.growth.training import train_round

    outcome = train_round(growth, places, number, pool, cache, checkpoint_s)
    steps = growth.specification_of(number).steps
    loss = outcome.metrics.get("critic_loss", math.nan)
    return f"{outcome.trained_steps} steps, {steps} in all; critic loss {loss:.3g}"


def _play(
    growth: Growth,
    places: Places,
    number: int,
    networks: EnvironmentSet,
    kernel: Path,
    exploration: Exploration | None,
    give_up: GiveUp | None,
    jobs: int,
) -> str:
    from sagecc.growth.playing import play_round

    play_round(growth, places, number, networks.environments, kernel, exploration, give_up, jobs)
    return f"{len(networks.environments)} episodes as {growth.scheme(number)}"


def _pool(places: Places, number: int, pool: Path, jobs: int) -> str:
    from sagecc.growth.pooling import pool_round

    grown = pool_round(places, number, pool, jobs)
    before = "" if grown.reward_before is None else f", the pool's there so far {grown.reward_before:.2f}"
    facts = f"{grown.episodes} episodes, {grown.rows:,} rows, {grown.loss:.1%} of packets lost"
    return f"{facts}; median reward {grown.reward:.2f}{before}"
