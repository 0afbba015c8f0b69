# SPDX-License-Identifier: Apache-2.0
"""A run whose pool grows: rounds of training and playing, as `sagecc grow` does them by its own settings."""

from __future__ import annotations

from pathlib import Path

from evidence.training.runs import Run
from sagecc.collector.run.grid import profile_environments
from sagecc.execution.agent.exploration import Exploration
from sagecc.execution.lab.giving_up import GiveUp
from sagecc.growth.places import Places
from sagecc.growth.playing import play_round
from sagecc.growth.pooling import pool_round
from sagecc.growth.settings import Growth
from sagecc.growth.training import train_round
from sagecc.learner.train import Outcome


def grown_policy(run: Run, folder: Path) -> Path:
    """Return where `train_grown` leaves the policy of the last round."""
    assert run.grow
    return Places(folder).policy(run.grow.rounds)


def train_grown(run: Run, folder: Path, cache: Path, kernel: Path, jobs: int) -> Outcome:
    """Train a run's policy on a pool that grows by its own episodes; what is done already is not done again.

    Args:
        run: with `grow` and a pool.
        folder: of its rounds.
        cache: of the compiled pools.
        kernel: the lab's kernel.
        jobs: the most processes that play and derive.

    Returns:
        The last round's outcome; its policy lies at `grown_policy`.

    Raises:
        SageccError: a pool or a round is damaged, a training diverges, or an episode fails.
    """
    assert run.grow and run.pool
    growth, places = Growth(run.name, run.config, run.grow.steps, run.seed), Places(folder)
    environments = profile_environments(run.grow.profile)
    for number in range(run.grow.rounds):
        train_round(growth, places, number, run.pool, cache)
        play_round(growth, places, number, environments, kernel, Exploration(seed=run.seed), GiveUp(), jobs)
        pool_round(places, number, run.pool, jobs)
    return train_round(growth, places, run.grow.rounds, run.pool, cache)
