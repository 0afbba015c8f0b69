# SPDX-License-Identifier: Apache-2.0
"""A Parquet file is looked at before it is read: it is regular, and claims no more than our writers would write."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sagecc.collector.run.store import read_episodes
from sagecc.common.errors import SageccError
from sagecc.common.files import parquet_digest, sha256_file
from sagecc.common.parquet import (
    MAX_GROUP_ROWS,
    MAX_TABLE_ROWS,
    check_parquet,
    open_parquet,
    parquet_rows,
    parquet_schema,
    read_parquet,
)
from sagecc.leagues.scores import find_episodes, read_rows, score
from sagecc.learner.compiled import compile_pool
from sagecc.pool.checks import check_pool
from sagecc.pool.derivation import build_pool
from sagecc.pool.exports.episodes import Choice, open_pool
from sagecc.pool.views import open_pool as open_views
from tests.conftest import PACKAGES, ROOT
from tests.helpers.raw_episodes import network, write_partition
from tests.helpers.special_files import PUT, put

pytestmark = pytest.mark.heavy

READERS: dict[str, Callable[[Path], object]] = {
    "open": open_parquet,
    "read": read_parquet,
    "check": check_parquet,
    "schema": parquet_schema,
    "rows": parquet_rows,
}


def write(path: Path, table: pa.Table, **options: object) -> Path:
    pq.write_table(table, path, compression="zstd", **options)
    return path


def zeros(rows: int, columns: int = 1) -> pa.Table:
    return pa.table({f"c{index}": np.zeros(rows, np.int64) for index in range(columns)})


def test_a_file_is_read_whole(tmp_path: Path) -> None:
    table = pa.table({"a": [1, 2], "b": ["x", None]})
    path = write(tmp_path / "a.parquet", table)
    assert read_parquet(path) == table
    assert read_parquet(path, ["b"]) == table.select(["b"])
    assert (parquet_rows(path), parquet_schema(path)) == (2, table.schema)
    with pytest.raises(KeyError, match="no column 'c'"):
        read_parquet(path, ["a", "c"])


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", zeros(3))
    odd = path.rename(Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.parquet")))
    assert read_parquet(odd).num_rows == parquet_rows(odd) == 3


def test_a_row_group_of_as_many_rows_as_may_be(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", zeros(MAX_GROUP_ROWS), row_group_size=MAX_GROUP_ROWS)
    assert parquet_rows(path) == MAX_GROUP_ROWS
    open_parquet(path).close()


@pytest.mark.parametrize("reader", ["open", "read", "check"])
def test_a_row_group_bomb(reader: str, tmp_path: Path) -> None:
    """Some kilobytes that make 67 MB here, and any number as easily."""
    path = write(tmp_path / "a.parquet", zeros(2**23), row_group_size=2**23)
    assert path.stat().st_size < 100_000
    with pytest.raises(SageccError, match=r"claims a row group of 8,388,608 rows"):
        READERS[reader](path)


def test_many_columns_that_are_the_same_number(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.parquet", zeros(2**17, 1).select(["c0"] * 1025).rename_columns([f"{i}" for i in range(1025)])
    )
    with pytest.raises(SageccError, match="row group of 131,072 rows and 1,074,790,400 bytes"):
        open_parquet(path)


def test_a_long_text_that_is_repeated(tmp_path: Path) -> None:
    texts = pa.DictionaryArray.from_arrays(np.zeros(100_000, np.int32), pa.array(["x" * 10**6]))
    path = write(tmp_path / "a.parquet", pa.table({"episode_id": texts}))
    assert path.stat().st_size < 2000
    with pytest.raises(SageccError, match="has 100,000,000,000 bytes of 'episode_id' in a row group"):
        open_parquet(path)


def test_a_table_of_many_row_groups(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", zeros(MAX_TABLE_ROWS + 1), row_group_size=MAX_GROUP_ROWS)
    open_parquet(path).close()  # row by row it is none of the reader's business
    for reader in (read_parquet, check_parquet):
        with pytest.raises(SageccError, match="claims 16,777,217 rows"):
            reader(path)


@pytest.mark.parametrize("reader", [*READERS.values(), lambda path: parquet_digest(path, "a")])
def test_a_footer_of_gigabytes(reader: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.touch()
    os.truncate(path, 2**33)
    with path.open("r+b") as file:
        file.seek(-8, os.SEEK_END)
        file.write((2**32 - 1).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(SageccError, match="claims a footer of 4,294,967,295 bytes"):
        reader(path)


@pytest.mark.parametrize("reader", READERS)
def test_a_hole_before_a_sound_end(reader: str, tmp_path: Path) -> None:
    """What is hashed or copied would take hours."""
    path = write(tmp_path / "a.parquet", zeros(3))
    sound = path.read_bytes()
    os.truncate(path, 2**40)
    with path.open("r+b") as file:
        file.seek(-len(sound), os.SEEK_END)
        file.write(sound)
    with pytest.raises(SageccError, match=r"has 1,099,511,627,776 bytes, and describes"):
        READERS[reader](path)


@pytest.mark.parametrize("kind", [kind for kind in PUT if kind.startswith("is")])
def test_special_files(kind: str, tmp_path: Path) -> None:
    put(kind, tmp_path / "a.parquet")
    readers: list[Callable[[Path], object]] = [*READERS.values(), sha256_file, lambda path: parquet_digest(path, "a")]
    for reader in readers:
        with pytest.raises(SageccError, match=f"a.parquet {kind}, where a file is expected"):
            reader(tmp_path / "a.parquet")


ENVIRONMENTS = (network("I", 12.0),)
PARTITION = "set=I/scheme=cubic"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_partition(tmp_path / "raw", "I", "cubic", rows=(300,))
    build_pool(tmp_path / "raw", tmp_path / "pool", progress=False)
    return tmp_path


def played(data: Path) -> object:
    found = find_episodes([data / "raw"], ENVIRONMENTS, ("cubic",))
    return score(ENVIRONMENTS, ("cubic",), found), [read_rows(episode) for episode in found.values()]


COMMANDS: dict[str, Callable[[Path], object]] = {
    "raw: derive": lambda data: build_pool(data / "raw", data / "again", progress=False),
    "raw: play": played,
    "raw: list": lambda data: read_episodes(data / "raw" / PARTITION / "episodes.parquet"),
    "pool: compile": lambda data: compile_pool(data / "pool", data / "cache"),
    "pool: export": lambda data: list(open_pool(data / "pool", Choice()).episodes()),
    "pool: sql": lambda data: open_views(data / "pool").close(),
    "pool: check": lambda data: check_pool(data / "pool", progress=False),
}


@pytest.mark.parametrize("kind", ["is a pipe", "is a device"])
@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in ("raw: list", "pool: check")])
def test_parts_that_are_special_files(command: str, kind: str, data: Path) -> None:
    part = data / command.partition(":")[0] / PARTITION / "part-000.parquet"
    put(kind, part)
    with pytest.raises(SageccError, match=re.escape(f"{part} {kind}")):
        COMMANDS[command](data)


@pytest.mark.parametrize("kind", ["is a pipe", "is a device"])
@pytest.mark.parametrize("command", ["raw: derive", "raw: play", "raw: list", "pool: export", "pool: sql"])
def test_lists_of_episodes_that_are_special_files(command: str, kind: str, data: Path) -> None:
    where = data / "raw" / PARTITION if command.startswith("raw") else data / "pool"
    put(kind, where / "episodes.parquet")
    with pytest.raises(SageccError, match=re.escape(f"{where / 'episodes.parquet'} {kind}")):
        COMMANDS[command](data)


def test_a_check_of_a_pool_with_a_pipe_ends(data: Path) -> None:
    put("is a pipe", data / "pool" / PARTITION / "part-000.parquet")
    try:
        assert check_pool(data / "pool", progress=False).faults
    except SageccError as error:
        assert "part-000.parquet is a pipe" in str(error)


def test_packages_open_parquet_files_in_one_place() -> None:
    direct = {f"pq.{name}" for name in ("ParquetFile", "read_table", "read_schema", "read_metadata", "ParquetDataset")}
    places = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in direct
    }
    assert places == {"common/parquet.py", "collector/run/store.py", "leagues/scores.py"}


FLIPS = """
import sys
from pathlib import Path
from sagecc.common.errors import SageccError
from sagecc.common.parquet import open_parquet
from sagecc.common.tables import UNREADABLE

path = Path(sys.argv[1])
sound = path.read_bytes()
footer_bytes = int.from_bytes(sound[-8:-4], "little")
for bit in range(8 * footer_bytes):
    damaged = bytearray(sound)
    damaged[-8 - footer_bytes + bit // 8] ^= 1 << bit % 8
    path.write_bytes(damaged)
    try:
        open_parquet(path).close()
    except (SageccError, *UNREADABLE):
        pass
"""


def test_no_bit_of_a_footer_ends_the_process(tmp_path: Path) -> None:
    """pyarrow's `RowGroupMetaData.column` does, where size statistics contradict a column's levels."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": ["x", "y"]}), path, store_schema=False)
    done = subprocess.run([sys.executable, "-c", FLIPS, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]
