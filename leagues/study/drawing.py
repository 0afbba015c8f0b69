# SPDX-License-Identifier: Apache-2.0
"""What the figures of studies share: how each scheme looks, panels, axes, legends, points with intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from sagecc.common.arrays import Doubles
from sagecc.leagues.colours import Stroke, strokes
from sagecc.leagues.plots import INK, label
from sagecc.leagues.study.experiments import Axis

MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")

AXIS_LABELS: Mapping[Axis, str] = {
    "rtt_ms": "base RTT (ms)",
    "bandwidth_mbps": "bandwidth (Mbps)",
    "cubics": "Cubic flows",
    "flows": "flows",
    "queue_bdp": "queue (BDP)",
    "case": "",
    "schedule": "schedule",
}
PANEL_TITLES: Mapping[Axis, str] = {
    "rtt_ms": "{:g} ms",
    "bandwidth_mbps": "{:g} Mbps",
    "cubics": "{} Cubics",
    "flows": "{} flows",
    "queue_bdp": "queue {:g} BDP",
    "case": "{}",
}
QUANTITY_LABELS = {
    "ratio": "goodput ratio",
    "hop_ratio": "goodput ratio",
    "tested_ratio": "goodput over Cubic's",
    "goodput_ratio": "goodput over Cubic's",
    "power_ratio": "power over Cubic's",
    "jain": "Jain's index",
    "goodput_mbps": "goodput (Mbps)",
    "utilisation": "goodput / capacity",
    "rtt_ms": "RTT (ms)",
    "rtt_ratio": "RTT / base RTT",
    "loss_rate": "packets lost",
}
REFERENCES: Mapping[str, tuple[tuple[float, str], ...]] = {
    "hop_ratio": ((1.0, "max-min"), (1 / 3, "proportional")),
    "tested_ratio": ((1.0, ""),),
    "goodput_ratio": ((1.0, ""),),
    "power_ratio": ((1.0, ""),),
}
"""Lines that mark a value, by the number shown."""

MOST_ASIDE = 0.06
"""Of an axis: how far the points of one value may lie apart."""


@dataclass(frozen=True)
class Look:
    """How each scheme is drawn: as leagues.colours has it, its mark by its place among all schemes."""

    schemes: tuple[str, ...]

    def among(self, schemes: Iterable[str]) -> list[str]:
        """Return those that are among some schemes, in their order."""
        shown = set(schemes)
        return [scheme for scheme in self.schemes if scheme in shown]

    def line(self, scheme: str) -> dict[str, Any]:
        """Return a line's colour and dashes."""
        stroke = self._strokes[scheme]
        return {"color": stroke.colour, "linestyle": stroke.dashes, "linewidth": 1.6}

    def colour(self, scheme: str) -> str:
        """Return a scheme's colour."""
        return self._strokes[scheme].colour

    def mark(self, scheme: str) -> str:
        """Return a scheme's mark."""
        return MARKS[self.schemes.index(scheme) % len(MARKS)]

    @cached_property
    def _strokes(self) -> Mapping[str, Stroke]:
        return strokes(self.schemes)


def panels_of(count: int, width: float, height: float = 3.3, sharex: bool = True) -> tuple[Figure, list[Axes]]:
    """Return a figure of so many panels in a row with one y axis, each so wide (inches)."""
    figure = Figure(figsize=(0.6 + width * count, height), layout="constrained")
    return figure, list(figure.subplots(1, count, squeeze=False, sharey=True, sharex=sharex)[0])


def draw_cells(axes: Axes, own: pl.DataFrame, axis: Axis, look: Look, scheme: str, aside: float) -> None:
    """Draw a scheme's means over an axis, their intervals, and hollow what was published."""
    x = own[axis].to_numpy() + aside
    mean = own["mean"].to_numpy()
    axes.plot(x, mean, marker=look.mark(scheme), markersize=5, **look.line(scheme))
    axes.errorbar(
        x, mean, yerr=errors_of(own), fmt="none", ecolor=look.colour(scheme), elinewidth=1, capsize=2.5, alpha=0.8
    )
    published = own.drop_nulls("published")
    unfilled: dict[str, Any] = {"color": look.colour(scheme), "fillstyle": "none", "markersize": 8}
    axes.plot(published[axis].to_numpy() + aside, published["published"], look.mark(scheme), **unfilled)


