# SPDX-License-Identifier: Apache-2.0
"""Fig. 7's trainings with stand-ins for the learner and the lab; the leagues are real, on synthetic trajectories."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evidence.paper import FOLDER, learning
from evidence.training import meter, table
from evidence.training import run as training
from evidence.training.runs import KeepBest, Plan, Run
from sagecc.common.errors import SageccError
from sagecc.common.locks import locked
from sagecc.learner import runs as learner_runs
from sagecc.learner.evaluation import Evaluation
from sagecc.learner.specification import load
from tests.evidence.paper.made_up import write_runs
from tests.helpers.judging import without_a_lab
from tests.helpers.league_episodes import rows, set_one, set_two, write

ENVIRONMENTS = (set_one(12), set_two(12))
SCHEMES = {"vegas": ([7.0, 7.0], [12.0, 12.0]), "reno": ([5.0, 5.0], [40.0, 40.0])}
KERNEL = Path("kernel")


class Machinery:
    """Trains in no time; a policy sends 8 Mbps at 11 ms from its second half on, nothing before."""

    def __init__(self) -> None:
        self.trained: list[tuple[str, int, int]] = []
        self.error: Exception | None = None

    def train(self, run: Run, source: Any, folder: Path, evaluation: Evaluation, kernel: Path, jobs: int) -> None:
        self.trained.append((run.name, run.seed, evaluation.every))
        if self.error:
            raise self.error
        scores = {}
        for step in range(evaluation.every, run.config.steps + 1, evaluation.every):
            candidate = folder / "logs" / f"step-{step}"
            candidate.mkdir(parents=True, exist_ok=True)
            (candidate / "card.json").write_text(f"{step} {run.config.steps}")
            scores[step] = evaluation.score(candidate, step)
        learner_runs.write_tables(training.policy_folder(run, folder), [{"step": 1.0}], scores)

    def runner(self, kernel: Path, jobs: int, options: Any) -> Any:
        def run(environments: Any, policies: Any, out: Path) -> None:
            (policy,) = policies
            step, last = map(int, Path(policy.removeprefix("policy:"), "card.json").read_text().split())
            mbps, ms = ([8.0, 8.0], [11.0, 11.0]) if 2 * step > last else ([0.1, 0.1], [50.0, 50.0])
            write(out, {(e, policy): rows(e, policy, mbps, ms) for e in environments})

        return run


@pytest.fixture
def machinery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machinery:
    monkeypatch.chdir(tmp_path)
    found = Machinery()
    for name, value in {
        "trained": found.train,
        "source_of": lambda run, kernel, pools: SimpleNamespace(identity="pool"),
        "kernel_identity": lambda kernel, schemes: "linux",
        "RESULTS": tmp_path / "results",
        "POINTS": 2,
        "SEEDS": (0, 1),
        "RECIPES": ("small",),
    }.items():
        monkeypatch.setattr(learning, name, value)
    without_a_lab(monkeypatch, ENVIRONMENTS, SCHEMES, found.runner, lambda *_: None)
    write(tmp_path / "raw", {(e, s): rows(e, s, *SCHEMES[s]) for e in ENVIRONMENTS for s in SCHEMES})
    return found


def plan(steps: int = 40) -> Plan:
    run = Run("small", "tiny", {}, load("tiny", steps=steps), 0, Path("pool"), actors=2)
    return Plan({"small": run}, {"heldout": Path("raw")})


def result() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(Path("results/fig-7.json").read_text())["result"]["runs"]
    return found


def test_each_seed_has_its_rates_on_the_way_and_what_they_cost(machinery: Machinery) -> None:
    learning.make(plan(), KERNEL, 1)
    assert machinery.trained == [("small", 0, 20), ("small-1", 1, 20)]
    first, second = result()
    assert (first["name"], first["recipe"], second["name"], second["seed"]) == ("small", "small", "small-1", 1)
    early, late = first["points"]
    assert (early["step"], late["step"]) == (20, 40)
    assert 0 <= early["cpu_h"] <= late["cpu_h"] < 1
    assert early["rates"]["I"] == {"policy": 0, "vegas": 1, "reno": 0}
    assert late["rates"]["I"] == {"policy": 1, "vegas": 0, "reno": 0}
    assert early["rates"]["II"]["policy"] == 0


def test_what_is_done_is_not_done_again_and_what_changed_is(machinery: Machinery) -> None:
    learning.make(plan(), KERNEL, 1)
    learning.make(plan(), KERNEL, 1)
    assert len(machinery.trained) == 2
    learning.make(plan(steps=60), KERNEL, 1)
    assert machinery.trained[2:] == [("small", 0, 30), ("small-1", 1, 30)]


def test_a_failed_training_leaves_the_others(machinery: Machinery) -> None:
    with locked(_folder() / ".lock"), pytest.raises(SageccError, match=r"fig-7: small \(another process is at it\)"):
        learning.make(plan(), KERNEL, 1)
    assert [run["name"] for run in result()] == ["small-1"]
    machinery.error = SageccError("training diverged")
    with pytest.raises(SageccError, match=r"fig-7: small \(training diverged\)$"):
        learning.make(plan(), KERNEL, 1)
    machinery.error = None
    learning.make(plan(), KERNEL, 1)
    assert [run["name"] for run in result()] == ["small", "small-1"]


def test_a_damaged_result_is_one_line(machinery: Machinery) -> None:
    Path("results").mkdir()
    Path("results/fig-7.json").write_text('{"result": []}')
    with pytest.raises(SageccError, match=r"fig-7\.json: cannot be read .*make the figure again"):
        learning.make(plan(), KERNEL, 1)


def test_evaluations_do_not_count_as_training(machinery: Machinery, monkeypatch: pytest.MonkeyPatch) -> None:
    """3,600 s of CPU time pass whenever somebody looks: a training looks on, an evaluation ends where it began."""
    spent_s = iter(range(0, 3_600_000, 3600))
    monkeypatch.setattr(meter, "_spent_s", lambda: float(next(spent_s)))
    monkeypatch.setattr(learning, "SEEDS", (0,))
    learning.make(plan(), KERNEL, 1)
    assert [point["cpu_h"] for point in result()[0]["points"]] == [1, 2]


def test_a_run_with_a_curve_of_its_own_is_not_trained_again(machinery: Machinery) -> None:
    run = replace(plan().runs["small"], name="long", keep_best=KeepBest("small", 20, curve="heldout"))
    of = replace(plan(), runs={**plan().runs, "long": run})
    point = {"step": 20, "cpu_h": 0.1, "rates": {"I": {"policy": 0.5}, "II": {"policy": 0.2}}}
    curve = {"league": "heldout", "points": [point]}
    result_of = {"version": table.RESULT_VERSION, "name": "long", "seed": 0, "fingerprint": "f", "steps": 20}
    table.RESULTS.parent.mkdir(parents=True)
    learning.make(of, KERNEL, 1)
    assert [run["name"] for run in result()] == ["small", "small-1"]
    write_runs(table.RESULTS, {**result_of, "curve": curve})
    learning.make(of, KERNEL, 1)
    assert len(machinery.trained) == 2
    assert [(run["name"], run["recipe"], run["points"]) for run in result()][2:] == [("long", "long", [point])]


def _folder() -> Path:
    folder = FOLDER / "fig-7" / "small"
    folder.mkdir(parents=True)
    return folder
