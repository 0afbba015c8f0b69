# SPDX-License-Identifier: Apache-2.0
"""`models/astraea-1`, trained here by Astraea's recipe, in the networks of its paper's own figures, beside Cubic.

Three flows that come and go (section 5.1.1 and 5.2), Jain's index over networks (5.1.3), flows with unlike RTTs (5.1.2)
and two bottlenecks (5.1.4): the experiments `astraea-6` to `astraea-11` of `sagecc study`. Virtual time: the figures
hang on the kernel's bytes and the policy's files, not on the machine. What was played is kept, a killed run goes on.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evidence.machine import KERNEL, save
from sagecc.cli import errors_in_one_line
from sagecc.common.limits import usable_cores
from sagecc.leagues.intervals import interval
from sagecc.leagues.study.catalogue import experiment
from sagecc.leagues.study.collect import collect, lab_identity, read_series
from sagecc.leagues.study.experiments import Experiment
from sagecc.leagues.study.networks import Cell
from sagecc.leagues.study.runner import lab_runner
from sagecc.schemas.schemes import POLICY_PREFIX

CACHE = Path(".cache/bench-astraea")
TRAINED = f"{POLICY_PREFIX}models/astraea-1"
EVENTS, NETWORKS, PATHS, SETS = "astraea-6", "astraea-9", "astraea-8", "astraea-11"
REPEATS = {EVENTS: 10, NETWORKS: 2, PATHS: 3, SETS: 3}
"""By experiment; NETWORKS draws its flows by the repeat, and has a grid. EVENTS has the index of `astraea-7` too."""

Numbers = dict[str, list[float]]
"""By name, what the runs of a cell gave; none where there was nothing to measure."""


def main() -> None:
    """Measure and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", default=TRAINED.removeprefix(POLICY_PREFIX), help="in place of the shipped one")
    schemes = (f"{POLICY_PREFIX}{parser.parse_args().policy}", "cubic")
    played = {name: measured(experiment(name), schemes, repeats) for name, repeats in REPEATS.items()}
    save(
        "astraea",
        {
            "repeats": REPEATS,
            "schemes": [
                {"scheme": scheme.rpartition("/")[2]}
                | {name: rows(by_cell) for name in played if (by_cell := played[name][scheme])}
                for scheme in schemes
            ],
        },
    )


def measured(of: Experiment, schemes: Sequence[str], repeats: int) -> dict[str, dict[Cell, Numbers]]:
    """Play an experiment; return by scheme and cell what its runs gave."""
    runs = of.runs(schemes, repeats)
    files = collect(runs, lab_runner(KERNEL, usable_cores()), CACHE / "runs", lab_identity(KERNEL)).files
    found: dict[str, dict[Cell, Numbers]] = {scheme: {} for scheme in schemes}
    for run in runs:
        numbers = of.measure(read_series(files[run]), run.environment, run.interval_s)
        cell = found[run.scheme].setdefault(run.cell, {})
        for name, value in numbers.items():
            cell.setdefault(name, []).extend([] if value is None else [value])
    return found


def rows(by_cell: dict[Cell, Numbers]) -> list[dict[str, Any]]:
    """Return a row for each cell: what it is, and each number's mean with its interval over the repeats."""
    return [
        {"bandwidth_mbps": cell.bandwidth_mbps, "rtt_ms": cell.rtt_ms, "flows": cell.flows}
        | {name: over(values) for name, values in numbers.items() if values}
        for cell, numbers in by_cell.items()
    ]


def over(values: Sequence[float]) -> dict[str, float | None]:
    """Return a mean over repeats with its 95 % interval, and the least value."""
    mean_interval = interval(np.array(values))
    return {"mean": mean_interval.mean, "low": mean_interval.low, "high": mean_interval.high, "least": min(values)}


if __name__ == "__main__":
    with errors_in_one_line("evidence.behaviour.astraea"):
        main()
