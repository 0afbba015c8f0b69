# SPDX-License-Identifier: Apache-2.0
"""What a release has beside the wheel: notes, bill of materials, digests."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from sagecc.common.errors import SageccError
from scripts import release
from tests.conftest import ROOT

CHANGELOG = "# Changelog\n\n## Unreleased\n\n### Added\n\n- b\n\n## [0.1.0] - 2026-01-01\n\n- a\n"
KERNEL = {"source": "6.12.1-1", "libc": "2.36-9", "sha256": "ab"}


def test_notes_are_what_is_unreleased_and_the_versions_section() -> None:
    assert release.notes_of(CHANGELOG, "0.1.0") == "# sagecc 0.1.0\n\n### Added\n\n- b\n\n- a\n"
    assert release.notes_of(CHANGELOG.replace("- b", "").replace("### Added", ""), "0.1.0") == "# sagecc 0.1.0\n\n- a\n"
    assert release.notes_of(CHANGELOG, "0.2.0") == "# sagecc 0.2.0\n\n### Added\n\n- b\n"
    with pytest.raises(SageccError, match=r"no section '## 1\.0'"):
        release.notes_of("# Changelog\n", "1.0")


def test_this_changelog_has_notes() -> None:
    assert len(release.notes_of((ROOT / "CHANGELOG.md").read_text(), "0.1.0")) > 1000


def test_sha256sum_checks_the_digests(tmp_path: Path) -> None:
    files = [release.write(tmp_path / name, name) for name in ("b.whl", "a.tar.gz")]
    release.write(tmp_path / release.SUMS, release.sums(files))
    check = ["sha256sum", "--strict", "-c", release.SUMS]
    assert subprocess.run(check, cwd=tmp_path, capture_output=True).returncode == 0
    files[0].write_text("another")
    assert subprocess.run(check, cwd=tmp_path, capture_output=True).returncode == 1


def test_a_bill_of_materials_has_what_is_built_in() -> None:
    python = {
        "bomFormat": "CycloneDX",
        "metadata": {},
        "components": [{"name": "click", "version": "8", "description": "requirements line 1: click==8"}],
    }
    made = json.loads(release.bill_of_materials(json.dumps(python), "0.1.0", KERNEL))
    found = {each["name"]: each for each in made["components"]}
    assert found["click"] == {"name": "click", "version": "8"}
    assert found["glibc"]["version"] == "2.36-9" and "6.12.1-1" in found["linux-source-6.12"]["purl"]
    assert made["metadata"]["component"]["version"] == "0.1.0"


def test_changes_that_are_not_committed_are_refused(tmp_path: Path) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    (tmp_path / "a").write_text("1")
    for arguments in (["init", "-q"], ["add", "a"], ["commit", "-qm", "a"]):
        subprocess.run([*git, *arguments], check=True)
    release.refuse_changes(tmp_path)
    (tmp_path / "a").write_text("2")
    with pytest.raises(SageccError, match="a is changed: commit first"):
        release.refuse_changes(tmp_path)


def test_a_release_is_the_same_bytes_twice_and_its_digests_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sagecc-linux").write_text("stands in for the kernel")
    monkeypatch.setattr(release, "kernel_files", lambda *_: {"sagecc-linux": tmp_path / "sagecc-linux"})
    monkeypatch.setattr(release, "kernel_stamp", lambda: KERNEL)
    monkeypatch.setattr(release, "python_packages", lambda: '{"metadata": {}, "components": []}')
    digests = []
    for name in ("a", "b"):
        monkeypatch.setattr("sys.argv", ["release", "--for-test", "--out", str(tmp_path / name)])
        release.main()
        digests.append((tmp_path / name / release.SUMS).read_text())
        check = ["sha256sum", "--strict", "-c", release.SUMS]
        assert subprocess.run(check, cwd=tmp_path / name, capture_output=True).returncode == 0
    assert digests[0] == digests[1]
    kinds = [line.rpartition("-")[2] for line in digests[0].splitlines()]
    assert len(kinds) == 4 and len(list((tmp_path / "a").iterdir())) == 5
