# SPDX-License-Identifier: Apache-2.0
"""The evaluation study's numbers are kept by contestant: who plays anew; what is judged of whom; and the page."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from evidence.kept import read_kept
from evidence.leagues import evaluation
from evidence.leagues.evaluation import CONTESTANTS, KEPT, NAMES, SAGES, keys_of, numbers_of, told
from evidence.machine import RESULTS
from sagecc.common.errors import SageccError
from sagecc.leagues.study.collect import lab_identity
from sagecc.leagues.study.experiments import STUDY, StudyRun
from scripts.templates import ROOT, texts
from tests.helpers.study_runs import MadeUpRunner

pytestmark = pytest.mark.heavy

FEW = tuple(STUDY[name] for name in ("fairness", "efficiency", "convergence", "dynamics", "responsiveness"))


class Lab:
    """Makes up what is not kept; `driver` is what drives the flows."""

    def __init__(self) -> None:
        self.runner, self.driver = MadeUpRunner(), "1"

    def identity(self, run: StudyRun) -> str:
        return f"{run.scheme} {self.driver}"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    found = Lab()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(evaluation, "EXPERIMENTS", FEW)
    monkeypatch.setattr(evaluation, "lab_runner", lambda kernel, jobs: found.runner)
    monkeypatch.setattr(evaluation, "lab_identity", lambda kernel: found.identity)
    return found


def test_a_contestant_plays_what_is_not_kept(lab: Lab) -> None:
    first = numbers_of("orca", "policy:orca").values
    networks = len(lab.runner.asked)
    assert networks == (6 + 6 + 6) * evaluation.REPEATS + 10  # those of `convergence` are those of `efficiency`
    assert set(first["experiment"]) == {each.name for each in FEW}
    assert set(first["scheme"]) == {"orca"}
    for path in Path(evaluation.CACHE / "runs").iterdir():
        path.unlink()  # what is kept needs no series
    assert numbers_of("orca", "policy:orca").values.equals(first)
    assert len(lab.runner.asked) == networks
    lab.driver = "2"
    assert numbers_of("orca", "policy:orca").values.equals(first)
    assert len(lab.runner.asked) == 2 * networks


def test_one_more_experiment_plays_alone(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "EXPERIMENTS", FEW[:1])
    numbers_of("cubic", "cubic")
    asked = len(lab.runner.asked)
    monkeypatch.setattr(evaluation, "EXPERIMENTS", FEW)
    both = numbers_of("cubic", "cubic").values
    assert not {run.experiment for run in lab.runner.asked[asked:]} & {"fairness"}
    assert set(both["experiment"]) == {each.name for each in FEW}


def test_a_killed_study_goes_on(lab: Lab) -> None:
    lab.runner = MadeUpRunner(killed_after=10)
    with pytest.raises(KeyboardInterrupt):
        numbers_of("cubic", "cubic")
    lab.runner = MadeUpRunner()
    whole = numbers_of("cubic", "cubic").values
    kept = pl.read_parquet(evaluation.KEPT)
    assert kept.select(whole.columns).equals(whole)


def test_a_damaged_file_is_one_line(lab: Lab) -> None:
    evaluation.KEPT.parent.mkdir(parents=True)
    evaluation.KEPT.write_bytes(b"PAR1 no")
    with pytest.raises(SageccError, match=r"study\.parquet is damaged .*: remove it and start again"):
        numbers_of("cubic", "cubic")


def test_a_run_that_fails_is_told_and_tried_again(lab: Lab) -> None:
    lab.runner = MadeUpRunner(failing="cubic")
    first = numbers_of("cubic", "cubic")
    assert not first.values.height and not evaluation.KEPT.exists()
    assert all("the guest panicked" in why for why in first.failed.values())
    assert "cubic" not in told(first.values, {"cubic": {}})["failed"]
    lab.runner = MadeUpRunner()
    second = numbers_of("cubic", "cubic")
    assert second.values.height and not second.failed


def test_what_is_kept_is_of_the_present_kernel_and_policies(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever adds a contestant plays it alone."""
    monkeypatch.chdir(ROOT)
    failed = json.loads((RESULTS / "evaluation.json").read_text())["result"]["failed"]
    for name, scheme in CONTESTANTS.items():
        kept = set(read_kept(KEPT).filter(scheme=name)["run"])
        lacking = [key for key in keys_of(scheme, lab_identity(kernel)).values() if key not in kept]
        assert len(lacking) == len(failed.get(name, {})), f"{name}: make bench-evaluation"


def test_the_page(lab: Lab) -> None:
    names = ("cubic", "bbr3", *SAGES)
    values = pl.concat([numbers_of(name, f"policy:{name}" if name in SAGES else name).values for name in names])
    found = told(values, {"cubic": {"fairness, net, repeat 0": "the flow never got through"}, "bbr3": {}})
    about_sage = [row for row in found["statements"] if row["sage"]]
    assert {row["sage"] for row in about_sage} == set(SAGES)
    assert len(about_sage) == len({(row["statement"], row["sage"]) for row in about_sage})
    assert not any("Orca" in row["statement"] for row in found["statements"])
    fairness = found["experiments"][0]
    assert (fairness["name"], fairness["cells"]) == ("fairness", 6)
    row = fairness["quantities"][0]["rows"][0]
    shares = [1 / (1.2 + 0.1 * (repeat + 1)) for repeat in range(evaluation.REPEATS)]
    assert (row["scheme"], row["panel"], row["count"]) == ("cubic", 0.2, evaluation.REPEATS)
    assert row["mean"] == pytest.approx(sum(shares) / len(shares), rel=1e-6)
    assert row["low"] < min(shares) < max(shares) < row["high"]
    dynamics = next(each for each in found["experiments"] if each["name"] == "dynamics")
    assert len({row["panel"] for row in dynamics["quantities"][0]["rows"]}) == 2
    machine = {"cpu": "Z80", "cores": 1, "memory_gib": 0.1, "kernel": "6.12", "date": "2026-01-01"}
    page = texts(Path(ROOT / "evidence" / "leagues" / "evaluation.md.j2"), {"result": found, "machine": machine})
    assert page["evaluation_figures"].splitlines()[0].startswith(f"| | {NAMES['cubic']} |")
    assert "\n| Fig. 1, `fairness`: " in page["evaluation_figures"]
    assert page["evaluation_statements"].startswith("| the study says | where |")
    assert "hold" in page["evaluation_counts"]
    assert page["evaluation_failed"] == "1"
