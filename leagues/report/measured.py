# SPDX-License-Identifier: Apache-2.0
"""Measured paths as one HTML file that needs no network: planes, numbers with intervals, hosts, and commands."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from sagecc.common.files import write_atomically
from sagecc.leagues import html
from sagecc.leagues.colours import Stroke, strokes
from sagecc.leagues.html import Html, TableRow
from sagecc.leagues.intervals import Interval
from sagecc.leagues.measured import RUN_MEASURES, MeasuredScheme, PathResult, path_results
from sagecc.leagues.plots import label, measured_figure
from sagecc.leagues.report.frame import framed
from sagecc.leagues.report.made import Made
from sagecc.schemas.measured import UP, MeasuredHost, MeasuredNumbers, MeasuredPath
from sagecc.schemas.schemes import POLICY_PREFIX

TITLE = "Congestion control over measured paths"
NUMBERS_HEAD = (
    "Direction",
    "Goodput (Mbps)",
    "Delay, mean (ms)",
    "Delay, p95 (ms)",
    "Loss (%)",
    "Runs",
    "Failed",
    "Bound",
)
RELATIVE_HEAD = ("Direction", "Goodput / best", "Delay / least", "Over")
PATHS_HEAD = ("Direction", "Measured (UTC)", "Most (Mbps)", "Least RTT (ms)", "Least delay (ms)", "Clocks (ms)")
RELATIVE = "What the planes show"
BRACKETS = "95 % intervals in brackets"
PLANE_IN = (5.2, 4.2)
"""Size of a plane, whose text a phone still shows large enough."""
DIGITS = 3
"""Significant figures of a number that is below a thousand."""
UNKNOWN = "not recorded"

_PAGE = html.macros("measured.html.j2")
_METHOD = {
    "Goodput": "Bytes in order at the receiver over the run, start-up included.",
    "Delay": "One-way, of data packets themselves, by both kernels' stamps. Queues in the sending host count; "
    "retransmitted packets do not.",
    "Clocks": "By so much delays of a run are wrong at most because the hosts' clocks differ: half of the least round "
    "trip. The error shifts all delays of a run alike; the largest of the runs is shown.",
    "Loss": "Packets that the sender's kernel marked lost over those sent.",
    "Plane": "Mean goodput over the largest mean, and mean delay over the smallest mean, of any scheme on that path "
    "and direction; up and left is better. Over all paths: means over them, of the schemes that each has.",
    "Intervals": "Student's t, 95 %, two-sided: over the runs of a path, or over paths, from 0 on. One run has "
    "none. Where they leave a plane's frame, the tables have their ends.",
    "Failed": "Runs that broke off, or whose clocks or packets told nothing. None of their numbers counts.",
    "Bound": "Runs that a buffer or a program held back, and not their scheme alone. Their numbers count.",
}


def write_measured(found: Sequence[MeasuredHost], page: Path, made: Made | None = None) -> None:
    """Write the page of measured paths, whole or not at all.

    Args:
        found: the paths, of execution.measure.folders.load_measured.
        page: path of the HTML file.
        made: what its footer says; by default it has none.
    """
    text = render_measured(found, made)
    page.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(page) as temporary:
        temporary.write_text(text, encoding="utf-8")


def render_measured(found: Sequence[MeasuredHost], made: Made | None = None) -> Html:
    """Return the page's HTML; arguments are those of `write_measured`."""
    results = path_results(found)
    look = strokes(each.scheme for result in results for each in result.schemes)
    sections = [
        ("all", "Over all paths", _overall([each for each in results if each.path is None], look)),
        *(
            (f"path-{number}", each.host, _host(each, [of for of in results if of.host == each.host], number, look))
            for number, each in enumerate(found, 1)
        ),
        ("hosts", "Paths and hosts", _paths(found, results)),
        ("failed", "Runs that failed", _failures(found)),
        ("bound", "Runs that were held back", _notices(found)),
        ("again", "Measure it again", _commands(found)),
        ("method", "How it was measured", html.definitions(_METHOD.items())),
    ]
    shown = [each for each in sections if each[2]]
    return framed(TITLE, _head(found), shown, ("tables.js",), made, ("measured.css",))


