# SPDX-License-Identifier: Apache-2.0
"""`python -m evidence.leagues.teaching`: what a pool must show; draws docs/img/pools.svg.

Winning rates in `heldout` over pools, of clones and of recipes that follow critics. What is missing of teaching.yaml is
trained; other recipes are those of runs.yaml.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.leagues.results import recipes
from evidence.machine import KERNEL
from evidence.paper.pictures import variants_figure
from evidence.training.run import RUNS, run_all
from evidence.training.runs import read_plan
from evidence.training.table import RESULTS, read_results, results_of
from sagecc.cli import errors_in_one_line
from sagecc.common.errors import SageccError
from sagecc.leagues.plots import save_figure

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


def rates(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of the picture, of results by run; SageccError where a recipe has no result."""
    of = {by["first"]["name"]: by["leagues"][LEAGUE] for by in recipes([*results.values()])}
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


def main() -> None:
    """Train what is missing, and draw."""
    if failed := run_all(read_plan(PLAN), (), KERNEL, 1, results_of(PLAN)):
        raise SageccError(f"{failed[0]}: its training failed")
    rows = rates(read_results(RESULTS) | read_results(results_of(PLAN)))
    save_figure(variants_figure(rows), Path("docs/img/pools.svg"))


if __name__ == "__main__":
    with errors_in_one_line("evidence.leagues.teaching"):
        main()
