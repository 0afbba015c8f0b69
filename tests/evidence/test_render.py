# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evidence.leagues.results import PAPERS_FOUR, TEMPLATE, context
from evidence.training.table import RESULT_VERSION
from sagecc.common.errors import SageccError
from sagecc.common.shipped import BEST_POLICY
from scripts.templates import texts
from tests.evidence.paper.made_up import keep, training, write_runs
from tests.helpers.league_summary import LEAGUE


def standing(rank: int, rate: float, reno: float) -> dict[str, Any]:
    row = {"rank": rank, "winning_rate": rate, "low": rate - 0.05, "high": rate + 0.05}
    best = {"scheme": "vegas", "rank": 1, "winning_rate": 0.4, "low": 0.3, "high": 0.5}
    return {
        "schemes": 14,
        "environments": 24,
        "policy": row,
        "best_heuristic": best,
        "reno": {**best, "scheme": "reno", "winning_rate": reno},
    }


def result(name: str, rate: float, **more: Any) -> dict[str, Any]:
    sets = {"I": standing(1 if rate > 0.4 else 5, rate, 0.1), "II": standing(3, rate, 0.25)}
    return {
        "version": RESULT_VERSION,
        "name": name,
        "base": "small",
        "changes": {"gru": 128, "steps": 20000, "data": {"schemes": ["vegas", "cubic"], "set_weights": {"II": 2}}},
        "seed": 1,
        "pool": {"path": "datasets/pool", "rows": 4_250_000},
        "training": {"cpu_h": 1.5, "wall_h": 0.75},
        "machine": {"cpu": "AMD EPYC"},
        "leagues": {"heldout": sets},
        **more,
    }


COMPANY = """policy,experiment,queue_bdp,rtt_ms,cubics,ratio
calm,fairness,1.0,60.0,,0.5
calm,fairness,1.0,160.0,,0.125
calm,fairness,0.2,60.0,,0.75
wild,many-cubics,4.0,30.0,6,9
wild,many-cubics,4.0,30.0,16,4
wild,share,,,,0.5
"""

BOUNDS = """recipe,seed,window_bound,heldout_I,heldout_II,small_I,small_II,floods,starves,goodput_share_least
sagecc-8,1,2,0.9,0.8,0.7,0.6,3,2,0.4
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as evidence/training is, without a run."""
    (tmp_path / "full-grid.json").write_text(json.dumps(league()))
    (tmp_path / "repro.json").write_text(json.dumps(LEAGUE))
    (tmp_path / "company.csv").write_text(COMPANY)
    (tmp_path / "bounds.csv").write_text(BOUNDS)
    (tmp_path / "explored.csv").write_text("run,training_wall_s\na,3600\nb,\nc,1800\n")
    return tmp_path


def runs(folder: Path, *results: dict[str, Any]) -> str:
    """Return the text of these runs."""
    (folder / "runs.jsonl").unlink(missing_ok=True)
    write_runs(folder / "runs.jsonl", *results)
    return texts(TEMPLATE, filled(folder))["runs"]


def filled(folder: Path) -> dict[str, Any]:
    """Return what the template is filled with."""
    return context(folder, folder / "runs.jsonl", folder / "fig-7.json")


def test_runs_best_first_with_their_goals(folder: Path) -> None:
    failed = {k: v for k, v in result("wild", 0).items() if k not in ("training", "leagues")} | {"failure": "diverged"}
    lines = runs(folder, result("poor", 0.2), failed, result("good", 0.5)).splitlines()
    assert lines[:4] == [
        "| run | configuration | seed | pool | CPU hours | hours | processor | goal on `heldout` |",
        "|---|---|---|---:|---:|---:|---|---|",
        "| good | `small`, gru 128, steps 20,000, data.schemes vegas cubic, data.set_weights II 2 | 1 "
        "| datasets/pool, 4.2 M rows | 1.50 | 0.75 | AMD EPYC | I: yes, II: yes |",
        lines[3],
    ]
    assert lines[3].startswith("| poor |")
    assert lines[3].endswith("| I: no, II: no |")
    assert (
        "| good | 50.0 % [45.0, 55.0] | 1 of 14 | vegas 40.0 % | 10.0 % "
        "| 50.0 % [45.0, 55.0] | 3 of 14 | vegas 40.0 % | 25.0 % |" in lines
    )
    assert lines[-1].startswith("- `wild` (`small`, gru 128")
    assert lines[-1].endswith("has no policy: diverged")
    kept = {"keep_best": {"league": "small", "every": 1000}, "kept_step": 4000, "changes": {}}
    assert "| `small`, best in `small` every 1,000 steps (kept: 4,000) |" in runs(folder, result("kept", 0.3, **kept))
    assert runs(folder) == "No run yet: `make policies`."


