# SPDX-License-Identifier: Apache-2.0
"""Files that are whole or not there, and nothing else is there either."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sagecc.common.files import write_atomically


def ended_process() -> int:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    return process.pid


def test_what_a_killed_writer_left_goes_with_the_next_write(tmp_path: Path) -> None:
    target, dead = tmp_path / "card.json", ended_process()
    left = tmp_path / f".tmp-{dead}-card.json"
    others = [
        tmp_path / f".tmp-{os.getppid()}-card.json",  # of a process that runs
        tmp_path / f".tmp-{dead}-other-card.json",
        tmp_path / f".tmp-{dead}-card.json.gz",
        tmp_path / f".tmp-{dead}",
        tmp_path / ".tmp-scheme=cubic",
    ]
    for path in (left, *others):
        path.write_text("half of i")
    with write_atomically(target) as beside:
        beside.write_text("whole")
    assert not left.exists()
    assert all(path.exists() for path in others)
    assert target.read_text() == "whole"


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "card.json"
    target.write_text("old")
    with pytest.raises(ValueError, match="in mid-write"), write_atomically(target) as beside:
        beside.write_text("half of i")
        raise ValueError("in mid-write")
    assert [path.name for path in tmp_path.iterdir()] == ["card.json"]
    assert target.read_text() == "old"


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"), write_atomically(tmp_path / "nowhere" / "x") as beside:
        beside.write_text("x")
