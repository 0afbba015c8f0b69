# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from sagecc.policy import exact
from sagecc.policy.artefact import SPREAD_MAP, Control, PolicyArtefact
from tests.conftest import ROOT
from tests.helpers.processes import at_terminal, sigint
from tests.helpers.training import CONFIG, command, curve
from tests.learner.conftest import BAD, GOOD, PoolMaker, observations, write_pool

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("eagerly")]


def run(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, timeout=300)


def digest(folder: Path, name: str = "a") -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in (folder / "models" / name).iterdir()}


def steps_logged(folder: Path) -> int:
    path = folder / "logs" / "a" / "metrics.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a pool and what an undisturbed run made of it."""
    folder = tmp_path_factory.mktemp("whole")
    done = run(command(folder, write_pool(folder)))
    assert done.returncode == 0, done.stderr
    assert "60 steps in" in done.stdout
    assert done.stderr == ""
    return folder


def test_a_killed_run_goes_on_bit_for_bit(whole: Path, tmp_path: Path) -> None:
    pool, killed = whole / "pool", tmp_path
    each_step = command(killed, pool, checkpoint_every=0)
    process = subprocess.Popen(each_step, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 200
    while steps_logged(killed) < 6 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (killed / "models" / "a" / "card.json").exists()

    again = run(command(killed, pool))
    assert again.returncode == 0, again.stderr
    continued = int(again.stdout.split()[0])
    assert 0 < continued < 60
    assert curve(killed) == curve(whole)
    assert digest(killed) == digest(whole)
    networks = {"policy.safetensors", "policy.tflite", "policy.onnx"}
    assert set(digest(whole)) == {"card.json", "metrics.json", "curves.csv", *networks}

    card = PolicyArtefact.load(killed / "models" / "a").card
    metrics = json.loads((killed / "models" / "a" / "metrics.json").read_text())
    assert card["metrics"] == {k: v for k, v in metrics.items() if k != "parameters"}
    assert card["pool"]["windows"] == "10,200,1000"
    assert metrics["step"] == 60
    assert not {"steps_per_s", "waiting_share"} & set(metrics)
    assert list((killed / "logs" / "a").glob("events.out.tfevents.*"))


@pytest.mark.slow
def test_a_finished_run_is_not_repeated_and_a_damaged_one_is_named(whole: Path, tmp_path: Path) -> None:
    pool, killed = whole / "pool", tmp_path
    assert run(command(killed, pool)).returncode == 0
    once_more = run(command(killed, pool))
    assert once_more.returncode == 0, once_more.stderr
    assert "nothing to do" in once_more.stdout
    assert digest(killed) == digest(whole)

    # A lost artefact comes back from the checkpoint, without training; another configuration sets the run aside.
    shutil.rmtree(killed / "models" / "a")
    assert run(command(killed, pool)).returncode == 0
    assert digest(killed) == digest(whole)
    other = run([*command(killed, pool), "--steps", "3"])
    assert other.returncode == 0, other.stderr
    assert len(list((killed / "logs" / "a").glob("earlier-*/checkpoint.safetensors"))) == 1

    # A corrupt checkpoint of this very run is named, and not overwritten.
    checkpoint = killed / "logs" / "a" / "checkpoint.safetensors"
    checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
    shutil.rmtree(killed / "models" / "a")
    refused = run([*command(killed, pool), "--steps", "3"])
    assert refused.returncode == 2
    assert refused.stderr.startswith("sagecc: ")
    assert "is damaged" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert checkpoint.stat().st_size == 1000


SIGNALLING = """
import os, sys
import sagecc.cli
from sagecc.learner.journal import TrainingJournal

at, number = int(sys.argv.pop(1)), int(sys.argv.pop(1))
add = TrainingJournal.add

def add_and_signal(journal, step, *rest):
    if step == at:
        os.kill(os.getpid(), number)
    add(journal, step, *rest)

TrainingJournal.add = add_and_signal
sagecc.cli.main(sys.argv[1:])
"""
"""`sagecc` that gets a signal in the middle of a step."""


@pytest.mark.slow
def test_a_terminated_run_ends_after_its_step_and_goes_on_bit_for_bit(whole: Path, tmp_path: Path) -> None:
    """However often there are checkpoints."""
    stopped = tmp_path
    arguments = [*command(stopped, whole / "pool", checkpoint_every=3600), "--checkpoint-steps", "7"]
    for step, number in ((25, signal.SIGTERM), (38, signal.SIGINT)):
        with sigint():
            done = run([sys.executable, "-c", SIGNALLING, str(step), str(int(number)), *arguments[3:]])
        assert done.returncode == 128 + number, done.stderr
        # Workers agree on a stop within a step, so a signal after it ends the next one.
        assert done.stderr.startswith(f"stopped at step {step + 1} of 60; the same command goes on from there\n")
        assert "Traceback" not in done.stderr
        checkpoint = load_file(stopped / "logs" / "a" / "checkpoint.safetensors")
        assert checkpoint["steps"] == step + 1
    again = run(arguments)
    assert again.returncode == 0, again.stderr
    assert again.stdout.startswith("21 steps in")
    assert curve(stopped) == curve(whole)
    assert digest(stopped) == digest(whole)


def test_a_second_run_is_refused_and_a_closed_terminal_has_the_first_write_a_checkpoint(
    make_pool: PoolMaker, tmp_path: Path
) -> None:
    """Though its progress bar can no longer be drawn."""
    pool = make_pool()
    arguments = command(tmp_path, pool, checkpoint_every=3600, steps=10**6)
    first, terminal = at_terminal(arguments)
    shown = b""
    while not re.search(rb" [1-9]\d*/1000000 ", shown):
        shown += os.read(terminal, 4096)
    seconds = [
        subprocess.Popen([*arguments, option, str(tmp_path / "other")], stderr=subprocess.PIPE, text=True)
        for option in ("--logs", "--out")
    ]
    for second, held in zip(seconds, ("models", "logs"), strict=True):
        _, told = second.communicate(timeout=100)
        assert (second.returncode, told) == (
            2,
            f"sagecc: {tmp_path / held / 'a'}: another sagecc command writes there (process {first.pid}); "
            "wait for it or end it\n",
        )
    assert not (tmp_path / "other").exists()
    os.close(terminal)
    assert first.wait(100) == 129
    steps = load_file(tmp_path / "logs" / "a" / "checkpoint.safetensors")["steps"]
    assert [line[0] for line in curve(tmp_path)] == list(range(100, steps + 1, 100))


@pytest.mark.slow
def test_checkpoints_by_steps(make_pool: PoolMaker, tmp_path: Path) -> None:
    """Killed at step 26, it goes on from 20."""
    arguments = [*command(tmp_path, make_pool(), checkpoint_every=3600), "--checkpoint-steps", "10", "--steps", "30"]
    killed = run([sys.executable, "-c", SIGNALLING, "26", str(int(signal.SIGKILL)), *arguments[3:]])
    assert killed.returncode == -signal.SIGKILL
    assert load_file(tmp_path / "logs" / "a" / "checkpoint.safetensors")["steps"] == 20


def preferred(folder: Path, name: str) -> tuple[float, float]:
    """Mean action of the policy where srtt is low and where it is high, along one made-up flow."""
    policy = PolicyArtefact.load(folder / "models" / name)
    generator = np.random.default_rng(99)
    observation = np.stack(list(observations(200, generator).values()), axis=1)
    low = observation[:, 0] < 1
    hidden, actions = policy.initial_state(), []
    for row in observation:
        logits, loc, _, hidden = policy.step(row[None], hidden)
        actions.append(exact.mean(logits, loc)[0])
    return float(np.mean(np.array(actions)[low])), float(np.mean(np.array(actions)[~low]))


@pytest.mark.slow
def test_crr_prefers_the_better_action_and_cloning_does_not(make_pool: PoolMaker, tmp_path: Path) -> None:
    """The pool takes each action half of the time; only the reward says which is better in which state."""
    pool = make_pool((2000, 2000))
    for name in ("exp", "identity"):
        changes: dict[str, Any] = {"filter": name, "steps": 400, "batch": 32, "discount": 0.5, "min_scale": 0.05}
        done = run(command(tmp_path, pool, name, **changes))
        assert done.returncode == 0, done.stderr
    low, high = preferred(tmp_path, "exp")
    assert low > 0.6 * GOOD
    assert high < 0.6 * BAD
    assert max(map(abs, preferred(tmp_path, "identity"))) < 0.5 * GOOD


def test_the_card_says_how_often_a_policy_decides_and_what_bounds_it(whole: Path, tmp_path: Path) -> None:
    """Five ticks a decision: five times the action, and what acts on it in parts."""
    done = run(command(tmp_path, whole / "pool", steps=2, period_ms=50, start_share=0.5, window_bound=1.5))
    assert done.returncode == 0, done.stderr
    assert PolicyArtefact.load(whole / "models" / "a").control == Control()
    control = Control(period_ms=50, map=SPREAD_MAP, window_bound=1.5)
    assert PolicyArtefact.load(tmp_path / "models" / "a").control == control


def test_a_diverging_run_stops_and_keeps_the_batch(make_pool: PoolMaker, tmp_path: Path) -> None:
    done = run(command(tmp_path, make_pool(), policy_rate=1e9))
    assert done.returncode == 2
    assert "diverged at step" in done.stderr and "learning rates" in done.stderr
    assert (tmp_path / "logs" / "a" / "diverged.npz").exists()
    assert not (tmp_path / "models").exists()
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config", "huge"], "no training configuration 'huge'"),
        (["--pool", "nowhere"], "no pool at nowhere"),
        (["--steps", "0"], "--steps"),
        (["--seed", "-1"], "--seed"),
        (["--keep", "best"], "--keep best goes with --evaluate-every"),
        (["--evaluate-every", "5", "--evaluate-profile", "tiny"], "unknown profile 'tiny'"),
        (["--evaluate-every", "5", "--kernel", "nowhere"], "nowhere"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(tmp_path: Path, arguments: list[str], message: str) -> None:
    places = ["--out", str(tmp_path / "m"), "--logs", str(tmp_path / "l"), "--cache", str(tmp_path / "c")]
    done = run([sys.executable, "-m", "sagecc", "train", *places, *arguments])
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_count_parameters() -> None:
    done = run([sys.executable, "-m", "sagecc", "train", "--config", "paper", "--count-parameters"])
    assert done.stdout == "4550415\n"


TRAIN = """
import json, sys
from pathlib import Path
from sagecc.common import versions

versions.CRR += len(sys.argv) - 2

from sagecc.learner.pool_source import PoolExperience
from sagecc.learner.specification import from_dict
from sagecc.learner.train import train

config, *places = json.loads(sys.argv[1])
pool, out, logs, cache = map(Path, places)
config = from_dict(config)
print(train(config, PoolExperience(config, pool, cache, 0), out, logs).trained_steps)
"""


@pytest.mark.slow
def test_another_version_trains_anew_and_the_card_does_not_say_so(make_pool: PoolMaker, tmp_path: Path) -> None:
    places = (make_pool(), tmp_path / "a", tmp_path / "logs", tmp_path / "cache")

    def trained_steps(*version: str) -> int:
        """Train in a process of its own: TensorFlow is set up once per process."""
        told = json.dumps([{**CONFIG, "steps": 3}, *map(str, places)])
        done = run([sys.executable, "-c", TRAIN, told, *version])
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    assert trained_steps() == 3
    before = {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()}
    assert trained_steps() == 0
    assert trained_steps("raised") == 3
    assert {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()} == before
    assert len(list((tmp_path / "logs").glob("earlier-*/checkpoint.safetensors"))) == 1


@pytest.mark.slow
def test_what_holds_at_run_time_alone_trains_nothing_anew(make_pool: PoolMaker, tmp_path: Path) -> None:
    pool = make_pool()
    assert run(command(tmp_path, pool, steps=3)).returncode == 0
    weights = (tmp_path / "models" / "a" / "policy.safetensors").read_bytes()
    done = run(command(tmp_path, pool, steps=3, slow_start="acked", window_bound=2))
    assert done.returncode == 0, done.stderr
    card = json.loads((tmp_path / "models" / "a" / "card.json").read_text())
    assert (card["action"]["slow_start"], card["action"]["window_bound"]) == ("acked", 2)
    assert (tmp_path / "models" / "a" / "policy.safetensors").read_bytes() == weights
    assert not list((tmp_path / "logs" / "a").glob("earlier-*"))
