# SPDX-License-Identifier: Apache-2.0
"""The study's figures in its own layout, and one of all flows of an episode over time.

What the study or its predecessor published is drawn hollow beside ours. paper_figures.py has the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Ellipse
from matplotlib.ticker import MaxNLocator

from sagecc.common.arrays import Doubles
from sagecc.common.errors import SageccError
from sagecc.leagues.colours import DASHES, PALETTE, strokes
from sagecc.leagues.flow_metrics import rebin
from sagecc.leagues.plots import INK, SHADE, bin_width, label, style
from sagecc.leagues.study.drawing import (
    AXIS_LABELS,
    PANEL_TITLES,
    QUANTITY_LABELS,
    REFERENCES,
    Look,
    aside,
    distribution,
    draw_cells,
    hollow,
    legend,
    log_axis,
    panels_of,
    reference,
    scheme_handles,
    thinned,
    top,
)
from sagecc.leagues.study.experiments import Axis, Experiment, StudyRun
from sagecc.leagues.study.measures import LOGARITHMIC, SHARES, efficiency_points
from sagecc.leagues.study.published import QUANTILES, STUDY_NAMES
from sagecc.schemas.environment import MTU_BYTES, Environment

PACED = ("bbr", "bbr2", "bbr3")
"""Schemes whose pacing rate the study shows instead of their window."""

PAYLOAD_BYTES = 1448
"""Of a full packet, with TCP's timestamps."""

MOST_NAMED_FLOWS = 8
"""With more flows a legend names schemes only."""


RATES_S = (100.0, 200.0)
"""What Fig. 11 shows of a run (s)."""


def ratio_figure(experiment: Experiment, cells: pl.DataFrame, look: Look) -> Figure:
    """Draw an experiment's number over its axis, in its panels; bars are 95 % intervals (Fig. 1, 3 to 6, 8).

    Args:
        experiment: whose quantity, axis and panels are drawn.
        cells: results.cells_table.
        look: how schemes are drawn.
    """
    part = cells.filter((pl.col("experiment") == experiment.name) & (pl.col("quantity") == experiment.quantity))
    values = part[experiment.panel].unique().sort().to_list()
    schemes = look.among(part["scheme"])
    with style():
        figure, panels = panels_of(len(values), width=3.7 if len(values) > 1 else 5.5)
        for axes, value in zip(panels, values, strict=True):
            for at, name in REFERENCES.get(experiment.quantity, ()):
                reference(axes, at, name if axes is panels[-1] else "")
            for number, scheme in enumerate(schemes):
                own = part.filter((pl.col(experiment.panel) == value) & (pl.col("scheme") == scheme))
                offsets = aside(number, len(schemes), part[experiment.axis])
                draw_cells(axes, own.sort(experiment.axis), experiment.axis, look, scheme, offsets)
            axes.set_title(PANEL_TITLES[experiment.panel].format(value))
            axes.set_xlabel(AXIS_LABELS[experiment.axis])
            axes.set_xticks(thinned(part[experiment.axis].unique().sort().to_list()))
        first = panels[0]
        first.set_ylabel(QUANTITY_LABELS.get(experiment.quantity, experiment.quantity))
        if experiment.quantity in LOGARITHMIC:
            log_axis(first, part)
        else:
            first.set_ylim(0, 1.05 if experiment.quantity in SHARES else max(1.05, top(part)))
        legend(figure, scheme_handles(schemes, look, published=bool(part["published"].count())))
    return figure


