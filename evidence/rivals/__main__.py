# SPDX-License-Identifier: Apache-2.0
"""Measure every rival's checks: `python -m evidence.rivals [SCHEME ...]`; of schemes not named the last figures stay.

Those of each scheme are saved as they are measured. SAGECC_TRACES names the folder of Mahimahi's traces, for Sprout.

Virtual time: the figures depend on the kernel's bytes and the seeds, not on the machine.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
from itertools import groupby
from typing import Any

from tqdm import tqdm

import evidence.rivals
from evidence.machine import KERNEL, RESULTS, save
from evidence.rivals.check import RivalCheck
from sagecc.cli import errors_in_one_line
from sagecc.leagues.claims import YES, Bounds, exact


def checks() -> list[RivalCheck]:
    """Return the checks of all modules beside this one, by scheme."""
    names = sorted(module.name for module in pkgutil.iter_modules(evidence.rivals.__path__))
    modules = (importlib.import_module(f"evidence.rivals.{name}") for name in names if name != "__main__")
    every = (check for module in modules for check in getattr(module, "CHECKS", ()))
    return sorted(every, key=lambda check: check.scheme)


def row(check: RivalCheck) -> dict[str, Any]:
    """Measure one."""
    ours = check.measure(KERNEL)
    return {
        "scheme": check.scheme,
        "source": check.source,
        "says": check.says,
        "unit": check.unit,
        "published": check.published,
        "low": check.low,
        "high": check.high,
        "ours": ours,
        "agrees": Bounds(check.low, check.high).verdict(exact(ours)) == YES,
        "why": check.why,
    }


def main() -> None:
    """Measure and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("schemes", nargs="*", help="whose checks to measure; by default all")
    choice = set(parser.parse_args().schemes)
    every = checks()
    if unknown := choice - {check.scheme for check in every}:
        parser.error(f"no checks of {', '.join(sorted(unknown))}")
    saved = RESULTS / "rivals.json"
    rows = json.loads(saved.read_text())["result"]["checks"] if saved.exists() else []
    rows = [found for found in rows if found["scheme"] in {check.scheme for check in every}]
    wanted = [check for check in every if not choice or check.scheme in choice]
    for scheme, some in groupby(tqdm(wanted), key=lambda check: check.scheme):
        rows = [found for found in rows if found["scheme"] != scheme] + [row(check) for check in some]
        save("rivals", {"checks": sorted(rows, key=lambda found: str(found["scheme"]))})


if __name__ == "__main__":
    with errors_in_one_line("evidence.rivals"):
        main()
