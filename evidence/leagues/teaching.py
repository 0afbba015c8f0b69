# SPDX-License-Identifier: Apache-2.0
"""`python -m evidence.leagues.teaching`: what a pool must show; draws docs/img/pools.svg and docs/img/clones.svg.

Winning rates in `heldout` over pools, of clones and of recipes that follow critics; and the windows of a few of them in
one network. What is missing of teaching.yaml is trained; other recipes are those of runs.yaml.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.figure import Figure

from evidence.leagues.results import by_name, recipes
from evidence.machine import KERNEL
from evidence.paper.pictures import variants_figure
from evidence.training.run import RUNS, policies_of, run_all
from evidence.training.runs import Plan, read_plan
from evidence.training.table import RESULTS, read_results, results_of
from sagecc.cli import errors_in_one_line
from sagecc.collector.run.grid import profile_environments
from sagecc.common.errors import SageccError
from sagecc.execution.lab.controllers import play_episode
from sagecc.leagues.colours import GREEN
from sagecc.leagues.plots import HEURISTIC, INK, POLICY, save_figure, style
from sagecc.schemas.schemes import POLICY_PREFIX

PLAN = RUNS.with_name("teaching.yaml")
LEAGUE = "heldout"


@dataclass(frozen=True)
class Pool:
    """A row of the picture: who learned from a pool."""

    title: str
    clone: str | None
    """The clones' recipe; None: no clone of it."""
    recipe: str
    """The recipe that follows critics."""


POOLS = (
    Pool("undisturbed, small", "clone-plain", "offline-plain"),
    Pool("ACKs with jitter, small", "clone-jittered", "follows-jittered"),
    Pool("kicked a quarter as often, small", "clone-rarer", "follows-rarer"),
    Pool("kicked down only, small", "clone-down", "follows-down"),
    Pool("kicked, small", "clone-small", "offline-small"),
    Pool("kicked four times as often, small", "clone-more", "follows-more"),
    Pool("kicked, spread", "clone-kicks", "offline-kicks"),
    Pool("kicked and wander, spread", None, "offline-wander"),
    Pool("these and together", None, "offline"),
)
IMITATES, FOLLOWS = "clones", "follows critics too"

NETWORK = "II-18mbps-50ms-3bdp-df576b"
"""Of `heldout`, in which windows are drawn."""
MINUTE_S = 60.0
PLAYERS = {
    "Cubic": None,
    "clone of undisturbed schemes": "clone-plain",
    "clone of kicked schemes": "clone-down",
    "follows critics, from kicked schemes": "follows-down",
}
"""By title the run whose first seed plays there; None: Cubic does."""


def rates(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of the picture, of results by run; SageccError where a recipe has no result."""
    of = {name: recipe["leagues"][LEAGUE] for name, recipe in by_name(recipes([*results.values()])).items()}
    if lacking := [name for pool in POOLS for name in (pool.clone, pool.recipe) if name and name not in of]:
        raise SageccError(
            f"the runs '{lacking[0]}' have no result: 'make policies' and 'make bench-teaching' make them"
        )
    return [
        {
            "title": pool.title,
            "leagues": ({IMITATES: of[pool.clone]} if pool.clone else {}) | {FOLLOWS: of[pool.recipe]},
        }
        for pool in POOLS
    ]


def windows(plan: Plan) -> dict[str, pa.Table]:
    """Let PLAYERS play NETWORK; return the raw rows of each by title. Policies that are not trained yet are."""
    (network,) = (each for each in profile_environments(LEAGUE) if each.id == NETWORK)
    policies = policies_of(plan, [run for run in PLAYERS.values() if run], KERNEL)
    schemes = {title: f"{POLICY_PREFIX}{policies[run]}" if run else "cubic" for title, run in PLAYERS.items()}
    return {title: play_episode(KERNEL, network, scheme).rows for title, scheme in schemes.items()}


def windows_figure(rows: Mapping[str, pa.Table]) -> Figure:
    """Draw windows over the first minute, by title."""
    with style():
        figure = Figure(figsize=(9, 4), layout="constrained")
        axes = figure.subplots()
        for title, colour in zip(rows, (HEURISTIC, INK, POLICY, GREEN), strict=True):
            shown = rows[title].filter(pc.less_equal(rows[title]["t_s"], MINUTE_S))
            axes.plot(shown["t_s"], shown["cwnd_pkts"], color=colour, linewidth=1.4, label=title)
        axes.set_xlim(0, MINUTE_S)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("time (s)")
        axes.set_ylabel("cwnd (packets)")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def main() -> None:
    """Train what is missing, and draw."""
    plan = read_plan(PLAN)
    if failed := run_all(plan, (), KERNEL, 1, results_of(PLAN)):
        raise SageccError(f"{failed[0]}: its training failed")
    rows = rates(read_results(RESULTS) | read_results(results_of(PLAN)))
    save_figure(variants_figure(rows), Path("docs/img/pools.svg"))
    save_figure(windows_figure(windows(plan)), Path("docs/img/clones.svg"))


if __name__ == "__main__":
    with errors_in_one_line("evidence.leagues.teaching"):
        main()
