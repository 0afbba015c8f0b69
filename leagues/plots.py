# SPDX-License-Identifier: Apache-2.0
"""The league's pictures: standings, throughput-delay plane, trajectories over time.

Functions return a Figure; `save_figure`, `save_png` and `to_svg` write it. leagues.colours has schemes' colours.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse
from matplotlib.ticker import MaxNLocator, PercentFormatter, StrMethodFormatter
from matplotlib.transforms import Bbox
from PIL import Image

from sagecc.common.arrays import Doubles
from sagecc.common.errors import SageccError
from sagecc.common.files import write_atomically
from sagecc.common.pictures import picture_format
from sagecc.leagues.colours import DASHES, VERMILION, Stroke, stroke, strokes
from sagecc.leagues.measured import PathResult
from sagecc.leagues.standings import sets
from sagecc.schemas.environment import BYTES_S_PER_MBPS
from sagecc.schemas.schemes import POLICY_PREFIX, PYTHON_PREFIX

INK = "#1f2933"
"""Text, axes and grid; `to_svg` turns it into the page's own text colour."""
POLICY = VERMILION
"""Of what is about policies as such, beside HEURISTIC."""
HEURISTIC = "#4a90c2"
SHADE = "#9aa5b1"
PANELS_ABREAST = 3
WIDEST = 1.5
"""The largest mean times this is the most that the frame of a measured path's plane holds of intervals."""

TITLE_CHARACTERS = 45
"""In a line above a measured path's plane."""

SET_TITLES = {"I": "Set I: alone on the link", "II": "Set II: next to Cubic"}


_RC: Any = {
    # Matplotlib reads `matplotlibrc` in the working directory, which may have LaTeX run: pictures need none of it.
    **{name: value for name, value in dict.items(mpl.rcParamsDefault) if not name.startswith("backend")},
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": INK,
    "grid.alpha": 0.12,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "text.parse_math": False,  # a name between two $ is no formula
    "figure.dpi": 100,
}


def style() -> AbstractContextManager[None]:
    """Return the context in which figures are made."""
    return mpl.rc_context(_RC)


