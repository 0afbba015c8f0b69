# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from evidence.paper import ORDER, VARIANTS, __main__, learning, trajectories
from evidence.paper.__main__ import MAKERS, command
from evidence.training import run as training
from evidence.training import table
from sagecc.common.errors import SageccError
from tests.conftest import ROOT
from tests.evidence.paper.made_up import FIG_7, keep, keep_runs
from tests.helpers.league_episodes import rows, set_one

pytestmark = pytest.mark.heavy


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Figures that were asked for, in their order; fig-16 cannot be made."""
    monkeypatch.chdir(ROOT)
    asked: list[str] = []

    def maker(figure: str) -> Any:
        def make(*_: object) -> None:
            asked.append(figure)
            if figure == "fig-16":
                raise SageccError("window-s: training diverged")

        return make

    monkeypatch.setattr(__main__, "MAKERS", {figure: maker(figure) for figure in ORDER})
    return asked


def test_all_figures_are_made_in_their_order_though_one_fails(made: list[str]) -> None:
    done = CliRunner().invoke(command, [])
    assert done.exit_code == 2
    assert made == list(ORDER)
    assert "paper: fig-16: window-s: training diverged\n" in done.output


def test_one_figure(made: list[str]) -> None:
    assert CliRunner().invoke(command, ["fig-12"]).exit_code == 0
    assert made == ["fig-12"]
    assert CliRunner().invoke(command, ["fig-8"]).exit_code == 2


def test_every_figure_has_a_maker() -> None:
    assert MAKERS.keys() == set(ORDER)


def test_variants_are_drawn_with_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(table, "RESULTS", tmp_path / "runs.jsonl")
    Path("docs/img").mkdir(parents=True)
    asked: list[Sequence[str]] = []

    def run_all(plan: object, names: Sequence[str], kernel: Path, jobs: int) -> list[str]:
        asked.append(names)
        keep_runs(tmp_path / "runs.jsonl", "small", (0.5, 0.6, 0.4), (0.1, 0.1, 0.1))
        keep_runs(tmp_path / "runs.jsonl", "top", (0.5,), (0.1,))
        return ["top4"]

    monkeypatch.setattr(training, "run_all", run_all)
    with pytest.raises(SageccError, match="fig-15: training failed in top4"):
        MAKERS["fig-15"](object(), Path("kernel"), 1)  # type: ignore[arg-type]
    assert asked == [tuple(f"{name}{seed}" for name in ("small", *VARIANTS["fig-15"]) for seed in ("", "-1", "-2"))]
    assert "<svg" in Path("docs/img/paper-fig-15.svg").read_text()


def test_the_curves_are_drawn_though_a_training_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(__main__, "RESULTS", tmp_path)
    Path("docs/img").mkdir(parents=True)

    def make(*_: object) -> None:
        keep(tmp_path / "fig-7.json", FIG_7)
        raise SageccError("fig-7: small-2 (training diverged)")

    monkeypatch.setattr(learning, "make", make)
    with pytest.raises(SageccError, match="small-2"):
        MAKERS["fig-7"](object(), Path("kernel"), 1)  # type: ignore[arg-type]
    assert "<svg" in Path("docs/img/paper-fig-7.svg").read_text()


def test_goodput_and_delay_of_a_trajectory() -> None:
    found: Mapping[str, float] = trajectories.means(rows(set_one(12), "reno", [6.0, 6.0], [20.0, 20.0]))
    assert found["goodput_mbps"] == pytest.approx(6, rel=1e-3)
    assert found["delay_ms"] == pytest.approx(20, rel=1e-3)


def test_policies_have_their_runs_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one/policy").mkdir(parents=True)
    for _ in range(2):
        found = trajectories.named({"bc": Path("one/policy")})
        assert found == {"bc": ".cache/paper/policies/bc"}
        assert Path(found["bc"]).resolve() == tmp_path / "one/policy"
