# SPDX-License-Identifier: Apache-2.0
"""What is no regular file below a limit is refused in one line, at once, before anything reads it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sagecc.common.errors import SageccError
from sagecc.common.inputs import check_regular, read_regular
from tests.helpers.special_files import PUT, put


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


@pytest.mark.parametrize("kind", PUT)
def test_special_files(kind: str, tmp_path: Path) -> None:
    put(kind, tmp_path / "file")
    for refuses in (read_regular, lambda path: check_regular(path, 2**40)):
        with pytest.raises(SageccError, match=f"^{tmp_path}/file {kind}, (where a file is expected|and at most)"):
            refuses(tmp_path / "file")


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
