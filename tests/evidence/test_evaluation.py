# SPDX-License-Identifier: Apache-2.0
"""Numbers of the evaluation study and of papers' figures: who plays again; what is judged of whom; and the pages."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import polars as pl
import pytest

from evidence.kept import read_kept
from evidence.leagues import evaluation, experiments, figures
from evidence.leagues.evaluation import SAGES, told
from evidence.leagues.experiments import NAMES, Numbers, Plays, together
from evidence.machine import RESULTS
from sagecc.common.errors import SageccError
from sagecc.leagues.study.collect import lab_identity
from sagecc.leagues.study.experiments import STUDY, StudyRun
from sagecc.leagues.study.papers import PAPERS
from scripts.templates import ROOT, texts
from tests.helpers.study_runs import MadeUpRunner

pytestmark = pytest.mark.heavy

FEW = Plays(
    "few", tuple(STUDY[name] for name in ("fairness", "efficiency", "convergence", "dynamics", "responsiveness")), 6
)
ONE = Plays("few", FEW.experiments[:1], 6)


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
    monkeypatch.setattr(evaluation, "PLAYS", FEW)
    monkeypatch.setattr(experiments, "lab_runner", lambda kernel, jobs: found.runner)
    monkeypatch.setattr(experiments, "lab_identity", lambda kernel: found.identity)
    return found


def test_a_contestant_plays_what_is_not_kept(lab: Lab) -> None:
    first = FEW.numbers("orca", "policy:orca").values
    networks = len(lab.runner.asked)
    assert networks == (6 + 6 + 6) * experiments.REPEATS + 10  # those of `convergence` are those of `efficiency`
    assert set(first["experiment"]) == {each.name for each in FEW.experiments}
    assert set(first["scheme"]) == {"orca"}
    for path in Path(experiments.CACHE / "runs").iterdir():
        path.unlink()  # what is kept needs no series
    assert FEW.numbers("orca", "policy:orca").values.equals(first)
    assert len(lab.runner.asked) == networks
    lab.driver = "2"
    assert FEW.numbers("orca", "policy:orca").values.equals(first)
    assert len(lab.runner.asked) == 2 * networks


def test_one_more_experiment_plays_alone(lab: Lab) -> None:
    ONE.numbers("cubic", "cubic")
    asked = len(lab.runner.asked)
    both = FEW.numbers("cubic", "cubic").values
    assert not {run.experiment for run in lab.runner.asked[asked:]} & {"fairness"}
    assert set(both["experiment"]) == {each.name for each in FEW.experiments}


def test_a_killed_study_goes_on(lab: Lab) -> None:
    lab.runner = MadeUpRunner(killed_after=10)
    with pytest.raises(KeyboardInterrupt):
        FEW.numbers("cubic", "cubic")
    lab.runner = MadeUpRunner()
    whole = FEW.numbers("cubic", "cubic").values
    kept = pl.read_parquet(FEW.kept)
    assert kept.select(whole.columns).equals(whole)


def test_a_damaged_file_is_one_line(lab: Lab) -> None:
    FEW.kept.parent.mkdir(parents=True)
    FEW.kept.write_bytes(b"PAR1 no")
    with pytest.raises(SageccError, match=r"few\.parquet is damaged .*: remove it and start again"):
        FEW.numbers("cubic", "cubic")


def test_a_run_that_fails_is_told_and_tried_again(lab: Lab) -> None:
    lab.runner = MadeUpRunner(failing="cubic")
    first = FEW.numbers("cubic", "cubic")
    assert not first.values.height and not FEW.kept.exists()
    assert all("the guest panicked" in why for why in first.failed.values())
    assert "cubic" not in told(first.values, {"cubic": {}})["failed"]
    lab.runner = MadeUpRunner()
    second = FEW.numbers("cubic", "cubic")
    assert second.values.height and not second.failed


@pytest.mark.parametrize("of", [evaluation, figures])
def test_what_is_kept_is_of_the_present_kernel_and_policies(
    kernel: Path, monkeypatch: pytest.MonkeyPatch, of: ModuleType
) -> None:
    """Whoever adds a contestant plays it alone."""
    monkeypatch.chdir(ROOT)
    name = of.__name__.rpartition(".")[2]
    failed = json.loads((RESULTS / f"{name}.json").read_text())["result"]["failed"]
    for contestant, scheme in of.CONTESTANTS.items():
        kept = set(read_kept(of.PLAYS.kept).filter(scheme=contestant)["run"])
        lacking = [key for key in of.PLAYS.keys(scheme, lab_identity(kernel)).values() if key not in kept]
        assert len(lacking) == len(failed.get(contestant, {})), f"{contestant}: make bench-{name}"


def test_power_is_held_against_cubic_s_in_the_same_network(lab: Lab) -> None:
    """Cubic's runs are its own, whoever is held against it."""
    plays = Plays("few", (PAPERS["orca-12"],), 18)
    both = [plays.numbers("cubic", "cubic"), plays.numbers("orca", "policy:orca")]
    assert not both[1].values.filter(quantity="power_ratio").drop_nulls("value").height
    values = together([both[0], Numbers(both[1].values.with_columns(doubled_power(both[1].values)), {})])
    ratios = values.filter(quantity="power_ratio")
    assert ratios.filter(scheme="cubic")["value"].unique().to_list() == [1.0]
    assert ratios.filter(scheme="orca")["value"].to_list() == pytest.approx([2.0] * 18 * experiments.REPEATS)