def efficiency_figure(runs: Sequence[tuple[StudyRun, pl.DataFrame]], cells: pl.DataFrame, look: Look) -> Figure:
    """Draw utilisation against relative RTT, one panel per queue, with ellipses of 1 sigma over seconds (Fig. 9).

    Triangles are the shortest base RTT, stars the longest, as in the study; hollow ones are the authors' own table.

    Args:
        runs: of `efficiency`, with their series.
        cells: results.cells_table, for what was published.
        look: how schemes are drawn.
    """
    points = [
        efficiency_points(series, run.environment, run.interval_s).with_columns(
            scheme=pl.lit(run.scheme), rtt_ms=pl.lit(run.cell.rtt_ms), queue_bdp=pl.lit(run.cell.queue_bdp)
        )
        for run, series in runs
    ]
    table = pl.concat(points)
    queues = table["queue_bdp"].unique().sort().to_list()
    rtts = table["rtt_ms"].unique().sort().to_list()
    schemes = look.among(table["scheme"])
    shapes = dict(zip(rtts, ("^", "*", "s", "D"), strict=False))
    with style():
        figure, panels = panels_of(len(queues), width=3.7, sharex=False)
        for axes, queue in zip(panels, queues, strict=True):
            for (scheme, rtt_ms), own in table.filter(pl.col("queue_bdp") == queue).group_by(
                "scheme", "rtt_ms", maintain_order=True
            ):
                cloud = own.select("rtt_ratio", "utilisation").to_numpy()
                x, y = cloud.mean(axis=0)
                if len(cloud) > 2:
                    axes.add_patch(_ellipse(cloud, look.colour(str(scheme))))
                shape = shapes[rtt_ms]
                axes.plot(x, y, shape, color=look.colour(str(scheme)), markersize=13 if shape == "*" else 8)
            for scheme, rtt_ms, x, y in _published_pairs(cells, queue):
                if scheme in schemes and rtt_ms in shapes:
                    shape = shapes[rtt_ms]
                    axes.plot(
                        x, y, shape, color=look.colour(scheme), fillstyle="none", markersize=13 if shape == "*" else 8
                    )
            axes.set_title(f"queue {queue:g} BDP")
            axes.set_xlabel("RTT / base RTT")
            axes.xaxis.set_major_locator(MaxNLocator(5))
            axes.autoscale_view()
        panels[0].set_ylabel("goodput / capacity")
        handles = [Line2D([], [], color=look.colour(scheme), linewidth=4, label=label(scheme)) for scheme in schemes]
        handles += [_mark(shape, f"{rtt_ms:g} ms") for rtt_ms, shape in shapes.items()]
        if any(True for queue in queues for _ in _published_pairs(cells, queue)):
            handles.append(hollow("^"))
        legend(figure, handles)
    return figure


def distribution_figure(values: pl.DataFrame, look: Look, names: Mapping[str, str] = STUDY_NAMES) -> Figure:
    """Draw distributions of mean goodput over the schedules, one panel per responsiveness experiment (Fig. 10).

    Args:
        values: results.values_table.
        look: how schemes are drawn.
        names: from a scheme of ours to the study's name for it; the predecessor's quantiles are drawn hollow.
    """
    titles = {"responsiveness": "bandwidth and RTT change", "responsiveness-loss": "bandwidth and loss change"}
    own = values.filter(pl.col("experiment").is_in(list(titles))).drop_nulls("value")
    experiments = [name for name in titles if name in own["experiment"].unique()]
    schemes = look.among(own["scheme"])
    has_values = False
    with style():
        figure, panels = panels_of(len(experiments), width=4.6, height=3.6)
        for axes, name in zip(panels, experiments, strict=True):
            part = own.filter(pl.col("experiment") == name)
            optimal = part.filter((pl.col("quantity") == "optimal_mbps") & (pl.col("scheme") == schemes[0]))["value"]
            distribution(axes, optimal.to_numpy(), color=INK, linewidth=1.6, linestyle="-")
            for scheme in schemes:
                goodput = part.filter((pl.col("quantity") == "goodput_mbps") & (pl.col("scheme") == scheme))["value"]
                distribution(axes, goodput.to_numpy(), **look.line(scheme))
                for published in QUANTILES:
                    if (published.experiment, published.scheme) == (name, names.get(scheme)):
                        unfilled: dict[str, Any] = {"color": look.colour(scheme), "fillstyle": "none", "markersize": 8}
                        axes.plot(published.values, (0.1, 0.5, 0.9), look.mark(scheme), **unfilled)
                        has_values = True
            axes.set_title(titles[name])
            axes.set_xlabel("mean goodput (Mbps)")
            axes.set_xlim(0, 1.03 * axes.get_xlim()[1])
            axes.set_ylim(0, 1.02)
        panels[0].set_ylabel("share of schedules")
        lines = [Line2D([], [], color=INK, linewidth=1.6, label="optimal")]
        lines += [Line2D([], [], label=label(scheme), **look.line(scheme)) for scheme in schemes]
        if has_values:
            lines.append(hollow("o"))
        legend(figure, lines)
    return figure


