# SPDX-License-Identifier: Apache-2.0
"""The study as one HTML file that needs no network: verdicts, then figures and tables of each experiment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

import polars as pl
from matplotlib.figure import Figure

from sagecc.common.files import write_atomically
from sagecc.leagues import html
from sagecc.leagues.plots import label, save_png
from sagecc.leagues.study import figures
from sagecc.leagues.study.experiments import EXPERIMENTS, Experiment, StudyRun
from sagecc.leagues.study.figures import AXIS_LABELS, Look
from sagecc.leagues.study.measures import LABELS, MEANINGS
from sagecc.leagues.study.published import AUTHORS_TABLE, PREDECESSOR, PREDECESSOR_SCHEDULES, STUDY_NAMES

TITLE = "Learned and human-derived congestion control: the evaluation study in the lab"
OVER_TIME = ("windows", "dynamics", "efficiency", "convergence")
"""Experiments whose figures are drawn from series, not from the cells' table."""
RATES_SCHEDULE = 1
"""The schedule whose runs are drawn over time (Fig. 11)."""

_STYLE = Path(__file__).parents[1] / "report" / "report.css"
_OWN_STYLE = """
.statements th[scope=row] { white-space: normal; min-width: 16rem; }
.statements td { white-space: nowrap; text-align: left; }
details { margin: .6rem 0; }
summary { cursor: pointer; padding: .2rem 0; }
"""
_VERDICTS = {
    "holds": "the interval lies wholly on the side that the study names",
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
    return run.experiment in OVER_TIME or (
        run.experiment.startswith("responsiveness") and run.cell.schedule == RATES_SCHEDULE
    )


def write(contents: StudyContents, page: Path, pictures: Path | None = None) -> None:
    """Write the page and, into the folder `pictures` if given, its figures as PNG files."""
    drawn = list(study_figures(contents))
    text = render(contents, drawn)  # first: drawing a figure again moves its axes a little
    page.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(page) as beside:
        beside.write_text(text, encoding="utf-8")
    if pictures is not None:
        pictures.mkdir(parents=True, exist_ok=True)
        for each in drawn:
            save_png(each.figure, pictures / f"{each.name}.png")


def study_figures(contents: StudyContents) -> Iterator[StudyFigure]:
    """Yield the figures of what was measured, in the study's order."""
    look, there = contents.look, set(contents.values["experiment"].unique())
    for experiment in EXPERIMENTS.values():
        if experiment.name not in there:
            continue
        if experiment.axis == "schedule":
            yield from _responsiveness(contents, experiment, look)
        elif experiment.name in OVER_TIME:
            yield from _over_time(contents, experiment, look)
        else:
            text = f"{_first_upper(MEANINGS[experiment.quantity])}; bars are 95 % intervals over repeats."
            yield StudyFigure(
                experiment.name, experiment.name, text, figures.ratio_figure(experiment, contents.cells, look)
            )


def render(contents: StudyContents, drawn: Sequence[StudyFigure] | None = None) -> str:
    """Return the page.

    Args:
        contents: What it shows.
        drawn: Those of `study_figures` where they are drawn already.
    """
    all_figures = list(study_figures(contents)) if drawn is None else drawn
    there = set(contents.values["experiment"].unique())
    sections = [("conclusions", "What the study concludes", _conclusions(contents))]
    for experiment in EXPERIMENTS.values():
        if experiment.name in there:
            pictures = "".join(_figure(each) for each in all_figures if each.experiment == experiment.name)
            about = f'<p class="soft">{escape(experiment.figure)}; <code>{escape(experiment.name)}</code></p>\n'
            sections.append((experiment.name, experiment.title, about + pictures + _tables(contents, experiment)))
    sections.append(("method", "How it was measured", _method(contents)))
    style, policy = _STYLE.read_text(encoding="utf-8") + _OWN_STYLE, "default-src 'none'; style-src 'unsafe-inline'"
    return html.document(TITLE, style, policy, f"<h1>{TITLE}</h1>\n{_head(contents)}", sections)


def _responsiveness(contents: StudyContents, experiment: Experiment, look: Look) -> Iterator[StudyFigure]:
    own = contents.values.filter(pl.col("experiment") == experiment.name)
    text = "Share of the schedules in which a scheme's mean goodput was at most so much; the optimum is the capacity."
    yield StudyFigure(experiment.name, experiment.name, text, figures.distribution_figure(own, look, contents.names))
    runs = [(run, series) for run, series in contents.of(experiment.name) if run.cell.schedule == RATES_SCHEDULE]
    if runs:
        text = f"Sending rates in schedule {RATES_SCHEDULE}."
        yield StudyFigure(f"{experiment.name}-rates", experiment.name, text, figures.rates_figure(runs, look))


def _over_time(contents: StudyContents, experiment: Experiment, look: Look) -> Iterator[StudyFigure]:
    name, runs = experiment.name, contents.of(experiment.name)
    if not runs:
        return
    if name == "efficiency":
        text = (
            "Goodputs together over the capacity, against smoothed over base RTT, while all four flows run; ellipses "
            f"are one standard deviation over seconds. Hollow: {AUTHORS_TABLE}, utilisation over the first 100 s and "
            "RTT over each flow's life."
        )
        yield StudyFigure(name, name, text, figures.efficiency_figure(runs, contents.cells, look))
        return
    if name == "windows":
        text = "Congestion windows while both flows run, first repeat; the dashed line is half of the BDP or bandwidth."
        first = [(run, series) for run, series in runs if run.repeat == 0]
        yield StudyFigure(name, name, text, figures.evolution_figure(first, look, windows=True))
        return
    groups: dict[tuple[str | None, float | None], list[tuple[StudyRun, pl.DataFrame]]] = {}
    for run, series in runs:
        groups.setdefault((run.cell.order, run.cell.rtt_ms), []).append((run, series))
    for (order, rtt_ms), part in groups.items():
        title = f"{rtt_ms:g} ms" if order is None else str(order).replace("-", " ")
        text = f"Goodput of each flow, {title}: the mean of the repeats, shaded by one standard deviation."
        stem = f"{name}-{title.replace(' ', '-')}"
        yield StudyFigure(stem, name, text, figures.evolution_figure(part, look))


def _head(contents: StudyContents) -> str:
    runs = contents.values.select("experiment", "queue_bdp", "bandwidth_mbps", "rtt_ms", "cubics", "order", "schedule",
                                  "scheme", "repeat").n_unique()  # fmt: skip
    schemes = ", ".join(escape(label(scheme)) for scheme in contents.look.schemes)
    return (
        "<p>The experiments of Mazilu, Giacomoni and Parisis in the deterministic lab, with what they or their "
        f"predecessor published beside them, hollow. {runs:,} runs of {schemes}.</p>\n"
    )


def _conclusions(contents: StudyContents) -> str:
    counts = Counter(contents.verdicts["verdict"])
    legend = "".join(
        f"<dt>{name} ({counts[name]})</dt><dd>{text}</dd>\n" for name, text in _VERDICTS.items() if counts[name]
    )
    rows = [
        (
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
        return f"<p>None of its {len(contents.verdicts)} statements has the schemes and cells that it needs.</p>\n"
    caption = (
        "Mean of the cells named, what it is held against, and the 95 % interval of their difference over repeats (a "
        "factor where the number is a ratio without an upper end)"
    )
    head = ("Verdict", "Measured", "Against", "Difference", "Cells", "Study")
    return f"<dl>\n{legend}</dl>\n" + _table(caption, "Statement", head, rows, kind="statements")


def _tables(contents: StudyContents, experiment: Experiment) -> str:
    part = contents.cells.filter(pl.col("experiment") == experiment.name)
    if part.is_empty():
        return "<p>Nothing was measured.</p>\n"
    if experiment.axis != "schedule" and part[experiment.axis].n_unique() > 2:
        table = _grid(part.filter(pl.col("quantity") == experiment.quantity), experiment)
    else:
        table = _quantities(part)
    return f"<details><summary>Numbers</summary>\n{table}</details>\n"


def _grid(part: pl.DataFrame, experiment: Experiment) -> str:
    """Return a row per scheme and queue, a column per value of the axis."""
    values = part[experiment.axis].unique().sort().to_list()
    rows = []
    for (scheme, queue), own in part.group_by("scheme", "queue_bdp", maintain_order=True):
        by_value = {row[experiment.axis]: row for row in own.iter_rows(named=True)}
        rows.append((f"{label(str(scheme))}, {queue:g} BDP", [_cell(by_value.get(value)) for value in values]))
    caption = f"{_first_upper(MEANINGS[experiment.quantity])}, with 95 % interval; in brackets what was published"
    return _table(caption, AXIS_LABELS[experiment.axis], [f"{value:g}" for value in values], rows)


def _quantities(part: pl.DataFrame) -> str:
    """Return a row per scheme and cell, a column per number."""
    names = part["quantity"].unique(maintain_order=True).to_list()
    rows = []
    keys = ("scheme", "queue_bdp", "rtt_ms", "order")
    for (scheme, queue, rtt_ms, order), own in part.group_by(*keys, maintain_order=True):
        by_name = {row["quantity"]: row for row in own.iter_rows(named=True)}
        cell = (
            None if queue is None else f"{queue:g} BDP",
            None if rtt_ms is None else f"{rtt_ms:g} ms",
            None if order is None else str(order).replace("-", " "),
        )
        title = ", ".join((label(str(scheme)), *(text for text in cell if text)))
        rows.append((title, [_cell(by_name.get(name)) for name in names]))
    meanings = "".join(f"<dt>{escape(LABELS[name])}</dt><dd>{escape(MEANINGS[name])}</dd>\n" for name in names)
    caption = "With 95 % interval; in brackets what was published"
    return _table(caption, "", [LABELS[name] for name in names], rows) + f"<dl>\n{meanings}</dl>\n"


def _method(contents: StudyContents) -> str:
    sources = "; ".join((PREDECESSOR, PREDECESSOR_SCHEDULES, AUTHORS_TABLE))
    shown = {own: name for own, name in contents.names.items() if own in contents.look.schemes}
    names = ", ".join(f"{escape(label(own))} as {escape(name)}" for own, name in shown.items())
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
    return "<dl>\n" + "".join(f"<dt>{escape(k)}</dt><dd>{v}</dd>\n" for k, v in entries.items()) + "</dl>\n"


def _figure(each: StudyFigure) -> str:
    return html.figure(each.figure, each.name, each.text, each.text, each.name)


def _table(
    caption: str, lead: str, head: Iterable[str], rows: Iterable[tuple[str, Iterable[str]]], kind: str = "numbers"
) -> str:
    """Return a table in a region that scrolls; rows: a title and its cells, as text."""
    texts = ((title, "".join(f"<td>{escape(cell)}</td>" for cell in cells)) for title, cells in rows)
    return html.table(kind, caption, lead, map(escape, head), (("", title, cells) for title, cells in texts))


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
