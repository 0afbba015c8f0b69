# SPDX-License-Identifier: Apache-2.0
"""The Slurm scripts of docs/examples, run with stand-ins for Slurm's commands and for sagecc."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from sagecc.learner.specification import load
from tests.conftest import ROOT

ABLATIONS, WORKERS = ((ROOT / "docs" / "examples" / f"{name}.sbatch").read_text() for name in ("ablations", "workers"))


def run(script: str, folder: Path, status: int, **variables: str) -> tuple[int, str]:
    """Run it in a folder of its own; return its exit code and what it asked Slurm and sagecc for."""
    stand_ins = {
        "srun": 'exec "$@"',
        "sagecc": f'echo "sagecc $*"; exit {status}',
        "scontrol": 'echo "scontrol $*"',
    }
    (folder / "bin").mkdir()
    for name, text in stand_ins.items():
        (folder / "bin" / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / "bin" / name).chmod(0o755)
    (folder / ".venv" / "bin").mkdir(parents=True)
    (folder / ".venv" / "bin" / "activate").touch()
    done = subprocess.run(
        ["bash", "-c", script],
        env={
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "SLURM_SUBMIT_DIR": str(folder),
            "SLURM_JOB_ID": "77",
            "SLURM_ARRAY_JOB_ID": "76",
            **variables,
        },
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


@pytest.mark.parametrize("script", [ABLATIONS, WORKERS], ids=["ablations", "workers"])
@pytest.mark.parametrize(("status", "requeued"), [(0, False), (2, False), (143, True)])
def test_a_stopped_run_goes_back_to_the_queue(script: str, tmp_path: Path, status: int, requeued: bool) -> None:
    found, said = run(script, tmp_path, status, SLURM_ARRAY_TASK_ID="0")
    assert found == status
    own = "76_0" if script == ABLATIONS else "77"  # 76 would be the whole array
    assert (f"scontrol requeue {own}\n" in said) == requeued
    assert re.search(r"^#SBATCH --signal=TERM@\d+$", script, re.MULTILINE)
    assert "#SBATCH --requeue\n" in script


def test_an_array_trains_each_variant_once(tmp_path: Path) -> None:
    first, last = map(int, re.findall(r"--array=(\d+)-(\d+)", ABLATIONS)[0])
    configs = []
    for task in range(first, last + 1):
        folder = tmp_path / str(task)
        folder.mkdir()
        said = run(ABLATIONS, folder, 0, SLURM_ARRAY_TASK_ID=str(task))[1]
        (config,) = re.findall(r"--config (\S+) --out models/\1 ", said)
        load(config)
        configs.append(config)
    assert len(set(configs)) == len(configs) == 10


def test_the_workers_options_are_sageccs(tmp_path: Path) -> None:
    said = run(WORKERS, tmp_path, 0)[1]
    assert "--strategy workers --device gpu" in said
