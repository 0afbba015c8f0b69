# SPDX-License-Identifier: Apache-2.0
"""The Sage paper's league of learned schemes with each seed of a recipe in the place of the policy that comes along.

`make bench-rival-seeds`, after `make bench-rival-leagues`, which lets the rivals play. Policies that are
not trained yet are trained first; what their training's leagues played is not played again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from evidence.kept import Contest, contest, is_kept
from evidence.leagues.orca import RAW
from evidence.leagues.rival_leagues import LEAGUES, standings
from evidence.leagues.sage_claims import LEAGUE_RULE, LEARNED
from evidence.leagues.unseen import RECIPES
from evidence.machine import KERNEL, save
from evidence.paper.variants import over_seeds
from evidence.training import ARTEFACTS
from evidence.training.run import RUNS, policies_of
from evidence.training.runs import Plan, read_plan
from sagecc.cli import errors_in_one_line
from sagecc.collector.run.grid import profile_set
from sagecc.common.errors import SageccError
from sagecc.common.limits import usable_cores
from sagecc.common.shipped import BEST_POLICY
from sagecc.leagues.league import gather, lab_runner
from sagecc.schemas.schemes import POLICY_PREFIX

OWN = f"models/{BEST_POLICY}"
"""Whose place a seed takes: two of one recipe would share what either wins."""
RIVALS = tuple(name for name in LEAGUES[LEARNED] if name != OWN)


def rivals(profile: str) -> Contest:
    """Return what the rivals did there, as it is kept; SageccError where one's numbers are not."""
    networks = profile_set(profile)
    for name in RIVALS:
        if not is_kept(profile, networks, name, KERNEL):
            raise SageccError(f"{name}: has not played {profile} yet; run make bench-rival-leagues first")
    return contest(profile, networks, dict.fromkeys(RIVALS), RAW[profile], KERNEL, usable_cores())


def places(scores: pl.DataFrame, own: str) -> dict[str, dict[str, Any]]:
    """Return by set how one stands by the paper's own rule, and the best of the others.

    Args:
        scores: of leagues.scores.SCORE_SCHEMA, of RIVALS and this one.
        own: its name.
    """
    table = standings(scores, [*RIVALS, own]).filter(alpha=LEAGUE_RULE[0], margin=LEAGUE_RULE[1])
    ranks = {}
    for name, rows in table.group_by("set", maintain_order=True):
        best, *_ = rows.filter(pl.col("scheme") != own).sort("rank", "scheme").to_dicts()
        ranks[str(name[0])] = {
            **rows.filter(scheme=own).select("rank", "winning_rate", "low", "high").to_dicts()[0],
            "players": len(rows),
            "best": {"scheme": best["scheme"], "winning_rate": best["winning_rate"]},
        }
    return ranks


def played(run: str, plan: Plan, beside: Mapping[str, Contest]) -> dict[str, Any]:
    """Let a run's policy play, and return its places by profile and set."""
    scheme = f"{POLICY_PREFIX}{policies_of(plan, [run], KERNEL)[run]}"
    result: dict[str, Any] = {"name": run, "profiles": {}}
    for profile, known in beside.items():
        place = ARTEFACTS / run / profile
        episodes = gather(profile_set(profile), (scheme,), place / "raw", place, lab_runner(KERNEL, usable_cores()))
        result["policy_sha256"] = episodes.policies[scheme]
        result["profiles"][profile] = places(known.joined_by(scheme, episodes.episodes).scores, scheme)
    return result


def together(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return by profile and set the mean of the runs' winning rates, with its interval."""
    profiles = runs[0]["profiles"]
    return {
        profile: {name: over_seeds([run["profiles"][profile][name]["winning_rate"] for run in runs]) for name in sets}
        for profile, sets in profiles.items()
    }


def main() -> None:
    """Play and save."""
    plan, rivals_of = read_plan(RUNS), {profile: rivals(profile) for profile in RAW}
    recipes = []
    for recipe in RECIPES:
        runs = [played(name, plan, rivals_of) for name in plan.of_configuration(recipe)]
        recipes.append({"recipe": recipe, "runs": runs, "over_seeds": together(runs)})
    save("rival_seeds", {"recipes": recipes})


if __name__ == "__main__":
    with errors_in_one_line("evidence.leagues.rival_seeds"):
        main()
