# SPDX-License-Identifier: Apache-2.0
"""The Slurm scripts of docs/guide/cluster.md under a real Slurm of one node, without a GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.helpers import slurm
from tests.helpers.slurm import Slurm, wait_until
from tests.learner.conftest import write_pool
from tests.learner.test_cluster_scripts import ABLATIONS, WORKERS

pytestmark = pytest.mark.tensorflow

STEPS = 600
OPTIONS = f"--config tiny --device cpu --steps {STEPS} --checkpoint-steps 20"

ARRAY = (
    (r"variants=\(.*?\)", "variants=(a b)"),
    (r"--array=0-9", "--array=0-1"),
    (r'--config "\$config"', '--seed "$SLURM_ARRAY_TASK_ID"'),
)
PAIR = (
    (r"--nodes=2", "--nodes=1"),
    (r"--ntasks-per-node=1", "--ntasks-per-node=2"),
    (r"--config paper", "--out models/a"),
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with slurm.running(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


def edited(script: str, pool: Path, changes: tuple[tuple[str, str], ...]) -> str:
    """Return a script with a tiny training on a processor in the place of its own."""
    for pattern, text in (
        *changes,
        (r"#SBATCH --gres=.*\n", ""),
        (r"--cpus-per-task=\d+", "--cpus-per-task=1"),
        (r"--device gpu", f"{OPTIONS} --pool {pool}"),
    ):
        script, count = re.subn(
            pattern, lambda _, text=text: text, script, flags=re.DOTALL if "variants" in pattern else 0
        )
        assert count, pattern
    return script


@pytest.mark.slow
@pytest.mark.skipif(
    bool(slurm.MISSING), reason=f"no {', '.join(slurm.MISSING)}: the Makefile's test-full says how to install them"
)
@pytest.mark.parametrize(
    ("script", "changes", "runs", "stopped"),
    [(ABLATIONS, ARRAY, ("a", "b"), "_1"), (WORKERS, PAIR, ("a",), "")],
    ids=["ablations", "workers"],
)
def test_a_stopped_training_is_requeued_and_resumes(
    cluster: Slurm,
    tmp_path: Path,
    script: str,
    changes: tuple[tuple[str, str], ...],
    runs: tuple[str, ...],
    stopped: str,
) -> None:
    """Of an array the last task is stopped, whose id is the array's too: the others run on."""
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/activate").write_text(f". {ROOT}/.venv/bin/activate\n")
    (tmp_path / "job.sh").write_text(edited(script, write_pool(tmp_path), changes))
    job = cluster.ask("sbatch", "--parsable", "job.sh", folder=tmp_path).strip()
    wait_until((tmp_path / "logs" / runs[-1] / "checkpoint.safetensors").exists, "no checkpoint")
    cluster.ask("scancel", "--signal=TERM", f"{job}{stopped}")
    wait_until(lambda: all(each["JobState"] == "COMPLETED" for each in cluster.jobs(job)), "not done")
    restarts = {each.get("ArrayTaskId", ""): each["Restarts"] for each in cluster.jobs(job)}
    assert restarts == {"": "1"} or restarts == {"0": "0", "1": "1"}
    (told,) = (path.read_text() for path in tmp_path.glob("slurm-paper.log" if not stopped else "slurm-*-1.log"))
    (steps,) = re.findall(r"^(\d+) steps in", told, re.MULTILINE)
    assert 0 < int(steps) < STEPS
    for run in runs:
        assert (tmp_path / "models" / run / "card.json").is_file()
