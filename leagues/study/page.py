# SPDX-License-Identifier: Apache-2.0
"""The study as one HTML file that needs no network: verdicts, then figures and tables of each experiment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
from matplotlib.figure import Figure

from sagecc.common.files import write_atomically
from sagecc.leagues import html
from sagecc.leagues.html import Html, TableRow
from sagecc.leagues.plots import label, save_png
from sagecc.leagues.study import figures, paper_figures
from sagecc.leagues.study.catalogue import EXPERIMENTS, experiment
from sagecc.leagues.study.drawing import AXIS_LABELS, Look
from sagecc.leagues.study.experiments import Experiment, Picture, StudyRun
from sagecc.leagues.study.measures import LABELS, MEANINGS
from sagecc.leagues.study.networks import CELL_COLUMNS
from sagecc.leagues.study.published import ASTRAEA, AUTHORS_TABLE, PREDECESSOR, PREDECESSOR_SCHEDULES, STUDY_NAMES

TITLE = "Learned and human-derived congestion control: the evaluation study in the lab"
OVER_TIME: tuple[Picture, ...] = ("flows", "windows", "efficiency", "slots")
"""Pictures that are drawn from the series of all repeats, not from the cells' table."""
RATES_SCHEDULE = 1
"""The schedule whose runs are drawn over time (Fig. 11)."""

CELL_TEXTS = {
    "queue_bdp": "{:g} BDP",
    "bandwidth_mbps": "{:g} Mbps",
    "rtt_ms": "{:g} ms",
    "cubics": "{} Cubics",
    "order": "{}",
    "flows": "{} flows",
    "case": "{}",
}
"""What tells cells apart, as text."""

_PAGE = html.macros("study.html.j2")
_STYLE = Path(__file__).parents[1] / "report" / "report.css"
_OWN_STYLE = """
.statements th[scope=row] { white-space: normal; min-width: 16rem; }
.statements td { white-space: nowrap; text-align: left; }
details { margin: .6rem 0; }
summary { cursor: pointer; padding: .2rem 0; }
"""
_VERDICTS = {
    "holds": "the interval lies wholly on the side that is claimed",
    "within noise": "the interval holds both sides",
    "changes": "the interval lies wholly on the other side",
    "no interval": "one repeat has none",
    "not measured": "a scheme or cell is missing",
}


@dataclass(frozen=True)
class StudyContents:
    """What the page shows."""

    values: pl.DataFrame
    """results.values_table."""
    cells: pl.DataFrame
    """results.cells_table."""
    verdicts: pl.DataFrame
    """results.verdicts_table."""
    runs: Sequence[tuple[StudyRun, pl.DataFrame]] = ()
    """The runs that are drawn over time (`is_drawn`), with their series."""
    names: Mapping[str, str] = field(default_factory=lambda: STUDY_NAMES)
    """From a scheme of ours to the study's name for it."""

    @property
    def look(self) -> Look:
        """How each scheme is drawn, in every figure."""
        return Look(tuple(self.values["scheme"].unique(maintain_order=True)))

    def of(self, experiment: str) -> list[tuple[StudyRun, pl.DataFrame]]:
        """Return an experiment's runs with their series."""
        return [(run, series) for run, series in self.runs if run.experiment == experiment]


@dataclass(frozen=True)
class StudyFigure:
    """A figure of the page; `name` is its file's stem and the prefix of its SVG ids."""

    name: str
    experiment: str
    text: str
    figure: Figure


def is_drawn(run: StudyRun) -> bool:
    """Tell whether the page draws a run's series, which may else be left on the disk."""
    picture = experiment(run.experiment).picture
    return (
        picture in OVER_TIME
        or (picture == "behaviour" and run.repeat == 0)
        or (picture == "schedules" and run.cell.schedule == RATES_SCHEDULE)
    )


