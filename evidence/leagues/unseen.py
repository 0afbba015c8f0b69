# SPDX-License-Identifier: Apache-2.0
"""Recipes' seeds among the 13 heuristics, on networks that no file names: drawn for this, by a number given here.

`python -m evidence.leagues.unseen [--seed N]`; the ranges are those of the paper's grid (appendix C), whose networks,
and those of `heldout`, are points of it. Policies that are not trained yet are trained first. Virtual time: the figures
hang on the number, the kernel's bytes and the policies' files. What was played is kept; a killed run goes on, and a
seed that stands in the result with the policy of its training's result is not played again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from evidence.kept import RULES, Contest, contest
from evidence.leagues.results import standing_over_seeds
from evidence.machine import KERNEL, RESULTS, earlier_result, save
from evidence.paper.learning import IN_LABS
from evidence.training.run import RUNS, harm_of, policies_of, standing
from evidence.training.runs import Plan, read_plan
from evidence.training.table import RESULTS as TRAININGS
from evidence.training.table import kept_or_played, read_results
from sagecc.cli import errors_in_one_line
from sagecc.collector.kernel.identity import kernel_identity
from sagecc.collector.run.grid import QUEUES_BDP, RTTS_MS, SET_I_MAX_MBPS, STEPS, set_one, set_two
from sagecc.common.limits import usable_cores
from sagecc.common.shipped import BEST_POLICY, SAFEST_POLICY
from sagecc.leagues.league import gather, lab_runner
from sagecc.schemas.environment import Environment
from sagecc.schemas.environment_set import EnvironmentSet
from sagecc.schemas.network_distribution import Quantity
from sagecc.schemas.schemes import POLICY_PREFIX, SCHEMES

CACHE = Path(".cache/bench-unseen")
RECIPES = (
    "offline-kicks",
    "offline-wander",
    "offline",
    SAFEST_POLICY,
    f"{SAFEST_POLICY}-quarter",
    BEST_POLICY,
    IN_LABS,
)
"""Of a pool alone: kicks, with `wander`, with flows that start together, in all sets, from a quarter of
these; of labs; of what wins most."""
SEED = 20261127
NETWORKS = {"I": 24, "II": 12}
"""As many as `heldout` has."""
RATE_MBPS = Quantity("log_uniform", (min(STEPS), max(STEPS)))
RTT_MS = Quantity("log_uniform", (min(RTTS_MS), max(RTTS_MS)))
QUEUE_BDP = Quantity("log_uniform", (min(QUEUES_BDP), max(QUEUES_BDP)))
STEP = Quantity("log_uniform", (0.25, 4.0))
"""The second rate over the first, in every other network of Set I."""
DEEP_BDP = Quantity("log_uniform", (1.0, max(QUEUES_BDP)))
"""Queues of Set II."""


def drawn(seed: int) -> EnvironmentSet:
    """Return NETWORKS, drawn by a number: rates, RTTs, queues and steps with uniform logarithms."""
    random = np.random.default_rng(seed)

    def of(quantity: Quantity) -> float:
        return round(quantity.draw(random), 2)

    alone: list[Environment] = []
    environments: list[Environment] = []
    while len(alone) < NETWORKS["I"]:
        rate_mbps, step = of(RATE_MBPS), of(STEP) if len(alone) % 2 else 1.0
        if rate_mbps * step <= SET_I_MAX_MBPS:
            alone.append(set_one(rate_mbps, step, of(RTT_MS), of(QUEUE_BDP)))
    while len(environments) < NETWORKS["II"]:
        environments.append(set_two(of(RATE_MBPS), of(RTT_MS), of(DEEP_BDP)))
    return EnvironmentSet(f"unseen-{seed}", f"python -m evidence.leagues.unseen --seed {seed}", (*alone, *environments))


def identity_of(networks: EnvironmentSet, kernel: str) -> str:
    """Return what decides a policy's figures beside its files: the kernel, the networks and how they are scored."""
    of = [kernel, [environment.id for environment in networks.environments], RULES.alpha]
    return hashlib.sha256(json.dumps(of).encode()).hexdigest()


def known(path: Path, identity: str) -> Mapping[str, dict[str, Any]]:
    """Return the runs of an earlier result that had this identity, by their policies; none where there is none."""
    recipes = earlier_result(path, identity).get("recipes", ())
    return {run["policy_sha256"]: run for of in recipes for run in of["runs"]}


def played(
    name: str, plan: Plan, networks: EnvironmentSet, heuristics: Contest, folder: Path, jobs: int
) -> dict[str, Any]:
    """Let a run's policy play, which is trained first where it is not yet, and return how it stands."""
    scheme, out = f"{POLICY_PREFIX}{policies_of(plan, [name], KERNEL)[name]}", folder / name
    material = gather(networks, (scheme,), out, out, lab_runner(KERNEL, jobs))
    league = heuristics.joined_by(scheme, material.episodes)
    return {
        "name": name,
        "policy_sha256": material.policies[scheme],
        "sets": standing(league.standings(), league.environments, scheme),
        "harm": harm_of(league.episodes, scheme),
    }


def main() -> None:
    """Play and save, a seed of a recipe at a time."""
    parser = argparse.ArgumentParser(description="Play recipes' seeds on networks drawn for this.")
    parser.add_argument("--seed", type=int, default=SEED, help="draws the networks (default: %(default)s)")
    seed = parser.parse_args().seed
    plan, networks, jobs = read_plan(RUNS), drawn(seed), usable_cores()
    identity = identity_of(networks, kernel_identity(KERNEL, (*SCHEMES, POLICY_PREFIX)))
    earlier, folder = known(RESULTS / "unseen.json", identity), CACHE / networks.name
    heuristics = contest(networks.name, networks, {name: name for name in SCHEMES}, folder / "raw", KERNEL, jobs)
    recipes, results = [], read_results(TRAININGS)

    def play(name: str) -> dict[str, Any]:
        return played(name, plan, networks, heuristics, folder, jobs)

    for recipe in RECIPES:
        runs = kept_or_played(plan.of_configuration(recipe), results, earlier, play)
        over_seeds = {name: standing_over_seeds([run["sets"][name] for run in runs]) for name in NETWORKS}
        recipes.append({"recipe": recipe, "runs": runs, "over_seeds": over_seeds})
    ranges = {"rate_mbps": RATE_MBPS, "rtt_ms": RTT_MS, "queue_bdp": QUEUE_BDP, "step": STEP, "deep_bdp": DEEP_BDP}
    save(
        "unseen",
        {
            "seed": seed,
            "identity": identity,
            "networks": NETWORKS,
            "ranges": {name: of.values for name, of in ranges.items()},
            "recipes": recipes,
        },
    )


if __name__ == "__main__":
    with errors_in_one_line("evidence.leagues.unseen"):
        main()
