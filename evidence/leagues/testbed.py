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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import polars as pl

from evidence.machine import KERNEL, save
from sagecc.cli import errors_in_one_line
from sagecc.common.errors import SageccError
from sagecc.execution.schemes.orca.checkpoint import import_checkpoint
from sagecc.leagues.flow_metrics import between, flow_means
from sagecc.leagues.study.catalogue import experiment
from sagecc.leagues.study.collect import Outcome, Runner, collect, lab_identity, read_series
from sagecc.leagues.study.experiments import REPEATS, StudyRun
from sagecc.leagues.study.networks import Cell
from sagecc.leagues.study.published import POINTS
from sagecc.leagues.study.runner import lab_runner
from sagecc.leagues.study.testbed import PREDECESSOR, Conventions
from sagecc.schemas.schemes import POLICY_PREFIX

CACHE = Path(".cache/bench-testbed")
NEAR = 0.15
"""A cell's ratio agrees with the published one within this."""

OURS = Conventions()


@dataclass(frozen=True)
class Switched:
    """A way to run and to measure the cells: what of ours is switched to the testbed's."""

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


BASE = Switched("as the study's text says: the last 500 of 2000 RTTs")
ALL = Switched("all of these, RTTs 1375 to 1500", PREDECESSOR)
WAYS = (
    BASE,
    Switched("the last 125 RTTs", Conventions(measured_rtts=(1875, 2000))),
    Switched("RTTs 1375 to 1500", Conventions(measured_rtts=PREDECESSOR.measured_rtts)),
    Switched("one ratio of mean goodputs", of_means=True),
    ALL,
)
"""Measured of every scheme: the first four share their runs."""
ALONE = (
    Switched("a BDP of 2^20 bits per Mbit", Conventions(mbit_bits=PREDECESSOR.mbit_bits)),
    Switched("Ethernet headers count at the bottleneck", Conventions(header_bytes=PREDECESSOR.header_bytes)),
    Switched("the delay before the bottleneck", Conventions(delay_first=True)),
    Switched("jitter of 0.05 ms", Conventions(jitter_ms=PREDECESSOR.jitter_ms)),
    Switched("all but jitter", replace(PREDECESSOR, jitter_ms=0.0)),
)
"""Measured of Cubic alone: each takes runs of its own."""

Ratios = dict[tuple[str, str, Cell], list[float]]
"""By way, scheme and cell: each run's ratio."""

Published = Mapping[tuple[str, Cell], float]
"""By scheme and cell: the ratio."""


def main() -> None:
    """Measure and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=REPEATS, help="of each cell")
    parser.add_argument("--kept", action="store_true", help="run nothing more: save what is kept")
    arguments = parser.parse_args()
    checkpoint = os.environ.get("SAGECC_ORCA")
    if not checkpoint:
        raise SageccError("SAGECC_ORCA names no checkpoint: set it to the folder of Orca's published actor")
    orca = f"{POLICY_PREFIX}{import_checkpoint(Path(checkpoint), CACHE / 'policy').folder}"
    schemes = {"Cubic": "cubic", "Orca": orca}
    runner = no_runner if arguments.kept else lab_runner(KERNEL, 1)
    runs = {name: experiment("fairness").runs((scheme,), arguments.repeats) for name, scheme in schemes.items()}
    ratios = measured(runs, WAYS, runner) | measured({"Cubic": runs["Cubic"]}, ALONE, runner)
    published = {(p.scheme, p.cell): p.value for p in POINTS if (p.experiment, p.quantity) == ("fairness", "ratio")}
    ways = [agreement(ratios, published, way, scheme) for way in (*WAYS[:-1], *ALONE, ALL) for scheme in schemes]
    save(
        "testbed",
        {
            "near": NEAR,
            "ways": [row for row in ways if row["cells"]],
            "cells": cells(ratios, published),
            "panels": panels(ratios, published),
            "behaviours": behaviours(runner),
        },
    )


def no_runner(runs: Sequence[StudyRun]) -> Iterator[tuple[StudyRun, Outcome]]:
    """Run nothing: what is kept is all there is."""
    return iter(())


def played(runs: Sequence[StudyRun], runner: Runner) -> Mapping[StudyRun, Path]:
    """Return the series of each run that is kept, after those that are not were run, one after another."""
    return collect(runs, runner, CACHE / "runs", lab_identity(KERNEL)).files


def measured(runs: Mapping[str, Sequence[StudyRun]], ways: Sequence[Switched], runner: Runner) -> Ratios:
    """Play each scheme's runs in each way; return the ratios."""
    ratios: Ratios = {}
    files = played([way.run(run) for way in ways for some in runs.values() for run in some], runner)
    for way in ways:
        for name, some in runs.items():
            for run in some:
                if path := files.get(way.run(run)):
                    ratios.setdefault((way.name, name, run.cell), []).append(way.ratio(run, read_series(path)))
    return ratios