def write(contents: StudyContents, page: Path, pictures: Path | None = None) -> None:
    """Write the page and, into the folder `pictures` if given, its figures as PNG files."""
    drawn = list(study_figures(contents))
    text = render(contents, drawn)  # first: drawing a figure again moves its axes a little
    page.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(page) as temporary:
        temporary.write_text(text, encoding="utf-8")
    if pictures is not None:
        pictures.mkdir(parents=True, exist_ok=True)
        for each in drawn:
            save_png(each.figure, pictures / f"{each.name}.png")


def study_figures(contents: StudyContents) -> Iterator[StudyFigure]:
    """Yield the figures of what was measured, in the order of the experiments."""
    there = set(contents.values["experiment"].unique())
    for each in EXPERIMENTS.values():
        if each.name in there:
            yield from _DRAWING[each.picture](contents, each, contents.look)


def render(contents: StudyContents, drawn: Sequence[StudyFigure] | None = None) -> str:
    """Return the page.

    Args:
        contents: what it shows.
        drawn: those of `study_figures` where they are drawn already.
    """
    all_figures = list(study_figures(contents)) if drawn is None else drawn
    there = set(contents.values["experiment"].unique())
    sections = [("conclusions", "What was concluded, and what holds", _conclusions(contents))]
    for each in EXPERIMENTS.values():
        if each.name in there:
            pictures = [_figure(drawn) for drawn in all_figures if drawn.experiment == each.name]
            section = _PAGE.experiment(each.figure, each.name, each.chosen, pictures, _numbers(contents, each))
            sections.append((each.name, each.title, section))
    sections.append(("method", "How it was measured", _method(contents)))
    style = _STYLE.read_text(encoding="utf-8") + _OWN_STYLE
    return html.document(TITLE, style, html.POLICY, _head(contents), sections)


def _cells(contents: StudyContents, each: Experiment, look: Look) -> Iterator[StudyFigure]:
    text = f"{_first_upper(MEANINGS[each.quantity])}; {_BARS}."
    yield StudyFigure(each.name, each.name, text, figures.ratio_figure(each, contents.cells, look))


def _schedules(contents: StudyContents, each: Experiment, look: Look) -> Iterator[StudyFigure]:
    own = contents.values.filter(pl.col("experiment") == each.name)
    text = "Share of the schedules in which a scheme's mean goodput was at most so much; the optimum is the capacity."
    yield StudyFigure(each.name, each.name, text, figures.distribution_figure(own, look, contents.names))
    if runs := contents.of(each.name):
        text = f"Sending rates in schedule {RATES_SCHEDULE}."
        yield StudyFigure(f"{each.name}-rates", each.name, text, figures.rates_figure(runs, look))


def _efficiency(contents: StudyContents, each: Experiment, look: Look) -> Iterator[StudyFigure]:
    text = (
        "Goodputs together over the capacity, against smoothed over base RTT, while all four flows run; ellipses "
        f"are one standard deviation over seconds. Hollow: {AUTHORS_TABLE}, utilisation over the first 100 s and "
        "RTT over each flow's life."
    )
    if runs := contents.of(each.name):
        yield StudyFigure(each.name, each.name, text, figures.efficiency_figure(runs, contents.cells, look))


def _windows(contents: StudyContents, each: Experiment, look: Look) -> Iterator[StudyFigure]:
    text = "Congestion windows while both flows run, first repeat; the dashed line is half of the BDP or bandwidth."
    if first := [(run, series) for run, series in contents.of(each.name) if run.repeat == 0]:
        yield StudyFigure(each.name, each.name, text, figures.evolution_figure(first, look, windows=True))


