# SPDX-License-Identifier: Apache-2.0
"""Recorded trajectories as decisions: the same as training has of the same rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sagecc.common.errors import SageccError
from sagecc.learner.compiled import CompiledPool, compile_pool
from sagecc.learner.data import WindowSampler
from sagecc.learner.judging.decisions import decisions
from sagecc.policy.scaling import Scaling
from tests.learner.conftest import PoolMaker

AS_IS = Scaling("none", np.zeros(69, np.float32), np.ones(69, np.float32), 0.0)
TICK_MS = 10.0


def compiled(make_pool: PoolMaker, tmp_path: Path) -> CompiledPool:
    pool = compile_pool(make_pool(), tmp_path / "cache")
    return replace(pool, kicks=np.array([3, 203, 204]))


@pytest.mark.parametrize("period", [1, 5])
def test_decisions_are_what_training_sees(make_pool: PoolMaker, tmp_path: Path, period: int) -> None:
    pool = compiled(make_pool, tmp_path)
    read = decisions(pool, period, TICK_MS, seed=0)
    assert read.lengths.tolist() == (pool.lengths // period).tolist()
    assert read.period_ms == 10 * period and read.sets == ("I",) * 6
    starting = WindowSampler(pool, AS_IS, 200, 100 // period, 0, period=period, start_share=1.0)
    with starting as sampler:
        episodes, _ = sampler.windows(0)
        batch = sampler.batch(0)
    assert set(episodes.tolist()) == set(range(6))
    for i, episode in enumerate(episodes.tolist()):
        window = slice(int(read.starts[episode]), int(read.starts[episode]) + 100 // period)
        np.testing.assert_array_equal(read.features[window], batch.observations[:, i])
        np.testing.assert_allclose(read.actions[window], batch.actions[:, i], atol=1e-6)
        np.testing.assert_allclose(read.rewards[window], batch.rewards[:, i], rtol=1e-6)
        np.testing.assert_array_equal(read.labels[window], batch.labels[:, i] == 1)
    for row in pool.kicks:
        of = int(np.searchsorted(pool.starts, row, "right")) - 1
        assert not read.labels[read.starts[of] + (row - pool.starts[of]) // period]
    assert (~read.labels).sum() == (3 if period == 1 else 2)
    assert np.flatnonzero(read.last()).tolist() == (read.starts + read.lengths - 1).tolist()


def test_of_a_large_pool_each_environment_has_as_many_trajectories(make_pool: PoolMaker, tmp_path: Path) -> None:
    pool = compile_pool(make_pool(lengths=(50, 50, 50, 50)), tmp_path / "cache")
    ids = np.array([f"net-{i // 5}.{scheme}.{i}" for i, scheme in enumerate(pool.trajectories.schemes)])
    pool = replace(pool, trajectories=replace(pool.trajectories, ids=ids))  # five of one, three of the other
    for most, counts in ((100, [1, 1]), (249, [2, 2]), (350, [4, 3]), (400, [5, 3])):
        drawn = [decisions(pool, 1, TICK_MS, seed, most=most) for seed in range(5)]
        assert [np.bincount(read.environments).tolist() for read in drawn] == [counts] * 5
    one, again, other = (decisions(pool, 1, TICK_MS, seed, most=100).features for seed in (3, 3, 4))
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()
    assert len(decisions(pool, 1, TICK_MS, 0, most=1).lengths) == 1


def test_another_reward_counts(make_pool: PoolMaker, tmp_path: Path) -> None:
    pool = compiled(make_pool, tmp_path)
    other = np.arange(pool.rows, dtype=np.float32)
    read = decisions(replace(pool, rewards=other), 5, TICK_MS, seed=0)
    assert read.rewards[:2].tolist() == [2, 7] and read.rewards[read.starts[1]] == 202


def test_trajectories_that_are_too_short(make_pool: PoolMaker, tmp_path: Path) -> None:
    pool = compile_pool(make_pool(lengths=(15, 30)), tmp_path / "cache")
    assert decisions(pool, 10, TICK_MS, 0).lengths.tolist() == [3, 3]
    with pytest.raises(SageccError, match="no trajectory to judge on is as long as two decisions, 400 ms"):
        decisions(pool, 20, TICK_MS, 0)
