# SPDX-License-Identifier: Apache-2.0
"""Policies by `sagecc run` and `sagecc league`: late answers, drawn actions, what they need not have."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from sagecc.commands.run import command as run
from tests.conftest import ROOT
from tests.helpers.commands import sagecc_here

pytestmark = pytest.mark.heavy

POLICY = ROOT / "models" / "sagecc-1"
EPISODE = ["--scheme", f"policy:{POLICY}", "--bandwidth", "12", "--rtt", "20", "--queue-bdp", "4", "--duration", "3"]


def played(kernel: Path, *options: str) -> dict[str, Any]:
    done = CliRunner().invoke(run, [*EPISODE, *options, "--json", "--kernel", str(kernel)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.output)
    return found


def test_a_slow_host_drives_worse(kernel: Path) -> None:
    """A policy that learned with answers at once grows into a free link; told late, it grows later."""
    at_once, none, late, again = (
        played(kernel, *(("--decision-latency", time) if time else ())) for time in ("", "0ms", "100ms", "0.1s")
    )
    assert at_once["sha256"] == none["sha256"]
    assert late["sha256"] == again["sha256"] != at_once["sha256"]
    assert played(kernel, "--decision-latency", "5ms")["sha256"] not in (late["sha256"], at_once["sha256"])
    assert late["cwnd_mean"] < at_once["cwnd_mean"]
    assert late["goodput_mbps"] < at_once["goodput_mbps"]


def test_drawn_actions_follow_the_seed(kernel: Path) -> None:
    mean, one, again = played(kernel), played(kernel, "--sample"), played(kernel, "--sample")
    other = played(kernel, "--sample", "--seed", "1")
    assert one["sha256"] == again["sha256"]
    assert len({mean["sha256"], one["sha256"], other["sha256"]}) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--decision-latency", "5h"], "'5h': a number is in ms, or has its unit, such as 250us or 0.1s"),
        (["--decision-latency", "-1ms"], "a decision's latency must be 0 to 1000 ms"),
        (["--decision-latency", "2s"], "a decision's latency must be 0 to 1000 ms"),
        (["--scheme", "cubic", "--decision-latency", "5ms"], "are for what the host drives, not cubic"),
        (["--scheme", "cubic", "--sample"], "are for what the host drives, not cubic"),
    ],
)
def test_bad_input_is_one_line(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, errors = sagecc_here(capsys, "run", *EPISODE, *options)
    assert status == 2
    assert message in errors
    assert len(errors.splitlines()) == 1


def test_a_policy_needs_neither_tensorflow_nor_a_gpu(kernel: Path) -> None:
    """In a process in which they cannot be imported."""
    code = (
        "import sys\n"
        "for name in ('tensorflow', 'tf_keras', 'keras', 'sonnet', 'acme', 'torch', 'jax', 'cupy'):\n"
        "    sys.modules[name] = None\n"
        "from sagecc.cli import main\n"
        "main(sys.argv[1:])\n"
    )
    options = [*EPISODE, "--json", "--kernel", str(kernel)]
    done = subprocess.run([sys.executable, "-c", code, "run", *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["sha256"] == played(kernel)["sha256"]