def test_seeds_of_a_recipe_are_one_row(folder: Path) -> None:
    """Rates of 20, 30 and 40 %: 30 % and 4.303 times 10 % over the root of 3."""
    some = [result(f"run-{seed}", rate, seed=seed) for seed, rate in enumerate((0.2, 0.4, 0.3))]
    text = runs(folder, *some, result("other", 0.5, changes={}))
    begin = (
        "| `small`, gru 128, steps 20,000, data.schemes vegas cubic, data.set_weights II 2 | 0, 1, 2 | `heldout` | I "
    )
    assert f"{begin}| 30.0 % [5.2, 54.8] | 5, 5, 5 | 40.0 % | 10.0 % |" in text.splitlines()
    assert "|  |  |  | II | 30.0 % [5.2, 54.8] | 3, 3, 3 | 40.0 % | 25.0 % |" in text.splitlines()
    assert "Over seeds" not in runs(folder, some[0], result("other", 0.5, changes={}))


def test_what_was_spent_is_summed_over_every_run_that_trained(folder: Path) -> None:
    failed = {**result("none", 0.3), "failure": "diverged"}
    del failed["training"]
    curve = {"curve": {"league": "heldout", "points": []}}
    two = result("two", 0.4, training={"cpu_h": 2.5, "wall_h": 2.0}, **curve)
    runs(folder, result("one", 0.3), two, result("one process", 0.3, actors=1), failed)
    names = ("one", "two", "one process")
    keep(folder / "fig-7.json", {"runs": [training(name, 0, [(0.1, 0.1)] * 3) for name in names]})
    assert filled(folder)["spent"] == {
        "runs": 3,
        "cpu_h": 5.5,
        "curves_cpu_h": pytest.approx(0.3),
        "longest_cpu_h": 2.5,
        "tried": 3,
        "tried_wall_h": 1.5,
    }


def test_harm_is_told_where_it_was_looked_at(folder: Path) -> None:
    given_up = {
        "networks": 2,
        "floods": ["a", "b"],
        "starves": [],
        "loss_worst": None,
        "goodput_share_least": None,
    }
    some = {"networks": 3, "floods": ["a"], "starves": [], "loss_worst": 0.2, "goodput_share_least": 0.9}
    text = runs(folder, result("old", 0.5), result("new", 0.2, harm={"small": some, "lossy": given_up}))
    assert "| run | `small` (3): floods | starves | loss | goodput | `lossy` (2): floods |" in text
    assert "| new | 1 | 0 | 20.0 % | 90.0 % | 2 | 0 |  |  |" in text
    assert "| old | 1 |" not in text


def test_prose_is_of_the_recipe_whose_policy_comes_along(folder: Path) -> None:
    """A later recipe stands in the table of those that learn in labs, and changes no sentence on the shipped one."""
    harm = {"small": {"networks": 3, "floods": [], "starves": [], "loss_worst": 0.01, "goodput_share_least": 0.9}}
    training = {"cpu_h": 1.0, "wall_h": 0.5, "metrics": {"decisions": 8e5}}

    def of(base: str, seed: int, rate: float) -> dict[str, Any]:
        sets = result("any", rate)["leagues"]["heldout"]
        leagues = {"heldout": sets, "small": sets}
        more = {"base": base, "seed": seed, "pool": None, "changes": {}, "harm": harm, "training": training}
        return result(f"{base}-{seed}", rate, leagues=leagues, **more)

    seeds = [of(base, seed, rate) for base, rate in ((BEST_POLICY, 0.5), ("sagecc-8", 0.25)) for seed in (0, 1)]
    alone = {**of(BEST_POLICY, 0, 0.75), "name": "alone", "actors": 1}
    runs(folder, *seeds, alone)
    found = texts(TEMPLATE, filled(folder))
    assert found["labs_first"].startswith("50.0 %")
    assert "| `sagecc-8` | 2 | 1.00 | 25.0 %" in found["labs_recipes"]
    within = found["bounds_table"].splitlines()
    at = within.index("| `sagecc-8` | 1 | 2 | 90.0 % | 80.0 % | 70.0 % | 60.0 % | 3 | 2 | 40% |")
    assert within[at + 1].startswith("|  |  | 1.5 | 25.0 % | ")
    assert f"| alone | `{BEST_POLICY}`, one process that plays | 0 |" in found["runs"]


