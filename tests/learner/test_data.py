# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from sagecc.common.errors import SageccError
from sagecc.learner.compiled import CompiledPool, compile_pool
from sagecc.learner.data import Prefetch, WindowSampler
from sagecc.learner.rows import RowWriter
from sagecc.learner.selection import Selection
from sagecc.policy.scaling import Scaling
from sagecc.schemas.partitions import partition
from tests.learner.conftest import PoolMaker, episode, write_part

AS_IS = Scaling("none", np.zeros(69, np.float32), np.ones(69, np.float32), 0.0)


def rows_of(pool: CompiledPool) -> np.ndarray:
    return np.fromfile(pool.rows_file, "<f4").reshape(-1, 71)


def replace_rows(pool: CompiledPool, rows: np.ndarray) -> None:
    with RowWriter(pool.folder) as file:
        file.write(rows)


def numbered(pool: CompiledPool) -> CompiledPool:
    """Write each row's episode and its place in there into the first two features."""
    rows = rows_of(pool)
    rows[:, 0] = np.repeat(np.arange(len(pool.lengths)), pool.lengths)
    rows[:, 1] = np.concatenate([np.arange(n) for n in pool.lengths])
    replace_rows(pool, rows)
    return pool


def batch(
    pool: CompiledPool, size: int, window: int, seed: int = 0, step: int = 0, scaling: Scaling = AS_IS, threads: int = 4
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    with WindowSampler(pool, scaling, size, window, seed, threads) as sampler:
        return sampler.batch(step)[:3]


@pytest.mark.parametrize("window", [2, 120, 121, 350])
def test_windows_never_cross_episodes(make_pool: PoolMaker, tmp_path: Path, window: int) -> None:
    compiled = numbered(compile_pool(make_pool(), tmp_path / "cache"))
    observation, action, reward = batch(compiled, 300, window)
    assert observation.shape == (window, 300, 69)
    assert action.shape == reward.shape == (window, 300)
    assert (observation[:, :, 0] == observation[0, :, 0]).all()
    assert (np.diff(observation[:, :, 1], axis=0) == 1).all()


def test_every_window_is_equally_likely(make_pool: PoolMaker, tmp_path: Path) -> None:
    """With 100 rows a window, episodes of 200, 120 and 350 rows have 101, 21 and 251 windows."""
    compiled = numbered(compile_pool(make_pool(), tmp_path / "cache"))
    drawn = batch(compiled, 20_000, 100)[0][0, :, 0]
    shares = np.bincount(drawn.astype(int)) / 20_000
    np.testing.assert_allclose(shares, np.tile([101, 21, 251], 2) / 746, atol=0.015)


def test_weights_and_selections_decide_what_is_drawn(make_pool: PoolMaker, tmp_path: Path) -> None:
    compiled = numbered(compile_pool(make_pool(), tmp_path / "cache"))
    weighted = compiled.select(Selection(scheme_weights={"vegas": 3}))
    drawn = batch(weighted, 20_000, 100)[0][0, :, 0]
    shares = np.bincount(drawn.astype(int)) / 20_000
    np.testing.assert_allclose(shares, np.array([101, 21, 251, 303, 63, 753]) / (373 * 4), atol=0.015)
    vegas = batch(compiled.select(Selection(schemes=("vegas",))), 2_000, 100)[0][:, :, 0]
    assert set(np.unique(vegas)) == {3, 4, 5}


def test_a_window_is_the_pools_rows(make_pool: PoolMaker, tmp_path: Path) -> None:
    compiled = numbered(compile_pool(make_pool(), tmp_path / "cache"))
    rows = rows_of(compiled)
    observation, action, reward = batch(compiled, 37, 20)
    first = compiled.starts[observation[0, :, 0].astype(int)] + observation[0, :, 1].astype(int)
    wanted = rows[np.arange(20)[:, None] + first]
    np.testing.assert_array_equal(observation, wanted[..., :69])
    np.testing.assert_array_equal(action, wanted[..., 69])
    np.testing.assert_array_equal(reward, wanted[..., 70])


def test_a_period_is_its_first_rows_observation_its_actions_product_and_its_rewards_mean(
    make_pool: PoolMaker, tmp_path: Path
) -> None:
    compiled = numbered(compile_pool(make_pool(), tmp_path / "cache"))
    rows = rows_of(compiled)
    rows[:, 69], rows[:, 70] = 0.25, np.arange(len(rows))
    rows[:200, 69] = -1  # the first episode's: five of them are clipped to -2
    replace_rows(compiled, rows)
    with WindowSampler(compiled, AS_IS, 50, 8, seed=0, period=5) as sampler:
        observation, action, reward, *_ = sampler.batch(0)
    episode, first = observation[0, :, 0].astype(int), observation[0, :, 1].astype(int)
    np.testing.assert_array_equal(observation[:, :, 1], first + 5 * np.arange(8)[:, None])
    np.testing.assert_array_equal(action, np.broadcast_to(np.where(episode == 0, -2.0, 1.25), (8, 50)))
    np.testing.assert_allclose(reward, compiled.starts[episode] + observation[:, :, 1] + 2)
    with pytest.raises(SageccError, match="355 rows"):
        WindowSampler(compiled, AS_IS, 50, 71, seed=0, period=5)


def test_some_windows_begin_with_their_episode(make_pool: PoolMaker, tmp_path: Path) -> None:
    compiled = numbered(compile_pool(make_pool(), tmp_path / "cache"))
    with WindowSampler(compiled, AS_IS, 20_000, 20, seed=0) as anywhere:
        episodes, firsts = anywhere.windows(0)
    with WindowSampler(compiled, AS_IS, 20_000, 20, seed=0, start_share=0.25) as sampler:
        same, moved = sampler.windows(0)
    np.testing.assert_array_equal(episodes, same)
    begins = moved == compiled.starts[same]
    assert abs(begins.mean() - 0.25) < 0.02
    np.testing.assert_array_equal(moved[~begins], firsts[~begins])


def test_a_windows_scheme_is_its_episodes(make_pool: PoolMaker, tmp_path: Path) -> None:
    """The pool's first three episodes are cubic's, the others vegas's."""
    compiled = numbered(compile_pool(make_pool(), tmp_path / "cache"))
    with WindowSampler(compiled, AS_IS, 50, 20, seed=0) as sampler:
        episode = sampler.batch(3)[0][0, :, 0]
        np.testing.assert_array_equal(sampler.schemes(3), np.where(episode < 3, "cubic", "vegas"))


def test_every_row_of_an_episode_can_be_drawn(make_pool: PoolMaker, tmp_path: Path) -> None:
    compiled = numbered(compile_pool(make_pool((12, 9)), tmp_path / "cache"))
    drawn = batch(compiled, 4_000, 9)[0]
    assert {(e, t) for e, t in drawn[0, :, :2].astype(int).tolist()} == {
        *((e, t) for e in (0, 2) for t in range(4)),
        (1, 0),
        (3, 0),
    }


@pytest.mark.parametrize("threads", [1, 3, 16])
def test_a_batch_depends_on_seed_and_step_alone(make_pool: PoolMaker, tmp_path: Path, threads: int) -> None:
    compiled = compile_pool(make_pool(), tmp_path / "cache")
    scaling = compiled.moments.scaling("symlog", 5.0)
    wanted = batch(compiled, 83, 10, seed=3, step=5, scaling=scaling)
    with WindowSampler(compiled, scaling, 83, 10, 3, threads) as sampler:
        sampler.batch(0)
        for one, other in zip(sampler.batch(5)[:3], wanted, strict=True):
            np.testing.assert_array_equal(one, other)
        with Prefetch(sampler.batch, range(4, 9), makers=3) as batches:
            batches.next()
            np.testing.assert_array_equal(batches.next()[0], wanted[0])
        assert not np.array_equal(sampler.batch(6)[0], wanted[0])
    assert not np.array_equal(batch(compiled, 83, 10, seed=4, step=5, scaling=scaling)[0], wanted[0])


def test_rows_lost_while_training_are_an_error(make_pool: PoolMaker, tmp_path: Path) -> None:
    compiled = compile_pool(make_pool(), tmp_path / "cache")
    with WindowSampler(compiled, AS_IS, 64, 50, seed=0) as sampler:
        sampler.batch(0)
        with compiled.rows_file.open("r+b") as file:
            file.truncate(100_000)
        with pytest.raises(SageccError, match=r"rows\.f32 was truncated: remove its folder"):
            sampler.batch(0)


def test_a_window_longer_than_every_episode(make_pool: PoolMaker, tmp_path: Path) -> None:
    compiled = compile_pool(make_pool(), tmp_path / "cache")
    with pytest.raises(SageccError, match=r"351 rows.*350"):
        WindowSampler(compiled, AS_IS, 8, 351, seed=0)
    with pytest.raises(SageccError, match=r"longest has 120"):
        WindowSampler(compile_pool(make_pool((120,), name="other"), tmp_path / "cache"), AS_IS, 8, 121, seed=0)


def test_prefetch_keeps_the_order_and_passes_errors_on() -> None:
    def make(step: int) -> tuple[np.ndarray, ...]:
        if step == 7:
            raise SageccError("disk gone")
        return (np.full(1, step, np.float32),)

    with Prefetch(make, range(3, 9)) as batches:
        assert [int(batches.next()[0][0]) for _ in range(4)] == [3, 4, 5, 6]
        with pytest.raises(SageccError, match="disk gone"):
            batches.next()


def test_prefetch_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    with Prefetch(lambda step: (np.zeros(1, np.float32),), range(10**9)) as batches:
        batches.next()
    assert threading.active_count() == before


def test_a_part_of_a_batch_is_those_windows_of_it(make_pool: PoolMaker, tmp_path: Path) -> None:
    compiled = compile_pool(make_pool(), tmp_path / "cache")
    with WindowSampler(compiled, AS_IS, 50, 20, seed=0) as sampler:
        whole = sampler.batch(3)
        for begin, end in ((0, 25), (25, 50), (7, 8)):
            for found, wanted in zip(sampler.batch(3, slice(begin, end)), whole, strict=True):
                np.testing.assert_array_equal(found, wanted[:, begin:end])


def test_sources_have_their_shares_however_few_and_bad_their_episodes_are(make_pool: PoolMaker, tmp_path: Path) -> None:
    """Of 373 windows of cubic with the best rewards, and of vegas with short episodes, own ones are drawn as told."""
    pool = make_pool()
    for number, lengths in enumerate(((130,), (110, 99))):  # the last has no window of 100 rows
        scheme = f"policy:mine@{number}"
        episodes = [episode(f"I-cubic-{i}.{scheme}.0", rows, 50 + i) for i, rows in enumerate(lengths)]
        write_part(pool / partition("I", scheme) / "part-000.parquet", episodes)
    compiled = numbered(compile_pool(pool, tmp_path / "cache"))
    shares = {"policy:mine@0": 0.1, "policy:mine@1": 0.3}
    selection = Selection(reward_weight=8, scheme_weights={"vegas": 3}, shares=shares)
    chosen = compiled.select(selection)
    drawn = batch(chosen, 40_000, 100)[0][0, :, 0].astype(int)
    of_scheme = chosen.trajectories.schemes[drawn]
    counts = {scheme: (of_scheme == scheme).mean() for scheme in np.unique(of_scheme)}
    assert counts["policy:mine@0"] == pytest.approx(0.1, abs=0.01)
    assert counts["policy:mine@1"] == pytest.approx(0.3, abs=0.01)
    assert counts["cubic"] + counts["vegas"] == pytest.approx(0.6, abs=0.01)
    assert counts["vegas"] > 2 * counts["cubic"]
    identities = {compiled.select(Selection(shares={"policy:mine@0": share})).identity for share in (0.1, 0.2)}
    assert len({*identities, compiled.identity}) == 3
    with pytest.raises(SageccError, match=r"policy:mine@0.* no episode as long"):
        batch(chosen, 10, 140)
