# SPDX-License-Identifier: Apache-2.0
"""What `sagecc vet` says of heuristics, policies and the seeds of two recipes: every condition's worst network.

Virtual time: all but the CPU time depend on the kernel's bytes and the policies' files alone.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from evidence.machine import KERNEL, CpuTime, save
from evidence.training.run import RUNS as TRAININGS
from evidence.training.run import policies_of
from evidence.training.runs import read_plan
from sagecc.cli import errors_in_one_line
from sagecc.common.limits import usable_cores
from sagecc.common.shipped import BEST_POLICY, SAFEST_POLICY
from sagecc.leagues.vetting.conditions import CONDITIONS
from sagecc.leagues.vetting.suite import Verdict, vet
from sagecc.schemas.schemes import POLICY_PREFIX

RUNS = Path(".cache/bench-vetting")
SCHEMES = {
    **{scheme: scheme for scheme in ("cubic", "bbr", "bbr2", "bbr3")},
    **{model: f"policy:{model}" for model in (f"models/{SAFEST_POLICY}", f"models/{BEST_POLICY}")},
}
"""By the name on the page. The references first: their runs are shared."""
RECIPES = (SAFEST_POLICY, "offline")
"""Whose seeds are held against the conditions: what ships, and what wins most of a pool alone."""


def _row(verdict: Verdict, name: str) -> dict[str, Any]:
    return {"condition": verdict.condition.name, "scheme": name, **verdict.as_json()}


def vetted(scheme: str, runs: Path = RUNS) -> list[Verdict]:
    """Return a scheme's verdicts on every condition; its runs are kept in a folder."""
    return vet(KERNEL, [scheme], list(CONDITIONS.values()), runs, usable_cores())[scheme]


def _cpu_minutes(scheme: str) -> float:
    """Return what the whole suite takes where no run is kept."""
    with TemporaryDirectory() as runs:
        start = CpuTime.now()
        vetted(scheme, Path(runs))
        return CpuTime.now().since(start) / 60


def main() -> None:
    """Train seeds that are not trained yet, measure and save."""
    conditions = list(CONDITIONS.values())
    rows = [_row(each, name) for name, scheme in SCHEMES.items() for each in vetted(scheme)]
    plan = read_plan(TRAININGS)
    seeds = []
    for recipe in RECIPES:
        for name, folder in policies_of(plan, plan.of_configuration(recipe), KERNEL).items():
            seeds += [_row(each, name) | {"recipe": recipe} for each in vetted(f"{POLICY_PREFIX}{folder}")]
    about = [
        {
            "name": each.name,
            "says": each.says,
            "limit": each.limit,
            "least": each.least,
            "unit": each.unit,
            "networks": len(each.networks),
        }
        for each in conditions
    ]
    minutes = _cpu_minutes(SCHEMES[f"models/{SAFEST_POLICY}"])
    save("vetting", {"conditions": about, "rows": rows, "seeds": seeds, "cpu_minutes": minutes})


if __name__ == "__main__":
    with errors_in_one_line("evidence.leagues.vetting"):
        main()
