# SPDX-License-Identifier: Apache-2.0
"""The bytes of one real episode of every scheme, pinned; a change of them raises kernel.identity.LAB_VERSION.

`make golden` writes collector/run/golden.json from the kernel in build/.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from sagecc.collector.kernel.identity import LAB_VERSION, POLICY
from sagecc.collector.run.golden import ENVIRONMENTS, digest, pinned
from sagecc.collector.run.grid import profile_environments

OF_ALL = [scheme for scheme in ENVIRONMENTS if scheme not in {"cubic", "bbr", POLICY}]


def test_golden_is_of_this_lab_and_every_scheme() -> None:
    golden = pinned()
    assert golden["lab_version"] == LAB_VERSION, "run: make golden"
    assert golden["sha256"].keys() == ENVIRONMENTS.keys()
    assert {e.id for e in ENVIRONMENTS.values()} == {e.id for e in profile_environments("smoke")}


@pytest.mark.parametrize("scheme", ENVIRONMENTS)
def test_a_schemes_bytes_are_those_of_this_lab_version(kernel: Path, scheme: str) -> None:
    assert digest(kernel, scheme) == pinned()["sha256"][scheme], (
        "the same specification gives other bytes: where that is meant, raise LAB_VERSION (for a module of ours alone, "
        "its source says so already), then run: make golden"
    )


@pytest.mark.parametrize("xstate", ["none", "larger"])
@pytest.mark.parametrize("scheme", ["cubic", "bbr", POLICY, *(pytest.param(s, marks=pytest.mark.slow) for s in OF_ALL)])
def test_the_same_bytes_on_every_processor(kernel: Path, tmp_path: Path, scheme: str, xstate: str) -> None:
    """As on one without XSAVE, and one whose floating-point state is larger than the guest keeps (AMX)."""
    script = tmp_path / "linux"
    script.write_text(f'#!/bin/sh\nexec {kernel} "$@" xstate={xstate}\n')
    script.chmod(0o755)
    assert digest(script, scheme) == pinned()["sha256"][scheme]