def _head(found: Sequence[MeasuredHost]) -> Html:
    runs = [run for each in found for run in each.runs]
    head: Html = _PAGE.head(
        TITLE,
        sorted({label(run.scheme) for run in runs}),
        [each.host for each in found],
        len(runs),
        sorted({f"{run.duration_s:g}" for run in runs}, key=float),
        sum(len(each.failures) for each in found),
        _when(runs),
    )
    return head


def _overall(results: Sequence[PathResult], look: Mapping[str, Stroke]) -> Html:
    if not results:
        return ""
    section: Html = _PAGE.path(_planes(results, "all", look), _relative(results))
    return section


def _host(of: MeasuredHost, results: Sequence[PathResult], number: int, look: Mapping[str, Stroke]) -> Html:
    section: Html = _PAGE.path(
        _planes(results, f"path-{number}", look), _numbers(of, results), _relative(results) if results else ""
    )
    return section


def _planes(results: Sequence[PathResult], name: str, look: Mapping[str, Stroke]) -> list[Html]:
    figures = []
    for result in results:
        text = f"{result.direction.capitalize()}: means with 95 % intervals over {'runs' if result.path else 'paths'}."
        label_text = f"Throughput and delay, {result.name}"
        figure = measured_figure([result], look, PLANE_IN)
        figures.append(html.figure(figure, f"{name}-{result.direction}", label_text, text, label_text))
    return figures


def _numbers(of: MeasuredHost, results: Sequence[PathResult]) -> Html:
    failures = Counter((failure.direction, failure.scheme) for failure in of.failures)
    measured = {(of.direction, each.scheme): each for of in results for each in of.schemes}
    rows = []
    for direction, scheme in sorted({*measured, *failures}, key=lambda cell: (cell[0] != UP, cell)):
        runs = [run for run in of.runs if (run.direction, run.scheme) == (direction, scheme)]
        counts = (len(runs), failures[direction, scheme], sum(run.notice is not None for run in runs))
        rows.append(_row(scheme, (direction, *_measures(measured.get((direction, scheme))), *counts)))
    errors = " and ".join(f"{_number(each.clock_error_ms)} ms {each.direction}" for each in results)
    caption = f"Means over runs, {BRACKETS}. The clocks may make one-way delays wrong by {errors}"
    section: Html = _PAGE.numbers(caption, NUMBERS_HEAD, rows)
    return section


def _measures(of: MeasuredScheme | None) -> list[object]:
    """Return goodput, delays and loss as cells; dashes for a scheme without runs."""
    if of is None:
        return ["-"] * 4
    return [*map(_cell, map(of.measures.get, RUN_MEASURES[:3])), _cell(of.measures["loss_rate"], 100)]


def _relative(results: Sequence[PathResult]) -> Html:
    rows = []
    for result in results:
        for each in result.schemes:
            goodput, delay = each.measures["relative_goodput"], each.measures["relative_delay"]
            unit = "run" if result.path else "path"
            over = f"{goodput.count} {unit}{'s' if goodput.count != 1 else ''}"
            rows.append(
                _row(each.scheme, (result.direction, _cell(goodput, decimals=2), _cell(delay, decimals=2), over))
            )
    section: Html = _PAGE.numbers(f"{RELATIVE}: means, {BRACKETS}", RELATIVE_HEAD, rows)
    return section


