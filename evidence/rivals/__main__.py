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
from evidence.rivals.check import Number
from sagecc.cli import errors_in_one_line
from sagecc.leagues.claims import YES, Claim


def checks() -> list[Claim[Number]]:
    """Return the checks of all modules beside this one, by scheme."""
    names = sorted(module.name for module in pkgutil.iter_modules(evidence.rivals.__path__))
    modules = (importlib.import_module(f"evidence.rivals.{name}") for name in names if name != "__main__")
    return sorted((check for module in modules for check in getattr(module, "CHECKS", ())), key=_scheme)


def row(check: Claim[Number]) -> dict[str, Any]:
    """Measure one."""
    (judgement,) = check.judged(KERNEL)
    return {
        "scheme": check.measure.scheme,
        "source": check.source,
        "says": check.sentence,
        "unit": check.measure.unit,
        "published": check.measure.published,
        "low": check.bounds.low,
        "high": check.bounds.high,
        **judgement.measured.figures,
        "agrees": judgement.verdict == YES,
        "why": check.measure.why,
    }


def _scheme(check: Claim[Number]) -> str:
    return check.measure.scheme


def main() -> None:
    """Measure and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("schemes", nargs="*", help="whose checks to measure; by default all")
    choice = set(parser.parse_args().schemes)
    every = checks()
    there = set(map(_scheme, every))
    if unknown := choice - there:
        parser.error(f"no checks of {', '.join(sorted(unknown))}")
    saved = RESULTS / "rivals.json"
    rows = json.loads(saved.read_text())["result"]["checks"] if saved.exists() else []
    rows = [found for found in rows if found["scheme"] in there]
    wanted = [check for check in every if not choice or _scheme(check) in choice]
    for scheme, some in groupby(tqdm(wanted), key=_scheme):
        rows = [found for found in rows if found["scheme"] != scheme] + [row(check) for check in some]
        save("rivals", {"checks": sorted(rows, key=lambda found: str(found["scheme"]))})


if __name__ == "__main__":
    with errors_in_one_line("evidence.rivals"):
        main()
