# SPDX-License-Identifier: Apache-2.0
"""Files that are whole or not there, and nothing else is there either."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from sagecc.common import files
from sagecc.common.errors import SageccError
from sagecc.common.files import write_atomically


def test_what_a_killed_writer_left_goes_with_the_next_write(tmp_path: Path) -> None:
    target = tmp_path / "card.json"
    left = tmp_path / ".tmp-0123abcd-card.json"
    others = [
        tmp_path / ".tmp-0123abcd-other-card.json",
        tmp_path / ".tmp-0123abcd-card.json.gz",
        tmp_path / ".tmp-0123abcd",
        tmp_path / ".tmp-scheme=cubic",
    ]
    for path in (left, *others):
        path.write_text("half of i")
    with write_atomically(target) as beside:
        beside.write_text("whole")
    assert not left.exists()
    assert all(path.exists() for path in others)
    assert target.read_text() == "whole"


def test_what_a_live_writer_writes_stays_whatever_its_process_is_called(tmp_path: Path) -> None:
    """In another container its process id means nothing here: it holds a lock."""
    target = tmp_path / "card.json"
    with write_atomically(target) as first:
        first.write_text("first")
        with write_atomically(target) as second:
            second.write_text("second")
        assert target.read_text() == "second"
        assert first.exists()
    assert target.read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["card.json"]


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root: a PID namespace")
def test_a_writer_in_another_pid_namespace_is_left_alone(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom pathlib import Path\nfrom sagecc.common.files import write_atomically\n"
        f"with write_atomically(Path({str(tmp_path / 'a')!r})) as beside:\n"
        "    beside.write_text('theirs')\n    print('under way', flush=True)\n    sys.stdin.readline()\n"
    )
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as theirs:
        assert theirs.stdout is not None and theirs.stdout.readline() == "under way\n"
        with write_atomically(tmp_path / "a") as beside:
            beside.write_text("ours")
        theirs.communicate("go on\n", timeout=60)
    assert theirs.returncode == 0
    assert (tmp_path / "a").read_text() == "theirs"


def test_a_write_goes_through_links_which_stay(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "target").write_text("old")
    (tmp_path / "link").symlink_to("disk/target")
    (tmp_path / "dangling").symlink_to("disk/new")
    for name in ("link", "dangling"):
        with write_atomically(tmp_path / name) as beside:
            assert beside.parent == tmp_path / "disk"  # where a rename is atomic
            beside.write_text("new")
        assert (tmp_path / name).is_symlink()
    assert [(tmp_path / "disk" / name).read_text() for name in ("target", "new")] == ["new", "new"]


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root: a device node")
def test_a_device_gets_the_bytes_and_stays_a_device(tmp_path: Path) -> None:
    device = tmp_path / "null"
    os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    with write_atomically(device) as beside:
        beside.write_text("anything")
    assert stat.S_ISCHR(device.lstat().st_mode)
    assert [path.name for path in tmp_path.iterdir()] == ["null"]


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root: a device node")
def test_a_full_device_is_an_error_that_names_it(tmp_path: Path) -> None:
    device = tmp_path / "full"
    os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 7))
    with pytest.raises(OSError, match="No space left on device") as error, write_atomically(device) as beside:
        beside.write_text("anything")
    assert error.value.filename == str(device)


def test_a_pipe_gets_the_bytes_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True) as reader:
        with write_atomically(pipe) as beside:
            beside.write_text("x" * 100_000)  # more than a pipe holds
        said, _ = reader.communicate(timeout=60)
    assert said == "x" * 100_000
    assert stat.S_ISFIFO(pipe.lstat().st_mode)


def test_a_pipe_that_nobody_reads_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "READER_S", 0.2)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SageccError, match="pipe that nobody reads"), write_atomically(tmp_path / "pipe") as beside:
        beside.write_text("x")


def test_a_folder_and_a_socket_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        for name in ("folder", "socket"):
            with (
                pytest.raises(SageccError, match=f"{name} is a folder, a socket or a disk"),
                write_atomically(tmp_path / name),
            ):
                pytest.fail("nothing may be written")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "socket"]


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
