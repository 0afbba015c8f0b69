# SPDX-License-Identifier: Apache-2.0
"""A pool that is learned from with another reward than its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from sagecc.common.errors import SageccError
from sagecc.common.manifest import MANIFEST
from sagecc.learner.compiled import compile_pool
from sagecc.learner.data import WindowSampler
from sagecc.learner.pool_source import PoolExperience
from sagecc.learner.relabelled import with_reward
from sagecc.learner.selection import Selection
from sagecc.learner.specification import load
from sagecc.policy.scaling import Scaling
from sagecc.pool.derivation import build_pool
from sagecc.pool.reward import graded
from sagecc.pool.views import open_pool
from tests.helpers.raw_episodes import write_partition

AS_IS = Scaling("none", np.zeros(69, np.float32), np.ones(69, np.float32), 0.0)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_partition(folder / "raw", "I", "cubic", rows=(300, 200, 220))
    write_partition(folder / "raw", "II", "vegas", rows=(250,))
    build_pool(folder / "raw", folder / "pool", progress=False)
    return folder / "pool"


@pytest.mark.parametrize("name", ["friendliness", "graded", "fair", "pool-log"])
def test_windows_have_the_reward_that_sql_has(pool: Path, tmp_path: Path, name: str) -> None:
    compiled = with_reward(compile_pool(pool, tmp_path), pool, name)
    with open_pool(pool) as connection:
        query = f"SELECT reward FROM rewards('{name}') ORDER BY \"set\", scheme, episode_id, step"
        expected = np.array(connection.execute(query).fetchall(), np.float32)[:, 0]
    with WindowSampler(compiled, AS_IS, 50, 30, 0) as sampler:
        first = sampler.first_rows(3)
        rewards = sampler.batch(3).rewards
    np.testing.assert_array_equal(rewards, expected[first + np.arange(30)[:, None]])
    assert compiled.value_range(0.9)[1] == pytest.approx(highest_return(expected, compiled.starts, 0.9), rel=1e-5)


def test_an_episode_may_go_on_in_the_next_file_of_its_partition(pool: Path, tmp_path: Path) -> None:
    whole = with_reward(compile_pool(pool, tmp_path), pool, "graded")
    cut = shutil.copytree(pool, tmp_path / "cut")
    (cut / MANIFEST).unlink()
    first = cut / "set=I/scheme=cubic/part-000.parquet"
    rows = pq.read_table(first)
    for number, piece in enumerate((rows.slice(0, 350), rows.slice(350, 100), rows.slice(450))):
        pq.write_table(piece, first.with_name(f"part-{number:03}.parquet"))
    again = with_reward(compile_pool(cut, tmp_path), cut, "graded")
    assert list(again.lengths) == list(whole.lengths)
    np.testing.assert_array_equal(again.rewards, whole.rewards)


def highest_return(rewards: np.ndarray, starts: np.ndarray, discount: float) -> float:
    """Return the highest discounted return, worked out one step after another."""
    highest = -np.inf
    for episode in np.split(rewards.astype(np.float64), starts[1:]):
        value = 0.0
        for reward in episode[::-1]:
            value = reward + discount * value
            highest = max(highest, value)
    return float(highest)


def test_the_pools_own_reward_leaves_a_pool_as_it_is(pool: Path, tmp_path: Path) -> None:
    compiled = compile_pool(pool, tmp_path)
    assert with_reward(compiled, pool, "pool") is compiled
    with pytest.raises(SageccError, match="there is no reward 'kindness': it must be one of power, "):
        with_reward(compiled, pool, "kindness")


def test_another_reward_is_another_pool_and_its_best_are_chosen_by_it(pool: Path, tmp_path: Path) -> None:
    compiled = compile_pool(pool, tmp_path)
    other = with_reward(compiled, pool, "graded")
    assert len({compiled.identity, other.identity, with_reward(compiled, pool, "fair").identity}) == 3
    assert other.identity == with_reward(compiled, pool, "pool-log").identity
    stored = np.fromfile(compiled.folder / "rewards.f32", "<f4")
    means = [graded(part).mean() for part in np.split(stored, compiled.starts[1:])]
    np.testing.assert_allclose(other.trajectories.mean_rewards, means, rtol=1e-5)
    assert (
        other.select(Selection(schemes=("vegas",))).identity != compiled.select(Selection(schemes=("vegas",))).identity
    )


def test_a_training_names_its_reward(pool: Path, tmp_path: Path) -> None:
    own, other = load("tiny"), load("tiny", data={"reward": "graded"})
    compiled = compile_pool(pool, tmp_path)
    for specification, expected in ((own, compiled), (other, with_reward(compiled, pool, "graded"))):
        chosen = expected.select(Selection() if specification.data is None else specification.data.selection)
        assert PoolExperience(specification, pool, tmp_path, 0).identity() == [chosen.identity]
    with pytest.raises(SageccError, match="there is no reward 'orca': it must be one of power, "):
        PoolExperience(load("tiny", data={"reward": "orca"}), pool, tmp_path, 0)


def test_a_pool_that_changed_meanwhile_is_refused(pool: Path, tmp_path: Path) -> None:
    compiled = compile_pool(pool, tmp_path)
    write_partition(tmp_path / "raw", "I", "cubic", rows=(300, 200))
    build_pool(tmp_path / "raw", tmp_path / "other", progress=False)
    with pytest.raises(SageccError, match="changed while its rewards were computed: start again"):
        with_reward(compiled, tmp_path / "other", "graded")
