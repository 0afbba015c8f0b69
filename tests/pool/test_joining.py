# SPDX-License-Identifier: Apache-2.0
"""Pools joined into one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sagecc.common.errors import SageccError
from sagecc.pool.checks import check_pool
from sagecc.pool.derivation import PoolOptions, build_pool
from sagecc.pool.joining import join_pools
from sagecc.pool.readme import README_FILE
from tests.helpers import files
from tests.helpers.raw_episodes import META, write_partition

OWN = "policy:mine@0"
PLAYER = {b"sagecc.player": b'{"policy": "ab"}'}


def write(raw: Path, *schemes: str) -> Path:
    for scheme in schemes:
        meta = META | PLAYER if scheme == OWN else META
        for set_name in ("I", "II"):
            write_partition(raw, set_name, scheme, rows=(300, 90), meta=meta)
    return raw


@pytest.fixture
def pools(tmp_path: Path) -> tuple[Path, Path, Path]:
    """The heuristics' pool, a policy's, and that of both derived at once."""
    for name, schemes in (("base", ("vegas", "cubic")), ("own", (OWN,)), ("both", ("vegas", "cubic", OWN))):
        build_pool(write(tmp_path / "raw" / name, *schemes), tmp_path / name, progress=False)
    return tmp_path / "base", tmp_path / "own", tmp_path / "both"


def test_a_joined_pool_has_the_bytes_of_one_derived_at_once(pools: tuple[Path, Path, Path], tmp_path: Path) -> None:
    base, own, both = pools
    out = tmp_path / "joined"
    manifest = join_pools([base, own], out)
    derived = {name: digest for name, digest in files.hashes(both).items() if not name.startswith(".derived")}
    assert files.hashes(out) == derived
    report = check_pool(out, progress=False)
    assert report.faults == ()
    assert report.episodes == 12
    part = "set=I/scheme=cubic/part-000.parquet"
    assert (out / part).samefile(base / part)
    assert join_pools([base, own], out) == manifest  # again: nothing to do
    stamp = (out / "manifest.json").stat().st_mtime_ns
    join_pools([base, own], out)
    assert (out / "manifest.json").stat().st_mtime_ns == stamp


def test_another_join_takes_its_place_unless_there_is_a_readme_of_somebodys_own(
    pools: tuple[Path, Path, Path], tmp_path: Path
) -> None:
    base, own, both = pools
    out = tmp_path / "joined"
    join_pools([base], out)
    join_pools([base, own], out)
    assert (out / README_FILE).read_bytes() == (both / README_FILE).read_bytes()
    (out / README_FILE).write_text("# My notes\n")
    with pytest.raises(SageccError, match=README_FILE):
        join_pools([base], out)
    assert (out / README_FILE).read_text() == "# My notes\n"


def test_without_links_files_are_copied(
    pools: tuple[Path, Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    base, own, _ = pools
    linked = files.hashes(tmp_path / "linked") if join_pools([base, own], tmp_path / "linked") else {}
    monkeypatch.setattr(os, "link", refuse)
    join_pools([base, own], tmp_path / "copied")
    assert files.hashes(tmp_path / "copied") == linked


def test_pools_that_do_not_fit(pools: tuple[Path, Path, Path], tmp_path: Path) -> None:
    base, own, _ = pools
    with pytest.raises(SageccError, match=r"both have set=I/scheme=cubic"):
        join_pools([base, own, base], tmp_path / "out")
    build_pool(tmp_path / "raw" / "own", tmp_path / "public", PoolOptions(alignment="public"), progress=False)
    with pytest.raises(SageccError, match="other options"):
        join_pools([base, tmp_path / "public"], tmp_path / "out")
    part = own / "set=I" / "scheme=policy:mine@0" / "part-000.parquet"
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(SageccError, match="not the file of its pool's manifest"):
        join_pools([base, own], tmp_path / "out")
    assert not (tmp_path / "out").exists() and not (tmp_path / ".tmp-out").exists()
