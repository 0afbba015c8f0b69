# SPDX-License-Identifier: Apache-2.0
"""The bytes of one real episode of every scheme, pinned; a change of them raises kernel.identity.LAB_VERSION.

`python -m tests.collector.test_golden` writes collector/run/golden.json from the kernel in build/.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from sagecc.collector.kernel.identity import LAB_VERSION, POLICY
from sagecc.collector.run.golden import ENVIRONMENTS, FILE, digest, pinned
from sagecc.collector.run.grid import profile_environments
from tests.conftest import ROOT

OF_ALL = [scheme for scheme in ENVIRONMENTS if scheme not in {"cubic", "bbr", POLICY}]


def test_golden_is_of_this_lab_and_every_scheme() -> None:
    golden = pinned()
    assert golden["lab_version"] == LAB_VERSION, "run: python -m tests.collector.test_golden"
    assert golden["sha256"].keys() == ENVIRONMENTS.keys()
    assert {e.id for e in ENVIRONMENTS.values()} == {e.id for e in profile_environments("smoke")}


@pytest.mark.parametrize("scheme", ENVIRONMENTS)
def test_a_schemes_bytes_are_those_of_this_lab_version(kernel: Path, scheme: str) -> None:
    assert digest(kernel, scheme) == pinned()["sha256"][scheme], (
        "the same specification gives other bytes: where that is meant, raise LAB_VERSION (for a module of ours alone, "
        "its source says so already), then run: python -m tests.collector.test_golden"
    )


@pytest.mark.parametrize("xstate", ["none", "larger"])
@pytest.mark.parametrize("scheme", ["cubic", "bbr", POLICY, *(pytest.param(s, marks=pytest.mark.slow) for s in OF_ALL)])
def test_the_same_bytes_on_every_processor(kernel: Path, tmp_path: Path, scheme: str, xstate: str) -> None:
    """As on one without XSAVE, and one whose floating-point state is larger than the guest keeps (AMX)."""
    script = tmp_path / "linux"
    script.write_text(f'#!/bin/sh\nexec {kernel} "$@" xstate={xstate}\n')
    script.chmod(0o755)
    assert digest(script, scheme) == pinned()["sha256"][scheme]


def write() -> None:
    """Write golden.json, and say what changed."""
    kernel = ROOT / "build" / "sagecc-linux"
    before = pinned() if FILE.exists() else {"lab_version": 0, "sha256": {}}
    after = {scheme: digest(kernel, scheme) for scheme in ENVIRONMENTS}
    changed = [scheme for scheme, sha256 in after.items() if before["sha256"].get(scheme) != sha256]
    FILE.write_text(json.dumps({"lab_version": LAB_VERSION, "sha256": after}, indent=1) + "\n")
    print(f"lab {before['lab_version']} -> {LAB_VERSION}; changed: {', '.join(changed) or 'none'}", file=sys.stderr)


if __name__ == "__main__":
    write()
