# SPDX-License-Identifier: Apache-2.0
"""Figures of Sage's, Orca's and Astraea's papers that the study's own layouts (figures.py) do not cover."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from sagecc.leagues.flow_metrics import rebin
from sagecc.leagues.plots import INK, label, style
from sagecc.leagues.study.drawing import (
    AXIS_LABELS,
    PANEL_TITLES,
    QUANTITY_LABELS,
    Look,
    distribution,
    draw_cells,
    errors_of,
    legend,
    panels_of,
    reference,
    scheme_handles,
    top,
)
from sagecc.leagues.study.experiments import Experiment, StudyRun
from sagecc.leagues.study.measures import CONVERGENCE_BIN_S, PATH_RTTS_MS, SHARES, slots
from sagecc.schemas.environment import MTU_BYTES

Runs = Sequence[tuple[StudyRun, pl.DataFrame]]

NUMBERS = ("utilisation", "rtt_ratio", "loss_rate")
"""What is drawn over the queue's length (Astraea, Fig. 19)."""


def behaviour_figure(runs: Runs, look: Look) -> Figure:
    """Draw rate, RTT and window of the tested flow over time, a column per case (Sage, Fig. 17; Orca, Fig. 1 and 9).

    Args:
        runs: of one experiment, one repeat, with their series.
        look: how schemes are drawn.
    """
    cases = list(dict.fromkeys(run.cell.case or "" for run, _ in runs))
    schemes = look.among(run.scheme for run, _ in runs)
    rows = (("rate_mbps", "sending rate (Mbps)"), ("srtt_ms", "RTT (ms)"), ("cwnd_pkts", "window (packets)"))
    with style():
        width = 3.6 * len(cases) if len(cases) > 1 else 7.5
        figure = Figure(figsize=(1.1 + width, 6.2), layout="constrained")
        grid = figure.subplots(len(rows), len(cases), squeeze=False, sharex="col", sharey="row")
        for column, case in enumerate(cases):
            here = [(run, series) for scheme in schemes for run, series in runs if run.scheme == scheme]
            for run, series in ((run, series) for run, series in here if run.cell.case == case):
                binned = rebin(series, run.interval_s, CONVERGENCE_BIN_S).with_columns(
                    rate_mbps=pl.col("sent_pkts") * MTU_BYTES * 8 / 1e6 / CONVERGENCE_BIN_S
                )
                for axes, (quantity, _) in zip(grid[:, column], rows, strict=True):
                    for flow in range(1 + len(run.environment.cross)):
                        own = binned.filter(pl.col("flow") == flow)
                        line = look.line(run.scheme) | ({"alpha": 0.4, "linewidth": 1.0} if flow else {})
                        axes.plot(own["t_s"].to_numpy() + CONVERGENCE_BIN_S / 2, own[quantity], **line)
            _capacity(grid[0][column], next(run for run, _ in runs if run.cell.case == case))
            grid[0][column].set_title(case)
            grid[-1][column].set_xlabel("time (s)")
            grid[-1][column].set_xlim(0, runs[0][0].environment.duration_s)
        for axes, (_, text) in zip(grid[:, 0], rows, strict=True):
            axes.set_ylabel(text)
            axes.set_ylim(bottom=0)
        handles = [Line2D([], [], label=label(scheme), **look.line(scheme)) for scheme in schemes]
        handles.append(Line2D([], [], color=INK, linewidth=1, label="capacity"))
        if any(run.environment.cross for run, _ in runs):
            handles.append(Line2D([], [], color=INK, linewidth=1, alpha=0.4, label="Cubic beside it, pale"))
        legend(figure, handles)
        figure.align_ylabels()
    return figure


