# SPDX-License-Identifier: Apache-2.0
"""Each fault that a pool can have is found and named, with its file; a pool without faults has none."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from sagecc.collector.run.grid import profile_set, set_one, set_two
from sagecc.common.errors import SageccError
from sagecc.common.manifest import MANIFEST, FileEntry, Manifest, digest
from sagecc.pool import derivation as pool_module
from sagecc.pool.checks import PoolReport, check_pool
from sagecc.pool.derivation import PoolOptions, build_pool
from sagecc.pool.features import Windows
from sagecc.schemas.pool import INPUT_KEY, VERSION_KEY
from tests.helpers.raw_episodes import write_partition

pytestmark = pytest.mark.heavy

CUBIC = "set=I/scheme=cubic/part-000.parquet"
SECOND = "set=I/scheme=cubic/part-001.parquet"
VEGAS = "set=II/scheme=vegas/part-000.parquet"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pool whose episodes span row groups and files."""
    folder = tmp_path_factory.mktemp("sound")
    write_partition(folder / "raw", "I", "cubic")
    write_partition(folder / "raw", "II", "vegas", rows=(700, 300))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool_module, "ROW_GROUP_ROWS", 400)
        patch.setattr(pool_module, "FILE_BYTES", 200_000)
        build_pool(folder / "raw", folder / "pool", PoolOptions(Windows(10, 50, 100)), progress=False)
    assert (folder / "pool" / SECOND).exists()
    return folder / "pool"


@pytest.fixture
def pool(sound: Path, tmp_path: Path) -> Path:
    shutil.copytree(sound, tmp_path / "pool")
    return tmp_path / "pool"


def check(pool: Path, profile: str | None = None) -> PoolReport:
    return check_pool(pool, profile_set(profile) if profile else None, jobs=2, progress=False)


def lines(pool: Path, profile: str | None = None) -> list[str]:
    return [str(fault) for fault in check(pool, profile).faults]


def bless(pool: Path) -> None:
    """Write the manifest anew, so that a fault must be found by what the files hold."""
    known = Manifest.read(pool)
    paths = sorted(pool.rglob("*.parquet"))
    files = {str(path.relative_to(pool)): FileEntry.from_file(path, 0, "") for path in paths}
    Manifest(known.about, files).write(pool)


@contextmanager
def edited(pool: Path, name: str) -> Iterator[list[pa.Table]]:
    """Yield a list with a file's table, to be replaced by another; write that and bless it."""
    path = pool / name
    tables = [pq.read_table(path, partitioning=None)]
    yield tables
    pq.write_table(tables[0], path, row_group_size=400)
    bless(pool)


def with_value(table: pa.Table, column: str, row: int, value: object) -> pa.Table:
    values = table[column].to_pylist()
    values[row] = value
    field = table.schema.field(column)
    return table.set_column(table.schema.get_field_index(column), field, pa.array(values, field.type))


def test_a_sound_pool_has_no_faults(sound: Path) -> None:
    report = check(sound)
    assert report.faults == ()
    assert (report.episodes, report.rows, report.grid) == (5, 2747 + 998, None)
    files = [*sound.rglob("*.parquet"), sound / "manifest.json"]
    assert report.files == len(files)
    assert report.bytes == sum(path.stat().st_size for path in files)


@pytest.mark.parametrize("name", [CUBIC, SECOND, VEGAS, "episodes.parquet", "columns.parquet", MANIFEST])
def test_a_flipped_bit_anywhere_is_found_and_its_file_named(pool: Path, name: str) -> None:
    whole = (pool / name).read_bytes()
    for at in random.Random(0).sample(range(len(whole)), 8):
        flipped = bytearray(whole)
        flipped[at] ^= 1 << (at % 8)
        (pool / name).write_bytes(flipped)
        found = lines(pool)
        assert any(line.startswith(f"{name}: ") for line in found), (name, at, found)
        if name != MANIFEST:
            assert f"{name}: its bytes are not those of manifest.json (SHA-256)" in found