def agreement(ratios: Ratios, published: Published, way: Switched, scheme: str) -> dict[str, Any]:
    """Hold one way's ratios against the published ones."""
    keys = [key for key in ratios if key[:2] == (way.name, scheme)]
    errors = [mean(ratios[key]) - published[key[1:]] for key in keys]
    row = {"scheme": scheme, "way": way.name, "cells": len(keys), "runs": sum(len(ratios[key]) for key in keys)}
    if not errors:
        return row
    return row | {
        "near": mean(abs(error) <= NEAR for error in errors),
        "mean_absolute_error": mean(map(abs, errors)),
        "mean_error": mean(errors),
    }


def cells(ratios: Ratios, published: Published) -> list[dict[str, Any]]:
    """Return each cell's published ratio beside ours, the plain way and with all switched; None where none was run."""
    rows = []
    for (scheme, cell), value in published.items():
        ours, testbed = (ratios.get((way.name, scheme, cell)) for way in (BASE, ALL))
        rows.append(
            {
                "scheme": scheme,
                "queue_bdp": cell.queue_bdp,
                "rtt_ms": cell.rtt_ms,
                "published": value,
                "ours": ours and mean(ours),
                "testbed": testbed and mean(testbed),
            }
        )
    return rows


def panels(ratios: Ratios, published: Published) -> list[dict[str, Any]]:
    """Return by queue each scheme's mean ratio with all switched, and at how many RTTs the same scheme is fairer."""
    ours = {(scheme, cell): mean(values) for (way, scheme, cell), values in ratios.items() if way == ALL.name}
    known = [cell for cell in experiment("fairness").grid if {("Cubic", cell), ("Orca", cell)} <= set(ours)]
    rows = []
    for queue in dict.fromkeys(cell.queue_bdp for cell in known):
        grid = [cell for cell in known if cell.queue_bdp == queue]
        row: dict[str, Any] = {"queue_bdp": queue, "cells": len(grid)}
        for name, source in (("published", published), ("ours", ours)):
            row[name] = {scheme: mean(source[scheme, cell] for cell in grid) for scheme in ("Cubic", "Orca")}
        row["same_order"] = sum(
            (published["Cubic", cell] > published["Orca", cell]) == (ours["Cubic", cell] > ours["Orca", cell])
            for cell in grid
        )
        rows.append(row)
    return rows


def behaviours(runner: Runner) -> list[dict[str, Any]]:
    """Return what Cubic and NewReno do in every fifth cell of three experiments."""
    names = ("fairness", "fairness-rtt", "parking-lot")
    runs = [run for name in names for run in experiment(name).runs(("cubic", "reno"), quick=True)]
    rows = []
    for run, path in played(runs, runner).items():
        series, tried = read_series(path), experiment(run.experiment)
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
    with errors_in_one_line("evidence.leagues.testbed"):
        main()
