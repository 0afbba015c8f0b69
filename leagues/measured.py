# SPDX-License-Identifier: Apache-2.0
"""Schemes on measured paths: what each made of them, and the plane of delay and throughput.

As in Sage's Fig. 8, on each path a scheme's goodput is divided by the largest that any scheme had there, and its delay
by the smallest; means over its runs. Over all paths it is the mean over them. Intervals are Student's, 95 %, over the
runs of a path, or over paths.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from sagecc.leagues.intervals import Interval, interval
from sagecc.schemas.measured import DOWN, UP, MeasuredHost, MeasuredNumbers, MeasuredPath

RUN_MEASURES = ("goodput_mbps", "delay_mean_ms", "delay_p95_ms", "loss_rate")
PLANE_MEASURES = ("relative_delay", "relative_goodput")
ALL_PATHS = "all paths"


@dataclass(frozen=True)
class MeasuredScheme:
    """A scheme on a path, or over all."""

    scheme: str
    measures: Mapping[str, Interval]
    """Of RUN_MEASURES, which a path alone has, and PLANE_MEASURES; without repeats where a delay cannot be told."""


@dataclass(frozen=True)
class PathResult:
    """The schemes on a path, or over all."""

    host: str
    """The server, or ALL_PATHS."""

    direction: str
    """UP or DOWN."""

    path: MeasuredPath | None
    """What is known of it; None over all."""

    clock_error_ms: float
    """By how much its delays are wrong at most for the clocks' sake (ms)."""

    schemes: tuple[MeasuredScheme, ...]
    """By name."""

    @property
    def name(self) -> str:
        """Host and direction."""
        return f"{self.host} {self.direction}"


def path_results(measurements: Iterable[MeasuredHost], schemes: Sequence[str] = ()) -> list[PathResult]:
    """Return the results of each path, and over all of a direction where there are several.

    Args:
        measurements: the hosts' paths.
        schemes: those to show and to compare with; by default all.
    """
    results: list[PathResult] = []
    for measurement in measurements:
        for path in measurement.paths:
            runs = [run for run in measurement.runs if run.direction == path.direction]
            runs = [run for run in runs if not schemes or run.scheme in schemes]
            if runs:
                results.append(_path_result(measurement.host, path, runs))
    for direction in (UP, DOWN):  # apart, for a policy sends in one alone
        own = [each for each in results if each.path and each.path.direction == direction]
        if len(own) > 1:
            results.append(_over_all(direction, own))
    return results


def _path_result(host: str, path: MeasuredPath, runs: Sequence[MeasuredNumbers]) -> PathResult:
    names = sorted({run.scheme for run in runs})
    values = {
        scheme: {of: np.array([getattr(run, of) for run in runs if run.scheme == scheme]) for of in RUN_MEASURES}
        for scheme in names
    }
    best = max(float(of["goodput_mbps"].mean()) for of in values.values())
    least = min(float(of["delay_mean_ms"].mean()) for of in values.values())
    unknown = np.empty(0)
    found = []
    for scheme, of in values.items():
        measures = {measure: interval(each) for measure, each in of.items()}
        measures["relative_delay"] = interval(of["delay_mean_ms"] / least if least > 0 else unknown)
        measures["relative_goodput"] = interval(of["goodput_mbps"] / best if best > 0 else unknown)
        found.append(MeasuredScheme(scheme, MappingProxyType(measures)))
    return PathResult(host, path.direction, path, max(run.clock_error_ms for run in runs), tuple(found))


def _over_all(direction: str, results: Sequence[PathResult]) -> PathResult:
    """Return what the schemes that every path has come to over all of them."""
    by_path = [{each.scheme: each.measures for each in result.schemes} for result in results]
    common = sorted(set.intersection(*(set(each) for each in by_path)))
    found = []
    for scheme in common:
        means = {of: [each[scheme][of].mean for each in by_path] for of in PLANE_MEASURES}
        measures = {of: interval(np.array([mean for mean in each if mean is not None])) for of, each in means.items()}
        found.append(MeasuredScheme(scheme, MappingProxyType(measures)))
    error_ms = max(result.clock_error_ms for result in results)
    return PathResult(ALL_PATHS, direction, None, error_ms, tuple(found))