def test_a_truncated_file_is_named(pool: Path) -> None:
    whole = (pool / SECOND).read_bytes()
    (pool / SECOND).write_bytes(whole[: len(whole) // 2])
    size, unreadable = lines(pool)
    assert size == f"{SECOND}: has {len(whole) // 2:,} bytes, manifest.json says {len(whole):,}"
    assert unreadable.startswith(f"{SECOND}: cannot be read (")


@pytest.mark.parametrize("name", [CUBIC, SECOND, VEGAS])
def test_a_missing_file_is_named_with_what_is_lost(pool: Path, name: str) -> None:
    (pool / name).unlink()
    found = lines(pool)
    assert found[0] == f"{name}: missing"
    assert all("no rows that could be read" in line for line in found[1:])


@pytest.mark.parametrize("name", ["episodes.parquet", "columns.parquet", MANIFEST])
def test_a_missing_listing_is_named(pool: Path, name: str) -> None:
    (pool / name).unlink()
    assert re.search(f"^{name}: (is )?missing", "\n".join(lines(pool)), re.MULTILINE)


def test_a_file_too_many_is_named_and_so_are_the_episodes_in_it(pool: Path) -> None:
    extra = "set=I/scheme=cubic/part-009.parquet"
    shutil.copy(pool / CUBIC, pool / extra)
    found = lines(pool)
    assert found[0] == f"{extra}: not in manifest.json"
    first = pq.read_table(pool / CUBIC, partitioning=None)["episode_id"][0].as_py()
    assert f"{extra}: episode {first} is there twice, first in {CUBIC}" in found


def test_a_duplicate_episode_within_a_file_is_named(pool: Path) -> None:
    with edited(pool, VEGAS) as tables:
        ids = tables[0]["episode_id"]
        first = ids[0].as_py()
        tables[0] = pa.concat_tables([tables[0], tables[0].filter(pc.equal(ids, first))])
    assert lines(pool) == [f"{VEGAS}: episode {first} is there twice, first in {VEGAS}"]


def test_a_duplicate_in_the_list_is_named(pool: Path) -> None:
    with edited(pool, "episodes.parquet") as tables:
        tables[0] = pa.concat_tables([tables[0], tables[0].slice(1, 1)])
    twice = tables[0]["episode_id"][1].as_py()
    assert lines(pool) == [f"episodes.parquet: episode {twice} is listed twice"]


def test_episodes_that_are_lacking_or_out_of_place_are_named(pool: Path) -> None:
    with edited(pool, VEGAS) as tables:
        ids = tables[0]["episode_id"]
        first, second = ids[0].as_py(), ids[-1].as_py()
        halves = [tables[0].filter(pc.equal(ids, name)) for name in (second, first)]
        tables[0] = pa.concat_tables(halves)
    assert lines(pool) == [f"{VEGAS}: episode {first} comes after {second}"]
    with edited(pool, VEGAS) as tables:
        tables[0] = halves[0]
    assert lines(pool) == [f"set=II/scheme=vegas: episode {first} of episodes.parquet has no rows here"]
    shutil.copy(pool / CUBIC, pool / "set=II/scheme=vegas/part-001.parquet")
    bless(pool)
    assert any("is not of II, vegas in episodes.parquet" in line for line in lines(pool))


FAULTS: dict[str, tuple[Callable[[pa.Table], pa.Table], str]] = {
    "NaN": (lambda t: with_value(t, "thr", 500, float("nan")), r"'thr' is nan in episode .*\.vegas\.0, step 500"),
    "infinite": (lambda t: with_value(t, "dr", 7, float("inf")), r"'dr' is inf in episode .*, step 7"),
    "negative": (lambda t: with_value(t, "srtt", 3, -0.5), r"'srtt' is -0\.5 in episode .*, step 3, below 0"),
    "too high a state": (lambda t: with_value(t, "ca_state", 3, 5.0), r"'ca_state' is 5 in .*, step 3, above 4"),
    "too high a reward": (lambda t: with_value(t, "reward", 3, 25.5), r"'reward' is 25\.5 .*, step 3, above 25"),
    "no window": (lambda t: with_value(t, "action", 698, 0.0), r"'action' is 0 in .*, step 698, below 2\.3"),
    "average below minimum": (
        lambda t: with_value(t, "thr_m.min", 3, 50.0),
        r"'thr_m\.avg' is not between min and max in .*, step 3",
    ),
    "a step left out": (
        lambda t: pa.concat_tables([t.slice(0, 450), t.slice(451)]),
        r"the step does not follow the one before in episode .*, step 451",
    ),
    "time stands still": (
        lambda t: with_value(t, "t_s", 400, t["t_s"][399].as_py()),
        r"the time is not after the one before in .*, step 400",  # across row groups
    ),
    "another previous action": (
        lambda t: with_value(t, "pre_act", 9, 1.5),
        r"'pre_act' is not the action before in .*, step 9",
    ),
    "a first row amid": (lambda t: with_value(t, "is_first", 5, True), r"'is_first' is wrong in .*, step 5"),
    "a last row amid": (
        lambda t: with_value(t, "is_last", 5, True),
        r"'is_last' of the row before is wrong in .*, step 6",
    ),
    "no last row": (
        lambda t: with_value(t, "is_last", len(t) - 1, False),
        r"episode .* ends on a row that is not marked as its last",
    ),
    "another return": (
        lambda t: with_value(t, "reward", 3, -7.0),
        r"episode .*: rewards add up to .*, episodes\.parquet says",
    ),
    "a short episode": (lambda t: t.slice(0, len(t) - 1), r"has 298 rows, episodes\.parquet says 299"),
    "no such column": (lambda t: t.drop_columns(["dr_max"]), "has no column 'dr_max'"),
    "a column too many": (
        lambda t: t.append_column("ecn", pa.array(np.zeros(len(t)))),
        r"has a column 'ecn' that version 1\.1 does not know",
    ),
    "another type": (
        lambda t: t.set_column(t.schema.get_field_index("dr"), "dr", t["dr"].cast(pa.float64())),
        "column 'dr' holds double, not float",
    ),
    "another unit": (
        lambda t: t.set_column(
            t.schema.get_field_index("dr"), t.schema.field("dr").with_metadata({"unit": "Gbps"}), t["dr"]
        ),
        r"column 'dr' is described otherwise than in schemas/pool\.py",
    ),
    "other windows": (
        lambda t: t.replace_schema_metadata(t.schema.metadata | {b"sagecc.windows": b"10,200,1000"}),
        r"sagecc\.windows is 10,200,1000, the pool's is 10,50,100",
    ),
    "another major version": (
        lambda t: t.replace_schema_metadata(t.schema.metadata | {VERSION_KEY: b"2.0"}),
        r"sagecc\.pool_version is 2\.0, the pool's is 1\.1",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_rows_is_named(pool: Path, fault: str) -> None:
    change, reason = FAULTS[fault]
    with edited(pool, VEGAS) as tables:
        tables[0] = change(tables[0])
    report = check(pool)
    assert report.faults, fault
    named = [entry for entry in report.faults if re.search(reason, entry.reason)]
    assert named and all("vegas" in entry.path for entry in report.faults), report.faults


def test_files_of_different_kernels_are_named(pool: Path) -> None:
    with edited(pool, SECOND) as tables:
        tables[0] = tables[0].replace_schema_metadata(tables[0].schema.metadata | {b"sagecc.kernel": b"another"})
    assert lines(pool) == [f"{SECOND}: comes from another kernel than the files before it"]


LISTING_FAULTS: dict[str, tuple[str, object, str]] = {
    "another environment": ("environment", "{}", "its environment is not"),
    "another seed": ("seed", 5, "is not named after its environment, scheme and seed"),
    "more lost than sent": ("lost_packets", 10**9, "lost more packets than it sent"),
    "NaN": ("goodput_mbps", float("nan"), "'goodput_mbps' is nan in episode"),
    "negative": ("delay_mean_ms", -1.0, "'delay_mean_ms' is -1 in episode"),
    "another mean": ("reward_mean", 1.0, "return is not rows x reward_mean"),
    "another length": ("rows", 17, "rows, episodes.parquet says 17"),
}


@pytest.mark.parametrize("fault", LISTING_FAULTS)
def test_a_fault_of_the_list_is_named(pool: Path, fault: str) -> None:
    column, value, reason = LISTING_FAULTS[fault]
    with edited(pool, "episodes.parquet") as tables:
        tables[0] = with_value(tables[0], column, 0, value)
    assert any(reason in line for line in lines(pool))


def test_many_faults_of_a_kind_are_counted(pool: Path) -> None:
    with edited(pool, VEGAS) as tables:
        for column in ("srtt", "rttvar", "thr", "dr", "dr_max"):
            tables[0] = with_value(tables[0], column, 3, -1.0)
    found = lines(pool)
    assert len([line for line in found if "below 0" in line]) == 3
    assert f"{VEGAS}: 2 more columns out of bounds" in found


def test_a_dictionary_of_other_words_is_named(pool: Path) -> None:
    with edited(pool, "columns.parquet") as tables:
        tables[0] = with_value(tables[0], "unit", 5, "furlongs")
    assert lines(pool) == ["columns.parquet: is not the dictionary of schemas/pool.py"]


def test_counts_are_held_against_the_grid(tmp_path: Path) -> None:
    grid = (set_one(24, 1, 20, 1), set_one(12, 2, 20, 1), set_two(12, 20, 1))  # the profile smoke
    for scheme, environments in {"cubic": grid, "vegas": (grid[0], grid[2]), "reno": grid[:2]}.items():
        for set_name in ("I", "II"):
            mine = [environment for environment in environments if environment.set == set_name]
            if mine:
                write_partition(tmp_path / "raw", set_name, scheme, rows=(60,) * len(mine), environments=mine)
    build_pool(tmp_path / "raw", tmp_path / "pool", progress=False)
    lacking = f"set=I/scheme=vegas: has no episode in {grid[1].id} of profile smoke"
    report = check(tmp_path / "pool")
    assert ([str(fault) for fault in report.faults], report.grid) == ([lacking], profile_set("smoke"))
    assert lines(tmp_path / "pool", "smoke") == [
        f"set=II/scheme=reno: has no episode in {grid[2].id} of profile smoke",
        lacking,
    ]
    assert f"set=I/scheme=cubic: has an episode in {grid[0].id}, which is not of profile heldout" in lines(
        tmp_path / "pool", "heldout"
    )


def test_no_pool_and_another_major_version_cannot_be_checked(pool: Path, tmp_path: Path) -> None:
    with pytest.raises(SageccError, match=r"no pool.*'sagecc pool'"):
        check(tmp_path / "elsewhere")
    (pool / MANIFEST).unlink()
    with (
        edited_metadata(pool / "episodes.parquet", {VERSION_KEY: b"2.0"}),
        pytest.raises(SageccError, match=r"episodes.parquet.*2\.0.*1\."),
    ):
        check(pool)


@contextmanager
def edited_metadata(path: Path, changes: dict[bytes, bytes]) -> Iterator[None]:
    table = pq.read_table(path, partitioning=None)
    pq.write_table(table.replace_schema_metadata(table.schema.metadata | changes), path)
    yield


def test_a_newer_minor_version_with_more_columns_is_checked_and_sound(pool: Path) -> None:
    for path in pool.rglob("*.parquet"):
        table = pq.read_table(path, partitioning=None)
        table = table.append_column("more", pa.array(np.zeros(len(table))))
        pq.write_table(table.replace_schema_metadata(table.schema.metadata | {VERSION_KEY: b"1.9"}), path)
    about = {**Manifest.read(pool).about, "pool_version": "1.9"}
    Manifest(about, {}).write(pool)
    bless(pool)
    assert lines(pool) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [("bytes", "7"), ("bytes", [7, 7]), ("bytes", -1), ("rows", True), ("sha256", 7), ("input_sha256", None)],
)
def test_a_manifest_of_other_values_is_damaged_though_its_own_hash_holds(pool: Path, field: str, value: object) -> None:
    content = json.loads((pool / MANIFEST).read_text())
    del content["sha256"]
    content["files"][CUBIC][field] = value
    (pool / MANIFEST).write_text(json.dumps(content | {"sha256": digest(content)}))
    assert lines(pool)[0].startswith(f"{MANIFEST}: is damaged")


def test_a_column_that_is_there_twice_is_named(pool: Path) -> None:
    table = pq.read_table(pool / "episodes.parquet")
    pq.write_table(table.append_column("delay_mean_ms", table["delay_mean_ms"]), pool / "episodes.parquet")
    bless(pool)
    assert "episodes.parquet: has 2 columns 'delay_mean_ms'" in lines(pool)


def test_the_manifest_says_what_lies_there(sound: Path) -> None:
    manifest = Manifest.read(sound)
    assert manifest.about == {"pool_version": "1.1", "windows": "10,50,100", "reward_alignment": "after"}
    assert set(manifest.files) == {str(path.relative_to(sound)) for path in sound.rglob("*.parquet")}
    for name, entry in manifest.files.items():
        rows = pq.read_metadata(sound / name).num_rows
        assert entry == FileEntry.from_file(sound / name, rows, entry.input_sha256)
        assert pq.read_schema(sound / name).metadata[INPUT_KEY].decode() == entry.input_sha256
    assert json.loads((sound / MANIFEST).read_text())["files"][CUBIC]["rows"] == manifest.files[CUBIC].rows