def _flows(contents: StudyContents, each: Experiment, look: Look) -> Iterator[StudyFigure]:
    groups: dict[tuple[str | None, float | None], list[tuple[StudyRun, pl.DataFrame]]] = {}
    for run, series in contents.of(each.name):
        groups.setdefault((run.cell.order, run.cell.rtt_ms), []).append((run, series))
    for (order, rtt_ms), part in groups.items():
        title = f"{rtt_ms:g} ms" if order is None else str(order).replace("-", " ")
        text = f"Goodput of each flow, {title}: the mean of the repeats, shaded by one standard deviation."
        stem = f"{each.name}-{title.replace(' ', '-')}"
        yield StudyFigure(stem, each.name, text, figures.evolution_figure(part, look, panel=each.panel))


def _behaviour(contents: StudyContents, each: Experiment, look: Look) -> Iterator[StudyFigure]:
    text = "Sending rate, smoothed RTT and congestion window in half seconds, first repeat."
    if runs := contents.of(each.name):
        yield StudyFigure(each.name, each.name, text, paper_figures.behaviour_figure(runs, look))


def _slots(contents: StudyContents, each: Experiment, look: Look) -> Iterator[StudyFigure]:
    text = "Share of the half seconds, of all repeats, in which Jain's index was at most so much."
    if runs := contents.of(each.name):
        yield StudyFigure(each.name, each.name, text, paper_figures.slots_figure(runs, look))


def _from_cells(text: str, draw: Callable[[Experiment, pl.DataFrame, Look], Figure]) -> _Drawing:
    """Return what draws one figure from the cells' table."""

    def drawing(contents: StudyContents, each: Experiment, look: Look) -> Iterator[StudyFigure]:
        yield StudyFigure(each.name, each.name, f"{text}; {_BARS}.", draw(each, contents.cells, look))

    return drawing


_BARS = "bars are 95 % intervals over repeats"
_Drawing = Callable[[StudyContents, Experiment, Look], Iterator[StudyFigure]]
_DRAWING: Mapping[Picture, _Drawing] = {
    "cells": _cells,
    "flows": _flows,
    "windows": _windows,
    "efficiency": _efficiency,
    "schedules": _schedules,
    "behaviour": _behaviour,
    "slots": _slots,
    "plane": _from_cells("Mean goodput and mean smoothed RTT", paper_figures.plane_figure),
    "paths": _from_cells("Mean goodput of each flow by its base RTT", paper_figures.paths_figure),
    "sets": _from_cells("Mean goodput of a flow of either set", paper_figures.sets_figure),
    "numbers": _from_cells("Goodput over capacity, smoothed over base RTT, packets lost", paper_figures.numbers_figure),
    "schemes": _from_cells("Jain's index, mean over slots", paper_figures.schemes_figure),
}


def _head(contents: StudyContents) -> Html:
    runs = contents.values.select("experiment", *CELL_COLUMNS, "scheme", "repeat").n_unique()
    schemes = ", ".join(label(scheme) for scheme in contents.look.schemes)
    head: Html = _PAGE.head(TITLE, f"{runs:,}", schemes)
    return head


def _conclusions(contents: StudyContents) -> Html:
    counts = Counter(contents.verdicts["verdict"])
    legend = [(f"{name} ({counts[name]})", text) for name, text in _VERDICTS.items() if counts[name]]
    rows = [
        TableRow(
            row["statement"],
            [
                row["verdict"],
                _number(row["left"]),
                _number(row["right"]),
                _ends(row["low"], row["high"]),
                f"{row['cells']} of {row['cells_asked']}",
                row["source"],
            ],
        )
        for row in contents.verdicts.iter_rows(named=True)
        if row["verdict"] != "not measured"
    ]
    if not rows:
        nothing: Html = _PAGE.no_conclusions(len(contents.verdicts))
        return nothing
    caption = (
        "Mean of the cells named, what it is held against, and the 95 % interval of their difference over repeats (a "
        "factor where the number is a ratio without an upper end)"
    )
    head = ("Verdict", "Measured", "Against", "Difference", "Cells", "Where")
    section: Html = _PAGE.conclusions(legend, caption, head, rows)
    return section