def evolution_figure(
    runs: Sequence[tuple[StudyRun, pl.DataFrame]], look: Look, *, panel: Axis = "queue_bdp", windows: bool = False
) -> Figure:
    """Draw what flows had over time: a row per scheme, a column per panel, a line per flow (Fig. 2, 7, 12 and 13).

    A line is the mean of the repeats, its shade one standard deviation.

    Args:
        runs: of one experiment, alike but for scheme, panel and repeat, with their series.
        look: how schemes are drawn; orders the rows.
        panel: what the columns differ by.
        windows: the congestion window (the pacing rate of PACED) instead of the goodput, while both flows run.
    """
    values = sorted({getattr(run.cell, panel) for run, _ in runs})
    schemes = look.among(run.scheme for run, _ in runs)
    width = 3.6 * len(values) if len(values) > 1 else 7.5
    with style():
        figure = Figure(figsize=(1.1 + width, 0.9 + 1.75 * len(schemes)), layout="constrained")
        grid = figure.subplots(len(schemes), len(values), squeeze=False, sharex=True, sharey="row")
        for row, scheme in enumerate(schemes):
            column, unit = ("goodput_mbps", "Mbps")
            if windows:
                column, unit = ("pacing_mbps", "pacing, Mbps") if scheme in PACED else ("cwnd_pkts", "packets")
            for axes, value in zip(grid[row], values, strict=True):
                here = [each for each in runs if getattr(each[0].cell, panel) == value]
                own = [(run, series) for run, series in here if run.scheme == scheme]
                if own:
                    _evolution(axes, own, column)
                    if windows:
                        environment = own[0][0].environment
                        reference(axes, _fair_share(environment, column), "")
                        axes.set_xlim(environment.flow.start_s, environment.stop_s)
                if not row:
                    axes.set_title(PANEL_TITLES[panel].format(value))
            grid[row][0].set_ylim(bottom=0)  # of all: they share it, and it must not be fixed before the last is drawn
            grid[row][0].set_ylabel(f"{label(scheme)}\n({unit})")
        for axes in grid[-1]:
            axes.set_xlabel("time (s)")
        most = max((run for run, _ in runs), key=lambda run: run.environment.flow_count)
        legend(figure, _flow_handles(most))
        figure.align_ylabels()
    return figure


def rates_figure(runs: Sequence[tuple[StudyRun, pl.DataFrame]], look: Look) -> Figure:
    """Draw the sending rates of one schedule's runs over 100 to 200 s with the link's capacity (Fig. 11).

    Args:
        runs: of one responsiveness experiment and schedule, one per scheme, with their series.
        look: how schemes are drawn.
    """
    start_s, end_s = RATES_S
    with style():
        figure = Figure(figsize=(9, 3.4), layout="constrained")
        axes = figure.subplots()
        steps = runs[0][0].environment.bottleneck.rates
        times, rates = [step.t_s for step in steps], [step.rate_mbps for step in steps]
        axes.step(
            [*times, runs[0][0].environment.duration_s], [*rates, rates[-1]], where="post", color=INK, label="capacity"
        )
        for scheme in look.schemes:
            for run, series in runs:
                if run.scheme == scheme:
                    rate = series["sent_pkts"].to_numpy() * MTU_BYTES * 8 / 1e6 / run.interval_s
                    axes.plot(
                        series["t_s"].to_numpy() + run.interval_s / 2, rate, label=label(scheme), **look.line(scheme)
                    )
        axes.set_xlim(start_s, end_s)
        axes.set_ylim(0, 1.15 * max(rate for t_s, rate in zip(times, rates, strict=True) if start_s <= t_s < end_s))
        axes.set_xlabel("time (s)")
        axes.set_ylabel("sending rate (Mbps)")
        legend(figure, [line for line in axes.lines if isinstance(line, Line2D)])
    return figure


