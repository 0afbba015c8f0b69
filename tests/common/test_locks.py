# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sagecc.common import locks
from sagecc.common.errors import SageccError
from sagecc.common.locks import in_turn, lock_folder, sole_writer
from tests.helpers.locks import another_writer


def test_a_second_writer_is_told_who_writes(tmp_path: Path) -> None:
    with another_writer(tmp_path / "logs", tmp_path / "out") as (writer, _):
        for folders in (["out"], ["logs", "new"], ["new", "out"]):
            with pytest.raises(SageccError) as caught, sole_writer(*(tmp_path / name for name in folders)):
                pass
            held = tmp_path / next(name for name in folders if name != "new")
            assert str(caught.value) == (
                f"{held}: another sagecc command writes there (process {writer.pid}); wait for it or end it"
            )
        assert not (tmp_path / "new").exists()
    with sole_writer(tmp_path / "out"):
        pass


def test_a_killed_writers_locks_are_free_though_its_children_live(tmp_path: Path) -> None:
    with another_writer(tmp_path / "out") as (writer, child):
        writer.kill()
        writer.wait()
        try:
            os.kill(child, 0)
            with sole_writer(tmp_path / "out"):
                pass
        finally:
            os.kill(child, 9)


def test_a_folder_that_stays_empty_is_removed_if_it_was_made(tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    folders = (tmp_path / name for name in ("before", "new/er", "filled"))
    with pytest.raises(ZeroDivisionError), sole_writer(*folders):
        (tmp_path / "filled" / "file").touch()
        raise ZeroDivisionError
    assert {path.name for path in tmp_path.iterdir()} == {"before", "filled"}
    assert [path.name for path in (tmp_path / "filled").iterdir()] == ["file"]


def test_one_folder_by_two_names_is_locked_once(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("out")
    (tmp_path / "out").mkdir()
    with sole_writer(tmp_path / "out", tmp_path / "link", tmp_path / "x" / ".." / "out"):
        pass


def test_a_folder_that_takes_the_place_of_a_locked_one_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where another process removes the folder between its opening and its locking."""
    folder, acquire = tmp_path / "out", locks._acquire

    def replaced(handle: int, wait_s: float) -> None:
        monkeypatch.setattr(locks, "_acquire", acquire)
        folder.rmdir()
        acquire(handle, wait_s)

    monkeypatch.setattr(locks, "_acquire", replaced)
    handle = lock_folder(folder)
    assert os.path.samestat(os.fstat(handle), folder.stat())
    os.close(handle)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(SageccError, match="is no folder"), sole_writer(path):
            pass


def test_who_waits_says_so(tmp_path: Path) -> None:
    waits = (
        "import sys; from pathlib import Path; from sagecc.common.locks import in_turn\n"
        "with in_turn(Path(sys.argv[1]), 'waiting for it'): print('done')"
    )
    command = [sys.executable, "-c", waits, str(tmp_path / "lock")]
    with in_turn(tmp_path / "lock", ""):
        waiting = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert waiting.stderr is not None
        assert waiting.stderr.readline() == "waiting for it\n"
        assert waiting.poll() is None
    assert waiting.communicate(timeout=30) == ("done\n", "")