def doubled_power(values: pl.DataFrame) -> pl.Expr:
    return pl.when(pl.col("quantity") == "power").then(2 * pl.col("value")).otherwise("value").alias("value")


def test_the_page_of_papers_figures(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    plays = Plays("few", tuple(PAPERS[name] for name in ("sage-23", "orca-1", "orca-14")), 5)
    monkeypatch.setattr(figures, "PLAYS", plays)
    names = ("cubic", "orca", *figures.SAGES)
    numbers = [plays.numbers(name, f"policy:{name}" if name in figures.SAGES else name) for name in names]
    found = figures.told(together(numbers), {})
    found["statements"][0]["verdict"] = "changes"
    assert [each["cells"] for each in found["figures"]] == [5, 1, 1]
    assert {row["experiment"] for row in found["statements"]} == {"sage-23", "orca-14"}  # of orca-1 Vivace plays too
    assert {row["sage"] for row in found["statements"]} == {*figures.SAGES, None}
    machine = {"cpu": "Z80", "cores": 1, "memory_gib": 0.1, "kernel": "6.12", "date": "2026-01-01"}
    page = texts(ROOT / "evidence" / "leagues" / "figures.md.j2", {"result": found, "machine": machine})
    rows = page["figures_played"].splitlines()
    assert rows[0] == "| | Cubic | Orca | sagecc-12 | sagecc-10 | statements that hold |"
    assert len(rows) == 2 + len(plays.experiments)
    others = [row for row in found["statements"] if row["verdict"] == "changes"]
    assert len(page["figures_statements"].splitlines()) == 2 + len(others)


def test_the_page(lab: Lab) -> None:
    names = ("cubic", "bbr3", *SAGES)
    values = pl.concat([FEW.numbers(name, f"policy:{name}" if name in SAGES else name).values for name in names])
    found = told(values, {"cubic": {"fairness, net, repeat 0": "the flow never got through"}, "bbr3": {}})
    about_sage = [row for row in found["statements"] if row["sage"]]
    assert {row["sage"] for row in about_sage} == set(SAGES)
    assert len(about_sage) == len({(row["statement"], row["sage"]) for row in about_sage})
    assert not any("Orca" in row["statement"] for row in found["statements"])
    fairness = found["experiments"][0]
    assert (fairness["name"], fairness["cells"]) == ("fairness", 6)
    row = fairness["quantities"][0]["rows"][0]
    shares = [1 / (1.2 + 0.1 * (repeat + 1)) for repeat in range(experiments.REPEATS)]
    assert (row["scheme"], row["panel"], row["count"]) == ("cubic", 0.2, experiments.REPEATS)
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