def flows_figure(series: pl.DataFrame, title: str = "", interval_s: float = 1.0) -> Figure:
    """Draw all flows of an episode over time, four panels: goodput and capacity, RTT, congestion window, queue.

    Args:
        series: flow_metrics.SERIES_SCHEMA.
        title: above the panels.
        interval_s: the series' interval (s); of a long episode several are drawn as one.

    Raises:
        SageccError: There is nothing to draw.
    """
    if series.is_empty():
        raise SageccError("flows: a series without rows cannot be drawn")
    joined = math.ceil(bin_width(float(series["t_s"].max())) / interval_s - 1e-6)  # type: ignore[arg-type]
    series, interval_s = rebin(series, interval_s, joined * interval_s), joined * interval_s
    flows = {int(flow): str(part["scheme"][0]) for (flow,), part in series.group_by("flow", maintain_order=True)}
    look = strokes(flows.values())
    many = len(flows) > MOST_NAMED_FLOWS
    with style():
        figure = Figure(figsize=(9, 8.2), layout="constrained")
        rate, delay, window, queue = figure.subplots(4, 1, sharex=True, height_ratios=[1.25, 1, 1, 0.8])
        shared = series.group_by("t_s").agg(pl.col("capacity_mbps", "queue_bytes").max()).sort("t_s")
        times = shared["t_s"].to_numpy()
        capacity = shared["capacity_mbps"].fill_null(strategy="backward").fill_null(strategy="forward").to_numpy()
        edges = np.append(times, times[-1] + interval_s)
        stepped = np.append(capacity, capacity[-1])
        rate.fill_between(edges, stepped, step="post", color=SHADE, alpha=0.22, linewidth=0)
        rate.step(edges, stepped, where="post", color=SHADE, linewidth=1.4, label="capacity")
        for flow, scheme in sorted(flows.items(), reverse=many):  # the tested one above a crowd
            own = series.filter(pl.col("flow") == flow)
            line: dict[str, Any] = {"color": PALETTE[flow % len(PALETTE)], "linestyle": DASHES[flow % len(DASHES)]}
            if many or len(look) == len(flows):
                line = {"color": look[scheme].colour, "linestyle": look[scheme].dashes}
            crowd = many and flow > 0
            line |= {"linewidth": 0.8 if crowd else 1.6, "alpha": 0.55 if crowd else 1.0}
            middle = own["t_s"].to_numpy() + interval_s / 2
            rate.plot(middle, own["goodput_mbps"], label=_flow_name(flow, flows, many), **line)
            delay.plot(middle, own["srtt_ms"], **line)
            window.plot(middle, own["cwnd_pkts"], **line)
        queue.fill_between(times + interval_s / 2, shared["queue_bytes"] / 1000, color=SHADE, alpha=0.3, linewidth=0)
        queue.plot(times + interval_s / 2, shared["queue_bytes"] / 1000, color=INK, linewidth=1.2)
        for axes, text in zip(
            (rate, delay, window, queue), ("goodput (Mbps)", "RTT (ms)", "window (packets)", "queue (kB)"), strict=True
        ):
            axes.set_ylabel(text)
            axes.set_ylim(bottom=0)
        # In-order goodput jumps when a hole is filled: such spikes would squash everything else.
        rate.set_ylim(0, 1.15 * float(np.nanmax(capacity)))
        queue.set_xlabel("time (s)")
        queue.set_xlim(float(times[0]), float(edges[-1]))
        handles, texts = rate.get_legend_handles_labels()
        unique = dict(zip(texts, handles, strict=True))
        figure.legend(unique.values(), unique.keys(), loc="outside lower center", ncols=5)
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontweight="bold", fontsize=12)
        figure.align_ylabels()
    return figure


def _mark(shape: str, text: str) -> Line2D:
    return Line2D([], [], marker=shape, linestyle="", color=INK, markersize=12 if shape == "*" else 8, label=text)


