# SPDX-License-Identifier: Apache-2.0
"""What comes with sagecc is found from anywhere, and what lies in the working directory comes first."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from sagecc.cli import main
from sagecc.collector.kernel import build
from sagecc.common import shipped
from sagecc.common.errors import SageccError
from sagecc.common.files import sha256_file
from sagecc.common.optional import brought_by, library
from sagecc.policy.artefact import PolicyArtefact
from sagecc.schemas.environment_file import load_environment
from tests.conftest import ROOT


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installation's folder `shipped`, with a kernel in it; the working directory is another, empty one."""
    folder = tmp_path / "site-packages" / "sagecc" / "shipped"
    folder.mkdir(parents=True)
    (folder / "sagecc-linux").write_bytes(b"a kernel")
    known = {"sha256": sha256_file(folder / "sagecc-linux"), "source": "6.12.1", "libc": "2"}
    (folder / "kernel.json").write_text(json.dumps({**known, "identity": ""}))
    monkeypatch.setattr(shipped, "FOLDER", folder)
    monkeypatch.setattr(shipped, "INSTALLED", True)
    monkeypatch.setattr(shipped, "KERNEL", folder / "sagecc-linux")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return folder


def exit_of(arguments: list[str]) -> int | str | None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code


def test_the_kernel_built_here_comes_before_the_one_that_came_along(installed: Path) -> None:
    assert shipped.kernel() == installed / "sagecc-linux"
    (Path("build")).mkdir()
    shipped.BUILT.write_bytes(b"another")
    assert shipped.kernel() == shipped.BUILT


def test_without_any_kernel_the_place_is_named_where_one_is_built(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (installed / "sagecc-linux").unlink()
    assert shipped.kernel() == shipped.BUILT


def test_an_installation_verifies_its_kernel(installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_of(["kernel"]) == 0
    said = capsys.readouterr().out
    assert str(installed / "sagecc-linux") in said
    assert "sagecc kernel --output build/sagecc-linux" in said
    assert not Path("build").exists()


def test_a_damaged_kernel_is_told(installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (installed / "sagecc-linux").write_bytes(b"a kerne1")
    assert exit_of(["kernel"]) == 2
    assert "is not the kernel that came with sagecc" in capsys.readouterr().err


def test_an_installation_builds_from_the_source_that_came_along(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = installed / "source" / "linux-source-6.12.tar.xz"
    source.parent.mkdir()
    source.touch()
    monkeypatch.setattr(shipped, "SOURCE", source)
    monkeypatch.setenv("PATH", "")  # neither apt nor dpkg
    assert build.source_archive(tmp_path) == (source, "6.12.1")
    with pytest.raises(SageccError, match="building the kernel needs: apt-get install") as missing:
        build.ensure_kernel(tmp_path / "linux", tmp_path / "build", 1)
    assert not {"apt", "dpkg"} & set(str(missing.value).split())


def test_the_shipped_policy_is_found_by_its_name_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert shipped.policy("sagecc-1") == ROOT / "models" / "sagecc-1"
    assert PolicyArtefact.load("sagecc-1").path == ROOT / "models" / "sagecc-1"
    for other in ("models/sagecc-1", "nowhere", str(tmp_path / "sagecc-1")):
        assert shipped.policy(other) == Path(other)
    shutil.copytree(ROOT / "models" / "sagecc-1", "sagecc-1")
    assert shipped.policy("sagecc-1") == Path("sagecc-1")


def test_an_example_is_found_by_its_name_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    example = ROOT / "docs" / "examples" / "environments" / "cellular.yaml"
    assert load_environment(Path("cellular.yaml")) == load_environment(example)  # its trace lies beside it
    Path("cellular.yaml").write_text("links: [{rate_mbps: 1, queue_packets: 9}]\nrtt_ms: 10\nduration_s: 1\n")
    assert load_environment(Path("cellular.yaml")) != load_environment(example)


def test_a_missing_library_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SageccError, match=r"No module named 'no_such_library'.*pip install 'sagecc\[train\]'"):
        library("no_such_library", "train")
    with pytest.raises(SageccError, match=r"pip install 'sagecc\[analysis\]'"), brought_by("analysis"):
        import no_such_library  # type: ignore[import-not-found]  # noqa: F401
    (tmp_path / "a_folder_of_that_name").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(SageccError, match="No module named 'a_folder_of_that_name'"):
        library("a_folder_of_that_name", "huggingface")
