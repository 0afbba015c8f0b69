# SPDX-License-Identifier: Apache-2.0
"""The evaluation study's numbers beside those that its testbed gave: Cubic and Orca's published actor.

Each difference between the testbed and the study's networks here is switched alone, and all that can be together. Then
what every textbook says of Cubic and NewReno: whether they are fair to themselves, to a flow of another RTT, and to one
over three bottlenecks. The checkpoint is its authors'; SAGECC_ORCA names its folder. Virtual time: the figures hang on
the kernel's bytes, not on the machine. What was played is kept, a killed run goes on.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import polars as pl

from benchmarks.collect import KERNEL
from benchmarks.machine import save
from sagecc.common.errors import SageccError
from sagecc.leagues.flow_metrics import between, flow_means
from sagecc.leagues.study.collect import collect, lab_identity, read_series
from sagecc.leagues.study.experiments import REPEATS, StudyRun, experiment
from sagecc.leagues.study.networks import Cell
from sagecc.leagues.study.published import POINTS
from sagecc.leagues.study.runner import lab_runner
from sagecc.leagues.study.testbed import PREDECESSOR, Conventions
from sagecc.policy.orca_import import import_checkpoint
from sagecc.schemas.schemes import POLICY_PREFIX
from studies import RESULTS

CACHE = Path(".cache/bench-testbed")
NEAR = 0.15
"""A cell's ratio agrees with the published one within this."""

OURS = Conventions()


@dataclass(frozen=True)
class Way:
    """A way to run and to measure the cells."""

    name: str
    conventions: Conventions = OURS
    of_means: bool = False
    """Whether to take one ratio of mean goodputs instead of the mean of each second's ratio."""

    def run(self, run: StudyRun) -> StudyRun:
        """Return the run; ways that only measure otherwise share it."""
        return replace(self.conventions, measured_rtts=OURS.measured_rtts).run(run)

    def ratio(self, run: StudyRun, series: pl.DataFrame) -> float:
        """Measure the ratio of goodputs of a run, as the study here plans it."""
        environment = self.conventions.environment(run.cell, run.environment)
        if self.of_means:
            goodputs = flow_means(between(series, *environment.windows_s[0], run.interval_s))["goodput_mbps"]
            return float(goodputs.min()) / float(goodputs.max())  # type: ignore[arg-type]
        ratio = experiment(run.experiment).measure(series, environment, run.interval_s)["ratio"]
        assert ratio is not None  # two flows that run always get something through
        return ratio


BASE = Way("as the study's text says: the last 500 of 2000 RTTs")
ALL = Way("all of these, RTTs 1375 to 1500", PREDECESSOR)
WAYS = (
    BASE,
    Way("the last 125 RTTs", Conventions(measured_rtts=(1875, 2000))),
    Way("RTTs 1375 to 1500", Conventions(measured_rtts=PREDECESSOR.measured_rtts)),
    Way("one ratio of mean goodputs", of_means=True),
    ALL,
)
"""Measured of every scheme: the first four share their runs."""
ALONE = (
    Way("a BDP of 2^20 bits per Mbit", Conventions(mbit_bits=PREDECESSOR.mbit_bits)),
    Way("Ethernet headers count at the bottleneck", Conventions(header_bytes=PREDECESSOR.header_bytes)),
    Way("the delay before the bottleneck", Conventions(delay_first=True)),
    Way("jitter of 0.05 ms", Conventions(jitter_ms=PREDECESSOR.jitter_ms)),
)
"""Measured of Cubic alone: each takes runs of its own."""

Values = dict[tuple[str, str, Cell], float]
"""By way, scheme and cell: the ratio, the mean over repeats."""


