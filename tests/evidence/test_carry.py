# SPDX-License-Identifier: Apache-2.0
"""A training that goes on elsewhere, from what Git keeps of it."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from evidence.training import ARTEFACTS, CARRIED, LOGS, METER
from evidence.training.carry import command, keep, take_up
from sagecc.common.errors import SageccError
from sagecc.common.locks import locked
from sagecc.learner.continuation import CHECKPOINT
from tests.conftest import ROOT
from tests.helpers.files import hashes
from tests.helpers.training import CONFIG
from tests.learner.conftest import write_pool

pytestmark = pytest.mark.tensorflow

TRAIN = """
import os, sys
from pathlib import Path
from sagecc.learner.journal import TrainingJournal
from sagecc.learner.pool_source import PoolExperience
from sagecc.learner.specification import load
from sagecc.learner.train import train

config, pool, out, logs, cache, killed_at = sys.argv[1:]
add = TrainingJournal.add

def add_and_die(journal, step, *rest):
    if step == int(killed_at):
        os.kill(os.getpid(), 9)
    add(journal, step, *rest)

TrainingJournal.add = add_and_die
config = load(config)
train(config, PoolExperience(config, Path(pool), Path(cache), 0), Path(out), Path(logs), checkpoint_s=0)
"""


def train(pool: Path, folder: Path, killed_at: int = 0) -> int:
    config = pool.parent / "carried.yaml"
    config.write_text(yaml.safe_dump(CONFIG))
    places = [config, pool, folder / "policy", folder / LOGS, pool.parent / "cache"]
    done = subprocess.run(
        [sys.executable, "-c", TRAIN, *map(str, places), str(killed_at)], cwd=ROOT, capture_output=True, timeout=300
    )
    return done.returncode


@pytest.mark.slow
def test_a_training_goes_on_bit_for_bit_from_what_is_kept_of_it(tmp_path: Path) -> None:
    pool = write_pool(tmp_path)
    whole, killed, kept, elsewhere = (tmp_path / name for name in ("whole", "killed", "kept", "elsewhere"))
    assert train(pool, whole) == 0
    assert train(pool, killed, killed_at=31) == -signal.SIGKILL
    (killed / METER).write_text('{"cpu_s": 12}')
    keep(killed, kept)
    assert not list(kept.rglob("events.*"))
    shutil.rmtree(killed)

    assert take_up(kept, elsewhere)
    assert (elsewhere / METER).read_text() == '{"cpu_s": 12}'
    lines = (elsewhere / LOGS / "metrics.jsonl").read_text().splitlines()
    assert train(pool, elsewhere) == 0
    assert hashes(elsewhere / "policy") == hashes(whole / "policy")
    assert (elsewhere / LOGS / "metrics.jsonl").read_text().splitlines()[: len(lines)] == lines


def training(folder: Path, content: str = "weights") -> Path:
    (folder / LOGS / "candidates/step-5").mkdir(parents=True)
    (folder / LOGS / "candidates/step-5/policy.safetensors").write_text(content)
    (folder / LOGS / CHECKPOINT).write_text(content)
    (folder / LOGS / "events.out.tfevents.1").write_text("curves")
    (folder / "policy").mkdir()
    return folder


def test_kept_is_what_a_training_needs_and_nothing_of_an_earlier_one(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    (kept / LOGS / "candidates/step-3").mkdir(parents=True)
    keep(training(tmp_path / "a"), kept)
    found = {str(path.relative_to(kept)) for path in kept.rglob("*") if path.is_file()}
    assert found == {f"logs/{CHECKPOINT}", "logs/candidates/step-5/policy.safetensors"}


def test_a_training_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    here, kept = training(tmp_path / "here"), training(tmp_path / "kept", "others")
    assert not take_up(kept, here)
    assert (here / LOGS / CHECKPOINT).read_text() == "weights"
    assert not take_up(tmp_path / "none", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_what_a_killed_copy_left_is_not_taken_for_a_training(tmp_path: Path) -> None:
    kept, folder = training(tmp_path / "kept"), tmp_path / "folder"
    (folder / f".{LOGS}").mkdir(parents=True)
    (folder / f".{LOGS}" / CHECKPOINT).write_text("wei")
    assert take_up(kept, folder)
    assert (folder / LOGS / CHECKPOINT).read_text() == "weights"
    assert not (folder / f".{LOGS}").exists()


def test_a_training_at_work_is_not_kept(tmp_path: Path) -> None:
    folder = training(tmp_path / "a")
    with locked(folder / ".lock"), pytest.raises(SageccError, match="a process is at it"):
        keep(folder, tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


def test_the_command_keeps_by_name_and_refuses_what_is_no_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    training(ARTEFACTS / "one")
    assert CliRunner().invoke(command, ["one"]).exit_code == 0
    assert (CARRIED / "one" / LOGS / CHECKPOINT).exists()
    refused = CliRunner().invoke(command, ["two"])
    assert refused.exit_code == 2
    assert "there is no training to keep" in refused.output
    assert refused.output.count("\n") == 1
