# SPDX-License-Identifier: Apache-2.0
"""`make verify`: it sees a byte or a number that is another, and needs no more packages than the wheel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from evidence.kept import path_of, read_kept
from evidence.machine import KERNEL
from sagecc.common.errors import SageccError
from scripts import base_requirements, verify
from tests.conftest import ROOT

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def kept() -> pl.DataFrame:
    return read_kept(ROOT / path_of(verify.PROFILE))


def test_what_is_compared_is_published(kept: pl.DataFrame) -> None:
    published = verify.read_published(ROOT / verify.LOCK)
    assert str(KERNEL) in published
    for scheme in verify.COLLECTED:
        assert {f"datasets/raw/set={name}/scheme={scheme}" for name in ("I", "II")} <= published.keys()
    assert verify.POLICY in set(kept["scheme"])


def test_a_lock_of_another_profile_is_refused(tmp_path: Path) -> None:
    lock = yaml.safe_load((ROOT / verify.LOCK).read_text())
    stage = lock["stages"][f"collect@{verify.COLLECTED[0]}"]
    stage["cmd"] = stage["cmd"].replace("--profile small", "--profile smoke")
    path = tmp_path / "dvc.lock"
    path.write_text(yaml.safe_dump(lock))
    with pytest.raises(SageccError, match="not of the profile small: 'git checkout"):
        verify.read_published(path)


def test_a_folder_s_digest_is_that_of_dvc(tmp_path: Path) -> None:
    """The one in a lock: of a folder with two files, as DVC's own code makes it."""
    from dvc_data.hashfile.hash_info import HashInfo
    from dvc_data.hashfile.tree import Tree

    tree: Any = Tree()  # type: ignore[no-untyped-call]
    for name, content in (("part-000.parquet", b"rows"), ("episodes.parquet", b"episodes")):
        (tmp_path / name).write_bytes(content)
        tree.add((name,), None, HashInfo("md5", verify._md5(content)))
    tree.digest()
    assert verify.folder_md5(tmp_path) == tree.hash_info.value
    (tmp_path / "part-000.parquet").write_bytes(b"rowz")
    assert verify.folder_md5(tmp_path) != tree.hash_info.value


def test_the_same_numbers_are_the_same(kept: pl.DataFrame) -> None:
    finding = verify.compared(kept.filter(pl.col("scheme") == verify.POLICY), kept)
    assert finding.same
    assert finding.said.startswith("the same numbers in 360 windows; of these it wins 8")


def test_a_number_that_is_another_is_seen(kept: pl.DataFrame) -> None:
    own = kept.filter(pl.col("scheme") == verify.POLICY)
    nudged = own.with_columns(
        goodput_mbps=pl.when(pl.int_range(pl.len()) == 7).then(pl.col("goodput_mbps") + 1e-9).otherwise("goodput_mbps")
    )
    finding = verify.compared(nudged, kept)
    assert not finding.same and finding.said.startswith("1 of 360 windows differ; it wins 8")
    assert not verify.compared(own.head(300), kept).same


def test_its_end_says_what_differs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found = [verify.Checked("cubic, Set I", True, verify.SAME), verify.Checked("vegas, Set I", False, "other bytes")]
    monkeypatch.setattr(verify, "findings", lambda: iter(found))
    assert verify.main() == 1
    assert "make verify: vegas, Set I: not what is published" in capsys.readouterr().out
    monkeypatch.setattr(verify, "findings", lambda: iter(found[:1]))
    assert verify.main() == 0
    assert "trajectories are the same bytes" in capsys.readouterr().out


def test_the_base_is_what_a_wheel_requires_and_what_that_needs() -> None:
    packages = base_requirements.blocks(base_requirements.LOCK.read_text())
    found = base_requirements.needed(packages, base_requirements.base())
    assert base_requirements.base() <= found <= packages.keys()
    assert {"llvmlite", "markupsafe", "polars-runtime-32"} <= found
    assert not found & {"tensorflow", "dvc", "ray", "pytest"}
    assert all("--hash=sha256:" in packages[name] for name in found)


def test_names_of_parents_are_read_in_both_forms() -> None:
    assert base_requirements.parents("a==1 \\\n    --hash=sha256:0\n    # via b\n") == {"b"}
    assert base_requirements.parents("a==1\n    # via\n    #   b\n    #   -r x.in\n    #   c-d.e\n") == {"b", "c-d.e"}