def main() -> None:
    """Measure and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=REPEATS, help="of each cell")
    repeats = parser.parse_args().repeats
    checkpoint = os.environ.get("SAGECC_ORCA")
    if not checkpoint:
        raise SageccError("SAGECC_ORCA names no checkpoint: set it to the folder of Orca's published actor")
    orca = f"{POLICY_PREFIX}{import_checkpoint(Path(checkpoint), CACHE / 'policy').folder}"
    schemes = {"Cubic": "cubic", "Orca": orca}
    ratios = measured(schemes, WAYS, repeats) | measured({"Cubic": "cubic"}, ALONE, repeats)
    published = {(p.scheme, p.cell): p.value for p in POINTS if (p.experiment, p.quantity) == ("fairness", "ratio")}
    save(
        "testbed",
        {
            "repeats": repeats,
            "near": NEAR,
            "ways": [
                agreement(ratios, published, way, scheme)
                for way in (*WAYS[:-1], *ALONE, ALL)
                for scheme in schemes
                if way in WAYS or scheme == "Cubic"
            ],
            "cells": cells(ratios, published, schemes),
            "panels": panels(ratios, published),
            "behaviours": behaviours(),
        },
        RESULTS,
    )


def measured(schemes: Mapping[str, str], ways: Sequence[Way], repeats: int) -> Values:
    """Run every cell of `fairness` with each scheme in each way; return the ratios."""
    runs = experiment("fairness").runs(schemes.values(), repeats)
    names = {scheme: name for name, scheme in schemes.items()}
    files = played([way.run(run) for way in ways for run in runs])
    found: dict[tuple[str, str, Cell], list[float]] = {}
    for way in ways:
        for run in runs:
            ratio = way.ratio(run, read_series(files[way.run(run)]))
            found.setdefault((way.name, names[run.scheme], run.cell), []).append(ratio)
    return {key: mean(values) for key, values in found.items()}


def played(runs: Sequence[StudyRun]) -> Mapping[StudyRun, Path]:
    """Return each run's series; those that are not kept are run, one after another."""
    collected = collect(runs, lab_runner(KERNEL, 1), CACHE / "runs", lab_identity(KERNEL))
    if collected.failures:
        raise SageccError(f"testbed: {len(collected.failures)} runs failed; the same command tries them again")
    return collected.files


def agreement(ratios: Values, published: Mapping[tuple[str, Cell], float], way: Way, scheme: str) -> dict[str, Any]:
    """Hold one way's ratios against the published ones."""
    errors = [ratios[way.name, name, cell] - value for (name, cell), value in published.items() if name == scheme]
    return {
        "scheme": scheme,
        "way": way.name,
        "cells": len(errors),
        "near": mean(abs(error) <= NEAR for error in errors),
        "mean_absolute_error": mean(map(abs, errors)),
        "mean_error": mean(errors),
    }


def cells(ratios: Values, published: Mapping[tuple[str, Cell], float], schemes: Iterable[str]) -> list[dict[str, Any]]:
    """Return each cell's published ratio beside ours, the plain way and with all switched."""
    return [
        {
            "scheme": scheme,
            "queue_bdp": cell.queue_bdp,
            "rtt_ms": cell.rtt_ms,
            "published": published[scheme, cell],
            "ours": ratios[BASE.name, scheme, cell],
            "testbed": ratios[ALL.name, scheme, cell],
        }
        for scheme in schemes
        for cell in experiment("fairness").grid
    ]


def panels(ratios: Values, published: Mapping[tuple[str, Cell], float]) -> list[dict[str, Any]]:
    """Return by queue each scheme's mean ratio, and at how many RTTs the same scheme is the fairer one."""
    rows = []
    for queue in dict.fromkeys(cell.queue_bdp for cell in experiment("fairness").grid):
        grid = [cell for cell in experiment("fairness").grid if cell.queue_bdp == queue]
        row: dict[str, Any] = {"queue_bdp": queue, "cells": len(grid)}
        ours = {(scheme, cell): ratios[ALL.name, scheme, cell] for scheme in ("Cubic", "Orca") for cell in grid}
        for name, source in (("published", published), ("ours", ours)):
            row[name] = {scheme: mean(source[scheme, cell] for cell in grid) for scheme in ("Cubic", "Orca")}
        row["same_order"] = sum(
            (published["Cubic", cell] > published["Orca", cell]) == (ours["Cubic", cell] > ours["Orca", cell])
            for cell in grid
        )
        rows.append(row)
    return rows


def behaviours() -> list[dict[str, Any]]:
    """Return what Cubic and NewReno do in every fifth cell of three experiments."""
    runs = [
        run
        for name in ("fairness", "fairness-rtt", "parking-lot")
        for run in experiment(name).runs(("cubic", "reno"), quick=True)
    ]
    files, rows = played(runs), []
    for run in runs:
        series, tried = read_series(files[run]), experiment(run.experiment)
        means = flow_means(between(series, *run.environment.windows_s[0], run.interval_s))["goodput_mbps"].to_list()
        rows.append(
            {
                "experiment": run.experiment,
                "scheme": run.scheme,
                "queue_bdp": run.cell.queue_bdp,
                "rtt_ms": run.cell.rtt_ms,
                "value": tried.measure(series, run.environment, run.interval_s)[tried.quantity],
                "late_mbps": means[0],
                "early_mbps": mean(means[1:]),
            }
        )
    return rows


if __name__ == "__main__":
    main()
