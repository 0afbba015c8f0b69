# SPDX-License-Identifier: Apache-2.0
"""What a flow gets next to a Cubic that starts before it, with it, or after it, as a share of what Cubic gets there.

In Set II the tested flow always starts 5 s after Cubic, behind a queue: it never sees the path's own RTT. Networks are
those of starts.yaml; policies are the shipped ones and each seed of the recipe of a pool alone. Virtual time.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tqdm import tqdm

from evidence.machine import KERNEL, save
from evidence.training.run import RUNS, policies_of
from evidence.training.runs import read_plan
from sagecc.cli import errors_in_one_line
from sagecc.collector.run.set_file import load_set
from sagecc.common.limits import usable_cores
from sagecc.common.shipped import BEST_POLICY, POOL_POLICY
from sagecc.execution.lab.controllers import play_episode
from sagecc.schemas.environment import Environment
from sagecc.schemas.schemes import POLICY_PREFIX

NAME = "starts"
NETWORKS = Path(__file__).with_suffix(".yaml")
RECIPE = "offline"
CUBIC = "cubic"
HEURISTICS = ("htcp", "reno", "bbr2")
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


def main() -> None:
    """Train the recipe's seeds where they are not, play, and save."""
    plan, environments = read_plan(RUNS), list(load_set(str(NETWORKS)).environments)
    seeds = policies_of(plan, plan.of_configuration(RECIPE), KERNEL)
    schemes = {name: name for name in (CUBIC, *HEURISTICS)}
    schemes |= {name: f"{POLICY_PREFIX}models/{name}" for name in (BEST_POLICY, POOL_POLICY)}
    schemes |= {name: f"{POLICY_PREFIX}{folder}" for name, folder in seeds.items()}
    goodputs = played(schemes, environments)
    rows = [
        {"name": name, "shares": shares(of, goodputs[CUBIC], environments)}
        for name, of in goodputs.items()
        if name != CUBIC
    ]
    save(NAME, {"networks": len(environments), "recipe": RECIPE, "rows": rows})


if __name__ == "__main__":
    with errors_in_one_line("evidence.leagues.starts"):
        main()
