# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import csv
import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from sagecc.common.arrays import Floats
from sagecc.common.errors import SageccError
from sagecc.learner.evaluation import Candidates, Evaluation
from sagecc.learner.pool_source import PoolExperience
from sagecc.learner.runs import CURVE_ROWS, claim, thinned
from sagecc.learner.train import train
from sagecc.policy.artefact import PolicyArtefact, write
from sagecc.policy.residual import NetworkSizes
from sagecc.policy.scaling import Scaling
from tests.conftest import ROOT
from tests.helpers.specifications import SMALLEST, spec
from tests.learner.conftest import PoolMaker

pytestmark = [pytest.mark.tensorflow, pytest.mark.usefixtures("eagerly")]

CONFIG = spec(SMALLEST, batch=8, window=6, steps=60, atoms=11)
SIZES = NetworkSizes(1, 4, 0, 0, 1, 0.01)
SCALING = Scaling("none", np.zeros(1, np.float32), np.ones(1, np.float32), 0.0)


def weights(value: float) -> dict[str, Floats]:
    return {name: np.full(shape, value, np.float32) for name, shape in SIZES.shapes().items()}


def write_one(folder: Path, values: dict[str, Floats], step: int) -> None:
    write(folder, values, SIZES, SCALING, ("srtt",), {"step": step})


def candidates(folder: Path, scores: dict[int, float], best_by: str = "good") -> Candidates:
    def score(policy: Path, step: int) -> dict[str, float]:
        assert PolicyArtefact.load(policy).card["step"] == step
        return {"good": scores[step]}

    return Candidates(Evaluation(score, 10, "a test", best_by), folder, write_one)


def test_policies_are_looked_at_every_so_many_steps_and_at_the_end() -> None:
    looked = Evaluation(lambda policy, step: {}, 20, "")
    assert [step for step in range(51) if looked.due(step, last=50)] == [20, 40, 50]
    with pytest.raises(SageccError, match="every 0 steps"):
        Evaluation(lambda policy, step: {}, 0, "")


def test_the_best_stays_and_of_equal_ones_the_last(tmp_path: Path) -> None:
    scores = {10: 0.1, 20: 0.5, 30: 0.5, 40: 0.2}
    of, noted = candidates(tmp_path, scores), {}
    left = []
    for step in scores:
        noted[step] = of.evaluate(step, weights(step))
        of.tidy(noted)
        left.append([path.name for path in tmp_path.iterdir()])
    assert left == [["step-10"], ["step-20"], ["step-30"], ["step-30"]]
    step, found = of.best(noted)
    assert step == 30
    assert all((values == 30).all() for values in found.values())


def test_where_the_last_is_kept_no_candidate_stays(tmp_path: Path) -> None:
    of = candidates(tmp_path, {10: 1.0}, best_by="")
    of.tidy({10: of.evaluate(10, weights(1))})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("score", "best_by", "message"), [(np.nan, "good", "no numbers"), (1.0, "fun", "no score 'fun'")]
)
def test_scores_that_cannot_be_compared(tmp_path: Path, score: float, best_by: str, message: str) -> None:
    with pytest.raises(SageccError, match=message):
        candidates(tmp_path, {10: score}, best_by).evaluate(10, weights(1))


def test_a_curve_is_thinned_and_keeps_its_end() -> None:
    curve = [{"step": float(step)} for step in range(2 * CURVE_ROWS + 1)]
    thin = thinned(curve)
    assert len(thin) <= CURVE_ROWS
    assert thin[-1] == curve[-1]
    assert len({b["step"] - a["step"] for a, b in pairwise(thin)}) == 1
    assert thinned(curve[:7]) == curve[:7]


