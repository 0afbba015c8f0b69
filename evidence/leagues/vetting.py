# SPDX-License-Identifier: Apache-2.0
"""What `sagecc vet` says of heuristics and policies: every condition's worst network.

Virtual time: all but the CPU time hang on the kernel's bytes and the policies' files alone. `models/repro` is what
`make repro` trained.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from evidence.machine import KERNEL, CpuTime, save
from sagecc.cli import errors_in_one_line
from sagecc.leagues.vetting.conditions import CONDITIONS
from sagecc.leagues.vetting.suite import Verdict, vet

SCHEMES = ("cubic", "bbr", "bbr2", "bbr3", "policy:models/sagecc-10", "policy:models/repro")
"""The references first: their runs are shared."""
RUNS = Path(".cache/bench-vetting")


def _row(verdict: Verdict, scheme: str) -> dict[str, Any]:
    return {"condition": verdict.condition.name, "scheme": scheme.rpartition(":")[2], **verdict.as_json()}


def main() -> None:
    """Measure and save."""
    conditions = list(CONDITIONS.values())
    rows, minutes = [], {}
    for scheme in SCHEMES:
        start = CpuTime.now()
        verdicts = vet(KERNEL, [scheme], conditions, RUNS, os.cpu_count() or 1)
        minutes[scheme.rpartition(":")[2]] = CpuTime.now().since(start) / 60
        rows += [_row(each, scheme) for each in verdicts[scheme]]
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
