# SPDX-License-Identifier: Apache-2.0
"""A command removes or replaces only what carries its own mark."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sagecc.common.errors import SageccError
from sagecc.common.marks import Mark, carries, parquet_mark, remove_leftover

ROOT = Path(__file__).parents[2]
PACKAGES = ("common", "schemas", "collector", "pool", "policy", "learner", "execution", "growth", "leagues", "sagecc")

MARK = Mark("a test's", r"own\.txt|proof", lambda folder: (folder / "proof").exists())


def marked(folder: Path) -> Path:
    folder.mkdir()
    (folder / "proof").touch()
    (folder / "own.txt").write_text("own")
    return folder


def test_what_carries_the_mark_is_removed(tmp_path: Path) -> None:
    MARK.remove(marked(tmp_path / "a"))
    assert not (tmp_path / "a").exists()
    MARK.remove(tmp_path / "a")  # again: nothing to do


def test_what_carries_no_mark_stays(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("the user's")
    for refuse in (MARK.check, MARK.check_whole, MARK.remove, MARK.remove_own):
        with pytest.raises(SageccError, match=r"own\.txt stands where a test's would be written, and is none"):
            refuse(tmp_path)
    with pytest.raises(SageccError), MARK.filling(tmp_path):
        (tmp_path / "own.txt").write_text("replaced")
    assert (tmp_path / "own.txt").read_text() == "the user's"


def test_a_thesis_among_marked_files_stays(tmp_path: Path) -> None:
    folder = marked(tmp_path / "a")
    (folder / "thesis.tex").write_text("years")
    MARK.check(folder)  # its own files may be replaced
    with pytest.raises(SageccError, match=r"thesis\.tex is no part of a test's"):
        MARK.remove(folder)
    MARK.remove_own(folder)
    assert [path.name for path in folder.iterdir()] == ["thesis.tex"]


def test_a_writer_that_was_killed_before_its_proof_may_write_again(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    with pytest.raises(KeyboardInterrupt), MARK.filling(folder):
        (folder / "own.txt").write_text("half of i")
        raise KeyboardInterrupt
    with MARK.filling(folder), MARK.filling(folder):  # one writer calls another
        (folder / "own.txt").write_text("whole")
        (folder / "proof").touch()
    assert sorted(path.name for path in folder.iterdir()) == ["own.txt", "proof"]


def test_a_file_in_the_folders_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(SageccError, match="is a file, not a folder"):
        MARK.check(tmp_path / "a")


def test_a_link_to_a_folder_is_never_followed_by_a_removal(tmp_path: Path) -> None:
    folder = marked(tmp_path / "a")
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(OSError, match="symbolic link"):
        MARK.remove(tmp_path / "link")
    assert (folder / "own.txt").exists()


def test_a_table_carries_its_mark_and_damage_proves_nothing(tmp_path: Path) -> None:
    mark = parquet_mark("tables", r".+\.parquet", b"key")
    (tmp_path / "a.parquet").write_bytes(b"no parquet at all")
    assert not carries(tmp_path, b"key")
    with pytest.raises(SageccError, match=r"a\.parquet stands where tables would be written"):
        mark.check(tmp_path)
    pq.write_table(pa.table({"x": [1]}).replace_schema_metadata({"key": "1"}), tmp_path / "b.parquet")
    mark.check(tmp_path)


def test_a_leftover_is_told_by_its_name(tmp_path: Path) -> None:
    for name in (".tmp-scheme=cubic", ".old-scheme=cubic"):
        (tmp_path / name).mkdir()
        remove_leftover(tmp_path / name)
    with pytest.raises(ValueError, match="is not named as a leftover"):
        remove_leftover(tmp_path)
    assert tmp_path.exists()


def test_folders_are_removed_in_one_place_of_the_code() -> None:
    """The kernel's build removes its own tree by names, which its log proves."""
    allowed = {"common/marks.py", "collector/kernel/build.py"}
    sources = {
        path.relative_to(ROOT).as_posix(): path.read_text()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if not any(part.is_symlink() for part in path.parents)
    }
    assert len(sources) > 200
    assert {name for name, text in sources.items() if re.search(r"\brmtree\b", text)} == allowed
