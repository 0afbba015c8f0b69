# SPDX-License-Identifier: Apache-2.0
"""Whole online runs, on labs without kernels; tests/execution/test_online.py has one with them."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sagecc.common.errors import SageccError
from sagecc.learner.online.lab_source import LabExperience
from sagecc.learner.specification import from_dict
from sagecc.learner.train import Outcome, train
from sagecc.policy.artefact import PolicyArtefact
from tests.conftest import ROOT
from tests.helpers.fake_labs import fake_task
from tests.helpers.locks import another_writer
from tests.helpers.processes import sighup, sigint
from tests.helpers.specifications import placed

pytestmark = pytest.mark.tensorflow

CONFIG: dict[str, Any] = {
    "steps": 600,
    "batch": 32,
    "task": {},
    "network": {"kind": "mlp", "hidden": [32, 32], "action_layer": 2},
    "algorithm": {
        "name": "td3",
        "policy_rate": 2e-3,
        "critic_rate": 2e-3,
        "discount": 0.3,
        "noise": 0.2,
        "average": 0.9,
    },
    "labs": {"count": 4, "replay": 2000, "warm_up": 200, "round_steps": 20, "round_decisions": 40},
    "control": {"window_bound": 1.5},
}


def once(folder: Path, values: dict[str, Any], per_lab: int = 2, actors: int = 1, **options: Any) -> Outcome:
    """Train in this process."""
    specification = from_dict(values)
    experience = LabExperience(specification, fake_task(per_lab), 0, actors, options.pop("replay", None))
    outcome = train(specification, experience, folder / "model", folder / "logs", **options)
    assert outcome is not None
    return outcome


CALL = """
import json, pathlib, sys
from sagecc.common.errors import SageccError
from tests.learner.online.test_online_train import once

if __name__ == "__main__":
    folder, options, changes = pathlib.Path(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3])
    try:
        print(once(folder, changes, **options).trained_steps)
    except SageccError as error:
        sys.exit(f"sagecc: {error}")
"""
"""A run in a process of its own: TensorFlow must be set up before it is used."""


def command(folder: Path, changes: dict[str, Any] | None = None, **options: Any) -> list[str]:
    folder.mkdir(exist_ok=True)
    (folder / "call.py").write_text(CALL)
    words = [str(folder), json.dumps(options), json.dumps({**CONFIG, **(changes or {})})]
    return [sys.executable, str(folder / "call.py"), *words]


def start(words: list[str]) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    return subprocess.Popen(words, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True, process_group=0)


def run(words: list[str]) -> tuple[int, str, str]:
    process = start(words)
    out, err = process.communicate(timeout=600)
    return process.returncode, out, err


def digests(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in (folder / "model").iterdir()}


def steps_logged(folder: Path) -> int:
    path = folder / "logs" / "metrics.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an undisturbed run leaves."""
    folder = tmp_path_factory.mktemp("whole")
    code, out, err = run(command(folder))
    assert (code, out) == (0, "600\n"), err
    return folder


def test_learns_what_is_best(whole: Path) -> None:
    """To be where minus the observation is; see FakeLabs."""
    policy = PolicyArtefact.load(whole / "model")
    seen = np.array([[x, 0.0, 1.0] for x in (-0.6, -0.2, 0.2, 0.6)], np.float32)
    _, actions, _, _ = policy.step(seen, policy.initial_state(4))
    np.testing.assert_allclose(actions[:, 0], -seen[:, 0], atol=0.25)
    learned_within = fake_task().control
    assert learned_within.window_bound is None
    assert policy.control == replace(learned_within, window_bound=1.5)
    curve = [json.loads(line) for line in (whole / "logs" / "metrics.jsonl").read_text().splitlines()]
    assert curve[-1]["reward_mean"] > curve[0]["reward_mean"]
    assert curve[-1]["decisions"] >= 200 + 600 / 20 * 40
    assert curve[-1]["episodes"] > 5
    assert curve[-1]["given_up"] == 0
    assert set(digests(whole)) == {
        "card.json", "metrics.json", "curves.csv", "policy.safetensors", "policy.tflite", "policy.onnx"
    }  # fmt: skip
    assert not (whole / "logs" / "replay").exists()


def stopped(folder: Path, number: signal.Signals, lines: int, **options: Any) -> tuple[int, str]:
    """Start or continue a run and send it a signal once so many lines more are logged; its code and what it said.

    SIGHUP is sent to its actors too, as a closed terminal does.
    """
    lines += steps_logged(folder)
    with sigint(), sighup():
        process = start(command(folder, **options))
    deadline = time.monotonic() + 500
    while steps_logged(folder) < lines and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    if number == signal.SIGHUP:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    _, err = process.communicate()
    return process.returncode, err


