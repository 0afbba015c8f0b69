# SPDX-License-Identifier: Apache-2.0
"""What trajectories hang on: the lab's version and the source of a scheme's own module."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from sagecc.collector.kernel.identity import (
    LAB,
    LAB_VERSION,
    forget_identities,
    identity_folder,
    identity_of_source,
    join_identities,
    kernel_identity,
    write_identities,
)
from sagecc.common.errors import SageccError
from sagecc.schemas.schemes import OTHERS, SCHEMES
from tests.conftest import ROOT


def test_only_our_own_modules_are_named() -> None:
    source = (ROOT / "collector/kernel/modules/tcp_bbr2.c").read_bytes()
    assert identity_of_source("cubic") == f"linux-6.12 lab-{LAB_VERSION}"
    assert identity_of_source("bbr2") == f"{LAB} tcp_bbr2.c={hashlib.sha256(source).hexdigest()[:12]}"
    named = {scheme for scheme in (*SCHEMES, *OTHERS, "pure") if "=" in identity_of_source(scheme)}
    assert named == {"bbr2", "bbr3", "copa", "c2tcp", "ledbat", "ledbatpp", "pure"}


def test_written_beside_the_kernel_once(tmp_path: Path) -> None:
    kernel = tmp_path / "linux"
    with pytest.raises(SageccError, match="no kernel at"):
        kernel_identity(kernel, ["cubic"])
    kernel.touch()
    identity_folder(kernel).mkdir()
    (identity_folder(kernel) / "gone").write_text("linux-6.12 lab-1: a scheme that is no more")
    write_identities(kernel)
    files = {path: path.stat().st_mtime_ns for path in identity_folder(kernel).iterdir()}
    assert {path.name for path in files} == {*SCHEMES, *OTHERS, "pure"}
    write_identities(kernel)
    assert files == {path: path.stat().st_mtime_ns for path in identity_folder(kernel).iterdir()}
    pure, bbr2 = identity_of_source("pure").split()[2], identity_of_source("bbr2").split()[2]
    assert kernel_identity(kernel, ["policy:models/a"]) == f"{LAB} {pure}"
    assert kernel_identity(kernel, {"policy:models/a", "bbr2", "cubic"}) == f"{LAB} {bbr2} {pure}"
    forget_identities(kernel)
    with pytest.raises(SageccError, match=r"kernel-identity/cubic is missing.*run 'sagecc kernel'"):
        kernel_identity(kernel, ["cubic"])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("linux-6.12 lab-1", "linux-6.12 lab-2"),
        ("linux-6.12 lab-1", ""),
        ("linux-6.12 lab-1 tcp_bbr2.c=aa", "linux-6.12 lab-1 tcp_bbr2.c=bb"),
        ("linux-6.12 lab-1", "linux-6.6 lab-1"),
    ],
)
def test_what_cannot_be_joined(one: str, other: str) -> None:
    assert join_identities([one, one]) == one
    for pair in ((one, other), (other, one)):
        with pytest.raises(SageccError, match="different kernels"):
            join_identities(pair)


@pytest.mark.parametrize("name", ["../kernel-identity/cubic", "cubic/", "", "nowhere"])
def test_no_other_file_is_an_identity(tmp_path: Path, name: str) -> None:
    kernel = tmp_path / "linux"
    kernel.touch()
    write_identities(kernel)
    with pytest.raises(SageccError, match="the kernel has no scheme"):
        kernel_identity(kernel, ["cubic", name])
