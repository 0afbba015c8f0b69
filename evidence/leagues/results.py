# SPDX-License-Identifier: Apache-2.0
"""What was trained and played, as results.md.j2 is filled with it."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Any

from evidence.machine import read_json
from evidence.paper import RESULTS, learning, variants
from evidence.training.run import BASELINE
from evidence.training.runs import configuration
from evidence.training.table import read_results
from sagecc.leagues import table
from sagecc.learner.specification import load

FOLDER = Path(__file__).parents[1] / "training"
RUNS = FOLDER.parent / "runs.jsonl"
TEMPLATE = Path(__file__).with_name("results.md.j2")

PAPERS_FOUR = {"I": ("vegas", "bbr2", "yeah", "illinois"), "II": ("cubic", "htcp", "bic", "highspeed")}
"""The top-ranked schemes of each set, as section 7.5 of the paper lists them."""

Values = dict[str, Any]


def context(folder: Path = FOLDER, of_runs: Path = RUNS, curves: Path = RESULTS / f"{learning.NAME}.json") -> Values:
    """Return what the template is filled with: the runs, and the leagues that were kept beside them.

    full-grid.json is league.json of the 13 heuristics over the paper's grid (`make grid-league`), repro.json that of
    `make repro` (`make repro-league`), `curves` the trainings of Fig. 7 (`make paper-figures`).
    """
    results = list(read_results(of_runs).values())
    return {
        "grid": read_json(folder / "full-grid.json"),
        "papers_four": PAPERS_FOUR,
        "repro": (repro := read_json(folder / "repro.json")),
        "standings": table.markdown(repro),
        "harm": table.markdown_harm(repro),
        "baseline": BASELINE,
        "spent": spent(results, folder / "explored.csv", curves),
        "company": company(folder / "company.csv"),
        "looser": looser(folder / "bounds.csv"),
        **runs(results),
    }


def company(path: Path) -> list[Values]:
    """Return how policies share, by policy: the geometric means over RTTs and numbers of Cubics.

    Args:
        path: a line for each policy and cell of `sagecc study --quick`: of `fairness` the smaller over the larger of
            two flows' goodputs, of `friendliness` and `many-cubics` the policy's over one Cubic's; and a line `share`,
            its mean goodput over its fair share in Set II.

    Returns:
        `policy`, and `ratios` in the order of experiments and queues.
    """
    values: dict[str, dict[tuple[str, float], list[float]]] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            cells = values.setdefault(row["policy"], {})
            cells.setdefault((row["experiment"], float(row["queue_bdp"] or 0)), []).append(float(row["ratio"]))
    return [
        {"policy": policy, "ratios": [geometric_mean(cells[cell]) for cell in sorted(cells)]}
        for policy, cells in values.items()
    ]


def looser(path: Path) -> list[Values]:
    """Return what seeds of a `recipe` win and harm within a looser bound than its own, which is `final_bound`."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        {
            "recipe": (recipe := row.pop("recipe")),
            "final_bound": load(configuration(recipe)).control.window_bound,
            **{name: float(value) for name, value in row.items()},
        }
        for row in rows
    ]


def spent(results: Sequence[Values], explored: Path, curves: Path) -> Values:
    """Return how much was trained.

    Returns:
        `runs` that trained a policy and have a result, their `cpu_h` and the `longest_cpu_h` of them; `curves_cpu_h` of
        those that were trained again for their curves; runs that were `tried` on the way and their hours on the clock,
        `tried_wall_h`.
    """
    cpu_h = [result["training"]["cpu_h"] for result in results if "training" in result]
    # A run with one process comes to the same bytes each time: what its curve took is that run's.
    own = {result["name"] for result in results if ("curve" in result or result.get("actors") == 1)}
    again = [run["points"][-1]["cpu_h"] for name, run in learning.kept(curves).items() if name not in own]
    with explored.open(newline="") as file:
        tried_s = [float(row["training_wall_s"] or 0) for row in csv.DictReader(file)]
    return {
        "runs": len(cpu_h),
        "cpu_h": sum(cpu_h),
        "curves_cpu_h": sum(again),
        "longest_cpu_h": max(cpu_h, default=0.0),
        "tried": len(tried_s),
        "tried_wall_h": sum(tried_s) / 3600,
    }


def runs(results: Sequence[Values]) -> Values:
    """Return the runs that played, best first, and those that failed.

    Best has the highest mean winning rate in the first league. Runs that are there for the paper's figures alone are on
    a page of their own (evidence.paper).
    """
    elsewhere = variants.own_runs()
    rows = [result | {"changed": changed(result)} for result in results if result["name"] not in elsewhere]
    played = sorted((r for r in rows if "failure" not in r), key=_order)
    failed = sorted((r for r in rows if "failure" in r), key=lambda r: str(r["name"]))
    return {"played": played, "failed": failed, "recipes": recipes(played)}


def recipes(played: Sequence[Values]) -> list[Values]:
    """Return what several seeds were tried of: its runs by seed, and by league and set their mean winning rate.

    A rate has the mean of the policies, its interval over seeds (leagues.intervals), and the means of the best
    heuristic's and of NewReno's in the same leagues.
    """
    alike: dict[str, list[Values]] = {}
    for run in played:
        settings = {key: run[key] for key in ("actors", "base", "changes", "grow", "keep_best", "pool") if key in run}
        alike.setdefault(json.dumps(settings, sort_keys=True), []).append(run)
    return [
        {
            "first": min(of, key=lambda run: int(run["seed"])),
            "seeds": sorted(run["seed"] for run in of),
            "runs": sorted(of, key=lambda run: int(run["seed"])),
            "leagues": {
                league: {name: standing_over_seeds([run["leagues"][league][name] for run in of]) for name in of_sets}
                for league, of_sets in of[0]["leagues"].items()
            },
        }
        for of in alike.values()
        if len(of) > 1
    ]


def standing_over_seeds(places: Sequence[Values]) -> Values:
    """Return what several policies' standings in one set say together."""
    rates = {who: [place[who]["winning_rate"] for place in places] for who in ("policy", "best_heuristic", BASELINE)}
    return variants.over_seeds(rates.pop("policy")) | {
        "ranks": sorted(place["policy"]["rank"] for place in places),
        **{who: fmean(of) for who, of in rates.items()},
    }


def changed(result: Mapping[str, Any]) -> list[str]:
    """Return what a run changes of the shipped configuration that it starts from."""
    changes = {**result["changes"]}
    inner = changes.pop("data", {})
    fields = [*changes.items(), *((f"data.{name}", value) for name, value in inner.items())]
    return [f"{name} {_short(value)}" for name, value in fields]


def _short(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{key} {_short(x)}" for key, x in value.items())
    if isinstance(value, list | tuple):
        return " ".join(map(_short, value))
    return f"{value:,}" if type(value) is int else str(value)


def _order(result: Values) -> tuple[float, str]:
    first = next(iter(result["leagues"].values()))
    return -sum(of["policy"]["winning_rate"] for of in first.values()) / len(first), result["name"]
