# SPDX-License-Identifier: Apache-2.0
"""A round's episodes into the pool: derived with the pool's own options, then joined with all that it had."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median

from sagecc.common.manifest import Manifest
from sagecc.common.parquet import read_parquet
from sagecc.growth.places import Places
from sagecc.pool.derivation import PoolOptions, build_pool
from sagecc.pool.joining import join_pools
from sagecc.schemas.partitions import EPISODES_FILE

_TOLD = ("environment_id", "sent_packets", "lost_packets", "reward_mean")


@dataclass(frozen=True)
class Grown:
    """What a round left in the pool."""

    episodes: int
    """The round's own."""
    rows: int
    """Rows of these."""
    loss: float
    """Share of their packets that were lost."""
    reward: float
    """Median of their mean rewards."""
    reward_before: float | None
    """Median of the mean rewards of all that the pool had before in the same networks; None where it had nothing."""


def pool_round(places: Places, number: int, first_pool: Path, jobs: int = 1) -> Grown:
    """Derive a round's episodes and join them with the pool that the round was trained on.

    Args:
        places: where the growing pool lies.
        number: the round.
        first_pool: folder of the pool that the first round trains on.
        jobs: partitions derived at a time.

    Raises:
        SageccError: Raw trajectories or the pool are missing or damaged.
    """
    before = places.pool_before(number, first_pool)
    options = PoolOptions.of(Manifest.read(before).about)
    result = build_pool(places.raw(number), places.derived(number), options, jobs)
    join_pools([before, places.derived(number)], places.pool(number))
    own, others = (
        read_parquet(pool / EPISODES_FILE, list(_TOLD)).to_pylist() for pool in (places.derived(number), before)
    )
    networks = {row["environment_id"] for row in own}
    rewards = [row["reward_mean"] for row in others if row["environment_id"] in networks]
    sent, lost = (sum(row[name] for row in own) for name in ("sent_packets", "lost_packets"))
    return Grown(
        episodes=result.episodes,
        rows=result.rows,
        loss=lost / max(sent, 1),
        reward=median(row["reward_mean"] for row in own),
        reward_before=median(rewards) if rewards else None,
    )