def test_a_run_that_was_killed_and_interrupted_goes_on_bit_for_bit(whole: Path, tmp_path: Path) -> None:
    """Its replay is too small for all records, so that the oldest make room, and checkpoints free places."""
    code, _ = stopped(tmp_path, signal.SIGKILL, 4, checkpoint_s=0.0)
    assert code == -signal.SIGKILL
    code, err = stopped(tmp_path, signal.SIGINT, 3, checkpoint_s=3600.0)
    assert code in (128 + signal.SIGINT, -signal.SIGINT, 1), err
    assert "the same command goes on from there" in err
    (ring,) = (tmp_path / "logs" / "replay").glob("ring-*.f32")
    kept = ring.rename(tmp_path / "kept")
    code, _, err = run(command(tmp_path))
    assert code == 1
    assert err.startswith("sagecc: ")
    assert "is gone" in err
    sound = kept.read_bytes()
    kept.rename(ring)
    ring.write_bytes(bytes(byte ^ 1 for byte in sound))
    code, _, err = run(command(tmp_path))
    assert code == 1
    assert err.startswith(f"sagecc: {ring}, the replay of the run in {tmp_path / 'logs'}, is damaged: ")
    ring.write_bytes(sound)
    code, out, err = run(command(tmp_path))
    assert code == 0, err
    assert 0 < int(out) < 600
    assert digests(tmp_path) == digests(whole)
    again = once(tmp_path, CONFIG)
    assert again.trained_steps == 0  # nothing to do, and TensorFlow is not loaded


@pytest.mark.slow
def test_a_run_whose_terminal_closed_goes_on_bit_for_bit(whole: Path, tmp_path: Path) -> None:
    code, err = stopped(tmp_path, signal.SIGHUP, 3, checkpoint_s=3600.0)
    assert code == 129, err
    assert "the same command goes on from there" in err
    code, _, err = run(command(tmp_path))
    assert code == 0, err
    assert digests(tmp_path) == digests(whole)


@pytest.mark.parametrize("held", ["model", "logs", "replay"])
def test_a_second_run_in_one_of_the_firsts_folders_is_refused(tmp_path: Path, held: str) -> None:
    with (
        another_writer(tmp_path / held),
        pytest.raises(SageccError, match=f"/{held}: another sagecc command writes there"),
    ):
        once(tmp_path, CONFIG, replay=tmp_path / "replay")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_several_actors_go_on_after_a_kill(tmp_path: Path) -> None:
    """Not bit for bit: nobody waits for anybody."""
    code, _ = stopped(tmp_path, signal.SIGKILL, 5, checkpoint_s=0.0, actors=2)
    assert code == -signal.SIGKILL
    code, out, err = run(command(tmp_path, actors=2))
    assert code == 0, err
    assert 0 < int(out) < 600
    policy = PolicyArtefact.load(tmp_path / "model")
    seen = np.array([[-0.6, 0, 1], [0.6, 0, 1]], np.float32)
    _, actions, _, _ = policy.step(seen, policy.initial_state(2))
    assert actions[0, 0] > 0.2 > -0.2 > actions[1, 0]
    decisions = [
        json.loads(line)["decisions"] for line in (tmp_path / "logs" / "metrics.jsonl").read_text().splitlines()
    ]
    assert decisions == sorted(decisions)


@pytest.mark.parametrize(
    ("changes", "options", "text"),
    [
        ({}, {"actors": 5}, "5 actor processes cannot share 4 labs"),
        ({"replay": 300}, {}, "too small for rounds of 40"),
        ({"hidden": []}, {}, "hidden needs layers"),
        ({"steps": 601}, {}, r"a multiple of labs.round_steps \(20\)"),
        ({"give_up_share": 1}, {}, "give_up_share must be from 0 to below 1"),
        ({"give_up_time_s": 0}, {}, "give_up_time_s must be above 0"),
        ({"window_bound": 0.5}, {}, "window_bound must be null or from 1 to 100"),
        ({"window": 4}, {}, "window is for recurrent networks and for returns over it"),
        ({"tau": "much"}, {}, "tau must be of type float"),
        ({"hidden": "many"}, {}, "hidden must be a list"),
        ({"speed": 1}, {}, "unknown field speed"),
    ],
)
def test_what_does_not_fit_is_said(tmp_path: Path, changes: dict[str, Any], options: dict[str, Any], text: str) -> None:
    with pytest.raises(SageccError, match=text):
        once(tmp_path, placed(CONFIG, changes), 1, **options)
    assert not list(tmp_path.iterdir())