def _numbers(contents: StudyContents, experiment: Experiment) -> Html | None:
    """Return an experiment's numbers; None where there are none."""
    part = contents.cells.filter(pl.col("experiment") == experiment.name)
    if part.is_empty():
        return None
    if experiment.picture == "cells" and part[experiment.axis].n_unique() > 2:
        return _grid(part.filter(pl.col("quantity") == experiment.quantity), experiment)
    return _quantities(part)


def _grid(part: pl.DataFrame, experiment: Experiment) -> Html:
    """Return a row per scheme and queue, a column per value of the axis."""
    values = part[experiment.axis].unique().sort().to_list()
    rows = []
    for (scheme, panel), own in part.group_by("scheme", experiment.panel, maintain_order=True):
        by_value = {row[experiment.axis]: row for row in own.iter_rows(named=True)}
        rows.append(
            TableRow(
                f"{label(str(scheme))}, {CELL_TEXTS[experiment.panel].format(panel)}",
                [_cell(by_value.get(value)) for value in values],
            )
        )
    caption = f"{_first_upper(MEANINGS[experiment.quantity])}, with 95 % interval; in brackets what was published"
    section: Html = _PAGE.numbers(caption, AXIS_LABELS[experiment.axis], [f"{value:g}" for value in values], rows, ())
    return section


def _quantities(part: pl.DataFrame) -> Html:
    """Return a row per scheme and cell, a column per number."""
    names = part["quantity"].unique(maintain_order=True).to_list()
    rows = []
    varied = [name for name in CELL_TEXTS if part[name].n_unique() > 1]
    for (scheme, *cell), own in part.group_by("scheme", *varied, maintain_order=True):
        by_name = {row["quantity"]: row for row in own.iter_rows(named=True)}
        texts = (CELL_TEXTS[name].format(value) for name, value in zip(varied, cell, strict=True) if value is not None)
        cells = [_cell(by_name.get(name)) for name in names]
        rows.append(TableRow(", ".join((label(str(scheme)), *texts)), cells))
    meanings = [(LABELS[name], MEANINGS[name]) for name in names]
    caption = "With 95 % interval; in brackets what was published"
    section: Html = _PAGE.numbers(caption, "", [LABELS[name] for name in names], rows, meanings)
    return section


def _method(contents: StudyContents) -> Html:
    sources = "; ".join((PREDECESSOR, PREDECESSOR_SCHEDULES, AUTHORS_TABLE, ASTRAEA))
    shown = {own: name for own, name in contents.names.items() if own in contents.look.schemes}
    names = ", ".join(f"{label(own)} as {name}" for own, name in shown.items())
    entries = {
        "Intervals": "Student's t over repeats (over schedules where each has its own), 95 %, two-sided; of logarithms "
        "where a ratio has no upper end.",
        "Repeats": "Each flow starts a fraction of the base RTT late, drawn from the repeat's number; the first repeat "
        "keeps the plan.",
        "Utilisation": "In-order bytes at the receivers over the bottleneck's capacity; headers leave 0.965 at most.",
        "Beside Cubic": "A goodput counts as at least 1 Mbps.",
        "Published": f"{sources}.",
        "Names": f"Held against the study: {names}.",
    }
    return html.definitions(entries.items())


def _figure(each: StudyFigure) -> Html:
    return html.figure(each.figure, each.name, each.text, each.text, each.name)


def _cell(row: Mapping[str, float | None] | None) -> str:
    if row is None:
        return ""
    ends = f" {_ends(row['low'], row['high'])}" if row["low"] is not None else ""
    published = f" ({_number(row['published'])})" if row["published"] is not None else ""
    return f"{_number(row['mean'])}{ends}{published}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _ends(low: float | None, high: float | None) -> str:
    return "" if low is None else f"[{_number(low)}, {_number(high)}]"


def _first_upper(text: str) -> str:
    return text[:1].upper() + text[1:]