def _paths(found: Sequence[MeasuredHost], results: Sequence[PathResult]) -> Html:
    errors_ms = {(result.host, result.direction): result.clock_error_ms for result in results}
    rows = [
        TableRow(each.host, _path_cells(path, each, errors_ms[each.host, path.direction]))
        for each in found
        for path in each.paths
        if (each.host, path.direction) in errors_ms
    ]
    caption = "The paths: the most that a run got through in a second, and the least of times"
    hosts = []
    for each in found:
        hosts += [(f"Host that measured {each.host}", _versions(each.clients)), (each.host, _versions(each.servers))]
    return html.table("paths", caption, "Path", PATHS_HEAD, rows) + html.definitions(hosts)


def _path_cells(path: MeasuredPath, host: MeasuredHost, error_ms: float) -> list[str]:
    when = _when(run for run in host.runs if run.direction == path.direction) or UNKNOWN
    numbers = (path.most_mbps, path.least_rtt_ms, path.least_delay_ms)
    return [path.direction, when, *map(_number, numbers), f"± {_number(error_ms)}"]


def _versions(versions: Iterable[object]) -> str:
    return ", ".join(map(str, versions)) or UNKNOWN


def _failures(found: Sequence[MeasuredHost]) -> Html:
    items = [
        f"{each.host} {run.direction}, {label(run.scheme)}, run {run.number}{_at(run.began_unix_s)}: {run.reason}"
        for each in found
        for run in each.failures
    ]
    section: Html = _PAGE.items("They may have been measured again since.", items) if items else ""
    return section


def _notices(found: Sequence[MeasuredHost]) -> Html:
    items = [
        f"{each.host} {run.direction}, {label(run.scheme)}, run {run.number} was {run.notice}"
        for each in found
        for run in each.runs
        if run.notice
    ]
    section: Html = (
        _PAGE.items("A buffer or a program held them back; their numbers count above.", items) if items else ""
    )
    return section


def _commands(found: Sequence[MeasuredHost]) -> Html:
    text = "Give --out FOLDER to measure next to what is there, and --key where the key lies elsewhere."
    section: Html = _PAGE.commands(text, [(each.host, each.commands or (UNKNOWN,)) for each in found])
    return section


def _row(scheme: str, cells: Iterable[object]) -> TableRow:
    return TableRow(label(scheme), list(cells), scheme.startswith(POLICY_PREFIX))


def _cell(value: Interval | None, factor: float = 1, decimals: int | None = None) -> dict[str, str]:
    """Return a mean and the ends of its interval, as text with as many decimals, by default those of `_decimals`."""
    if value is None or value.mean is None:
        return {"mean": "-", "ends": ""}
    decimals = _decimals(value.mean * factor) if decimals is None else decimals
    mean = f"{value.mean * factor:.{decimals}f}"
    if value.low is None or value.high is None:
        return {"mean": mean, "ends": ""}
    return {"mean": mean, "ends": f"[{max(value.low, 0) * factor:.{decimals}f}, {value.high * factor:.{decimals}f}]"}


def _number(value: float) -> str:
    return f"{value:.{_decimals(value)}f}"


def _decimals(value: float) -> int:
    """Return how many decimals show DIGITS figures, of no more than millionths."""
    if not value:
        return 0
    return min(max(DIGITS - 1 - math.floor(math.log10(abs(value))), 0), 6)


def _when(runs: Iterable[MeasuredNumbers]) -> str:
    """Return from when to when runs began (UTC); nothing where that is not recorded."""
    moments = [moment for run in runs if (moment := _moment(run.began_unix_s))]
    if not moments:
        return ""
    first, last = min(moments), max(moments)
    day, (end_day, end) = first[:10], last.split(" ")
    if first == last:
        return first
    return f"{first} to {end if day == end_day else last}"


def _at(unix_s: float) -> str:
    moment = _moment(unix_s)
    return f", {moment} UTC" if moment else ""


def _moment(unix_s: float | None) -> str:
    try:
        return "" if unix_s is None else f"{datetime.fromtimestamp(unix_s, UTC):%Y-%m-%d %H:%M}"
    except (OverflowError, ValueError, OSError):  # beyond what a calendar has
        return ""
