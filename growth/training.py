# SPDX-License-Identifier: Apache-2.0
"""A round's training: on the pool as it has grown so far, from where the round before stopped."""

from __future__ import annotations

from pathlib import Path

from sagecc.common.errors import SageccError
from sagecc.growth.places import Places
from sagecc.growth.settings import Growth
from sagecc.learner.continuation import CHECKPOINT, Continuation, keep_state
from sagecc.learner.pool_source import PoolExperience
from sagecc.learner.train import Outcome, train


def train_round(
    growth: Growth, places: Places, number: int, first_pool: Path, cache: Path, checkpoint_s: float = 30.0
) -> Outcome:
    """Train a round's policy and keep the learner's state, or do nothing where both are there.

    Args:
        growth: what decides the growing pool.
        places: where it lies.
        number: the round.
        first_pool: folder of the pool that the first round trains on.
        cache: folder of the compiled pools.
        checkpoint_s: seconds between checkpoints.

    Returns:
        The training's result.

    Raises:
        SageccError: The round before is missing, the pool or a checkpoint is damaged, or the run diverges.
    """
    before = number - 1
    start = Continuation.load(places.policy(before), places.state(before)) if number else None
    specification, pool = growth.specification_of(number), places.pool_before(number, first_pool)
    experience = PoolExperience(specification, pool, cache, growth.seed, start)
    outcome = train(
        specification,
        experience,
        places.policy(number),
        places.logs(number),
        growth.seed,
        checkpoint_s=checkpoint_s,
    )
    if outcome is None:
        raise SageccError("growing trains in one process")
    state = places.state(number)
    if (places.logs(number) / CHECKPOINT).exists() or not state.exists():
        keep_state(places.logs(number), state)
    return outcome