def _ellipse(cloud: Doubles, colour: str) -> Ellipse:
    """Return the ellipse of one standard deviation of points [points, 2]."""
    values, vectors = np.linalg.eigh(np.cov(cloud.T))
    width, height = 2 * np.sqrt(np.clip(values, 0, None))
    angle = float(np.degrees(np.arctan2(vectors[1, 0], vectors[0, 0])))
    x, y = cloud.mean(axis=0)
    fill = {"facecolor": colour, "edgecolor": colour, "alpha": 0.18, "linewidth": 1.2, "zorder": 1}
    return Ellipse((float(x), float(y)), float(width), float(height), angle=angle, **fill)


def _published_pairs(cells: pl.DataFrame, queue: float) -> list[tuple[str, float, float, float]]:
    """Return the authors' own table at one queue: scheme, base RTT (ms), relative RTT, utilisation."""
    part = cells.filter((pl.col("experiment") == "efficiency") & (pl.col("queue_bdp") == queue)).drop_nulls("published")
    wide = part.pivot("quantity", index=["scheme", "rtt_ms"], values="published")
    if not {"rtt_ratio_life", "utilisation_0_100"} <= set(wide.columns):
        return []
    return [
        (str(row["scheme"]), float(row["rtt_ms"]), float(row["rtt_ratio_life"]), float(row["utilisation_0_100"]))
        for row in wide.iter_rows(named=True)
    ]


def _evolution(axes: Axes, runs: Sequence[tuple[StudyRun, pl.DataFrame]], column: str) -> None:
    first, interval_s = runs[0][0], runs[0][0].interval_s
    width_s = max(interval_s, 1.0)
    together = pl.concat(
        series.with_columns(slot=(pl.col("t_s") / width_s + 1e-6).floor() * width_s, repeat=pl.lit(run.repeat))
        for run, series in runs
    )
    per_repeat = together.group_by("flow", "slot", "repeat").agg(pl.col(column).mean())
    summary = (
        per_repeat.group_by("flow", "slot").agg(mean=pl.col(column).mean(), spread=pl.col(column).std()).sort("slot")
    )
    for flow, colour, dashes in _flow_lines(first):
        own = summary.filter(pl.col("flow") == flow).drop_nulls("mean")
        t_s, mean = own["slot"].to_numpy() + width_s / 2, own["mean"].to_numpy()
        spread = own["spread"].fill_null(0.0).to_numpy()
        if spread.any():
            axes.fill_between(t_s, np.clip(mean - spread, 0, None), mean + spread, color=colour, alpha=0.2, linewidth=0)
        axes.plot(t_s, mean, color=colour, linestyle=dashes, linewidth=1.4)


def _fair_share(environment: Environment, column: str) -> float:
    """Return half of the bandwidth (Mbps) or of the BDP (packets)."""
    return environment.bandwidth_mbps / 2 if column == "pacing_mbps" else environment.bdp_bytes / MTU_BYTES / 2


def _flow_lines(run: StudyRun) -> list[tuple[int, str, Any]]:
    """Return the flows, each with its colour and dashes: as they start, or the tested one before its competitors."""
    flows, looks = range(run.environment.flow_count), list(zip(PALETTE, DASHES * 2, strict=True))
    if len(run.tested) == 1:  # its competitors, all of one scheme, look alike
        return [(flow, *looks[min(flow, 1)]) for flow in flows]
    order = sorted(flows, key=[flow.start_s for flow in run.environment.all_flows].__getitem__)
    return [(flow, *look) for flow, look in zip(order, cycle(looks), strict=False)]


def _flow_handles(run: StudyRun) -> list[Line2D]:
    if run.tested == (0,):
        names = {flow: "tested" if flow == 0 else label(scheme) for flow, scheme in enumerate(run.schemes)}
    else:
        names = {flow: f"flow {place}" for place, (flow, *_) in enumerate(_flow_lines(run), start=1)}
    unique = {names[flow]: (colour, dashes) for flow, colour, dashes in _flow_lines(run)}
    return [Line2D([], [], color=colour, linestyle=dashes, label=name) for name, (colour, dashes) in unique.items()]


def _flow_name(flow: int, flows: Mapping[int, str], many: bool) -> str:
    return label(flows[flow]) if many else f"{flow}: {label(flows[flow])}"