def plane_figure(experiment: Experiment, cells: pl.DataFrame, look: Look) -> Figure:
    """Draw goodput over RTT, a point per scheme and a panel per case; bars are 95 % intervals (Sage, Fig. 23).

    Args:
        experiment: whose panels are drawn.
        cells: results.cells_table.
        look: how schemes are drawn.
    """
    part = cells.filter(pl.col("experiment") == experiment.name)
    values = part[experiment.panel].unique(maintain_order=True).to_list()
    schemes = look.among(part["scheme"])
    with style():
        figure, panels = panels_of(len(values), width=2.6 if len(values) > 2 else 4.6)
        for axes, value in zip(panels, values, strict=True):
            for scheme in schemes:
                here = part.filter((pl.col(experiment.panel) == value) & (pl.col("scheme") == scheme))
                x, y = (here.filter(pl.col("quantity") == name) for name in ("rtt_ms", "goodput_mbps"))
                if len(x) and len(y):
                    axes.errorbar(
                        x["mean"], y["mean"], xerr=errors_of(x), yerr=errors_of(y), fmt=look.mark(scheme), markersize=7,
                        color=look.colour(scheme), elinewidth=1, capsize=2.5,
                    )  # fmt: skip
            axes.set_title(PANEL_TITLES[experiment.panel].format(value))
            axes.set_xlabel("RTT (ms)")
        highest = part.filter(pl.col("quantity") == "goodput_mbps")
        panels[0].set_ylim(0, top(highest))
        panels[0].set_ylabel(QUANTITY_LABELS["goodput_mbps"])
        legend(figure, _marks(schemes, look))
    return figure


def slots_figure(runs: Runs, look: Look) -> Figure:
    """Draw the distribution of Jain's index over all slots of all repeats, a line per scheme (Astraea, Fig. 7).

    Args:
        runs: of one experiment, with their series.
        look: how schemes are drawn.
    """
    schemes = look.among(run.scheme for run, _ in runs)
    with style():
        figure, (axes,) = panels_of(1, width=5.5)
        for scheme in schemes:
            own = pl.concat(slots(series, run.interval_s) for run, series in runs if run.scheme == scheme)
            distribution(axes, own["jain"].to_numpy(), **look.line(scheme))
        axes.set_xlabel("Jain's index of a slot")
        axes.set_ylabel("share of slots")
        axes.set_ylim(0, 1.02)
        legend(figure, [Line2D([], [], label=label(scheme), **look.line(scheme)) for scheme in schemes])
    return figure


def paths_figure(experiment: Experiment, cells: pl.DataFrame, look: Look) -> Figure:
    """Draw the mean goodput of flows with unlike base RTTs on one link, with their even share (Astraea, Fig. 8).

    Args:
        experiment: of five flows (measures.goodput_by_rtt).
        cells: results.cells_table.
        look: how schemes are drawn.
    """
    names = {f"mbps_at_{rtt_ms:g}_ms": rtt_ms for rtt_ms in PATH_RTTS_MS}
    part = cells.filter((pl.col("experiment") == experiment.name) & pl.col("quantity").is_in(list(names)))
    part = part.with_columns(rtt_ms=pl.col("quantity").replace_strict(names, return_dtype=pl.Float64))
    schemes = look.among(part["scheme"])
    with style():
        figure, (axes,) = panels_of(1, width=5.5)
        reference(axes, float(part["bandwidth_mbps"][0]) / len(names), "even")
        for scheme in schemes:
            draw_cells(axes, part.filter(pl.col("scheme") == scheme).sort("rtt_ms"), "rtt_ms", look, scheme, 0.0)
        axes.set_xticks(list(PATH_RTTS_MS))
        axes.set_xlabel("base RTT of the flow (ms)")
        axes.set_ylabel(QUANTITY_LABELS["goodput_mbps"])
        axes.set_ylim(0, top(part))
        legend(figure, scheme_handles(schemes, look, published=False))
    return figure


