# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sagecc.common import versions
from sagecc.common.errors import SageccError
from sagecc.learner import compiled as module
from sagecc.learner.compiled import CompiledPool, compile_pool, discounted_returns, identity, pool_files
from sagecc.learner.rows import RowFile
from sagecc.learner.selection import Selection
from sagecc.schemas.pool import FEATURE_NAMES
from tests.learner.conftest import PoolMaker, episode, write_part

pytestmark = pytest.mark.heavy


def rows_of(pool: CompiledPool) -> np.ndarray:
    return np.fromfile(pool.rows_file, "<f4").reshape(-1, 71)


def left_in(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if not path.name.startswith(".lock-"))


def test_compiled_rows_are_the_pools(make_pool: PoolMaker, tmp_path: Path) -> None:
    pool = make_pool()
    compiled = compile_pool(pool, tmp_path / "cache")
    table = pa.concat_tables(pq.read_table(f.path, partitioning=None) for f in pool_files(pool))
    rows = rows_of(compiled)
    assert rows.shape == (1340, 71)
    assert compiled.rows == 1340
    assert compiled.lengths.tolist() == [200, 120, 350] * 2
    for i, name in enumerate(FEATURE_NAMES):
        np.testing.assert_array_equal(rows[:, i], table[name])
    np.testing.assert_allclose(rows[:, 69], np.log2(table["action"]), atol=1e-6)
    np.testing.assert_array_equal(rows[:, 70], table["reward"])
    np.testing.assert_array_equal(np.fromfile(compiled.folder / "rewards.f32", "<f4"), table["reward"])
    assert compiled.trajectories.ids.tolist() == [f"I-{s}-{i}" for s in ("cubic", "vegas") for i in range(3)]
    assert compiled.trajectories.schemes.tolist() == ["cubic"] * 3 + ["vegas"] * 3
    assert set(compiled.trajectories.sets) == {"I"}
    means = [part[:, 70].mean() for part in np.split(rows, compiled.starts[1:])]
    np.testing.assert_allclose(compiled.trajectories.mean_rewards, means, rtol=1e-6)
    every_eighth(compiled, rows)


