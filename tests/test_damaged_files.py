# SPDX-License-Identifier: Apache-2.0
"""What torture has found (tests/torture): who reads a file that is damaged says so in one line that names it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sagecc.collector.run.store import KERNEL, SUMMARY, Partition
from sagecc.common.errors import SageccError
from sagecc.common.manifest import MANIFEST
from sagecc.leagues.report.series import binned
from sagecc.leagues.scores import find_episodes, read_rows, score
from sagecc.learner.compiled import compile_pool
from sagecc.pool.checks import check_pool
from sagecc.pool.derivation import build_pool
from sagecc.pool.exports.episodes import Choice, open_pool
from sagecc.schemas.environment import Environment
from tests.helpers.damage import flip_a_value, rewrite
from tests.helpers.raw_episodes import META, network, table, trajectory, write_partition

PARTITION = "set=I/scheme=cubic"
ENVIRONMENTS = tuple(network("I", mbps) for mbps in (12.0, 24.0))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Raw trajectories and their pool."""
    folder = tmp_path_factory.mktemp("sound")
    write_partition(folder / "raw", "I", "cubic", rows=(900, 650))
    rewrite(folder / "raw" / PARTITION / "episodes.parquet", with_specification)
    build_pool(folder / "raw", folder / "pool", progress=False)
    return folder


def with_specification(table: pa.Table) -> pa.Table:
    column = pa.array(["ab" * 32] * len(table), pa.string())
    return table.set_column(table.column_names.index("spec_sha256"), "spec_sha256", column)


@pytest.fixture
def data(sound: Path, tmp_path: Path) -> Path:
    shutil.copytree(sound, tmp_path / "data")
    return tmp_path / "data"


def derive(data: Path) -> None:
    build_pool(data / "raw", data / "derived", progress=False)


def play(data: Path) -> None:
    score(ENVIRONMENTS, ("cubic",), find_episodes([data / "raw"], ENVIRONMENTS, ("cubic",)))


def report(data: Path) -> None:
    binned(ENVIRONMENTS, find_episodes([data / "raw"], ENVIRONMENTS, ("cubic",)))


def look(data: Path) -> None:
    for episode in find_episodes([data / "raw"], ENVIRONMENTS, ("cubic",)).values():
        read_rows(episode)


def go_on(data: Path) -> None:
    with Partition(data / "raw", "I", "cubic", META[b"sagecc.kernel"].decode()) as partition:
        partition.kept()


def compile_it(data: Path) -> None:
    compile_pool(data / "pool", data / "cache")


def export(data: Path) -> None:
    list(open_pool(data / "pool", Choice()).episodes())


def refusal(reader: Callable[[Path], None], data: Path) -> str:
    """Return what a reader says, which must be one line."""
    with pytest.raises(SageccError) as caught:
        reader(data)
    said = str(caught.value)
    assert "\n" not in said
    return said


def test_sound_files_are_read(data: Path) -> None:
    for reader in (derive, play, report, look, go_on, compile_it, export):
        reader(data)


@pytest.mark.parametrize("reader", [derive, play, report, look])
def test_a_flipped_bit_of_raw_rows(reader: Callable[[Path], None], data: Path) -> None:
    part = data / "raw" / PARTITION / "part-000.parquet"
    flip_a_value(part, "received_bytes" if reader in (play, report) else "bytes_acked")
    assert "CRC checksum verification failed" in (said := refusal(reader, data))
    assert str(part.parent) in said


@pytest.mark.parametrize("reader", [compile_it, export])
def test_a_flipped_bit_of_the_pools_rows(reader: Callable[[Path], None], data: Path) -> None:
    part = data / "pool" / PARTITION / "part-000.parquet"
    (data / "pool" / MANIFEST).unlink()  # whose hashes would tell as well
    flip_a_value(part, "reward")
    assert "CRC checksum verification failed" in (said := refusal(reader, data))
    assert str(part) in said


@pytest.mark.parametrize("reader", [derive, play, look])
def test_a_raw_column_twice(reader: Callable[[Path], None], data: Path) -> None:
    part = data / "raw" / PARTITION / "part-000.parquet"
    column = "srtt_us" if reader is derive else "link_packets"
    rewrite(part, lambda table: table.append_column(column, table[column]))
    said = refusal(reader, data)
    assert "duplicate" in said if reader is look else f"has 2 columns '{column}'" in said
    assert str(part.parent) in said


@pytest.mark.parametrize("reader", [compile_it, export])
def test_a_column_of_the_pool_twice(reader: Callable[[Path], None], data: Path) -> None:
    part = data / "pool" / PARTITION / "part-000.parquet"
    rewrite(part, lambda table: table.append_column("srtt", table["srtt"]))
    assert f"{part} has 2 columns 'srtt'" in refusal(reader, data)


def test_a_column_of_the_pool_twice_is_a_finding(data: Path) -> None:
    rewrite(data / "pool" / PARTITION / "part-000.parquet", lambda table: table.append_column("srtt", table["srtt"]))
    assert "has 2 columns 'srtt'" in [fault.reason for fault in check_pool(data / "pool", progress=False).faults]


def as_text(table: pa.Table) -> pa.Table:
    return table.set_column(table.column_names.index("rows"), "rows", table["rows"].cast(pa.string()))


def with_a_gap(table: pa.Table) -> pa.Table:
    ids = pa.array([None, *table["episode_id"].to_pylist()[1:]], pa.string())
    return table.set_column(0, "episode_id", ids)


