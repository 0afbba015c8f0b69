# SPDX-License-Identifier: Apache-2.0
"""What `sagecc vet` says of heuristics and policies: every condition's worst network.

Virtual time: all but the CPU time depend on the kernel's bytes and the policies' files alone. `models/repro` is what
`make repro` trained; CAREFUL is the shipped policy under other rules of `sagecc bound`.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from evidence.machine import KERNEL, CpuTime, save
from sagecc.cli import errors_in_one_line
from sagecc.common.shipped import BEST_POLICY
from sagecc.leagues.vetting.conditions import CONDITIONS
from sagecc.leagues.vetting.suite import Verdict, vet
from sagecc.policy.artefact import PolicyArtefact, write_with_control

RUNS = Path(".cache/bench-vetting")
CAREFUL = "sagecc-10, careful"
RULES = {"window_bound_loss": 0.03, "window_bound_slow": True, "recovery_floor": 0.5}
"""Of CAREFUL, in place of the shipped policy's own."""
SCHEMES = {
    **{scheme: scheme for scheme in ("cubic", "bbr", "bbr2", "bbr3")},
    **{model: f"policy:{model}" for model in ("models/sagecc-10", "models/repro")},
    CAREFUL: f"policy:{RUNS / 'careful'}",
}
"""By the name on the page. The references first: their runs are shared."""


def _row(verdict: Verdict, name: str) -> dict[str, Any]:
    return {"condition": verdict.condition.name, "scheme": name, **verdict.as_json()}


def _write_careful(folder: Path) -> None:
    shipped = PolicyArtefact.load(BEST_POLICY)
    write_with_control(shipped, folder, replace(shipped.control, **RULES))  # type: ignore[arg-type]


def main() -> None:
    """Measure and save."""
    conditions = list(CONDITIONS.values())
    rows, minutes = [], {}
    _write_careful(RUNS / "careful")
    for name, scheme in SCHEMES.items():
        start = CpuTime.now()
        verdicts = vet(KERNEL, [scheme], conditions, RUNS, os.cpu_count() or 1)
        minutes[name] = CpuTime.now().since(start) / 60
        rows += [_row(each, name) for each in verdicts[scheme]]
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
    save("vetting", {"conditions": about, "rows": rows, "cpu_minutes": minutes})


if __name__ == "__main__":
    with errors_in_one_line("evidence.leagues.vetting"):
        main()