def errors_of(own: pl.DataFrame) -> Doubles:
    """Return how far the interval of each mean reaches, below and above: [2, rows]."""
    ends = own.select(pl.col("low", "high").fill_null(pl.col("mean"))).to_numpy()
    mean = own["mean"].to_numpy()
    below_and_above: Doubles = np.stack([mean - ends[:, 0], ends[:, 1] - mean])
    return np.maximum(below_and_above, 0.0)


def aside(number: int, count: int, values: pl.Series) -> float:
    """Return how far a scheme's points lie beside the axis' value, so that intervals do not hide each other."""
    known = np.unique(values.to_numpy().astype(np.float64))
    spread = min(0.5 * float(np.diff(known).min()), MOST_ASIDE * float(np.ptp(known))) if len(known) > 1 else 0.0
    return spread * (number - (count - 1) / 2) / max(count, 1)


def reference(axes: Axes, value: float, name: str) -> None:
    """Draw a dashed line at a value of the y axis, named beside the panel."""
    axes.axhline(value, color=INK, linewidth=1, linestyle=(0, (4, 3)), alpha=0.6)
    if name:
        axes.annotate(name, (1, value), xycoords=("axes fraction", "data"), xytext=(4, 0),
                      textcoords="offset points", va="center", fontsize=9)  # fmt: skip


def log_axis(axes: Axes, part: pl.DataFrame) -> None:
    """Make the y axis logarithmic, twice as wide as the means; an interval may end beyond it."""
    axes.set_yscale("log")
    means = part["mean"].to_numpy()
    means = means[np.isfinite(means) & (means > 0)]
    low, high = min(float(means.min()) / 2, 0.5), max(float(means.max()) * 2, 2.0)
    axes.set_ylim(low, high)
    marks = (1, 2, 5) if high / low < 300 else (1,)  # more would lie on one another
    ticks = [mark * 10.0**power for power in range(-4, 5) for mark in marks]
    axes.yaxis.set_major_locator(FixedLocator([value for value in ticks if low <= value <= high]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_formatter(NullFormatter())


def top(part: pl.DataFrame) -> float:
    """Return where an axis ends above all means, intervals and published points."""
    highest = part.select(pl.max_horizontal(pl.col("mean", "high", "published").max())).item()
    return 1.05 * float(highest) if highest is not None else 1.0


def thinned(values: Sequence[float]) -> list[float]:
    """Return the ticks of an axis: every second value where there are many."""
    return list(values[1::2] if len(values) > 6 else values)


def scheme_handles(schemes: Sequence[str], look: Look, *, published: bool) -> list[Line2D]:
    """Return a legend's entries for schemes, and for what was published."""
    handles = [
        Line2D([], [], marker=look.mark(scheme), label=label(scheme), markersize=5, **look.line(scheme))
        for scheme in schemes
    ]
    return [*handles, hollow("o")] if published else handles


def legend(figure: Figure, handles: Sequence[Line2D]) -> None:
    """Put a legend above the panels, in as many columns as the width has room for."""
    inches = sum(0.62 + 0.085 * len(str(handle.get_label())) for handle in handles)
    columns = int(figure.get_figwidth() * len(handles) / max(inches, 1e-9))
    figure.legend(handles=list(handles), loc="outside upper center", ncols=max(1, min(len(handles), columns)))


def hollow(shape: str) -> Line2D:
    """Return the legend's entry for what was published."""
    return Line2D([], [], marker=shape, linestyle="", color=INK, fillstyle="none", markersize=8, label="published")


def distribution(axes: Axes, values: Doubles, **line: Any) -> None:
    """Draw the share of values that are at most so large."""
    ordered = np.sort(values)
    steps = np.arange(1, len(ordered) + 1) / max(len(ordered), 1)
    axes.step(np.append(ordered[:1], ordered), np.append(0, steps), where="post", **line)