LISTINGS: dict[str, Callable[[pa.Table], pa.Table]] = {
    "has no column 'environment_id'": lambda table: table.drop_columns(["environment_id"]),
    "has 2 columns 'environment_id'": lambda table: table.append_column("environment_id", table["environment_id"]),
    "column 'rows' holds string, not int64": as_text,
    "misses values of 'episode_id'": with_a_gap,
}


@pytest.mark.parametrize("reader", [derive, play, go_on])
@pytest.mark.parametrize("fault", LISTINGS)
def test_a_list_of_episodes_that_is_none(fault: str, reader: Callable[[Path], None], data: Path) -> None:
    listing = data / "raw" / PARTITION / "episodes.parquet"
    rewrite(listing, LISTINGS[fault])
    assert f"{listing} {fault}: remove its folder and collect it again" == refusal(reader, data)


def test_a_list_of_episodes_with_another_environment(data: Path) -> None:
    listing = data / "raw" / PARTITION / "episodes.parquet"
    fields = json.loads(ENVIRONMENTS[0].to_json()) | {"links": "none"}

    def change(table: pa.Table) -> pa.Table:
        column = pa.array([json.dumps(fields)] * len(table), pa.string())
        return table.set_column(table.column_names.index("environment"), "environment", column)

    rewrite(listing, change)
    assert f"{listing}: the environment of episode" in refusal(derive, data)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"links": 3}', '{"links": [], "return_links": [], "windows_s": 1}'])
def test_text_that_is_no_environment(text: str) -> None:
    with pytest.raises(SageccError, match="environment: not its JSON"):
        Environment.from_json(text)


@pytest.mark.parametrize("reader", [play, report, look])
def test_fewer_rows_than_are_listed(reader: Callable[[Path], None], data: Path) -> None:
    """As where a file's footer no longer counts a row group."""
    rewrite(data / "raw" / PARTITION / "part-000.parquet", lambda table: table.slice(0, len(table) - 1))
    assert "rows, episodes.parquet says" in refusal(reader, data)


def test_a_kernels_name_that_is_no_text(data: Path) -> None:
    listing = data / "raw" / PARTITION / "episodes.parquet"
    rewrite(listing, lambda table: table.replace_schema_metadata(META | {b"sagecc.kernel": b"\xff\xfe"}))
    episodes = find_episodes([data / "raw"], ENVIRONMENTS, ("cubic",))
    assert {episode.kernel for episode in episodes.values()} == {"��"}


def swap(pool: Path) -> None:
    def change(table: pa.Table) -> pa.Table:
        names = {"srtt": "rttvar", "rttvar": "srtt"}
        renamed = table.rename_columns([names.get(name, name) for name in table.column_names])
        return renamed.replace_schema_metadata(table.schema.metadata)

    rewrite(pool / PARTITION / "part-000.parquet", change)


CHANGES: dict[str, Callable[[Path], Any]] = {
    "part-000.parquet is not the file that manifest.json describes": swap,
    "part-000.parquet is missing: ": lambda pool: (pool / PARTITION).rename(pool.parent / "elsewhere"),
    "manifest.json, line 1: no JSON": lambda pool: (pool / MANIFEST).write_text("{"),
}


@pytest.mark.parametrize("words", CHANGES)
def test_a_pool_that_is_not_its_manifests_is_not_learned_from(words: str, data: Path) -> None:
    write_partition(data / "raw", "II", "cubic", rows=(300,))
    build_pool(data / "raw", data / "pool", progress=False)
    CHANGES[words](data / "pool")
    assert words in refusal(compile_it, data)


def test_a_pulled_part_of_a_pool_has_no_manifest_and_is_learned_from(data: Path) -> None:
    (data / "pool" / MANIFEST).unlink()
    compile_it(data)


@pytest.mark.parametrize("name", ["n" * 300, "é" * 120, "a/" * 150])
def test_an_episode_whose_id_is_longer_than_a_files_name(name: str, tmp_path: Path) -> None:
    rows = table(name, trajectory(5))
    kernel = META[b"sagecc.kernel"].decode()
    summary = {"episode_id": name, "spec_sha256": "ab", "rows": 5}
    meta = {SUMMARY: json.dumps(summary).encode(), KERNEL: kernel.encode()}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, rows.schema.with_metadata(meta)) as writer:
        writer.write_table(rows.replace_schema_metadata(meta))
    with Partition(tmp_path, "I", "cubic", kernel) as partition:
        partition.add(name, bytes(sink.getvalue()))
        assert partition.spooled() == {name: "ab"}


@pytest.mark.parametrize("size", [0, 300, -8])
def test_a_finished_episode_that_the_disk_has_damaged_is_run_again(size: int, tmp_path: Path) -> None:
    kernel = META[b"sagecc.kernel"].decode()

    def packed(name: str) -> bytes:
        rows = table(name, trajectory(50))
        summary = {"episode_id": name, "spec_sha256": "ab", "rows": 50}
        meta = {SUMMARY: json.dumps(summary).encode(), KERNEL: kernel.encode()}
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, rows.schema.with_metadata(meta)) as writer:
            writer.write_table(rows.replace_schema_metadata(meta))
        return bytes(sink.getvalue())

    with Partition(tmp_path, "I", "cubic", kernel) as partition:
        partition.add("whole", packed("whole"))
        partition.add("cut", packed("cut")[:size])
        assert partition.spooled() == {"whole": "ab"}
        assert [path.stem for path in tmp_path.rglob("*.arrow")] == ["whole"]
