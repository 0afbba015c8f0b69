# SPDX-License-Identifier: Apache-2.0
"""How the commands measure and compare show measured paths: as tables, as JSON, and as planes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from sagecc.common.errors import SageccError
from sagecc.leagues.intervals import Interval
from sagecc.leagues.measured import PLANE_MEASURES, RUN_MEASURES, PathResult, path_results
from sagecc.naming import short_names
from sagecc.schemas.measured import MeasuredHost, measurements
from sagecc.tables import Column, table

COLUMNS: tuple[Column, ...] = (
    ("goodput_mbps", "goodput", "Mbps", 1, 2),
    ("delay_mean_ms", "delay mean", "ms", 1, 1),
    ("delay_p95_ms", "delay p95", "ms", 1, 1),
    ("loss_rate", "loss", "%", 100, 3),
    ("relative_goodput", "of the best", "goodput", 1, 2),
    ("relative_delay", "of the least", "delay", 1, 2),
)


def show_measured(folders: Sequence[Path], schemes: Sequence[str], plot: Path | None, as_json: bool) -> None:
    """Print measured paths, and draw them where that is asked for.

    Args:
        folders: each a path's or one of paths'.
        schemes: those to show; empty for all.
        plot: of the picture.
        as_json: print one JSON object instead of tables.

    Raises:
        SageccError: a folder has no measured path, or no path has one of the schemes.
    """
    found = measurements(folders)
    results = path_results(found, schemes)
    there = {run.scheme for each in found for run in each.runs}
    if missing := [scheme for scheme in schemes if scheme not in there]:
        raise SageccError(f"{missing[0]} was not measured; there are {', '.join(sorted(there))}")
    if plot is not None:
        from sagecc.leagues.plots import measured_figure, save_figure  # matplotlib takes a second

        save_figure(measured_figure(results), plot)
    click.echo(json.dumps(_as_json(results), indent=1) if as_json else "\n".join(_text(results, found)))


def _text(results: Sequence[PathResult], found: Sequence[MeasuredHost]) -> list[str]:
    lines: list[str] = []
    for result in results:
        names = short_names([each.scheme for each in result.schemes])
        measures = [each.measures for each in result.schemes]
        columns = [column for column in COLUMNS if not measures or column[0] in measures[0]]
        lines += ["", path_line(result), "", *table(list(names.values()), measures, columns)]
    lines += [
        f"notice: {each.host} {run.direction}, {run.scheme}, run {run.number} was {run.notice}"
        for each in found
        for run in each.runs
        if run.notice
    ]
    return lines[1:]


def path_line(result: PathResult) -> str:
    """Return what a path is, in a line."""
    if result.path is None:
        return f"{result.name.capitalize()}: means over them"
    path = result.path
    return (
        f"Path: {result.name}, at most {path.most_mbps:.4g} Mbps in a second, RTT from {path.least_rtt_ms:.4g} ms,"
        f" one-way delays within {result.clock_error_ms:.3g} ms by the clocks"
    )


def _as_json(results: Sequence[PathResult]) -> list[dict[str, object]]:
    return [
        {
            "name": result.name,
            "path": asdict(result.path) if result.path else None,
            "clock_error_ms": result.clock_error_ms,
            "schemes": [
                {
                    "scheme": each.scheme,
                    **{of: _interval(each.measures.get(of)) for of in (*RUN_MEASURES, *PLANE_MEASURES)},
                }
                for each in result.schemes
            ],
        }
        for result in results
    ]


def _interval(value: Interval | None) -> dict[str, float | int | None] | None:
    if value is None:
        return None
    return {"mean": value.mean, "low": value.low, "high": value.high, "runs": value.count}