def every_eighth(compiled: CompiledPool, rows: np.ndarray) -> None:
    """The moments are those of every eighth row of each episode."""
    parts = [rows[a : a + n : 8, :69] for a, n in zip(compiled.starts, compiled.lengths, strict=True)]
    features = np.concatenate(parts).astype(np.float64)
    np.testing.assert_allclose(compiled.moments.mean, features.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(compiled.moments.deviation, features.std(axis=0), atol=1e-6)


@pytest.mark.parametrize("block", [1, 7, 64, 119])
def test_blocks_of_rows_leave_no_trace(
    make_pool: PoolMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    pool = make_pool()
    whole = compile_pool(pool, tmp_path / "whole")
    monkeypatch.setattr(module, "BLOCK_ROWS", block)
    parts = compile_pool(pool, tmp_path / "parts")
    assert parts.rows_file.read_bytes() == whole.rows_file.read_bytes()
    np.testing.assert_array_equal(parts.counted, whole.counted)
    np.testing.assert_array_equal(parts.lengths, whole.lengths)
    np.testing.assert_allclose(parts.sums, whole.sums, rtol=1e-12, atol=1e-12)
    every_eighth(parts, rows_of(parts))


def test_a_selections_moments_and_returns_are_its_rows(make_pool: PoolMaker, tmp_path: Path) -> None:
    compiled = compile_pool(make_pool(), tmp_path / "cache")
    assert compiled.select(Selection()) is compiled
    vegas = compiled.select(Selection(schemes=("vegas",)))
    assert vegas.rows == 670
    assert vegas.starts.tolist() == [670, 870, 990]
    every_eighth(vegas, rows_of(compiled))
    assert vegas.identity not in (compiled.identity, compiled.select(Selection(schemes=("cubic",))).identity)
    assert vegas.identity == compiled.select(Selection(schemes=("vegas",))).identity
    weighted = compiled.select(Selection(schemes=("vegas",), set_weights={"I": 2}))
    assert weighted.identity != vegas.identity
    rewards = np.fromfile(compiled.folder / "rewards.f32", "<f4").copy()
    rewards[100] = 1e6
    rewards.tofile(compiled.folder / "rewards.f32")
    assert compiled.value_range(0.5)[1] > 1e5 > vegas.value_range(0.5)[1]


def test_a_wild_action_is_clipped(tmp_path: Path) -> None:
    table = episode("e", 50, 0)
    wild = table.set_column(
        table.schema.get_field_index("action"), table.schema.field("action"), pa.array([64.0] * 50, pa.float32())
    )
    write_part(tmp_path / "set=I" / "scheme=reno" / "part-000.parquet", [wild])
    assert (rows_of(compile_pool(tmp_path, tmp_path / "cache"))[:, 69] == 2).all()


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
    with pytest.raises(SageccError, match=r"no pool.*'sagecc pool'"):
        compile_pool(tmp_path, tmp_path / "cache")
    write_part(tmp_path / "set=I" / "scheme=reno" / "part-000.parquet", [episode("e", 5, 0).slice(0, 0)])
    with pytest.raises(SageccError, match="hold no rows"):
        compile_pool(tmp_path, tmp_path / "cache")
    assert left_in(tmp_path / "cache") == []


@pytest.mark.parametrize(("version", "shown"), [("2.0", "2.0"), ("", "none")])
def test_a_pool_of_another_version(make_pool: PoolMaker, tmp_path: Path, version: str, shown: str) -> None:
    with pytest.raises(SageccError, match=rf"part-000.parquet has pool version {shown}, this program reads 1\."):
        compile_pool(make_pool(version=version), tmp_path / "cache")


def test_a_newer_minor_version_is_read(make_pool: PoolMaker, tmp_path: Path) -> None:
    assert compile_pool(make_pool(version="1.7"), tmp_path / "cache").rows == 1340


def test_the_pools_observation_windows_are_known_and_must_be_the_same_ones(
    make_pool: PoolMaker, tmp_path: Path
) -> None:
    pool = make_pool()
    assert compile_pool(pool, tmp_path / "cache").windows == "10,200,1000"
    assert compile_pool(pool, tmp_path / "cache").windows == "10,200,1000"  # found in the cache
    write_part(pool / "set=I" / "scheme=reno" / "part-000.parquet", [episode("e", 50, 0)], windows="10,10,10")
    with pytest.raises(SageccError, match=r"several observation windows \(10,10,10; 10,200,1000\)"):
        compile_pool(pool, tmp_path / "cache")


@pytest.mark.parametrize("keep", [0, 3, 11, 0.5, 0.999])
def test_a_truncated_file_is_named(make_pool: PoolMaker, tmp_path: Path, keep: float) -> None:
    pool = make_pool()
    victim = pool / "set=I" / "scheme=vegas" / "part-000.parquet"
    data = victim.read_bytes()
    victim.write_bytes(data[: int(keep * len(data)) if isinstance(keep, float) else keep])
    with pytest.raises(SageccError, match=r"scheme=vegas/part-000\.parquet is damaged"):
        compile_pool(pool, tmp_path / "cache")


def test_damage_inside_a_file_is_named_and_leaves_nothing(make_pool: PoolMaker, tmp_path: Path) -> None:
    pool = make_pool()
    victim = pool / "set=I" / "scheme=vegas" / "part-000.parquet"
    data = bytearray(victim.read_bytes())
    data[4:4000] = bytes(3996)
    victim.write_bytes(data)
    with pytest.raises(SageccError, match=r"scheme=vegas/part-000\.parquet is damaged"):
        compile_pool(pool, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_a_file_without_a_column(make_pool: PoolMaker, tmp_path: Path) -> None:
    pool = make_pool()
    write_part(pool / "set=I" / "scheme=vegas" / "part-000.parquet", [episode("e", 9, 0).drop_columns(["dr_max"])])
    with pytest.raises(SageccError, match="'dr_max'"):
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


def test_another_version_compiles_anew_in_the_same_place(
    make_pool: PoolMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, cache = make_pool(), tmp_path / "cache"
    rows = compile_pool(pool, cache).rows_file
    before = rows.stat().st_ino, rows.read_bytes()
    assert compile_pool(pool, cache).rows_file.stat().st_ino == before[0]
    with rows.open("rb") as held:
        monkeypatch.setattr(versions, "COMPILED", versions.COMPILED + 1)
        made = compile_pool(pool, cache)
        assert held.read() == before[1]  # who reads the older one goes on with it
    assert made.rows_file == rows
    assert (rows.stat().st_ino != before[0], rows.read_bytes()) == (True, before[1])


def test_a_damaged_cache_says_what_to_remove(make_pool: PoolMaker, tmp_path: Path) -> None:
    pool = make_pool()
    compile_pool(pool, tmp_path / "cache")
    (rows,) = (tmp_path / "cache").glob("*/rows.f32")
    rows.write_bytes(rows.read_bytes()[:-284])
    with pytest.raises(SageccError, match=r"damaged.*remove"):
        compile_pool(pool, tmp_path / "cache")


@pytest.mark.parametrize("name", ["index.json", "episodes.parquet", "sums.npy", "rewards.f32", "rows.crc32"])
def test_a_damaged_index_says_what_to_remove(make_pool: PoolMaker, tmp_path: Path, name: str) -> None:
    pool = make_pool()
    path = compile_pool(pool, tmp_path / "cache").folder / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(SageccError, match=r"damaged .*remove") as caught:
        compile_pool(pool, tmp_path / "cache")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["episodes.parquet", "sums.npy", "rewards.f32", "rows.f32", "rows.crc32"])
def test_what_a_cache_misses_is_said(make_pool: PoolMaker, tmp_path: Path, name: str) -> None:
    pool = make_pool()
    folder = compile_pool(pool, tmp_path / "cache").folder
    (folder / name).unlink()
    with pytest.raises(SageccError) as caught:
        compile_pool(pool, tmp_path / "cache")
    assert str(caught.value) == f"{folder / name} is missing: remove {folder}, it is made again from the pool"


def test_no_flipped_bit_of_a_cache_is_learned_from(make_pool: PoolMaker, tmp_path: Path) -> None:
    """Wherever it is: it is refused when the cache is opened, or when the rows are read; or all is made again."""
    pool, cache = make_pool((40, 30)), tmp_path / "cache"
    folder = compile_pool(pool, cache).folder
    sound = {path.name: path.read_bytes() for path in folder.iterdir()}
    random, refused = np.random.default_rng(0), 0
    for name in [*sound] * 8:
        data = bytearray(sound[name])
        place, bit = int(random.integers(len(data))), int(random.integers(8))
        data[place] ^= 1 << bit
        (folder / name).write_bytes(data)
        try:
            compiled = compile_pool(pool, cache)
            with closing(RowFile(compiled.folder)) as file:
                file.read(np.array([0]), compiled.rows)
        except SageccError as error:
            assert "remove" in str(error)
            assert str(folder) in str(error)
            assert "\n" not in str(error)
            refused += 1
        else:
            assert {path.name: path.read_bytes() for path in folder.iterdir()} == sound, (name, place, bit)
        (folder / name).write_bytes(sound[name])
    assert refused > 40


def test_a_pool_that_changes_meanwhile_is_not_kept(
    make_pool: PoolMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = make_pool()
    victim = pool / "set=I" / "scheme=vegas" / "part-000.parquet"
    finish = module._Episodes.write

    def replaced(self: module._Episodes, folder: Path) -> None:
        finish(self, folder)
        write_part(victim, [episode("other", 50, 1)])

    monkeypatch.setattr(module._Episodes, "write", replaced)
    with pytest.raises(SageccError, match="changed"):
        compile_pool(pool, tmp_path / "cache")
    assert left_in(tmp_path / "cache") == []


def test_a_full_disk_is_said_before_it_is_full(
    make_pool: PoolMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=100_000))
    with pytest.raises(SageccError, match=r"0\.0 GB left.*0\.0 GB"):
        compile_pool(make_pool(), tmp_path / "cache")
    assert left_in(tmp_path / "cache") == []


COMPILE = "import sys; from pathlib import Path; from sagecc.learner.compiled import compile_pool; "
COMPILE += "print(compile_pool(Path(sys.argv[1]), Path(sys.argv[2])).rows)"


def test_processes_compile_one_after_the_other_and_a_killed_one_does_no_harm(
    make_pool: PoolMaker, tmp_path: Path
) -> None:
    pool, cache = make_pool((40_000, 1_000)), tmp_path / "cache"
    command = [sys.executable, "-c", COMPILE, str(pool), str(cache)]
    killed = subprocess.Popen(command)
    deadline = time.monotonic() + 100
    while not list(cache.glob(".tmp-*/rows.f32")) and killed.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert not list(cache.glob("*/index.json")), "killed too late to test anything"
    assert list(cache.glob(".tmp-*"))
    others = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate(timeout=200)[0] for process in others] == ["82000\n"] * 3
    (name,) = left_in(cache)
    assert name == compile_pool(pool, cache).folder.name


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
    rows = rows_of(compiled)
    rows[0, 70] = -1000
    rows[:, 70].tofile(compiled.folder / "rewards.f32")
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


def test_value_range_of_a_longer_period_is_that_of_mean_rewards(make_pool: PoolMaker, tmp_path: Path) -> None:
    compiled = compile_pool(make_pool((6,)), tmp_path / "cache")
    rewards = np.arange(12, dtype="<f4")
    rewards.tofile(compiled.folder / "rewards.f32")
    # Means of each two: 0.5 1.5 2.5 3.5 4.5 in the first of two episodes, 6 more in the second. Rows are two apart:
    # the second's highest returns are 6.5 + 8.5 / 2 + 10.5 / 4, 7.5 + 9.5 / 2 and so on; the first's lowest 0.5 + ...
    returns = [
        0.5 + 1.25 + 1.125,
        1.5 + 1.75,
        2.5 + 2.25,
        3.5,
        4.5,
        6.5 + 4.25 + 2.625,
        7.5 + 4.75,
        8.5 + 5.25,
        9.5,
        10.5,
    ]
    low, high = compiled.value_range(0.5, period=2)
    assert high == pytest.approx(max(returns))
    assert low == pytest.approx(np.quantile(returns, 0.001))
