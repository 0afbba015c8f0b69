# SPDX-License-Identifier: Apache-2.0
"""A round's playing: its policy in the lab, in every network of a set, and its raw trajectories."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from sagecc.collector.run.collect import collect
from sagecc.execution.agent.exploration import Exploration
from sagecc.execution.lab.controllers import Playing, policy_controller, policy_drives
from sagecc.execution.lab.giving_up import GiveUp
from sagecc.execution.lab.lockstep import BATCH, lockstep
from sagecc.growth.places import Places
from sagecc.growth.settings import Growth
from sagecc.schemas.environment import Environment


def play_round(
    growth: Growth,
    places: Places,
    number: int,
    environments: Sequence[Environment],
    kernel: Path,
    exploration: Exploration | None = None,
    give_up: GiveUp | None = None,
    jobs: int = 1,
) -> None:
    """Let a round's policy play; episodes that it has played already stay.

    Args:
        growth: what decides the growing pool.
        places: where it lies.
        number: the round.
        environments: where the policy plays.
        kernel: the lab's kernel.
        exploration: how the policy draws its actions; None takes its mixture's mean.
        give_up: when an episode ends early, with what was played till then; None plays all to their end.
        jobs: the most processes.

    Raises:
        SageccError: There is no policy, or an episode failed; all others are kept.
    """
    scheme = growth.scheme(number)
    players = Playing(exploration, {scheme: str(places.policy(number))}, give_up, keep=True)
    competitors = {cross.scheme for environment in environments for cross in environment.cross}
    drives = policy_drives((scheme, *sorted(competitors)), playing=players)
    player = {
        "policy_sha256": drives[scheme].sha256,
        "exploration": exploration and asdict(exploration),
        "give_up": give_up and asdict(give_up),
    }
    collect(
        environments,
        [scheme],
        places.raw(number),
        kernel,
        lockstep(jobs, BATCH, players),
        growth.seed,
        controllers=policy_controller,
        prune=True,
        drives=drives,
        players={scheme: json.dumps(player, sort_keys=True)},
    )
