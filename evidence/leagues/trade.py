# SPDX-License-Identifier: Apache-2.0
"""`python -m evidence.leagues.trade`: what conditions of `sagecc vet` cost in winning rate; draws docs/img/trade.svg.

The sets that Sets I and II lack teach what the conditions ask for. They count more or less in trainings of one recipe
(trade.yaml), whose seeds play `heldout` and are held against the conditions. Trainings that are missing are made first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from evidence.leagues.vetting import vetted
from evidence.machine import KERNEL, save
from evidence.paper import SEEDS
from evidence.training.run import RUNS, policies_of, run_all
from evidence.training.runs import Plan, read_plan, seed_name
from evidence.training.table import RESULTS, read_results, results_of
from sagecc.cli import errors_in_one_line
from sagecc.common.errors import SageccError
from sagecc.common.limits import usable_cores
from sagecc.common.shipped import SAFEST_POLICY
from sagecc.leagues.plots import HEURISTIC, POLICY, SHADE, save_figure, style
from sagecc.leagues.vetting.conditions import CONDITIONS
from sagecc.schemas.schemes import POLICY_PREFIX

NAME = "trade"
PLAN = RUNS.with_name("trade.yaml")
RECIPES: Mapping[str, float] = {"trade-half": 0.5, "trade-1": 1, SAFEST_POLICY: 2, "trade-4": 4}
"""What the added sets' windows weigh in each recipe, those of Sets I and II at 1."""
LEAGUE = "heldout"
PICTURE = Path("docs/img/trade.svg")
SHARES = "cubics-most"
"""The condition whose value tells what is taken from others."""
PANELS = {
    "I": "wins alone",
    "II": "wins next to Cubic",
    "met": f"conditions met of {len(CONDITIONS)}",
    "shares": "fair shares it takes",
}
TOPS = {"I": 1, "II": 1, "met": len(CONDITIONS), "shares": 4}


def points(results: Mapping[str, Any], said: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    """Return a row for each seed of RECIPES: the weight, its winning rates by set, and what `vet` says of it.

    Args:
        results: those of the runs, by name.
        said: by name, how many conditions each meets, and its value of SHARES.
    """
    return [
        {"name": name, "weight": weight, "seed": seed, **said[name]}
        | {kind: results[name]["leagues"][LEAGUE][kind]["policy"]["winning_rate"] for kind in ("I", "II")}
        for recipe, weight in RECIPES.items()
        for seed in SEEDS
        for name in [seed_name(recipe, seed)]
    ]


def trade_figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw each seed's winning rates and conditions over the weight, with the lines of their means."""
    weights = sorted({row["weight"] for row in rows})
    with style():
        figure = Figure(figsize=(11.5, 3.2), layout="constrained")
        for axes, (key, title) in zip(figure.subplots(1, len(PANELS)), PANELS.items(), strict=True):
            colour = POLICY if key in ("I", "II") else HEURISTIC
            means = [fmean(row[key] for row in rows if row["weight"] == weight) for weight in weights]
            axes.plot(weights, means, color=colour, linewidth=1.6)
            axes.plot([row["weight"] for row in rows], [row[key] for row in rows], "o", color=colour, markersize=4)
            axes.set_xscale("log", base=2)
            axes.set_xticks(weights, [f"{weight:g}" for weight in weights])
            axes.set_xlabel("weight of the added sets")
            axes.set_title(title)
            axes.set_ylim(0, TOPS[key])
            if key == "shares":
                axes.axhline(CONDITIONS[SHARES].limit, color=SHADE, linewidth=1, linestyle=":")
            elif key == "met":
                axes.yaxis.set_major_locator(MaxNLocator(integer=True))
            else:
                axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    return figure


def _said(plan: Plan, names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return how many conditions each run's policy meets, and its value of SHARES."""
    found: dict[str, dict[str, float]] = {}
    for name, folder in policies_of(plan, names, KERNEL).items():
        verdicts = vetted(f"{POLICY_PREFIX}{folder}")
        (taken,) = (each.value for each in verdicts if each.condition.name == SHARES)
        assert taken is not None, name
        found[name] = {"met": sum(each.met for each in verdicts), "shares": taken}
    return found


def main() -> None:
    """Train and judge what is missing, vet, save and draw."""
    plan, shipped = read_plan(PLAN), read_plan(RUNS)
    if failed := run_all(plan, (), KERNEL, usable_cores(), results_of(PLAN)):
        raise SageccError(f"{failed[0]}: its training failed")
    own = [seed_name(SAFEST_POLICY, seed) for seed in SEEDS]
    said = _said(plan, list(plan.runs)) | _said(shipped, own)
    rows = points(read_results(RESULTS) | read_results(results_of(PLAN)), said)
    save(NAME, {"conditions": len(CONDITIONS), "rows": rows})
    save_figure(trade_figure(rows), PICTURE)


if __name__ == "__main__":
    with errors_in_one_line("evidence.leagues.trade"):
        main()
