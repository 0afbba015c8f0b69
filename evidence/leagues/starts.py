# SPDX-License-Identifier: Apache-2.0
"""What a flow gets next to a Cubic that starts before it, with it, or after it, as a share of what Cubic gets there.

In Set II the tested flow always starts 5 s after Cubic, behind a queue: it never sees the path's own RTT. Networks are
those of starts.yaml; policies are the shipped ones, each seed of RECIPES, of a pool alone, and of what lacks a part of
the last one, as far as `make cures` has trained it. Virtual time. A seed that stands in the result with the policy of
its training's result is not played again.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tqdm import tqdm

from evidence.leagues.unseen import identity_of
from evidence.machine import KERNEL, RESULTS, earlier_result, save
from evidence.training.run import RUNS, policies_of
from evidence.training.runs import read_plan
from evidence.training.table import RESULTS as TRAININGS
from evidence.training.table import read_results, results_of
from sagecc.cli import errors_in_one_line
from sagecc.collector.kernel.identity import kernel_identity
from sagecc.collector.run.set_file import load_set
from sagecc.common.limits import usable_cores
from sagecc.common.shipped import BEST_POLICY, POOL_POLICY, SAFEST_POLICY
from sagecc.execution.lab.controllers import play_episode
from sagecc.policy.artefact import policy_sha256
from sagecc.schemas.environment import Environment
from sagecc.schemas.schemes import POLICY_PREFIX

NAME = "starts"
NETWORKS = Path(__file__).with_suffix(".yaml")
RECIPES = ("offline-wander", "offline", SAFEST_POLICY)
CUBIC = "cubic"
HEURISTICS = ("htcp", "reno", "bbr2")
CURES = RUNS.with_name("cures.yaml")
"""Runs that lack a part."""
ORDERS = ("after", "with", "before")
"""When the tested flow starts; from Set II's order on."""


def order_of(environment: Environment) -> str:
    """Return when the tested flow starts in relation to Cubic."""
    own_s, other_s = environment.start_s, environment.cross[0].flow.start_s
    return "with" if own_s == other_s else "after" if own_s > other_s else "before"


def shares(
    goodputs_mbps: dict[str, float], cubics_mbps: dict[str, float], environments: list[Environment]
) -> dict[str, Any]:
    """Return by order a scheme's shares of Cubic's goodput in the same place, the least first.

    Args:
        goodputs_mbps: the scheme's, by network's id.
        cubics_mbps: those of Cubic.
        environments: the networks.
    """
    found: dict[str, list[float]] = {order: [] for order in ORDERS}
    for each in environments:
        found[order_of(each)].append(goodputs_mbps[each.id] / cubics_mbps[each.id])
    return {order: sorted(values) for order, values in found.items()}


def played(schemes: dict[str, str], environments: list[Environment]) -> dict[str, dict[str, float]]:
    """Play each scheme in each network; return its goodput (Mbps) by name and network's id."""
    jobs = [(name, scheme, each) for name, scheme in schemes.items() for each in environments]
    with ThreadPoolExecutor(usable_cores()) as pool:
        goodputs = pool.map(lambda job: play_episode(KERNEL, job[2], job[1]).flows[0].goodput_mbps, jobs)
        found: dict[str, dict[str, float]] = {name: {} for name in schemes}
        for (name, _, each), goodput_mbps in zip(jobs, tqdm(goodputs, total=len(jobs), desc=NAME), strict=True):
            found[name][each.id] = goodput_mbps
    return found


def known(path: Path, identity: str) -> dict[str, dict[str, Any]]:
    """Return the rows of an earlier result that had this identity, by their policies; none where there is none."""
    rows = earlier_result(path, identity).get("rows", ())
    return {row["policy_sha256"]: row for row in rows if "policy_sha256" in row}


def main() -> None:
    """Train seeds that are not trained yet, play, and save."""
    networks, trainings = load_set(str(NETWORKS)), read_results(TRAININGS) | read_results(results_of(CURES))
    environments = list(networks.environments)
    identity = identity_of(networks, kernel_identity(KERNEL, (CUBIC, *HEURISTICS, POLICY_PREFIX)))
    earlier = known(RESULTS / f"{NAME}.json", identity)
    plan, lacking = read_plan(RUNS), read_plan(CURES)
    plans = {name: plan for recipe in RECIPES for name in plan.of_configuration(recipe)}
    plans |= {name: lacking for name in lacking.runs if name in trainings}
    kept = {name: earlier.get(trainings.get(name, {}).get("policy_sha256", "")) for name in plans}
    schemes = {name: name for name in (CUBIC, *HEURISTICS)}
    schemes |= {name: f"{POLICY_PREFIX}models/{name}" for name in (BEST_POLICY, POOL_POLICY)}
    for name, of in plans.items():
        if not kept[name]:
            schemes[name] = f"{POLICY_PREFIX}{policies_of(of, [name], KERNEL)[name]}"
    rows: dict[str, dict[str, Any]] = {}
    goodputs = played(schemes, environments)
    for name, found in goodputs.items():
        rows[name] = {"name": name, "shares": shares(found, goodputs[CUBIC], environments)}
        if name in plans:
            rows[name] |= {"recipe": plans[name].runs[name].recipe, "policy_sha256": policy_sha256(schemes[name])}
    del rows[CUBIC]
    rows |= {name: {**row, "name": name, "recipe": plans[name].runs[name].recipe} for name, row in kept.items() if row}
    save(NAME, {"networks": len(environments), "identity": identity, "rows": list(rows.values())})


if __name__ == "__main__":
    with errors_in_one_line("evidence.leagues.starts"):
        main()
