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
from tests.evidence.paper.made_up import write_runs
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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as evidence/training is, without a run."""
    (tmp_path / "full-grid.json").write_text(json.dumps(league()))
    (tmp_path / "repro.json").write_text(json.dumps(LEAGUE))
    return tmp_path


def found(folder: Path, *results: dict[str, Any]) -> dict[str, str]:
    """Return the texts of these runs."""
    (folder / "runs.jsonl").unlink(missing_ok=True)
    write_runs(folder / "runs.jsonl", *results)
    return texts(TEMPLATE, filled(folder))


def filled(folder: Path) -> dict[str, Any]:
    """Return what the template is filled with."""
    return context(folder, folder / "runs.jsonl")


def test_seeds_of_a_recipe_are_one_row(folder: Path) -> None:
    """Rates of 20, 30 and 40 %: 30 % and 4.303 times 10 % over the root of 3."""
    some = [result(f"run-{seed}", rate, seed=seed) for seed, rate in enumerate((0.2, 0.4, 0.3))]
    write_runs(folder / "runs.jsonl", some[0], result("other", 0.5, changes={}))
    assert filled(folder)["recipes"] == []
    write_runs(folder / "runs.jsonl", *some)
    (recipe,) = filled(folder)["recipes"]
    assert recipe["seeds"] == [0, 1, 2]
    rate = recipe["leagues"]["heldout"]["I"]
    assert (rate["winning_rate"], rate["low"], rate["high"]) == pytest.approx((0.3, 0.0516, 0.5484), abs=1e-4)


def test_what_was_spent_is_summed_over_every_run_that_trained(folder: Path) -> None:
    failed = {**result("none", 0.3), "failure": "diverged"}
    del failed["training"]
    found(folder, result("one", 0.3), result("two", 0.4, training={"cpu_h": 2.5, "wall_h": 2.0}), failed)
    assert filled(folder)["spent"] == {"runs": 2, "cpu_h": 4.0}


def test_prose_is_of_the_recipe_that_ships(folder: Path) -> None:
    """A later recipe changes no sentence on the shipped one."""
    harm = {"small": {"networks": 3, "floods": ["a"], "starves": [], "loss_worst": 0.01, "goodput_share_least": 0.9}}
    training = {"cpu_h": 1.0, "wall_h": 0.5, "metrics": {"decisions": 8e5}}

    def of(base: str, seed: int, rate: float) -> dict[str, Any]:
        sets = result("any", rate)["leagues"]["heldout"]
        more = {"base": base, "seed": seed, "pool": None, "changes": {}, "harm": harm, "training": training}
        return result(f"{base}-{seed}", rate, leagues={"heldout": sets}, **more)

    seeds = [of(base, seed, rate) for base, rate in ((BEST_POLICY, 0.5), ("sagecc-11", 0.75)) for seed in (0, 1)]
    text = found(folder, *seeds)
    assert text["labs_first"].startswith("50.0 %")
    lines = text["claimed"].splitlines()
    assert lines[2] == "| `sagecc-11` | 2 | 1.00 | 75.0 [75.0, 75.0] | 75.0 [75.0, 75.0] | 1, 1 | 0, 0 |"
    assert lines[3].startswith(f"| `{BEST_POLICY}` | 2 |")
    assert lines[4:] == ["| best heuristic | | | 40.0 | 40.0 | | |", "| NewReno | | | 10.0 | 25.0 | | |"]


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
    }


def test_the_papers_four_next_to_ours(folder: Path) -> None:
    text = texts(TEMPLATE, context(folder))
    assert text["grid_networks"] == "1 networks of Set I and 1 networks of Set II"
    assert text["grid"].splitlines()[2:4] == [
        "| vegas | 100.0 [0.0, 100.0] | 1 | 33.3 [0.0, 100.0] |  |",
        "| bbr2 | 50.0 [0.0, 100.0] | 2 | 25.0 [0.0, 100.0] |  |",
    ]


def test_the_league_of_the_readme(folder: Path) -> None:
    assert texts(TEMPLATE, filled(folder))["league"].splitlines() == [
        "| rank | scheme | Set I, 2 networks | Set II, 1 networks | floods | less than half of Cubic |",
        "|---:|---|---:|---:|---:|---:|",
        "| 1 | vegas | 100.0 % [50.0, 100.0] | 50.0 % [25.0, 75.0] | 1 |  |",
        "| 2 | cubic | 0.0 % [0.0, 12.5] | 50.0 % [50.0, 50.0] | 0 | 0 |",
    ]


def test_damaged_results_are_errors(folder: Path) -> None:
    path = folder / "runs.jsonl"
    path.write_text('{"version": 0}')
    with pytest.raises(SageccError, match=r"runs\.jsonl:1: no result of version 1"):
        filled(folder)
    path.unlink()
    (folder / "repro.json").write_text("{")
    with pytest.raises(SageccError, match=r"repro\.json: not JSON .*; remove it"):
        filled(folder)
