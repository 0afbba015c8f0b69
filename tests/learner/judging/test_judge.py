# SPDX-License-Identifier: Apache-2.0
"""Judging as users call it: by the command, and at the end of a training that leaves environments out."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sagecc.cli import main
from sagecc.common.errors import SageccError
from sagecc.learner.compiled import compile_pool
from sagecc.learner.evaluation import Evaluation
from sagecc.learner.judging import fitted_q
from sagecc.learner.judging.judge import PoolJudge, evaluation_of, learned_share
from sagecc.learner.validation import validation_part
from sagecc.policy.artefact import PolicyArtefact
from sagecc.pool.derivation import build_pool
from sagecc.pool.reward import graded
from tests.conftest import ROOT
from tests.helpers.policies import save_policy, save_still_policy
from tests.helpers.raw_episodes import write_partition
from tests.helpers.specifications import SMALLEST, spec
from tests.helpers.training import command as train

pytestmark = pytest.mark.tensorflow

SHARE = 0.5


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_partition(folder / "raw", "I", "cubic", rows=(1100, 300, 220, 200))
    write_partition(folder / "raw", "II", "vegas", rows=(250, 300, 1200, 220))
    build_pool(folder / "raw", folder / "pool", progress=False)
    return folder / "pool"


def quick() -> None:
    fitted_q.FITTING = fitted_q.Fitting(steps=20, batch=16, hidden=(8,))


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitted_q, "FITTING", fitted_q.FITTING)
    quick()


def judge(pool: Path, tmp_path: Path, **of: Any) -> PoolJudge:
    return PoolJudge(pool, tmp_path / "cache", **{"share": SHARE, **of})


def test_each_set_is_judged_on_its_own_environments(pool: Path, tmp_path: Path) -> None:
    """A policy that leaves every window as it is: its errors are the squares of what was done."""
    still = PolicyArtefact.load(save_still_policy(tmp_path / "still"))
    found = judge(pool, tmp_path).judge(still)
    part = validation_part(compile_pool(pool, tmp_path / "cache"), SHARE)
    assert found.pool == part.identity and found.sets.keys() == {"I", "II"}
    rows = np.memmap(part.rows_file, np.float32, "r").reshape(-1, 71)
    for name, measures in found.sets.items():
        of_set = [
            slice(start, start + length)
            for start, length, of in zip(part.starts, part.lengths, part.trajectories.sets, strict=True)
            if of == name
        ]
        done = np.concatenate([rows[each, 69] for each in of_set]).astype(np.float64)
        assert measures.environments == measures.trajectories == len(of_set)
        assert measures.decisions == len(done)
        assert measures.action_error == pytest.approx(np.square(done).mean())
        assert measures.correlation == measures.at_limits == 0
        pieces = [rows[each, 69][: len(rows[each]) // 1000 * 1000].reshape(-1, 1000).sum(axis=1) for each in of_set]
        drifts = -np.concatenate(pieces)
        assert measures.drift_mean == (pytest.approx(drifts.mean(), abs=1e-4) if len(drifts) else None)


def test_rewards_are_those_that_are_asked_for(pool: Path, tmp_path: Path) -> None:
    still = PolicyArtefact.load(save_still_policy(tmp_path / "still"))
    part = validation_part(compile_pool(pool, tmp_path / "cache"), SHARE)
    rows = np.memmap(part.rows_file, np.float32, "r").reshape(-1, 71)
    for reward, formula in (("pool", lambda x: x), ("graded", graded)):
        found = judge(pool, tmp_path, reward=reward).judge(still)
        means = [
            formula(rows[start : start + length, 70].astype(np.float64)).mean()
            for start, length, of in zip(part.starts, part.lengths, part.trajectories.sets, strict=True)
            if of == "II"
        ]
        assert found.sets["II"].reward_mean == pytest.approx(np.mean(means), rel=1e-5)


def test_a_judgement_is_a_function_of_policy_pool_and_seed(pool: Path, tmp_path: Path) -> None:
    policy = PolicyArtefact.load(save_policy(tmp_path / "a"))
    first, again = (judge(pool, tmp_path).judge(policy) for _ in range(2))
    assert first == again
    other = judge(pool, tmp_path, seed=1).judge(policy)
    assert other.sets["I"].value_start != first.sets["I"].value_start
    assert other.sets["I"].action_error == first.sets["I"].action_error


def test_scores_are_finite_numbers_by_set(pool: Path, tmp_path: Path) -> None:
    of = judge(pool, tmp_path)
    scores = of(save_policy(tmp_path / "a"), 7)
    assert {name.partition("/")[0] for name in scores} == {"I", "II"}
    assert {"I/action_error", "II/value_start", "I/negative_log_likelihood", "II/td_error"} <= scores.keys()
    assert all(np.isfinite(value) for value in scores.values())
    still = of(save_still_policy(tmp_path / "still"), 8)
    assert still.keys() == scores.keys() and still["I/correlation"] == 0  # a table of several steps has one header


def test_a_league_that_evaluates_a_training_is_joined(pool: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    league = Evaluation(lambda policy, step: {"winning_rate": 0.5}, 10, "a league", "winning_rate")
    assert evaluation_of(spec(SMALLEST), pool, cache, league) is league
    assert evaluation_of(spec(SMALLEST), pool, cache) is None
    judged = spec(SMALLEST, validation_share=SHARE, steps=30)
    alone, both = (evaluation_of(judged, pool, cache, of) for of in (None, league))
    assert alone is not None and both is not None
    assert (alone.every, alone.best_by, both.every, both.best_by) == (30, "", 10, "winning_rate")
    assert both.identity == f"a league {alone.identity}"
    scores = both.score(save_policy(tmp_path / "a"), 10)
    assert scores["winning_rate"] == 0.5 and "I/value_mean" in scores


def scenario(pool: Path, folder: Path) -> None:
    """Train with environments left out, then judge what came out twice: as it stands, and on more environments."""
    quick()
    config = train(folder, pool, "a", validation_share=SHARE, steps=10)[3:]
    more = ["--pool", pool, "--cache", folder / "cache", "--out", folder / "b" / "judged.json", "--json"]
    for args in (config, ["judge", folder / "models" / "a", *more], ["judge", "sagecc-10", *more[:4]]):
        try:
            main([*map(str, args)])
        except SystemExit as ended:
            assert ended.code == 0


def test_a_training_ends_with_a_judgement_that_the_command_repeats(pool: Path, tmp_path: Path) -> None:
    call = "import sys, pathlib, tests.learner.judging.test_judge as t; t.scenario(*map(pathlib.Path, sys.argv[1:]))"
    folders = [str(pool), str(tmp_path)]
    done = subprocess.run([sys.executable, "-c", call, *folders], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    written = json.loads((tmp_path / "b" / "judged.json").read_text())
    assert json.dumps(written) in done.stdout.splitlines()
    (of,) = written
    assert (of["learned_from_them"], of["validation_share"], of["reward"]) == (False, SHARE, "graded")
    scores = {
        f"{name}/{measure}": value
        for name, measures in of["sets"].items()
        for measure, value in measures.items()
        if value is not None and measure not in ("environments", "trajectories", "decisions")
    }
    policy = PolicyArtefact.load(tmp_path / "models" / "a")
    assert policy.card["kept"] == {"step": 10, **scores}
    assert learned_share(policy) == SHARE
    with (tmp_path / "models" / "a" / "scores.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert {name: float(value) for name, value in row.items()} == pytest.approx({"step": 10, **scores}, rel=1e-4)
    lines = [json.loads(line) for line in (tmp_path / "logs" / "a" / "metrics.jsonl").read_text().splitlines()]
    assert [line["evaluation/I/value_mean"] for line in lines if "evaluation/I/value_mean" in line] == [
        scores["I/value_mean"]
    ]
    table = [line.split() for line in done.stdout.splitlines()]
    values = [float(row[2]) for row in table if row[1:2] == ["value_start"]]
    assert values and all(-25 <= value <= 25 for value in values)
    assert "learned from environments that it is judged on" not in done.stderr  # sagecc-10 learned in labs


def test_what_a_card_says_of_its_pool(tmp_path: Path) -> None:
    def card(**of: Any) -> float | None:
        return learned_share(PolicyArtefact.load(save_policy(tmp_path / "a", provenance=of)))

    assert card() is None and card(training={"data": {}}) is None
    assert card(pool={}, training={"data": {"validation_share": 0.2}}) == 0.2
    assert card(pool={}, training={"data": {}}) == card(pool={}, training={"width": 3}) == 0.0
    assert card(pool={}, training={"data": {"validation_share": "much"}}) == 0.0


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["models/nowhere"], "no policy at models/nowhere: expected a folder with card.json"),
        (["sagecc-10", "--pool", "nowhere"], "no pool at nowhere: expected set=*/scheme=*/part-*.parquet"),
        (["sagecc-10", "--validation-share", "1"], "Invalid value for '--validation-share'"),
        (["sagecc-10", "--validation-share", "1e-9"], "leaves no environment to judge on, of 8"),
        (["sagecc-10", "--reward", "gold"], "there is no reward 'gold': it must be one of power,"),
        ([], "Missing argument 'POLICY...'"),
    ],
)
def test_bad_input_is_one_line(
    pool: Path, tmp_path: Path, options: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["judge", "--pool", str(pool), "--cache", str(tmp_path / "cache"), *options])
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert line in error and error.count("\n") == 1


def test_a_policy_that_a_pool_cannot_judge_is_an_error(pool: Path, tmp_path: Path) -> None:
    with pytest.raises(SageccError, match=r"aurora-1 sees aurora\..*: let it play instead"):
        judge(pool, tmp_path).judge(PolicyArtefact.load("aurora-1"))


def test_a_share_and_several_workers_do_not_go_together(tmp_path: Path) -> None:
    config = tmp_path / "a.yaml"
    config.write_text("base: tiny\ndata: {validation_share: 0.2}\n")
    with pytest.raises(SystemExit) as caught:
        main(["train", "--config", str(config), "--strategy", "workers"])
    assert caught.value.code == 2