def sets_figure(experiment: Experiment, cells: pl.DataFrame, look: Look) -> Figure:
    """Draw two sets of flows' mean goodput over the flows of the first, with max-min shares (Astraea, Fig. 11).

    Args:
        experiment: of two bottlenecks (measures.flow_sets).
        cells: results.cells_table.
        look: how schemes are drawn.
    """
    part = cells.filter(pl.col("experiment") == experiment.name)
    schemes = look.among(part["scheme"])
    with style():
        figure, panels = panels_of(2, width=4.6)
        for axes, (name, text) in zip(panels, (("short", "over link 1"), ("long", "over both links")), strict=True):
            fair = part.filter((pl.col("quantity") == f"{name}_fair_mbps") & (pl.col("scheme") == schemes[0]))
            fair = fair.sort(experiment.axis)
            axes.plot(fair[experiment.axis], fair["mean"], color=INK, linewidth=1, linestyle=(0, (4, 3)), alpha=0.6)
            for scheme in schemes:
                own = part.filter((pl.col("quantity") == f"{name}_mbps") & (pl.col("scheme") == scheme))
                draw_cells(axes, own.sort(experiment.axis), experiment.axis, look, scheme, 0.0)
            axes.set_title(f"flows {text}")
            axes.set_xlabel("flows over link 1")
        panels[0].set_ylabel(QUANTITY_LABELS["goodput_mbps"])
        panels[0].set_ylim(bottom=0)
        handles = scheme_handles(schemes, look, published=False)
        handles.append(Line2D([], [], color=INK, linewidth=1, linestyle=(0, (4, 3)), alpha=0.6, label="max-min"))
        legend(figure, handles)
    return figure


def numbers_figure(experiment: Experiment, cells: pl.DataFrame, look: Look) -> Figure:
    """Draw NUMBERS over a logarithmic axis, a panel each (Astraea, Fig. 19).

    Args:
        experiment: whose axis is drawn.
        cells: results.cells_table.
        look: how schemes are drawn.
    """
    part = cells.filter(pl.col("experiment") == experiment.name)
    schemes = look.among(part["scheme"])
    values = part[experiment.axis].unique().sort().to_list()
    with style():
        figure = Figure(figsize=(0.6 + 3.7 * len(NUMBERS), 3.3), layout="constrained")
        for axes, name in zip(figure.subplots(1, len(NUMBERS)), NUMBERS, strict=True):
            rows = part.filter(pl.col("quantity") == name)
            for scheme in schemes:
                own = rows.filter(pl.col("scheme") == scheme).sort(experiment.axis)
                draw_cells(axes, own, experiment.axis, look, scheme, 0.0)
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(FixedLocator(values[::2]))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.set_ylim(0, top(rows) if name in SHARES else max(1.0, top(rows)))
            axes.set_xlabel(AXIS_LABELS[experiment.axis])
            axes.set_ylabel(QUANTITY_LABELS[name])
        legend(figure, scheme_handles(schemes, look, published=False))
    return figure


def schemes_figure(experiment: Experiment, cells: pl.DataFrame, look: Look) -> Figure:
    """Draw an experiment's number, a point per scheme; bars are 95 % intervals (Astraea, Fig. 18).

    Args:
        experiment: whose quantity is drawn.
        cells: results.cells_table.
        look: how schemes are drawn.
    """
    part = cells.filter((pl.col("experiment") == experiment.name) & (pl.col("quantity") == experiment.quantity))
    schemes = look.among(part["scheme"])
    with style():
        figure, (axes,) = panels_of(1, width=max(3.0, 1.2 * len(schemes)))
        for place, scheme in enumerate(schemes):
            own = part.filter(pl.col("scheme") == scheme)
            axes.errorbar(
                [place], own["mean"], yerr=errors_of(own), fmt=look.mark(scheme), markersize=8,
                color=look.colour(scheme), elinewidth=1, capsize=3,
            )  # fmt: skip
        axes.set_xticks(range(len(schemes)), [label(scheme) for scheme in schemes])
        axes.set_xlim(-0.5, len(schemes) - 0.5)
        axes.set_ylim(0, 1.05)
        axes.set_ylabel(QUANTITY_LABELS[experiment.quantity])
    return figure


def _capacity(axes: Axes, run: StudyRun) -> None:
    steps, end_s = run.environment.bottleneck.rates, run.environment.duration_s
    times, rates = [*(step.t_s for step in steps), end_s], [step.rate_mbps for step in steps]
    axes.step(times, [*rates, rates[-1]], where="post", color=INK, linewidth=1)


def _marks(schemes: Sequence[str], look: Look) -> list[Line2D]:
    return [
        Line2D([], [], marker=look.mark(scheme), linestyle="", color=look.colour(scheme), label=label(scheme))
        for scheme in schemes
    ]
