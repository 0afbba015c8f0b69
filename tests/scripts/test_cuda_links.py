# SPDX-License-Identifier: Apache-2.0
"""Links from CUDA 12's names to CUDA 13's libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

from sagecc.common.errors import SageccError
from scripts.cuda_links import LIBRARIES, RUNTIME, link


@pytest.fixture
def image(tmp_path: Path) -> Path:
    for number, name in enumerate((RUNTIME, *LIBRARIES.values())):
        path = tmp_path / "image" / f"part{number % 2}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path / "image"


def test_each_name_leads_to_its_library_and_a_second_call_changes_nothing(image: Path, tmp_path: Path) -> None:
    for _ in range(2):
        folders = link(tmp_path / "links", [image])
        assert folders == [image / "part0", image / "part1"]
        for name, of in LIBRARIES.items():
            assert (tmp_path / "links" / name).read_text() == of
        assert (tmp_path / "links" / RUNTIME).read_text() == RUNTIME


def test_a_missing_library_is_named_and_nothing_is_made(image: Path, tmp_path: Path) -> None:
    (image / "part1" / "libcublas.so.13").unlink()
    with pytest.raises(SageccError, match=r"libcublas\.so\.13: in none of"):
        link(tmp_path / "links", [image])
    assert not (tmp_path / "links").exists()


def test_a_file_in_a_links_place_stays(image: Path, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / RUNTIME).write_text("mine")
    with pytest.raises(SageccError, match="is a file"):
        link(tmp_path / "links", [image])
    assert (tmp_path / "links" / RUNTIME).read_text() == "mine"
