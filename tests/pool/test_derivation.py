# SPDX-License-Identifier: Apache-2.0
"""Deriving the pool: values, layout, repeatability, and what happens to bad raw data."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sagecc.common import versions
from sagecc.common.errors import SageccError
from sagecc.common.manifest import NOTES, Manifest
from sagecc.pool import derivation as pool_module
from sagecc.pool.checks import check_pool
from sagecc.pool.derivation import PoolOptions, PoolResult, build_pool
from sagecc.pool.features import Windows, derive
from sagecc.pool.notes import write_note
from sagecc.pool.readme import README_FILE, TITLE
from sagecc.pool.reward import friendliness, power
from sagecc.schemas.partitions import partition_of
from sagecc.schemas.pool import FEATURE_NAMES, POOL_COLUMNS, POOL_EPISODE_SCHEMA, POOL_SCHEMA, POOL_VERSION
from sagecc.schemas.raw import RAW_SCHEMA
from tests.helpers import files
from tests.helpers.raw_episodes import META, write_partition

pytestmark = pytest.mark.heavy

hashes = partial(files.hashes, aside=NOTES)


def build(raw: Path, out: Path, options: PoolOptions | None = None, jobs: int = 2) -> PoolResult:
    return build_pool(raw, out, options, jobs, progress=False)


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    write_partition(tmp_path / "raw", "I", "cubic")
    write_partition(tmp_path / "raw", "II", "vegas", rows=(700, 300))
    return tmp_path / "raw"


@pytest.mark.parametrize("alignment", ["after", "public"])
def test_rows_are_those_of_the_formulas(tmp_path: Path, alignment: str) -> None:
    windows = Windows(5, 20, 90)
    for set_name in ("I", "II"):
        episodes = write_partition(tmp_path / "raw", set_name, "reno")
        build(tmp_path / "raw", tmp_path / "pool", PoolOptions(windows, alignment))
        rows = pq.read_table(tmp_path / "pool" / f"set={set_name}" / "scheme=reno", partitioning=None)
        assert rows["episode_id"].unique().to_pylist() == list(episodes)
        for name, columns in episodes.items():
            mine = rows.filter(pa.compute.equal(rows["episode_id"], name))
            count = len(columns["t_s"])
            features, measured = derive(columns, np.arange(count) == 0, windows)
            rate, loss, capacity, rtt_rate = measured
            rewards = (
                power(rate, loss, capacity, rtt_rate)
                if set_name == "I"
                else friendliness(rate, capacity, np.full(count, 2.0))
            ).astype(np.float32)
            cwnd = columns["cwnd_pkts"].astype(np.float64)
            assert mine.num_rows == count - 1
            for index, feature in enumerate(FEATURE_NAMES):
                np.testing.assert_array_equal(mine[feature].to_numpy(), features[index, :-1], err_msg=feature)
            np.testing.assert_array_equal(mine["step"].to_numpy(), np.arange(count - 1))
            np.testing.assert_array_equal(mine["t_s"].to_numpy(), columns["t_s"][:-1])
            np.testing.assert_array_equal(mine["action"].to_numpy(), (cwnd[1:] / cwnd[:-1]).astype(np.float32))
            np.testing.assert_array_equal(
                mine["reward"].to_numpy(), rewards[1:] if alignment == "after" else rewards[:-1]
            )
            # the action of one row is the previous action of the next
            np.testing.assert_array_equal(mine["pre_act"].to_numpy()[1:], mine["action"].to_numpy()[:-1])
            assert mine["is_first"].to_pylist() == [True] + [False] * (count - 2)
            assert mine["is_last"].to_pylist() == [False] * (count - 2) + [True]
            assert len(np.unique(mine["reward"].to_numpy())) > 50


def test_files_say_what_they_are(raw: Path, tmp_path: Path) -> None:
    out = tmp_path / "pool"
    result = build(raw, out)
    assert result == PoolResult(derived=2, unchanged=0, removed=0, episodes=5, rows=2747 + 998)
    path = out / "set=I" / "scheme=cubic" / "part-000.parquet"
    file = pq.ParquetFile(path)
    assert file.schema_arrow.equals(POOL_SCHEMA)
    meta = file.schema_arrow.metadata
    assert meta[b"sagecc.pool_version"] == POOL_VERSION.encode()
    assert meta[b"sagecc.kernel"] == b"ab" * 32
    assert meta[b"sagecc.windows"] == b"10,200,1000"
    assert meta[b"sagecc.reward_alignment"] == b"after"
    group = file.metadata.row_group(0)
    for index, column in enumerate(POOL_COLUMNS):
        chunk = group.column(index)
        assert (chunk.path_in_schema, chunk.compression) == (column.name, "ZSTD")
        if pa.types.is_floating(column.dtype):
            assert "BYTE_STREAM_SPLIT" in chunk.encodings, column.name
    episodes = pq.read_table(out / "episodes.parquet")
    assert episodes.schema.equals(POOL_EPISODE_SCHEMA)
    rows = pq.read_table(out / "set=II" / "scheme=vegas", partitioning=None)
    for row in episodes.filter(pa.compute.equal(episodes["scheme"], "vegas")).to_pylist():
        rewards = rows.filter(pa.compute.equal(rows["episode_id"], row["episode_id"]))["reward"].to_numpy()
        assert row["rows"] == len(rewards)
        assert row["return"] == pytest.approx(rewards.astype(np.float64).sum(), rel=1e-12)
        assert row["reward_mean"] == pytest.approx(rewards.mean(), rel=1e-5)
        assert (row["flows"], row["reward_kind"], row["rtt_ms"], row["queue_bdp"]) == (2, "friendliness", 40, 1)
        assert row["environment_id"].startswith(f"II-{row['bandwidth_mbps']:g}mbps")


def test_a_pool_describes_itself_and_leaves_what_is_not_its_own(raw: Path, tmp_path: Path) -> None:
    pool = tmp_path / "pool"
    build_pool(raw, pool, progress=False)
    path = pool / README_FILE
    listing = pl.read_parquet(pool / "episodes.parquet")
    first = listing.row(0, named=True)
    count = listing.filter((pl.col("set") == first["set"]) & (pl.col("scheme") == first["scheme"])).height
    described = path.read_text()
    assert f"{len(listing)} episodes" in described and f"| {first['set']} | {first['scheme']} | {count} |" in described
    assert "| `srtt` | 100 ms | sRTT / 100 ms |" in described and "| `goodput_mbps` | Mbps |" in described
    assert README_FILE not in Manifest.read(pool).files
    assert not check_pool(pool, progress=False).faults
    for content, kept in (("# My notes\n", True), (f"{TITLE}\nof an earlier pool\n", False)):
        path.write_text(content)
        build_pool(raw, pool, progress=False)
        assert path.read_text() == (content if kept else described)


def test_row_groups_and_files_do_not_change_the_rows(
    raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(raw, tmp_path / "one")
    monkeypatch.setattr(pool_module, "ROW_GROUP_ROWS", 400)
    monkeypatch.setattr(pool_module, "FILE_BYTES", 200_000)
    build(raw, tmp_path / "many")
    folder = Path("set=I") / "scheme=cubic"
    parts = sorted((tmp_path / "many" / folder).iterdir())
    assert len(parts) > 1
    assert all(pq.ParquetFile(path).metadata.row_group(0).num_rows == 400 for path in parts[:-1])
    one, many = (pq.read_table(tmp_path / name / folder, partitioning=None) for name in ("one", "many"))
    assert one.equals(many)
    first, second = (pq.read_table(tmp_path / name / "episodes.parquet")["return"] for name in ("one", "many"))
    np.testing.assert_allclose(first.to_numpy(), second.to_numpy(), rtol=1e-12)


def test_same_input_same_bytes_and_nothing_done_twice(raw: Path, tmp_path: Path) -> None:
    out = tmp_path / "pool"
    build(raw, out, jobs=1)
    build(raw, tmp_path / "again", jobs=2)
    assert hashes(out) == hashes(tmp_path / "again")
    times = {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}
    assert build(raw, out) == PoolResult(0, 2, 0, 5, 3745)
    assert times == {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}


def test_a_part_that_is_gone_is_derived_anew_and_a_damaged_one_is_not_taken_for_right(
    raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "ROW_GROUP_ROWS", 400)
    monkeypatch.setattr(pool_module, "FILE_BYTES", 200_000)
    out = tmp_path / "pool"
    build(raw, out)
    before = hashes(out)
    (out / "set=I" / "scheme=cubic" / "part-001.parquet").unlink()
    assert build(raw, out).derived == 1
    assert hashes(out) == before
    part = out / "set=II" / "scheme=vegas" / "part-000.parquet"
    whole = part.read_bytes()
    part.write_bytes(whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:])
    manifest = Manifest.read(out)
    assert build(raw, out).derived == 0
    assert Manifest.read(out) == manifest  # the right hash stays: `sagecc pool check` finds the other
    for name in ("episodes.parquet", "columns.parquet"):
        listing = (out / name).read_bytes()
        (out / name).write_bytes(listing[:-1] + b"X")
    part.unlink()
    build(raw, out)
    assert hashes(out) == before


def test_a_partition_that_is_there_is_finished_whenever_its_maker_was_killed(
    raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(partition: object, parts: object) -> None:
        raise ChildProcessError("killed as soon as the partition had its name")

    with monkeypatch.context() as patched, pytest.raises(ChildProcessError):
        patched.setattr("sagecc.pool.derivation.PoolPartition._remember", killed)
        build(raw, tmp_path / "pool", jobs=1)
    assert (build(raw, tmp_path / "pool").derived, build(raw, tmp_path / "pool").unchanged) == (1, 2)


def test_a_pool_without_a_manifest_gets_it_and_derives_nothing(raw: Path, tmp_path: Path) -> None:
    out = tmp_path / "pool"
    build(raw, out)
    before = hashes(out)
    (out / "manifest.json").write_text("{")
    assert build(raw, out).derived == 0
    assert hashes(out) == before


def test_a_policys_folder_has_its_whole_name(tmp_path: Path) -> None:
    write_partition(tmp_path / "raw", "I", "policy:models/mine", rows=(30,))
    build(tmp_path / "raw", tmp_path / "pool")
    part = next((tmp_path / "pool").glob("set=I/*/part-000.parquet"))
    assert part.parent.name == "scheme=policy:models%2Fmine"
    assert partition_of(part) == ("I", "policy:models/mine")
    assert build(tmp_path / "raw", tmp_path / "pool") == PoolResult(0, 1, 0, 1, 29)


def test_only_what_changed_is_derived_and_what_vanished_goes(raw: Path, tmp_path: Path) -> None:
    out = tmp_path / "pool"
    build(raw, out)
    write_partition(raw, "I", "bic", rows=(50,))
    assert (build(raw, out).derived, build(raw, out).unchanged) == (1, 3)
    for path in (raw / "set=II" / "scheme=vegas").iterdir():
        path.unlink()
    (raw / "set=II" / "scheme=vegas").rmdir()
    result = build(raw, out)
    assert (result.derived, result.removed, result.episodes) == (0, 1, 4)
    assert not (out / "set=II").exists()
    assert set(pq.read_table(out / "episodes.parquet")["scheme"].to_pylist()) == {"cubic", "bic"}
    assert build(raw, out, PoolOptions(Windows(10, 10, 10))).derived == 2


def test_another_version_derives_anew_and_the_bytes_do_not_say_so(
    raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "pool"
    build(raw, out)
    before = hashes(out)
    monkeypatch.setattr(versions, "POOL", 2)
    assert (build(raw, out).derived, build(raw, out).unchanged) == (2, 2)
    assert hashes(out) == before
    monkeypatch.undo()
    assert (build(raw, out).derived, build(raw, out).unchanged) == (2, 2)


def test_files_that_took_the_place_of_what_was_derived_are_derived_again(raw: Path, tmp_path: Path) -> None:
    out, other = tmp_path / "pool", tmp_path / "other"
    build(raw, out)
    build(raw, other, PoolOptions(alignment="public"))
    before = hashes(out)
    for path in other.rglob("part-*.parquet"):
        table = pq.read_table(path, partitioning=None)
        meta = pq.read_schema(out / path.relative_to(other)).metadata
        pq.write_table(table.replace_schema_metadata(meta), out / path.relative_to(other))
    assert build(raw, out).derived == 2
    assert hashes(out) == before


def test_a_listing_of_another_version_is_written_again_after_a_kill(
    raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "pool"
    build(raw, out)
    before = hashes(out)
    monkeypatch.setattr(versions, "POOL", 2)
    written: list[Path] = []
    keep, listing = write_note, pool_module._write_episodes

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pool_module, "_write_episodes", killed)
    with pytest.raises(KeyboardInterrupt):
        build(raw, out)
    monkeypatch.setattr(pool_module, "_write_episodes", listing)

    def noted(note: Path, files: Iterable[Path], by: str) -> None:
        written.append(note)
        keep(note, files, by)

    monkeypatch.setattr(pool_module, "write_note", noted)
    assert build(raw, out).unchanged == 2
    assert written == [out / NOTES / "episodes"]
    assert hashes(out) == before


def test_goes_on_after_a_kill(raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(raw, tmp_path / "whole")
    out = tmp_path / "pool"
    killed = out / "set=I" / ".tmp-scheme=cubic"
    killed.mkdir(parents=True)
    (killed / "part-000.parquet").write_bytes(b"half of it")
    (out / ".tmp-1-episodes.parquet").write_bytes(b"half of it")
    build(raw, out)
    assert hashes(out) == hashes(tmp_path / "whole")
    damaged = out / "set=I" / "scheme=cubic" / "part-000.parquet"
    os.truncate(damaged, 1000)
    os.truncate(out / "episodes.parquet", 100)
    assert build(raw, out).derived == 1
    assert hashes(out) == hashes(tmp_path / "whole")


def drop(name: str) -> Callable[[pa.Table], pa.Table]:
    return lambda rows: rows.drop_columns([name])


def as_float(name: str) -> Callable[[pa.Table], pa.Table]:
    def change(rows: pa.Table) -> pa.Table:
        index = rows.schema.get_field_index(name)
        return rows.set_column(index, name, rows[name].cast(pa.float64()))

    return change


def with_values(name: str, row: int, value: int | None) -> Callable[[pa.Table], pa.Table]:
    def change(rows: pa.Table) -> pa.Table:
        values = rows[name].to_pylist()
        values[row] = value
        index = rows.schema.get_field_index(name)
        return rows.set_column(index, name, pa.array(values, RAW_SCHEMA.field(name).type))

    return change


FAULTS = {
    "no column 'srtt_us'": drop("srtt_us"),
    "column 'cwnd_pkts' holds double, not uint32": as_float("cwnd_pkts"),
    "row 7: rows out of order or a window of 0": with_values("step", 7, 8),
    "row 9: rows out of order": with_values("t_s", 9, 0),
    "row 11: rows out of order or a window of 0": with_values("cwnd_pkts", 11, 0),
    "'srtt_us' has missing values": with_values("srtt_us", 3, None),
    "where episodes.parquet has": lambda rows: rows.slice(rows.num_rows // 2 + 200),
    "rows, episodes.parquet says": lambda rows: rows.slice(0, rows.num_rows - 1),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_bad_rows_are_one_clear_error(fault: str, tmp_path: Path) -> None:
    raw, out = tmp_path / "raw", tmp_path / "pool"
    write_partition(raw, "I", "cubic", change=FAULTS[fault])
    with pytest.raises(SageccError, match=f"scheme=cubic/part-00.*{fault}") as caught:
        build(raw, out)
    assert "collect it again" in str(caught.value) and "\n" not in str(caught.value)
    assert not any(out.rglob("*.parquet")) and not any(out.rglob(".tmp-*"))


def test_damaged_and_foreign_files_are_named(raw: Path, tmp_path: Path) -> None:
    out = tmp_path / "pool"
    build(raw, out)
    before = hashes(out)
    part = raw / "set=I" / "scheme=cubic" / "part-001.parquet"
    whole = part.read_bytes()
    part.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SageccError, match=r"part-001.parquet is damaged"):
        build(raw, out)
    flipped = bytearray(whole)
    for at in range(2000, len(whole) // 2, 97):
        flipped[at] ^= 0xFF
    part.write_bytes(flipped)
    with pytest.raises(SageccError, match=r"part-00"):
        build(raw, out)
    part.unlink()
    with pytest.raises(SageccError, match=r"rows of episode .* are missing"):
        build(raw, out)
    assert hashes(out) == before  # what was there stays

    part.write_bytes(whole)
    (raw / "set=I" / "scheme=cubic" / "episodes.parquet").unlink()
    with pytest.raises(SageccError, match=r"episodes.parquet.*not finished"):
        build(raw, out)


def test_raw_of_another_version_or_kernel_is_refused(tmp_path: Path) -> None:
    write_partition(tmp_path / "raw", "I", "cubic", meta=META | {b"sagecc.raw_version": b"2.0"})
    with pytest.raises(SageccError, match=r"2.0.*1"):
        build(tmp_path / "raw", tmp_path / "pool")
    write_partition(tmp_path / "mixed", "I", "cubic")
    part = tmp_path / "mixed" / "set=I" / "scheme=cubic" / "part-001.parquet"
    other = pq.read_table(part, partitioning=None).replace_schema_metadata(META | {b"sagecc.kernel": b"cd" * 32})
    pq.write_table(other, part)
    with pytest.raises(SageccError, match="different kernels"):
        build(tmp_path / "mixed", tmp_path / "pool")


def test_a_newer_minor_version_with_more_columns_is_read(tmp_path: Path) -> None:
    write_partition(
        tmp_path / "raw",
        "I",
        "cubic",
        change=lambda rows: rows.append_column("ecn", pa.array([0] * rows.num_rows)),
        meta=META | {b"sagecc.raw_version": b"1.7"},
    )
    assert build(tmp_path / "raw", tmp_path / "pool").episodes == 3


def test_raw_trajectories_are_never_overwritten(raw: Path, tmp_path: Path) -> None:
    before = hashes(raw)
    write_partition(tmp_path / "other", "I", "cubic", rows=(20,))
    for source in (raw, tmp_path / "other"):
        with pytest.raises(SageccError, match="holds raw trajectories"):
            build(source, raw)
    assert hashes(raw) == before


def test_nothing_to_derive_from_is_an_error_and_removes_nothing(raw: Path, tmp_path: Path) -> None:
    build(raw, tmp_path / "pool")
    before = hashes(tmp_path / "pool")
    with pytest.raises(SageccError, match="run 'sagecc collect' first"):
        build(tmp_path / "elsewhere", tmp_path / "pool")
    assert hashes(tmp_path / "pool") == before


def test_a_terabyte_of_nothing_among_raw_files_is_refused_before_it_is_hashed(tmp_path: Path) -> None:
    write_partition(tmp_path / "raw", "I", "cubic", rows=(300,))
    part = next((tmp_path / "raw").glob("set=*/scheme=*/part-*.parquet"))
    with part.open("r+b") as file:
        file.truncate(2**40)
    with pytest.raises(SageccError, match=re.escape(part.name)):
        build_pool(tmp_path / "raw", tmp_path / "pool", progress=False)
