# SPDX-License-Identifier: Apache-2.0
"""The bytes of one real episode of every scheme, pinned: who changes them must raise collector.identity.LAB_VERSION.

`python -m tests.collector.test_golden` writes golden.json from the kernel in build/.
"""

from __future__ import annotations

import json
import sys
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest

from sagecc.collector.episode import run_episode
from sagecc.collector.grid import profile_environments
from sagecc.collector.identity import LAB_VERSION, POLICY
from sagecc.collector.schemes import OTHERS, POLICY_PREFIX, SCHEMES
from tests.conftest import ROOT

GOLDEN = Path(__file__).with_name("golden.json")
ENVIRONMENTS = dict(zip((*SCHEMES, *OTHERS, POLICY), cycle(profile_environments("smoke")), strict=False))
"""Each scheme in one environment of the profile smoke, in turn."""

OF_ALL = [scheme for scheme in ENVIRONMENTS if scheme not in {"cubic", "bbr", POLICY}]


def digest(kernel: Path, scheme: str) -> str:
    """Run a scheme's episode; return the SHA-256 of its samples."""
    if scheme != POLICY:
        return run_episode(kernel, ENVIRONMENTS[scheme], scheme).sha256
    return run_episode(kernel, ENVIRONMENTS[scheme], f"{POLICY_PREFIX}golden", 0, window).sha256


def window(sample: np.void) -> tuple[int, int]:
    """A policy without a model: a window that follows the RTT, paced every other second."""
    second = int(sample["t_ns"]) // 10**9
    return 20 + int(sample["srtt_us"]) // 1000, second % 2 * 1_500_000


def test_golden_is_of_this_lab_and_every_scheme() -> None:
    golden = json.loads(GOLDEN.read_text())
    assert golden["lab_version"] == LAB_VERSION, "run: python -m tests.collector.test_golden"
    assert golden["sha256"].keys() == ENVIRONMENTS.keys()
    assert {e.id for e in ENVIRONMENTS.values()} == {e.id for e in profile_environments("smoke")}


@pytest.mark.parametrize("scheme", ENVIRONMENTS)
def test_a_schemes_bytes_are_those_of_this_lab_version(kernel: Path, scheme: str) -> None:
    assert digest(kernel, scheme) == json.loads(GOLDEN.read_text())["sha256"][scheme], (
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
    assert digest(script, scheme) == json.loads(GOLDEN.read_text())["sha256"][scheme]


def write() -> None:
    """Write golden.json, and say what changed."""
    kernel = ROOT / "build" / "sagecc-linux"
    before = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {"lab_version": 0, "sha256": {}}
    after = {scheme: digest(kernel, scheme) for scheme in ENVIRONMENTS}
    changed = [scheme for scheme, sha256 in after.items() if before["sha256"].get(scheme) != sha256]
    GOLDEN.write_text(json.dumps({"lab_version": LAB_VERSION, "sha256": after}, indent=1) + "\n")
    print(f"lab {before['lab_version']} -> {LAB_VERSION}; changed: {', '.join(changed) or 'none'}", file=sys.stderr)


if __name__ == "__main__":
    write()
