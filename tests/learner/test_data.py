# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import shutil
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from learner.data import Prefetch, WindowSampler, compile_pool, discounted_returns, identity, pool_files
from learner.scaling import Scaling
from schemas.errors import SageccError
from schemas.pool import FEATURE_NAMES
from tests.learner.conftest import PoolMaker, episode, write_part

AS_IS = Scaling("none", np.zeros(69, np.float32), np.ones(69, np.float32), 0.0)


def test_compiled_rows_are_the_pools(make_pool: PoolMaker, tmp_path: Path) -> None:
    pool = make_pool()
    compiled = compile_pool(pool, tmp_path / "cache")
    table = pa.concat_tables(pq.read_table(f.path, partitioning=None) for f in pool_files(pool))
    assert compiled.rows.shape == (1340, 71)
    assert compiled.lengths.tolist() == [200, 120, 350] * 2
    for i, name in enumerate(FEATURE_NAMES):
        np.testing.assert_array_equal(compiled.rows[:, i], table[name])
    np.testing.assert_allclose(compiled.rows[:, 69], np.log2(table["action"]), atol=1e-6)
    np.testing.assert_array_equal(compiled.rows[:, 70], table["reward"])
    features = np.concatenate([compiled.rows[:670:8, :69], compiled.rows[670::8, :69]]).astype(np.float64)
    np.testing.assert_allclose(compiled.moments.mean, features.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(compiled.moments.deviation, features.std(axis=0), atol=1e-6)


def test_a_wild_action_is_clipped(tmp_path: Path) -> None:
    table = episode("e", 50, 0)
    wild = table.set_column(
        table.schema.get_field_index("action"), table.schema.field("action"), pa.array([64.0] * 50, pa.float32())
    )
    write_part(tmp_path / "set=I" / "scheme=reno" / "part-000.parquet", [wild])
    assert (compile_pool(tmp_path, tmp_path / "cache").rows[:, 69] == 2).all()


def test_a_pool_is_compiled_once_wherever_it_lies(make_pool: PoolMaker, tmp_path: Path) -> None:
    pool = make_pool()
    compile_pool(pool, tmp_path / "cache")
    (rows,) = (tmp_path / "cache").glob("*/rows.f32")
    written = rows.stat().st_mtime_ns
    shutil.copytree(pool, tmp_path / "elsewhere")
    compile_pool(tmp_path / "elsewhere", tmp_path / "cache")
    assert [p.stat().st_mtime_ns for p in (tmp_path / "cache").glob("*/rows.f32")] == [written]
    assert identity(pool_files(make_pool((200, 121, 350), name="other"))) != identity(pool_files(pool))


def test_no_pool_and_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(SageccError, match=r"no pool at .*make it with 'sagecc pool'"):
        compile_pool(tmp_path, tmp_path / "cache")
    write_part(tmp_path / "set=I" / "scheme=reno" / "part-000.parquet", [episode("e", 5, 0).slice(0, 0)])
    with pytest.raises(SageccError, match="hold no rows"):
        compile_pool(tmp_path, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize(("version", "shown"), [("2.0", "2.0"), ("", r"\(none\)")])
def test_a_pool_of_another_version(make_pool: PoolMaker, tmp_path: Path, version: str, shown: str) -> None:
    with pytest.raises(SageccError, match=rf"part-000.parquet has pool schema version {shown}, this learner reads 1\."):
        compile_pool(make_pool(version=version), tmp_path / "cache")


def test_a_newer_minor_version_is_read(make_pool: PoolMaker, tmp_path: Path) -> None:
    assert len(compile_pool(make_pool(version="1.7"), tmp_path / "cache").rows) == 1340


@pytest.mark.parametrize("keep", [0, 3, 11, 0.5, 0.999])
def test_a_truncated_file_is_named(make_pool: PoolMaker, tmp_path: Path, keep: float) -> None:
    pool = make_pool()
    victim = pool / "set=I" / "scheme=vegas" / "part-000.parquet"
    data = victim.read_bytes()
    victim.write_bytes(data[: int(keep * len(data)) if isinstance(keep, float) else keep])
    with pytest.raises(SageccError, match=r"scheme=vegas/part-000\.parquet is truncated or corrupt"):
        compile_pool(pool, tmp_path / "cache")


def test_damage_inside_a_file_is_named_and_leaves_nothing(make_pool: PoolMaker, tmp_path: Path) -> None:
    pool = make_pool()
    victim = pool / "set=I" / "scheme=vegas" / "part-000.parquet"
    data = bytearray(victim.read_bytes())
    data[4:4000] = bytes(3996)
    victim.write_bytes(data)
    with pytest.raises(SageccError, match=r"scheme=vegas/part-000\.parquet is truncated or corrupt"):
        compile_pool(pool, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_file_without_a_column(make_pool: PoolMaker, tmp_path: Path) -> None:
    pool = make_pool()
    write_part(pool / "set=I" / "scheme=vegas" / "part-000.parquet", [episode("e", 9, 0).drop_columns(["dr_max"])])
    with pytest.raises(SageccError, match="lacks column 'dr_max' of type float"):
        compile_pool(pool, tmp_path / "cache")


def _with_value(column: str, value: float) -> pa.Table:
    table = episode("e", 40, 0)
    values = table[column].to_numpy().copy()
    values[7] = value
    return table.set_column(table.schema.get_field_index(column), table.schema.field(column), pa.array(values))


@pytest.mark.parametrize(("column", "value"), [("dr_ratio", np.inf), ("reward", np.nan), ("action", 0.0)])
def test_values_that_cannot_be_learned_from(tmp_path: Path, column: str, value: float) -> None:
    write_part(tmp_path / "set=I" / "scheme=reno" / "part-000.parquet", [_with_value(column, value)])
    with pytest.raises(SageccError, match=f"column '{column}' holds values that are not finite or"):
        compile_pool(tmp_path, tmp_path / "cache")


def test_half_an_episode_is_refused(tmp_path: Path) -> None:
    write_part(tmp_path / "set=I" / "scheme=reno" / "part-000.parquet", [episode("e", 40, 0).slice(0, 30)])
    with pytest.raises(SageccError, match="do not frame whole episodes"):
        compile_pool(tmp_path, tmp_path / "cache")


def test_a_damaged_cache_says_what_to_remove(make_pool: PoolMaker, tmp_path: Path) -> None:
    pool = make_pool()
    compile_pool(pool, tmp_path / "cache")
    (rows,) = (tmp_path / "cache").glob("*/rows.f32")
    rows.write_bytes(rows.read_bytes()[:-284])
    with pytest.raises(SageccError, match="does not fit its pool: remove it"):
        compile_pool(pool, tmp_path / "cache")


@given(arrays(np.float32, st.integers(1, 60), elements=st.floats(-25, 25, width=32)), st.floats(0, 0.99))
def test_returns_by_doubling_are_the_plain_recursion(rewards: np.ndarray, discount: float) -> None:
    wanted, following = np.zeros(len(rewards)), 0.0
    for t in reversed(range(len(rewards))):
        following = wanted[t] = float(rewards[t]) + discount * following
    np.testing.assert_allclose(discounted_returns(rewards, discount), wanted, atol=1e-6)


def test_value_range_holds_all_but_the_lowest_returns_and_a_constant_reward(
    make_pool: PoolMaker, tmp_path: Path
) -> None:
    compiled = compile_pool(make_pool(), tmp_path / "cache")
    rows = compiled.rows.copy()
    rows[0, 70] = -1000
    compiled = type(compiled)(rows, compiled.starts, compiled.lengths, compiled.moments, compiled.identity)
    low, high = compiled.value_range(0.95)
    assert low == pytest.approx(2)  # earned on the last row of several episodes; one return in 1340 is below
    assert high == pytest.approx(
        max(discounted_returns(r[:, 70], 0.95).max() for r in np.split(rows, compiled.starts[1:]))
    )
    constant = pc.multiply(episode("e", 30, 0)["reward"], pa.scalar(0, pa.float32()))
    table = episode("e", 30, 0)
    table = table.set_column(table.schema.get_field_index("reward"), table.schema.field("reward"), constant)
    write_part(tmp_path / "flat" / "set=I" / "scheme=reno" / "part-000.parquet", [table])
    assert compile_pool(tmp_path / "flat", tmp_path / "cache").value_range(0.95) == (-1, 1)


@pytest.mark.parametrize("window", [2, 120, 121, 350])
def test_windows_never_cross_episodes(make_pool: PoolMaker, tmp_path: Path, window: int) -> None:
    compiled = compile_pool(make_pool(), tmp_path / "cache")
    numbered = compiled.rows.copy()
    numbered[:, 0] = np.repeat(np.arange(6), compiled.lengths)
    numbered[:, 1] = np.concatenate([np.arange(n) for n in compiled.lengths])
    compiled = type(compiled)(numbered, compiled.starts, compiled.lengths, compiled.moments, compiled.identity)
    observation, action, reward = WindowSampler(compiled, AS_IS, 300, window, seed=0).batch(0)
    assert observation.shape == (window, 300, 69)
    assert action.shape == reward.shape == (window, 300)
    assert (observation[:, :, 0] == observation[0, :, 0]).all()
    assert (np.diff(observation[:, :, 1], axis=0) == 1).all()


def test_every_window_is_equally_likely(make_pool: PoolMaker, tmp_path: Path) -> None:
    """With 100 rows a window, episodes of 200, 120 and 350 rows have 101, 21 and 251 windows."""
    compiled = compile_pool(make_pool(), tmp_path / "cache")
    marked = compiled.rows.copy()
    marked[:, 0] = np.repeat(np.arange(6), compiled.lengths)
    compiled = type(compiled)(marked, compiled.starts, compiled.lengths, compiled.moments, compiled.identity)
    drawn = WindowSampler(compiled, AS_IS, 20_000, 100, seed=0).batch(0)[0][0, :, 0]
    shares = np.bincount(drawn.astype(int)) / 20_000
    np.testing.assert_allclose(shares, np.tile([101, 21, 251], 2) / 746, atol=0.015)


def test_a_batch_depends_on_seed_and_step_alone(make_pool: PoolMaker, tmp_path: Path) -> None:
    compiled = compile_pool(make_pool(), tmp_path / "cache")
    first, again = (WindowSampler(compiled, AS_IS, 8, 10, seed=3) for _ in range(2))
    first.batch(0)
    np.testing.assert_array_equal(first.batch(5)[0], again.batch(5)[0])
    assert not np.array_equal(first.batch(5)[0], first.batch(6)[0])
    assert not np.array_equal(first.batch(5)[0], WindowSampler(compiled, AS_IS, 8, 10, seed=4).batch(5)[0])


def test_a_window_longer_than_every_episode(make_pool: PoolMaker, tmp_path: Path) -> None:
    compiled = compile_pool(make_pool(), tmp_path / "cache")
    with pytest.raises(SageccError, match=r"window of 351 rows is longer than every episode .*longest has 350"):
        WindowSampler(compiled, AS_IS, 8, 351, seed=0)


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
