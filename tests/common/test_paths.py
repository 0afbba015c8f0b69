# SPDX-License-Identifier: Apache-2.0
"""Folders whose names are patterns, partitions or no text to what reads them."""

from __future__ import annotations

import ast
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sagecc.common.paths import is_literal, literal, spelled_out
from tests.conftest import ROOT
from tests.helpers.modules import LAYERS, modules

DECOYS = ("a", "b", "ab", "axb", "x", "1", "x 1")
NAMES = st.binary(min_size=1, max_size=40) | st.text("*?[]{}\\='\"!-^$~%#:;,. \nabx1", min_size=1).map(os.fsencode)


def write_one(folder: Path, value: int) -> None:
    (folder / "set=I").mkdir(parents=True)
    with (folder / "set=I" / "part-0.parquet").open("wb") as file:
        pq.write_table(pa.table({"k": [value]}), file)


@given(NAMES.filter(lambda name: not set(b"/\0") & set(name) and len(name) < 200 and name not in (b".", b"..")))
@settings(max_examples=60)
@example(b"a*b")
@example(b"x [1]")
@example(b"?")
@example(b"k=2")
@example(b"set=II")
@example(b"a\\b")
@example(b"\xff")
def test_duckdb_reads_the_folder_that_is_named_and_nothing_else(name: bytes) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, os.fsdecode(name))
        write_one(folder, 1)
        for other in DECOYS:
            if os.fsencode(other) != name:
                write_one(Path(temporary, other), 2)
        place = literal(folder)
        assert is_literal(str(place))
        assert Path(spelled_out(str(place))).samefile(folder)
        found = duckdb.execute(
            "FROM read_parquet(? || '/set=*/part-*.parquet', hive_partitioning = true)", [str(place)]
        )
        assert [column[0] for column in found.description or ()] == ["k", "set"]
        assert found.fetchall() == [(1, "I")]


def test_an_ordinary_path_stays_as_it_is() -> None:
    for path in (Path("datasets/pool"), Path("/home/it's me/pool {1}"), Path("../é")):
        assert literal(path) == path


def test_a_folder_in_the_place_of_an_earlier_one_is_another(tmp_path: Path) -> None:
    folder = tmp_path / "k=v"
    folder.mkdir()
    first = literal(folder)
    assert literal(folder) == first
    folder.rename(tmp_path / "aside")
    folder.mkdir()
    assert literal(folder) != first
    assert spelled_out(f"in {first}/part") == f"in {tmp_path / 'aside'}/part"


# ---- no call in the project takes a path for a pattern ----

LITERAL: Mapping[str, Mapping[str, object]] = {
    "read_table": {"partitioning": None},
    "read_parquet": {"glob": False, "hive_partitioning": False},
    "scan_parquet": {"glob": False, "hive_partitioning": False},
    "read_csv": {"glob": False},
    "scan_csv": {"glob": False},
    "read_ipc": {"glob": False},
    "scan_ipc": {"glob": False},
    "scan_ndjson": {"glob": False},
}
"""What a call of pyarrow's or polars' must say, so that the path means the file."""


@pytest.mark.parametrize("package", (*LAYERS, "evidence", "scripts"))
def test_readers_are_told_that_a_path_is_one(package: str) -> None:
    wrong = []
    for file in modules(package):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            said = {each.arg: each.value.value for each in node.keywords if isinstance(each.value, ast.Constant)}
            library = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
            where = f"{file.relative_to(ROOT)}:{node.lineno}"
            if library in {"pq", "pl"} and not LITERAL.get(node.func.attr, {}).items() <= said.items():
                wrong.append(f"{where}: {library}.{node.func.attr} without {LITERAL[node.func.attr]}")
            if node.func.attr in {"glob", "rglob"} and library != "glob":
                wrong += [f"{where}: a name within a pattern" for each in node.args if not _escaped(each)]
    assert not wrong


def _escaped(pattern: ast.expr) -> bool:
    """Tell whether what is filled into a pattern is a constant of the project or escaped."""
    filled = [each.value for each in ast.walk(pattern) if isinstance(each, ast.FormattedValue)]
    return all(
        (isinstance(value, ast.Name) and value.id.isupper())
        or (isinstance(value, ast.Call) and ast.unparse(value.func) == "glob.escape")
        for value in filled
    )
