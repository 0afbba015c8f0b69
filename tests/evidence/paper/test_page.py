# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from evidence.paper import OFFLINE, OFFLINE_VARIANTS, ORDER, VARIANTS, picture
from evidence.paper.learning import IN_LABS
from evidence.paper.page import PLAN_OFFLINE, TEMPLATE, context
from evidence.paper.variants import own_runs, run_names
from evidence.training.run import RUNS
from evidence.training.runs import read_plan
from evidence.training.table import RESULT_VERSION
from sagecc.common.errors import SageccError
from scripts.templates import texts
from tests.conftest import ROOT
from tests.evidence.paper.made_up import FIG_7, FIG_11, FIG_13, FIG_16, keep, keep_runs, write_runs


def filled(folder: Path) -> dict[str, str]:
    """Return the page's texts of a folder with results and runs."""
    return texts(TEMPLATE, context(folder / "results", folder / "runs.jsonl", folder))


def test_without_any_figure_the_page_says_how_to_make_them(tmp_path: Path) -> None:
    found = filled(tmp_path)
    for figure in ORDER:
        assert found[figure.replace("-", "_")] == f"Not made yet: `make paper-figures FIGURE={figure}`."
    assert found["paper_findings"].count("| not made yet |") == len(ORDER)


def test_the_recipe_alone_is_no_figure(tmp_path: Path) -> None:
    keep_runs(tmp_path / "runs.jsonl", "small", (0.5, 0.6, 0.4), (0.1, 0.1, 0.1))
    assert filled(tmp_path)["fig_12"].startswith("Not made yet")


def test_a_figure_half_made_says_what_is_missing(tmp_path: Path) -> None:
    keep_runs(tmp_path / "runs.jsonl", "small", (0.5, 0.6, 0.4), (0.1, 0.1, 0.1))
    keep_runs(tmp_path / "runs.jsonl", "top", (0.2,), (0.1,))
    write_runs(tmp_path / "runs.jsonl", {"version": RESULT_VERSION, "name": "top-1", "failure": "training diverged"})
    text = filled(tmp_path)["fig_15"]
    assert "| model | seeds | `small` I | `small` II |" in text
    assert "| all of it | 3 | 50.0 % [25.2, 74.8] | 10.0 % [10.0, 10.0] |" in text
    assert "| Sage-Top | 1 | 20.0 % | 10.0 % |" in text
    assert "Not there yet: top-2, top4, top4-1, top4-2 (`make paper-figures FIGURE=fig-15`)." in text
    assert "`top-1` has no policy: training diverged" in text
    assert "| +15.0" not in text
    assert "over Sage-Top: **in the mean**" in text
    assert "![" not in text


def test_variants_of_the_offline_recipe_have_columns_and_are_counted(tmp_path: Path) -> None:
    keep_runs(tmp_path / "runs.jsonl", "small", (0.5, 0.6, 0.4), (0.1, 0.1, 0.1))
    keep_runs(tmp_path / "runs.jsonl", "top", (0.2,), (0.1,))
    keep_runs(tmp_path / "runs.jsonl", "top4", (0.2,), (0.1,))
    keep_runs(tmp_path / "runs.jsonl", "sagecc-12", (0.9, 0.9, 0.9), (0.5, 0.5, 0.5))
    keep_runs(tmp_path / "variants.jsonl", "offline-top", (0.7, 0.7, 0.7), (0.3, 0.3, 0.3))
    found = filled(tmp_path)
    assert "| model | seeds | `small` I | `small` II | `sagecc-12` I | `sagecc-12` II |" in found["fig_15"]
    assert "| Sage-Top | 1 | 20.0 % | 10.0 % | 70.0 % [70.0, 70.0] | 30.0 % [30.0, 30.0] |" in found["fig_15"]
    assert "| Sage-Top4 | 1 | 20.0 % | 10.0 % | - | - |" in found["fig_15"]
    assert "not sufficient” | over Sage-Top: **in the mean** | over Sage-Top: **yes** |" in found["fig_15"]
    assert "Not there yet: offline-top4, offline-top4-1, offline-top4-2 (`make variants`)." in found["fig_15"]
    assert "| 15 | 3 |" in found["paper_findings"]


def test_every_variant_of_the_offline_recipe_is_in_its_plan() -> None:
    runs = read_plan(ROOT / RUNS.with_name(f"{PLAN_OFFLINE}.yaml")).runs
    assert {run.recipe for run in runs.values()} >= {name for of in OFFLINE_VARIANTS.values() for name in of}
    assert {run.base for run in runs.values()} == {OFFLINE}


def test_whole_figures(tmp_path: Path) -> None:
    for name, result in (("fig-7", FIG_7), ("fig-11", FIG_11), ("fig-13", FIG_13), ("fig-16", FIG_16)):
        keep(tmp_path / "results" / f"{name}.json", result)
        (tmp_path / picture(name)).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / picture(name)).touch()
    found = filled(tmp_path)
    assert f"Not there yet: small-2, {OFFLINE}, {OFFLINE}-1, {OFFLINE}-2, {IN_LABS}-1, {IN_LABS}-2 (" in found["fig_7"]
    assert "| 7 | 6 | 3 | 0 | 3 | 0 |" in found["paper_findings"]
    for name in ("fig-7", "fig-11", "fig-13", "fig-16"):
        text = found[name.replace("-", "_")]
        assert f"](../img/paper-{name}.{'png' if name == 'fig-16' else 'svg'})" in text
        assert "\n\n\n" not in text


def test_a_damaged_result_is_one_line(tmp_path: Path) -> None:
    keep(tmp_path / "results" / "fig-11.json", FIG_11)
    (tmp_path / "results" / "fig-11.json").write_text("{")
    with pytest.raises(SageccError, match=r"fig-11\.json: not JSON .*make it again"):
        filled(tmp_path)
    (tmp_path / "results" / "fig-11.json").unlink()
    keep_runs(tmp_path / "runs.jsonl", "top", (0.2,), (0.1,))
    write_runs(tmp_path / "runs.jsonl", {"version": 0})
    with pytest.raises(SageccError, match=r"runs\.jsonl:2: no result of version 1"):
        filled(tmp_path)


def test_every_run_of_the_figures_is_in_the_plan_and_differs_in_its_name_alone() -> None:
    plan = read_plan(ROOT / RUNS)
    wanted = {name for figure in VARIANTS for name in run_names(figure)}
    assert wanted <= plan.runs.keys()
    assert own_runs() - {"bc-1", "bc-2"} <= plan.runs.keys()
    differing = {recipe: dict(plan.runs[recipe].changes) for recipes in VARIANTS.values() for recipe in recipes}
    fields = {recipe: {name: list(section) for name, section in of.items()} for recipe, of in differing.items()}
    assert fields == {
        **{key: {"data": ["inputs"]} for key in ("no-min-max", "no-rtt-var", "no-loss-inflight")},
        "no-gru": {"network": ["gru"]},
        "no-encoder": {"network": ["second_encoder"]},
        "no-gmm": {"network": ["mixture"]},
        **{key: {"data": ["inputs"]} for key in ("window-s", "window-m", "window-l")},
        **{key: {"data": ["selection"]} for key in ("top", "top4")},
    }
    assert [list(differing[name]["data"]["selection"]) for name in ("top", "top4")] == [["schemes"], ["schemes"]]
