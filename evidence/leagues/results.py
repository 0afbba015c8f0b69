# SPDX-License-Identifier: Apache-2.0
"""What was trained and played, as results.md.j2 is filled with it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from evidence.machine import read_json
from evidence.paper import variants
from evidence.training.run import BASELINE
from evidence.training.table import read_results
from sagecc.leagues.standings import by_rank

FOLDER = Path(__file__).parents[1] / "training"
RUNS = FOLDER.parent / "runs.jsonl"
PARTS, TEACHING = FOLDER.parent / "parts.jsonl", FOLDER.parent / "teaching.jsonl"
TEMPLATE = Path(__file__).with_name("results.md.j2")
FIRST = 6
"""Schemes of `make repro`'s league that README shows."""

PAPERS_FOUR = {"I": ("vegas", "bbr2", "yeah", "illinois"), "II": ("cubic", "htcp", "bic", "highspeed")}
"""The top-ranked schemes of each set, as section 7.5 of the paper lists them."""

Values = dict[str, Any]


def context(folder: Path = FOLDER, of_runs: Path = RUNS) -> Values:
    """Return what the template is filled with: the runs, and the leagues that were kept beside them.

    full-grid.json is league.json of the 13 heuristics over the paper's grid (`make grid-league`), repro.json that of
    `make repro` (`make repro-league`).
    """
    results = list(read_results(of_runs).values())
    repro = read_json(folder / "repro.json")
    tried, parts = recipes(results), by_name(recipes([*(read_results(PARTS) | read_results(TEACHING)).values()]))
    return {
        "grid": read_json(folder / "full-grid.json"),
        "papers_four": PAPERS_FOUR,
        "repro": repro,
        "first": by_rank(repro["ranking"], repro["standings"])[:FIRST],
        "baseline": BASELINE,
        "spent": spent(results),
        "recipes": tried,
        "parts": parts,
        "every": by_name(tried) | parts,
    }


def spent(results: Sequence[Values]) -> Values:
    """Return how many runs trained a policy, and their `cpu_h` in all."""
    cpu_h = [result["training"]["cpu_h"] for result in results if "training" in result]
    return {"runs": len(cpu_h), "cpu_h": sum(cpu_h)}


def recipes(results: Sequence[Values]) -> list[Values]:
    """Return what several seeds were tried of: its runs by seed, and by league and set their mean winning rate.

    Best first, by the winning rates in the first league. Runs that the paper's figures alone need are left out
    (evidence.paper has them). A rate has the mean of the policies, its interval over seeds (leagues.intervals), and the
    means of the best heuristic's and of NewReno's in the same leagues.
    """
    elsewhere = variants.own_runs()
    rows = [result | {"changed": changed(result)} for result in results if result["name"] not in elsewhere]
    alike: dict[str, list[Values]] = {}
    for run in sorted((row for row in rows if "failure" not in row), key=_order):
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


def by_name(tried: Sequence[Values]) -> dict[str, Values]:
    """Return `recipes` by the names of their first seeds."""
    return {of["first"]["name"]: of for of in tried}


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
