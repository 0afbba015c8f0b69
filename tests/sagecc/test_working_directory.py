# SPDX-License-Identifier: Apache-2.0
"""What lies in the working directory is no part of sagecc: no module, no kernel, no policy.

The folder of these tests is a stranger's: a module of each name of Python's library and of others', and a program in
place of the kernel, each of which says when it ran; and a folder in place of the policy that comes along.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sagecc.collector.kernel.identity import stamp, write_identities
from sagecc.common.files import sha256_file
from sagecc.common.shipped import BEST_POLICY
from tests.conftest import ROOT
from tests.helpers.policies import save_still_policy

pytestmark = pytest.mark.heavy

LIBRARIES = ("click", "duckdb", "matplotlib", "numba", "numpy", "polars", "pyarrow", "pydantic", "tqdm", "yaml")
SPY = """
with open({seen!r}, "a") as file:
    file.write(__name__ + "\\n")
raise SystemExit(f"{{__name__}} of the working directory was imported")
"""
SAGECC = (str(Path(sys.executable).with_name("sagecc")),)
CALLS = {
    "sagecc": SAGECC,
    "python -P -m": (sys.executable, "-P", "-m", "sagecc"),
    "python -m": (sys.executable, "-m", "sagecc"),
}


@pytest.fixture
def strangers(tmp_path: Path) -> Path:
    folder = tmp_path / "strangers"
    folder.mkdir()
    spy = SPY.format(seen=str(tmp_path / "seen"))
    for name in (*sys.stdlib_module_names, *LIBRARIES):
        (folder / f"{name}.py").write_text(spy)
    kernel = folder / "build" / "sagecc-linux"
    kernel.parent.mkdir()
    kernel.write_text(f"#!/bin/sh\necho kernel >> {tmp_path}/seen\n")
    kernel.chmod(0o755)
    write_identities(kernel)
    stamp(kernel).write_text(json.dumps({"sha256": sha256_file(kernel)}))
    save_still_policy(folder / BEST_POLICY)
    return folder


@pytest.fixture(params=CALLS)
def call(request: pytest.FixtureRequest, strangers: Path) -> tuple[str, ...]:
    """How sagecc is called; `python -m` itself imports some modules from the working directory: these are no spies."""
    if request.param == "python -m":
        (strangers.parent / "modules.py").write_text("import sys; print(*sys.modules)")
        told = subprocess.run([sys.executable, "-m", "modules"], cwd=strangers.parent, capture_output=True, text=True)
        for name in {name.partition(".")[0] for name in told.stdout.split()}:
            (strangers / f"{name}.py").unlink(missing_ok=True)
    return CALLS[request.param]


def sagecc(call: tuple[str, ...], folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSAFEPATH")}
    return subprocess.run([*call, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def imported(folder: Path) -> str:
    seen = folder.parent / "seen"
    return seen.read_text() if seen.exists() else ""


SET = """
name: mine
grids:
  - {bandwidth_mbps: [190], rtt_ms: [20, 30], queue_bdp: [1], duration_s: 20}
"""
"""Enough for two workers."""


def test_no_process_imports_what_lies_there(call: tuple[str, ...], strangers: Path, kernel: Path) -> None:
    (strangers / "set.yaml").write_text(SET)
    words = ("collect", "--schemes", "cubic", "--environments", "set.yaml", "--jobs", "2", "--kernel", str(kernel))
    done = sagecc(call, strangers, *words)
    assert (done.returncode, imported(strangers)) == (0, ""), done.stderr


def test_nor_does_the_doctor(call: tuple[str, ...], strangers: Path, kernel: Path) -> None:
    told = sagecc(call, strangers, "doctor", "--kernel", str(kernel))
    assert imported(strangers) == ""
    assert "golden episode" in told.stdout and "The lab works here." in told.stdout


@pytest.mark.parametrize("words", ["doctor", "run --scheme cubic --duration 0.5"])
def test_a_kernel_that_lies_there_is_not_run(words: str, strangers: Path) -> None:
    told = sagecc(SAGECC, strangers, *words.split())
    assert (told.returncode, imported(strangers)) == (0, ""), told.stderr


def test_a_policy_that_lies_there_is_not_taken_for_the_one_that_comes_along(strangers: Path, kernel: Path) -> None:
    run = ("run", "--duration", "0.5", "--kernel", str(kernel), "--scheme")
    told = sagecc(SAGECC, strangers, *run, f"policy:{BEST_POLICY}")
    assert (told.returncode, told.stderr.count("\n")) == (2, 1)
    assert f"{BEST_POLICY} comes with sagecc and lies here too: write ./{BEST_POLICY} for the one here" in told.stderr
    assert sagecc(SAGECC, strangers, *run, f"policy:./{BEST_POLICY}").returncode == 0


PROGRAM = """
from sagecc.learner.online.actors import Actors, ActorSpec
from sagecc.learner.exploration import ExpertFirst
from sagecc.learner.online.replay import Layout
from sagecc.policy.mlp import Mlp
from sagecc.policy.scaling import Scaling
from tests.helpers.fake_labs import fake_task

import numpy as np
from pathlib import Path

if __name__ == "__main__":
    scaling = Scaling("none", np.zeros(3, np.float32), np.ones(3, np.float32), 0.0)
    shared = {"index": 0, "processes": 1, "first_lab": 0, "labs": 1, "all_labs": 1, "replay": 100, "seed": 0}
    network, folder = Mlp(3, (4,), 0.2, "leaky_relu"), Path("shared")
    spec = ActorSpec(fake_task().make_labs, network, scaling, ExpertFirst(0), Layout(2, 3, 1), folder, **shared)
    with Actors([spec]) as actors:
        actors.check()
        actors.state()
"""


def test_nor_do_the_actors_of_a_program_elsewhere(strangers: Path) -> None:
    program = strangers.parent / "program.py"
    program.write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(program)], cwd=strangers, env=environment, capture_output=True, text=True
    )
    assert (done.returncode, imported(strangers)) == (0, ""), done.stderr