def league() -> dict[str, Any]:
    """Set I in the paper's order; in Set II cubic and reno lead."""
    orders = {
        "I": (*PAPERS_FOUR["I"], "reno", *PAPERS_FOUR["II"]),
        "II": ("cubic", "reno", "vegas", "bbr2", "htcp", "bic", "highspeed", "yeah", "illinois"),
    }
    return {
        "episodes": 18,
        "environments": {"I": 1, "II": 1},
        "windows": {"I": 4, "II": 4},
        "standings": [
            {"set": name, "rank": rank, "scheme": scheme, "winning_rate": 1 / rank, "low": 0.0, "high": 1.0}
            for name, order in orders.items()
            for rank, scheme in enumerate(order, 1)
        ],
        "robustness": [
            {
                "alpha": alpha,
                "margin": margin,
                "set": name,
                "scheme": scheme,
                "rank": rank + round(alpha + 100 * margin),
            }
            for alpha in (2.0, 3.0)
            for margin in (0.1, 0.05)
            for name, order in orders.items()
            for rank, scheme in enumerate(order, 1)
        ],
    }


def test_how_policies_share_is_a_geometric_mean(folder: Path) -> None:
    """By experiment and queue, over RTTs and numbers of Cubics."""
    lines = texts(TEMPLATE, context(folder))["company_table"].splitlines()
    assert "| calm | 0.75 | 0.25 |" in lines
    assert "| wild | 6.00 | 0.50 |" in lines


def test_the_papers_four_beside_ours(folder: Path) -> None:
    found = texts(TEMPLATE, context(folder))
    text = found["grid"]
    assert "9 schemes in 1 environments of Set I (4 scoring windows) and 1 environments of Set II (4 scoring" in text
    assert "| 2 | bbr2 | bbr2 | 50.0 % [0.0, 100.0] | htcp | reno | 50.0 % [0.0, 100.0] |" in text
    assert "Set I: 4 of the paper's four are among the first four here (vegas 1, bbr2 2, yeah 3, illinois 4)." in text
    assert "Set II: 1 of the paper's four are among the first four here (cubic 1, htcp 5, bic 6, highspeed 7)." in text
    assert (found["paper_four_set_1"], found["paper_four_set_2"]) == ("4", "1")
    assert "| vegas | 1 | **100.0 % [0.0, 100.0]** | 3 | 33.3 % [0.0, 100.0] |" in text
    head = "Set I: alpha 2, 10 % | Set I: alpha 2, 5 % | Set I: alpha 3, 10 % | Set I: alpha 3, 5 %"
    assert f"| scheme | {head} | Set II: 10 % | Set II: 5 % |" in text
    assert "| vegas | 13 | 8 | 14 | 9 | 15 | 10 |" in text


def test_the_league_of_the_readme(folder: Path) -> None:
    text = texts(TEMPLATE, filled(folder))["league"]
    assert "2 schemes in 2 environments of Set I (8 scoring windows) and 1 environment of Set II" in text
    assert "| 1 | vegas | 100.0 % [50.0, 100.0] | 50.0 % [25.0, 75.0] |" in text


def test_damaged_results_are_errors(folder: Path) -> None:
    path = folder / "runs.jsonl"
    path.write_text('{"version": 0}')
    with pytest.raises(SageccError, match=r"runs\.jsonl:1: no result of version 1"):
        filled(folder)
    path.unlink()
    (folder / "repro.json").write_text("{")
    with pytest.raises(SageccError, match=r"repro\.json: not JSON .*; remove it"):
        filled(folder)
