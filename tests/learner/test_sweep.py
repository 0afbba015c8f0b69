# SPDX-License-Identifier: Apache-2.0
"""Sweeps: cells and their names by hand; trainings killed, failed and repeated."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from sagecc.common.errors import SageccError
from sagecc.learner.specification import from_dict, load
from sagecc.learner.sweep import combinations, results, summary, sweep_runs, write_results
from tests.conftest import ROOT
from tests.helpers.files import hashes
from tests.helpers.training import CONFIG
from tests.learner.conftest import write_pool

pytestmark = pytest.mark.tensorflow


def sweep(folder: Path, *options: str) -> list[str]:
    """Return the command of a sweep into folder/out, from folder/pool."""
    (folder / "mine.yaml").write_text(yaml.safe_dump(CONFIG))
    places = ("--pool", folder / "pool", "--cache", folder / "cache", "--out", folder / "out")
    return [sys.executable, "-m", "sagecc", "sweep", str(folder / "mine.yaml"), *map(str, places), *options]


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_every_combination_is_a_cell() -> None:
    found = combinations("offline", ["alpha=1,4", "network.hidden=[64, 32],[8, 4]", "steps=5"])
    assert [cell.name for cell in found] == [
        f"alpha={alpha},hidden={hidden},steps=5" for alpha in (1, 4) for hidden in ("[64, 32]", "[8, 4]")
    ]
    expected = load("offline", steps=5, algorithm={"alpha": 4}, network={"hidden": [8, 4]}).record()
    assert from_dict(found[-1].values).record() == expected
    assert [cell.name for cell in combinations("offline", [])] == ["unchanged"]


@pytest.mark.parametrize(
    ("over", "said"),
    [
        (["alhpa=1"], "alhpa is no field"),
        (["algorithm.alhpa=1"], "is no field; did you mean algorithm.alpha"),
        (["alpha=x"], "offline with alpha=x: .*algorithm.alpha must be of type float"),
        (["alpha"], "takes FIELD=VALUE,VALUE, not 'alpha'"),
        (["alpha=1,"], "takes FIELD=VALUE,VALUE"),
        (["alpha=1", "algorithm.alpha=2"], "names algorithm.alpha twice"),
        (["reward=../graded"], "has a slash"),
    ],
)
def test_what_is_no_field_or_no_value_is_named(over: list[str], said: str) -> None:
    with pytest.raises(SageccError, match=said):
        combinations("offline", over)


def test_another_configuration_in_its_place_is_refused(tmp_path: Path) -> None:
    sweep_runs(tmp_path, combinations("offline", ["alpha=1"]), [0], ())
    sweep_runs(tmp_path, combinations("offline", ["alpha=1"]), [0, 1], ())
    before = hashes(tmp_path)
    with pytest.raises(SageccError, match="is of another sweep"):
        sweep_runs(tmp_path, [*combinations("offline", ["alpha=2"]), *combinations("td3-bc", ["alpha=1"])], [0], ())
    assert hashes(tmp_path) == before


def test_a_table_that_is_no_sweeps_stays(tmp_path: Path) -> None:
    path = tmp_path / "sweep.csv"
    path.write_text("mine\n")
    with pytest.raises(SageccError, match="is no sweep's"):
        write_results(path, [{"cell": "a", "seed": 0, "loss": 1}])
    assert path.read_text() == "mine\n"


def test_a_summary_by_hand() -> None:
    rows = [{"cell": "a", "seed": 0, "step": 9, "loss": 1.0}, {"cell": "a", "seed": 1, "step": 9, "loss": 4.0}]
    assert summary([*rows, {"cell": "b", "seed": 0, "step": 9, "loss": 2.0}]) == [
        {"cell": "a", "seeds": 2, "loss": {"mean": 2.5, "low": 1.0, "high": 4.0}},
        {"cell": "b", "seeds": 1, "loss": {"mean": 2.0, "low": 2.0, "high": 2.0}},
    ]


def test_one_training_fails_and_the_others_are_done(tmp_path: Path) -> None:
    write_pool(tmp_path)
    done = run(sweep(tmp_path, "--seeds", "1", "--over", "reward=pool,none", "--", "--steps", "3"))
    assert done.returncode == 2
    assert done.stderr.startswith("sagecc: reward=none, seed 0: there is no reward 'none'")
    assert done.stderr.count("\n") == 1
    assert done.stdout.startswith("reward=pool: 1 seeds\n")
    with (tmp_path / "out" / "sweep.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    metrics = json.loads((tmp_path / "out" / "reward=pool" / "seed-0" / "metrics.json").read_text())
    assert row == {"cell": "reward=pool", "seed": "0", **{name: str(value) for name, value in metrics.items()}}


@pytest.mark.slow
def test_a_killed_sweep_ends_its_trainings_and_comes_to_the_same(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        folder.mkdir()
        write_pool(folder)
    done = run(sweep(whole, "--seeds", "2"))
    assert done.returncode == 0, done.stderr

    process = subprocess.Popen(sweep(killed, "--seeds", "2", "--", "--checkpoint-every", "0"), cwd=ROOT)
    metrics = killed / "out" / "unchanged" / "logs" / "seed-0" / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and len(metrics.read_text().splitlines()) > 5):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    again = run(sweep(killed, "--seeds", "2"))
    assert again.returncode == 0, again.stderr
    assert results_of(killed) == results_of(whole)
    for seed in (0, 1):
        policies = [hashes(folder / "out" / "unchanged" / f"seed-{seed}") for folder in (whole, killed)]
        assert policies[0] == policies[1]


def results_of(folder: Path) -> list[dict[str, object]]:
    return results(sweep_runs(folder / "out", combinations(str(folder / "mine.yaml"), []), [0, 1], ()))
