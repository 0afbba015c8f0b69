# SPDX-License-Identifier: Apache-2.0
"""The Sage paper's league of learned schemes with each seed of a recipe in Sage's place.

`make bench-rival-seeds`, after `make bench-rival-leagues`, which lets the rivals play. Policies that are
not trained yet are trained first; what their training's leagues played is not played again. A seed that stands in the
result with the policy of its training's result is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from evidence.kept import Contest, contest, is_kept
from evidence.leagues.orca import RAW
from evidence.leagues.rival_leagues import LEAGUES, standings
from evidence.leagues.sage_claims import LEAGUE_RULE, LEARNED
from evidence.leagues.unseen import identity_of, known
from evidence.machine import KERNEL, RESULTS, save
from evidence.paper.learning import IN_LABS
from evidence.paper.variants import over_seeds
from evidence.published import SAGE
from evidence.training import ARTEFACTS
from evidence.training.run import RUNS, policies_of
from evidence.training.runs import Plan, read_plan
from evidence.training.table import RESULTS as TRAININGS
from evidence.training.table import kept_or_played, read_results
from sagecc.cli import errors_in_one_line
from sagecc.collector.kernel.identity import kernel_identity
from sagecc.collector.run.grid import profile_set
from sagecc.common.errors import SageccError
from sagecc.common.limits import usable_cores
from sagecc.common.shipped import BEST_POLICY, SAFEST_POLICY
from sagecc.leagues.league import gather, lab_runner
from sagecc.schemas.schemes import POLICY_PREFIX, SCHEMES

NAME = "rival_seeds"
RECIPES = (SAFEST_POLICY, "offline", BEST_POLICY, IN_LABS)
OWN = tuple(f"models/{name}" for name in (SAFEST_POLICY, BEST_POLICY))
RIVALS = tuple(name for name in LEAGUES[LEARNED] if name not in (*OWN, SAGE))
"""Without the policies in whose place a seed plays, or two of one recipe would share what either wins. Sage's published
model has not played."""


def rivals(profile: str, names: Sequence[str] = RIVALS) -> Contest:
    """Return what rivals did there, as it is kept; SageccError where one's numbers are not."""
    networks = profile_set(profile)
    for name in names:
        if not is_kept(profile, networks, name, KERNEL):
            raise SageccError(f"{name}: has not played {profile} yet; run make bench-rival-leagues first")
    return contest(profile, networks, dict.fromkeys(names), RAW[profile], KERNEL, usable_cores())


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
    for profile, of_rivals in beside.items():
        place = ARTEFACTS / run / profile
        episodes = gather(profile_set(profile), (scheme,), place, place, lab_runner(KERNEL, usable_cores()))
        result["policy_sha256"] = episodes.policies[scheme]
        result["profiles"][profile] = places(of_rivals.joined_by(scheme, episodes.episodes).scores, scheme)
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
    plan, rivals_of, results = read_plan(RUNS), {profile: rivals(profile) for profile in RAW}, read_results(TRAININGS)
    kernel, recipes = kernel_identity(KERNEL, (*SCHEMES, POLICY_PREFIX)), []
    identity = " ".join([*RIVALS, *(identity_of(profile_set(profile), kernel) for profile in RAW)])
    earlier = known(RESULTS / f"{NAME}.json", identity)
    for recipe in RECIPES:
        runs = kept_or_played(
            plan.of_configuration(recipe), results, earlier, lambda name: played(name, plan, rivals_of)
        )
        recipes.append({"recipe": recipe, "runs": runs, "over_seeds": together(runs)})
    save(NAME, {"identity": identity, "recipes": recipes})


if __name__ == "__main__":
    with errors_in_one_line("evidence.leagues.rival_seeds"):
        main()
