# SPDX-License-Identifier: Apache-2.0
"""What is no regular file below a limit is refused in one line, at once, before anything reads it."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from sagecc.common.errors import SageccError
from sagecc.common.inputs import check_regular, read_regular


def test_a_file_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\0abc\r\n" * 50_000)
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "file") == read_regular(tmp_path / "link") == b"\0abc\r\n" * 50_000


def test_the_limit_itself_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_regular(path, 5) == b"12345"
    with pytest.raises(SageccError, match=r"file has 5 bytes, and at most 4 are read"):
        read_regular(path, 4)


def test_a_sparse_file_of_a_terabyte(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    path.touch()
    os.truncate(path, 2**40)
    with pytest.raises(SageccError, match=r"sparse has 1,099,511,627,776 bytes, and at most 16,777,216 are read"):
        read_regular(path)


def special_files(folder: Path) -> dict[str, Path]:
    """Return one file of each kind that a command must not read, by what it is called."""
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as served:
        served.bind(str(folder / "socket"))
    return {
        "a pipe": folder / "pipe",
        "a socket": folder / "socket",
        "a device": folder / "link",
        "a folder": folder,
    }


def test_special_files(tmp_path: Path) -> None:
    for kind, path in special_files(tmp_path).items():
        for refuses in (read_regular, check_regular):
            with pytest.raises(SageccError) as caught:
                refuses(path)
            assert str(caught.value) == f"{path} is {kind}, where a file is expected"


def test_a_pipe_that_takes_a_files_place_does_not_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr("sagecc.common.inputs.check_regular", lambda *_: None)
    with pytest.raises(SageccError, match="is a pipe"):
        read_regular(tmp_path / "pipe")


def test_missing_files_are_errors_of_the_system(tmp_path: Path) -> None:
    for refuses in (read_regular, check_regular):
        with pytest.raises(FileNotFoundError, match="nothing"):
            refuses(tmp_path / "nothing")


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"])
def test_a_name_that_no_file_can_have(name: str) -> None:
    with pytest.raises(SageccError, match=r"no file can have the name 'a.*b'") as caught:
        read_regular(Path(name))
    assert str(caught.value).isprintable()