def test_another_run_sets_the_candidates_aside_too(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    for turn in ("a" * 64, "b" * 64, "a" * 64, "b" * 64):
        claim(logs, turn, {"seed": 0})
        (logs / "candidates" / "step-1").mkdir(parents=True)
        (logs / "candidates" / "step-1" / "card.json").write_text(turn)
        (logs / "metrics.jsonl").write_text(turn)
    kept = {path.relative_to(logs).parts[:-2]: path.read_text()[0] for path in logs.rglob("card.json")}
    one, other = f"earlier-{'a' * 12}", f"earlier-{'b' * 12}"
    assert kept == {
        ("candidates",): "b",
        (one, "candidates"): "a",
        (one, "candidates.1"): "a",
        (other, "candidates"): "b",
    }
    assert (logs / one / "metrics.jsonl").read_text() == "a" * 64


class Hook:
    """An evaluation that likes step 40 best, is killed once while it looks at it, and notes whom it saw."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self._killed = False

    def __call__(self, policy: Path, step: int) -> dict[str, float]:
        self.seen.append(step)
        if step == 40 and not self._killed:
            self._killed = True
            raise KeyboardInterrupt
        return {"liking": 100 - abs(step - 40)}


def scenario(pool: Path, folder: Path) -> None:
    """Train without and with an evaluation, the latter killed twice; print what the hook saw each time."""
    # Only this process may load it: TensorFlow must be set up before it is used.
    from sagecc.learner.journal import TrainingJournal

    def one(name: str, evaluation: Evaluation | None = None) -> Any:
        experience = PoolExperience(CONFIG, pool, folder / "cache", 0)
        return train(
            CONFIG, experience, folder / name, folder / f"{name}-logs", checkpoint_s=3600, evaluation=evaluation
        )

    one("plain")
    hook = Hook()
    looked = Evaluation(hook, 20, "a test", "liking")
    seen: list[list[int]] = []

    def killed() -> None:
        try:
            one("looked", looked)
        except KeyboardInterrupt:
            seen.append(list(hook.seen))
            hook.seen.clear()

    killed()
    add = TrainingJournal.add

    def add_until_55(journal: TrainingJournal, step: int, *others: Any) -> None:
        add(journal, step, *others)
        if step == 55:
            raise KeyboardInterrupt

    TrainingJournal.add = add_until_55  # type: ignore[method-assign,assignment]
    killed()
    TrainingJournal.add = add  # type: ignore[method-assign]
    outcome = one("looked", looked)
    seen.append(list(hook.seen))
    again = one("looked", looked)
    assert list(hook.seen) == seen[-1]
    print(json.dumps({"seen": seen, "step": [outcome.step, again.step], "trained": again.trained_steps}))


def test_looking_changes_nothing_and_is_never_repeated(make_pool: PoolMaker, tmp_path: Path) -> None:
    call = "import sys, pathlib, tests.learner.test_evaluation as t; t.scenario(*map(pathlib.Path, sys.argv[1:]))"
    folders = [str(make_pool()), str(tmp_path)]
    done = subprocess.run([sys.executable, "-c", call, *folders], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    # Killed while it looked at 40 and, having done so, at step 55: it goes on from 40, which is looked at once more
    # after the first kill and not after the second.
    assert told == {"seen": [[20, 40], [40], [60]], "step": [40, 40], "trained": 0}

    plain, looked = (load_file(tmp_path / f"{name}-logs" / "checkpoint.safetensors") for name in ("plain", "looked"))
    assert plain.keys() == looked.keys()
    for name in plain:
        np.testing.assert_array_equal(plain[name], looked[name], err_msg=name)
    assert (tmp_path / "plain" / "curves.csv").read_bytes() == (tmp_path / "looked" / "curves.csv").read_bytes()
    with (tmp_path / "plain" / "curves.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == list(range(3, 61, 3))

    exported = PolicyArtefact.load(tmp_path / "looked")
    assert exported.card["kept"] == {"step": 40, "liking": 100.0}
    kept = PolicyArtefact.load(tmp_path / "looked-logs" / "candidates" / "step-40")
    assert [path.name for path in (tmp_path / "looked-logs" / "candidates").iterdir()] == ["step-40"]
    assert all(np.array_equal(exported.weights[name], values) for name, values in kept.weights.items())
    last = PolicyArtefact.load(tmp_path / "plain").weights
    assert not np.array_equal(exported.weights["fc.w"], last["fc.w"])
    assert (tmp_path / "looked" / "scores.csv").read_text() == "step,liking\n20,80\n40,100\n60,80\n"
    lines = [json.loads(line) for line in (tmp_path / "looked-logs" / "metrics.jsonl").read_text().splitlines()]
    scores = [(line["step"], line["evaluation/liking"]) for line in lines if "evaluation/liking" in line]
    assert scores == [(20, 80), (40, 100), (60, 80)]
    assert json.loads((tmp_path / "looked" / "metrics.json").read_text())["kept"] == exported.card["kept"]
    assert "kept" not in PolicyArtefact.load(tmp_path / "plain").card