def label(scheme: str) -> str:
    """Return a scheme's short name: a policy's is the last part of its path, in quotes, a class's its own."""
    if scheme.startswith(PYTHON_PREFIX):
        return scheme.rpartition(":")[2]
    name = scheme.removeprefix(POLICY_PREFIX).rstrip("/").split("/")[-1]
    return f"“{name}”" if scheme.startswith(POLICY_PREFIX) else scheme


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as its path's suffix says, whole or not at all; equal figures give equal bytes.

    Raises:
        SageccError: the suffix is that of no picture.
    """
    kind = picture_format(path)
    if kind == "png":
        save_png(figure, path)
        return
    metadata: dict[str, Any] = {"Date": None} if kind == "svg" else {"CreationDate": None}
    with mpl.rc_context(_RC | {"svg.hashsalt": "sagecc"}), write_atomically(path) as temporary:
        figure.savefig(temporary, format=kind, facecolor="white", metadata=metadata)


def save_png(figure: Figure, path: Path) -> None:
    """Write a figure as PNG (150 dots per inch, white background), whole or not at all.

    Its 256 most telling colours are enough for what is drawn here, in a third of the bytes.
    """
    buffer = io.BytesIO()
    with mpl.rc_context(_RC):
        figure.savefig(buffer, format="png", dpi=150, facecolor="white")
    with Image.open(buffer) as image, write_atomically(path) as temporary:
        palette_image = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        palette_image.save(temporary, format="png", optimize=True)


def to_svg(figure: Figure, name: str) -> str:
    """Return a figure as an inline <svg>: no background, INK in the page's text colour, ids prefixed with `name`."""
    text = io.StringIO()
    with mpl.rc_context(_RC | {"svg.hashsalt": name, "svg.id": name}):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg\b[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg\b[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    return svg.replace(INK, "currentColor").strip()


def standings_figure(table: pl.DataFrame) -> Figure:
    """Draw winning rates as bars with 95 % intervals, one panel per set, best on top (leagues.standings.standings)."""
    names = sets(table)
    count = table["scheme"].n_unique()
    own = strokes(table["scheme"])
    with mpl.rc_context(_RC):
        figure = Figure(figsize=(5 * len(names) if len(names) > 1 else 7, 1.1 + 0.32 * count), layout="constrained")
        for axes, set_name in zip(_row(figure, len(names)), names, strict=True):
            part = table.filter(pl.col("set") == set_name).sort("rank", "scheme")
            y = np.arange(len(part), dtype=np.float64)
            rates, low, high = (part[c].to_numpy() for c in ("winning_rate", "low", "high"))
            schemes = part["scheme"].to_list()
            axes.barh(y, rates, color=[own[s].colour for s in schemes], height=0.72)
            errors = np.clip(np.stack([rates - low, high - rates]), 0, None)
            axes.errorbar(rates, y, xerr=errors, fmt="none", ecolor=INK, elinewidth=1, capsize=2.5, alpha=0.75)
            top = max(float(high.max()), float(rates.max()), 0.05)
            for bar_y, rate, end in zip(y, rates, np.maximum(high, rates), strict=True):
                axes.text(end + 0.02 * top, bar_y, f"{rate:.0%}", va="center", fontsize=10)
            axes.set_ylim(len(part) - 0.4, -0.6)
            axes.set_yticks(y, [label(s) for s in schemes])
            for tick, scheme in zip(axes.get_yticklabels(), schemes, strict=True):
                if scheme.startswith(POLICY_PREFIX):
                    tick.set_fontweight("bold")
                    tick.set_color(own[scheme].colour)
            axes.tick_params(axis="y", length=0)
            axes.grid(visible=False, axis="y")
            axes.set_xlim(0, 1.14 * top)
            axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
            axes.set_title(SET_TITLES.get(set_name, f"Set {set_name}"))
            axes.set_xlabel("winning rate (95 % interval)")
    return figure


def plane_figure(scores: pl.DataFrame, stacked: bool = False) -> Figure:
    """Draw goodput against delay, one panel per set: each scheme's mean, and its 1-sigma ellipse over environments.

    As in Fig. 8 of the paper: in each window the delay is divided by the smallest any scheme had (log axis); the
    goodput by the largest in Set I and by the fair share where flows compete. Up and left is better.

    Args:
        scores: a table of leagues.scores.SCORE_SCHEMA.
        stacked: one panel above the other, wide ones, for many schemes.
    """
    names = sets(scores)
    with mpl.rc_context(_RC):
        size = (9, 5.4 * len(names)) if stacked else (5.2 * len(names) if len(names) > 1 else 7, 4.8)
        figure = Figure(figsize=size, layout="constrained")
        panels = list(figure.subplots(len(names), 1, squeeze=False)[:, 0]) if stacked else _row(figure, len(names))
        for axes, set_name in zip(panels, names, strict=True):
            part = scores.filter((pl.col("set") == set_name) & (pl.col("status") == "ok"))
            _plane(axes, _normalised(part), set(part["metric"]))
            axes.set_title(SET_TITLES.get(set_name, f"Set {set_name}"))
        _name_points(figure)
    return figure


def _normalised(part: pl.DataFrame) -> pl.DataFrame:
    """Average each environment's windows: scheme, environment_id, x (log2 of relative delay), y (relative goodput).

    A window in which no scheme got anything in order is left out.
    """
    window = ["environment_id", "window"]
    best = pl.when(pl.col("metric") == "power").then(pl.col("goodput_mbps").max().over(window))
    return (
        part.with_columns(base=best.otherwise(pl.col("fair_share_mbps")))
        .filter(pl.col("base") > 0)
        .with_columns(
            x=(pl.col("delay_ms") / pl.col("delay_ms").min().over(window)).log(2),
            y=pl.col("goodput_mbps") / pl.col("base"),
        )
        .group_by("scheme", "environment_id")
        .agg(pl.col("x", "y").mean())
        .sort("scheme", "environment_id")
    )


def _plane(axes: Axes, points: pl.DataFrame, metrics: set[str]) -> None:
    friendly = "friendliness" in metrics
    own = strokes(points["scheme"])
    centres = points.group_by("scheme").agg(pl.col("x", "y").mean()).sort("scheme")
    for scheme, x, y in centres.iter_rows():
        scheme_points = points.filter(pl.col("scheme") == scheme).select("x", "y").to_numpy()
        policy = scheme.startswith(POLICY_PREFIX)
        if len(scheme_points) > 2:
            axes.add_patch(_ellipse(scheme_points, own[scheme].colour, policy))
        shape, size = ("*", 190) if policy else ("o", 34)
        axes.scatter(x, y, s=size, color=own[scheme].colour, marker=shape, zorder=4 if policy else 3, label=scheme)
    if friendly:
        axes.axhline(1, color=INK, linewidth=1, linestyle=(0, (4, 3)), alpha=0.6)
        axes.annotate("fair share", (1, 1), xycoords=("axes fraction", "data"), xytext=(0, 3),
                      textcoords="offset points", ha="right", fontsize=9)  # fmt: skip
    both = "goodput / fair share, or alone best goodput"
    axes.set_ylabel(both if len(metrics) > 1 else "goodput / fair share" if friendly else "goodput / best goodput")
    axes.set_xlabel("mean delay / smallest delay (log)")
    x, y = centres["x"].to_numpy(), centres["y"].to_numpy()
    if len(x):
        # Framed on the points, with room for half an ellipse: whole ellipses would push the points together.
        _frame(axes.set_xlim, x, 0.22)
        _frame(axes.set_ylim, np.append(y, 1.0) if friendly else y, 0.18)
    low, high = axes.get_xlim()
    ratios = 2.0 ** np.arange(np.ceil(low), high) if high - low > 2.5 else MaxNLocator(5).tick_values(2**low, 2**high)
    ticks = [float(np.log2(v)) for v in ratios if 2**low <= v <= 2**high]
    axes.set_xticks(ticks, [f"{2**tick:.3g} x" for tick in ticks])


def measured_figure(
    results: Sequence[PathResult], look: Mapping[str, Stroke] | None = None, panel_in: tuple[float, float] | None = None
) -> Figure:
    """Draw measured paths' planes of delay and throughput, a panel each: means with 95 % intervals.

    Both are relative to the best scheme of a path; up and left is better.

    Args:
        results: the paths.
        look: how each scheme is drawn; by default as `strokes` says of those here.
        panel_in: width and height of a panel; by default one alone is wider than several.
    """
    columns = min(len(results), PANELS_ABREAST)
    rows = -(-len(results) // columns)
    own = look or strokes(each.scheme for result in results for each in result.schemes)
    with mpl.rc_context(_RC):
        width_in, height_in = panel_in or (5.2 if columns > 1 else 7, 4.8)
        figure = Figure(figsize=(width_in * columns, height_in * rows), layout="constrained")
        panels = list(figure.subplots(rows, columns, squeeze=False).flat)
        for axes, result in zip(panels, results, strict=False):
            _measured_plane(axes, result, own)
        for axes in panels[len(results) :]:
            axes.remove()
        _name_points(figure)
    return figure


def _measured_plane(axes: Axes, result: PathResult, own: Mapping[str, Stroke]) -> None:
    """Draw the schemes whose delay can be told on a path."""
    means: list[tuple[float, float]] = []
    corners: list[tuple[float, float]] = []
    for each in result.schemes:
        delay, goodput = each.measures["relative_delay"], each.measures["relative_goodput"]
        if delay.mean is None or goodput.mean is None:
            continue
        spans = [0.0 if of.high is None or of.mean is None else of.high - of.mean for of in (delay, goodput)]
        line: dict[str, Any] = {"color": own[each.scheme].colour, "alpha": 0.5, "linewidth": 1.2}
        axes.plot([delay.mean - spans[0], delay.mean + spans[0]], [goodput.mean] * 2, **line)
        axes.plot([delay.mean] * 2, [goodput.mean - spans[1], goodput.mean + spans[1]], **line)
        policy = each.scheme.startswith(POLICY_PREFIX)
        shape, size = ("*", 190) if policy else ("o", 34)
        point = axes.scatter(delay.mean, goodput.mean, s=size, color=own[each.scheme].colour, marker=shape, zorder=3)
        point.set_label(each.scheme)
        means.append((delay.mean, goodput.mean))
        corners += [(delay.mean + sign * spans[0], goodput.mean + sign * spans[1]) for sign in (-1, 1)]
    axes.set_title(textwrap.fill(result.name, TITLE_CHARACTERS))
    axes.set_xlabel("mean one-way delay / smallest")
    axes.set_ylabel("goodput / best")
    if corners:
        # Of few runs intervals are so wide that the points would be one: they may leave the frame.
        x, y = np.clip(corners, 0, WIDEST * np.max(means, axis=0)).T
        _frame(axes.set_xlim, x, 0.18)
        _frame(axes.set_ylim, y, 0.18)
        axes.set_xlim(left=max(axes.get_xlim()[0], 0))
        axes.set_ylim(bottom=max(axes.get_ylim()[0], 0))


def _frame(setter: Any, values: Doubles, room: float) -> None:
    pad = room * max(float(np.ptp(values)), 0.05)
    setter(float(values.min()) - pad, float(values.max()) + pad)


def _ellipse(points: Doubles, fill: str, strong: bool) -> Ellipse:
    values, vectors = np.linalg.eigh(np.cov(points.T))
    width, height = 2 * np.sqrt(np.clip(values, 0, None))
    angle = float(np.degrees(np.arctan2(vectors[1, 0], vectors[0, 0])))
    centre = points.mean(axis=0)
    return Ellipse(
        (float(centre[0]), float(centre[1])),
        float(width),
        float(height),
        angle=angle,
        facecolor=fill,
        edgecolor=fill,
        alpha=0.16 if strong else 0.05,
        linewidth=1.2,
        zorder=2 if strong else 1,
    )


def _name_points(figure: Figure) -> None:
    """Write each point's name beside it, where it covers the fewest other names and points."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    renderer = canvas.get_renderer()  # type: ignore[no-untyped-call]
    figure.set_layout_engine("none")
    for axes in figure.axes:
        marks = [
            (str(c.get_label()), axes.transData.transform(c.get_offsets())[0], _reach(c, figure.dpi))
            for c in axes.collections
        ]
        obstacles: list[Bbox] = [Bbox.from_extents(x - r, y - r, x + r, y + r) for _, (x, y), r in marks]
        for scheme, (x, y), reach in sorted(marks, key=lambda mark: -mark[1][1]):
            text = axes.text(0, 0, label(scheme), fontsize=10)
            box = text.get_window_extent(renderer)
            text.remove()
            directions = product((reach + 4, reach + 13, reach + 25, reach + 39), np.arange(0, 2 * np.pi, np.pi / 8))
            boxes = [_label_box(box, x, y, radius, angle) for radius, angle in directions]
            best = min(boxes, key=lambda b: (_covered_area(b, obstacles, axes.bbox), _distance(b, x, y)))
            obstacles.append(best)
            far = _distance(best, x, y) > reach + 9
            to_data = axes.transData.inverted().transform
            position = to_data(((best.x0 + best.x1) / 2, (best.y0 + best.y1) / 2))
            policy = scheme.startswith(POLICY_PREFIX)
            axes.annotate(
                label(scheme),
                tuple(to_data((x, y))),
                xytext=tuple(position),
                ha="center",
                va="center",
                fontsize=10,
                color=POLICY if policy else INK,
                fontweight="bold" if policy else "normal",
                arrowprops={"arrowstyle": "-", "color": INK, "alpha": 0.35, "linewidth": 0.7} if far else None,
                zorder=5,
            )


def _reach(mark: Any, dots_per_inch: float) -> float:
    """Return half of a mark's width, and at least 5 (pixels)."""
    return max(5.0, math.sqrt(mark.get_sizes()[0]) / 2 * dots_per_inch / 72)


def _label_box(box: Bbox, x: float, y: float, radius: float, angle: float) -> Bbox:
    """Return a name's box whose edge nearest to (x, y) lies `radius` pixels away in the direction of `angle`."""
    cx = x + np.cos(angle) * (radius + box.width / 2)
    cy = y + np.sin(angle) * (radius + box.height / 2)
    return Bbox.from_bounds(cx - box.width / 2, cy - box.height / 2, box.width, box.height)


def _distance(box: Bbox, x: float, y: float) -> float:
    return float(np.hypot(max(box.x0 - x, 0, x - box.x1), max(box.y0 - y, 0, y - box.y1)))


def _covered_area(box: Bbox, occupied: Sequence[Bbox], frame: Bbox) -> float:
    """Return how much of a box lies over others or outside of the frame (square pixels)."""
    overlaps = [Bbox.intersection(box, other) for other in occupied]
    hidden = sum(b.width * b.height for b in overlaps if b is not None)
    inside = Bbox.intersection(box, frame)
    return hidden + box.width * box.height - (inside.width * inside.height if inside else 0)


@dataclass(frozen=True)
class Track:
    """One trajectory to draw."""

    name: str
    """In the legend."""
    rows: pa.Table
    """Of schemas.raw.RAW_SCHEMA."""
    stroke: Stroke
    """How it is drawn."""
    competitors_bytes: Doubles | None = None
    """In-order bytes that its competitors together have got by each row; None without any."""

    @property
    def line(self) -> dict[str, Any]:
        """What matplotlib draws its lines with."""
        return {"color": self.stroke.colour, "linestyle": self.stroke.dashes, "linewidth": 1.6}


@dataclass(frozen=True)
class _Series:
    """A trajectory in equal bins [n]."""

    t_s: Doubles
    """Where each bin ends."""
    goodput_mbps: Doubles
    capacity_mbps: Doubles
    delay_ms: Doubles
    """Mean one-way delay, NaN where no packet left."""
    cwnd_pkts: Doubles
    dropped: npt.NDArray[np.bool_]
    """Whether a packet was dropped."""
    competitors_mbps: Doubles | None
    """Goodput of its competitors together."""


def plot_episode(rows: pa.Table, path: Path, scheme: str) -> None:
    """Draw one raw trajectory over time: goodput and capacity, delay, cwnd.

    Args:
        rows: of schemas.raw.RAW_SCHEMA.
        path: of the picture; its suffix says the format.
        scheme: whose trajectory.

    Raises:
        SageccError: there are fewer than two rows, or the suffix is that of no picture.
    """
    name = str(rows["episode_id"][0]) if rows.num_rows else "episode"
    line = replace(stroke(scheme), dashes=DASHES[0])
    save_figure(trajectory_figure([Track("goodput", rows, line)], name), path)


def trajectory_figure(tracks: Sequence[Track], title: str) -> Figure:
    """Draw trajectories of one environment over time, three panels: goodput and capacity, one-way delay, cwnd.

    Ticks under the cwnd panel mark drops at the bottleneck.

    Raises:
        SageccError: a track has fewer than two rows.
    """
    bins = [_bins(track) for track in tracks]
    with mpl.rc_context(_RC):
        figure = Figure(figsize=(9, 6.6), layout="constrained")
        rate, delay, cwnd = figure.subplots(3, 1, sharex=True, height_ratios=[1.15, 1, 1])
        most = _draw_capacity(rate, bins)
        for track, series in zip(tracks, bins, strict=True):
            line = track.line
            rate.plot(series.t_s, series.goodput_mbps, label=track.name, **line)
            delay.plot(series.t_s, series.delay_ms, **line)
            cwnd.plot(series.t_s, series.cwnd_pkts, **line)
        for row, (track, series) in enumerate(zip(tracks, bins, strict=True)):  # a rug of drops under the axis
            drops_s = series.t_s[series.dropped]
            cwnd.plot(
                drops_s,
                np.full(len(drops_s), -0.035 - 0.05 * row),
                "|",
                color=track.stroke.colour,
                markersize=6,
                transform=cwnd.get_xaxis_transform(),
                clip_on=False,
            )
        rate.set_ylim(0, 1.2 * most)
        delay.set_ylim(bottom=0)
        largest = [float(s.cwnd_pkts.max()) for s in bins]
        if max(largest) > 30 * min(float(np.median(s.cwnd_pkts)) for s in bins):
            cwnd.set_yscale("log")  # a window that ran away would flatten the others
            cwnd.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        else:
            cwnd.set_ylim(bottom=0)
        rate.set_ylabel("rate (Mbps)")
        delay.set_ylabel("one-way delay (ms)")
        cwnd.set_ylabel("cwnd (packets)")
        drops = any(series.dropped.any() for series in bins)
        cwnd.set_xlabel("time (s); marks below the axis: packets dropped" if drops else "time (s)")
        cwnd.tick_params(axis="x", pad=4 + 6 * len(tracks))
        cwnd.set_xlim(min(float(s.t_s[0]) for s in bins), max(float(s.t_s[-1]) for s in bins))
        rate.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=4, fontsize=10, borderaxespad=0.1)
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold", fontsize=12)
        figure.align_ylabels()
    return figure


def comparison_figure(tracks: Sequence[Track], propagation_ms: float, title: str) -> Figure:
    """Draw trajectories of one network over time, two panels: goodput and capacity, queueing delay.

    Args:
        tracks: one of each scheme; what its competitors together got is drawn faintly.
        propagation_ms: of the links of their path; delay beyond it is queueing.
        title: above the panels.

    Raises:
        SageccError: a track has fewer than two rows.
    """
    bins = [_bins(track) for track in tracks]
    with mpl.rc_context(_RC):
        figure = Figure(figsize=(9, 5.4), layout="constrained")
        rate, delay = figure.subplots(2, 1, sharex=True)
        most = _draw_capacity(rate, bins)
        for track, series in zip(tracks, bins, strict=True):
            rate.plot(series.t_s, series.goodput_mbps, label=track.name, **track.line)
            delay.plot(series.t_s, np.maximum(series.delay_ms - propagation_ms, 0), **track.line)
            if series.competitors_mbps is not None:
                rate.plot(series.t_s, series.competitors_mbps, **track.line | {"linewidth": 1.0, "alpha": 0.45})
        rate.set_ylim(0, 1.2 * most)
        delay.set_ylim(bottom=0)
        rate.set_ylabel("goodput (Mbps)")
        delay.set_ylabel("queueing delay (ms)")
        faint = any(series.competitors_mbps is not None for series in bins)
        delay.set_xlabel("time (s); faint: what competes with each" if faint else "time (s)")
        delay.set_xlim(min(float(s.t_s[0]) for s in bins), max(float(s.t_s[-1]) for s in bins))
        figure.legend(*rate.get_legend_handles_labels(), loc="outside lower center", ncols=6, fontsize=10)
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold", fontsize=12)
        figure.align_ylabels()
    return figure


def _draw_capacity(axes: Axes, bins: Sequence[_Series]) -> float:
    """Draw the capacity as a shade behind the rates; return the most that a link could carry (Mbps).

    In-order goodput jumps when a hole is filled: an axis for such spikes would squash everything else.
    """
    widest = max(bins, key=lambda series: float(np.ptp(series.t_s)))
    axes.fill_between(widest.t_s, widest.capacity_mbps, step="pre", color=SHADE, alpha=0.28, linewidth=0)
    axes.step(widest.t_s, widest.capacity_mbps, where="pre", color=SHADE, linewidth=1.4, label="capacity")
    return max(float(np.nanmax(series.capacity_mbps)) for series in bins)


_WIDTHS_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_MAX_BINS = 250


def bin_width(seconds: float) -> float:
    """Return a round width (s) of which a trajectory of `seconds` has at most _MAX_BINS bins."""
    return next((w for w in _WIDTHS_S if seconds / w <= _MAX_BINS), seconds / _MAX_BINS)


def _bins(track: Track) -> _Series:
    rows = track.rows
    if rows.num_rows < 2:
        raise SageccError(f"{track.name}: a trajectory of {rows.num_rows} rows cannot be drawn, it needs two")
    t = rows["t_s"].to_numpy()
    width = bin_width(float(t[-1] - t[0]))
    inner = width * np.arange(np.ceil(t[0] / width + 0.5), t[-1] / width - 0.5)  # round times, as the rate's steps are
    edges = np.concatenate([t[:1], inner, t[-1:]])
    last = np.searchsorted(t, edges + 1e-6, side="right") - 1  # the last row of each bin
    last = last[np.append(True, np.diff(last) > 0)]
    counters = ("received_bytes", "link_capacity_bytes", "link_packets", "link_delay_ns", "link_drops")
    increase = {name: np.diff(rows[name].to_numpy()[last].astype(np.float64)) for name in counters}
    seconds = np.diff(t[last])
    packets = increase["link_packets"]
    beside = track.competitors_bytes
    sums = np.add.reduceat(rows["cwnd_pkts"].to_numpy().astype(np.float64), last[:-1])
    sums[-1] -= float(rows["cwnd_pkts"].to_numpy()[last[-1] :].sum())
    delay = np.divide(increase["link_delay_ns"], packets * 1e6, out=np.full(len(packets), np.nan), where=packets > 0)
    return _Series(
        t_s=t[last[1:]],
        goodput_mbps=increase["received_bytes"] / seconds / BYTES_S_PER_MBPS,
        capacity_mbps=increase["link_capacity_bytes"] / seconds / BYTES_S_PER_MBPS,
        delay_ms=delay,
        cwnd_pkts=sums / np.diff(last),
        dropped=increase["link_drops"] > 0,
        competitors_mbps=None if beside is None else np.diff(beside[last]) / seconds / BYTES_S_PER_MBPS,
    )


def _row(figure: Figure, count: int) -> list[Axes]:
    return list(figure.subplots(1, count, squeeze=False)[0])
