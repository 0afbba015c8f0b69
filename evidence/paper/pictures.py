# SPDX-License-Identifier: Apache-2.0
"""The pictures of Fig. 7 and 11 to 15, in the style of leagues.plots, drawn of what evidence/results keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import LogLocator, NullFormatter, PercentFormatter, StrMethodFormatter

from evidence.paper.findings import by_recipe
from sagecc.leagues.colours import GREEN, VIOLET, strokes
from sagecc.leagues.plots import HEURISTIC, INK, POLICY, SET_TITLES, SHADE, style

BASELINE = "reno"
MARKS = ((POLICY, "o"), (GREEN, "s"), (VIOLET, "D"), (INK, "^"))
"""A recipe's colour and mark in Fig. 7, which shows no more recipes."""
NAMED = 3
"""So many of the best heuristics have their names at their lines; all have a line."""
LABEL_HEIGHT = 0.04
"""Of a panel's height: rates that are nearer to each other share a label."""
WIDE = 1000
"""An axis that goes over so many times its least value has room for two numbers a decade, not three."""


def learning_figure(result: Mapping[str, Any]) -> Figure:
    """Draw winning rates over CPU-hours, a panel for each set.

    A recipe's line is its mean over seeds, its band goes from the lowest to the highest; a heuristic's line is its mean
    over the last evaluations. The region of TCP-friendliness is shaded.
    """
    recipes = by_recipe(result["runs"])
    last = [run["points"][-1]["rates"] for run in result["runs"]]
    with style():
        figure = Figure(figsize=(11.5, 4.4), layout=ConstrainedLayoutEngine(rect=(0, 0, 0.985, 1)))
        for axes, name in zip(figure.subplots(1, 2), SET_TITLES, strict=True):
            lines = {
                scheme: fmean(rates[name][scheme] for rates in last) for scheme in last[0][name] if scheme != "policy"
            }
            _heuristics(axes, lines)
            if name == "II":
                axes.axhspan(lines[BASELINE], 1, color=GREEN, alpha=0.08, linewidth=0)
                axes.text(0.02, 0.97, "TCP-friendly: NewReno's rate and above", va="top", fontsize=9,
                          transform=axes.transAxes)  # fmt: skip
            for (recipe, runs), (colour, mark) in zip(recipes.items(), MARKS[: len(recipes)], strict=True):
                rates = np.array([[point["rates"][name]["policy"] for point in run["points"]] for run in runs])
                cpu_h = np.array([[point["cpu_h"] for point in run["points"]] for run in runs]).mean(axis=0)
                axes.fill_between(cpu_h, rates.min(axis=0), rates.max(axis=0), color=colour, alpha=0.18, linewidth=0)
                seeds = f"{recipe}, {len(runs)} seed{'s' if len(runs) > 1 else ''}"
                axes.plot(cpu_h, rates.mean(axis=0), color=colour, marker=mark, markersize=4, label=seeds)
            axes.set_xscale("log")
            low, high = axes.get_xlim()
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 3) if high > WIDE * low else (1, 2, 5)))
            axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.set_ylim(0, 1)
            axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
            axes.set_title(SET_TITLES[name])
            axes.set_xlabel("CPU-hours of training")
        figure.axes[0].set_ylabel("winning rate")
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(recipes))
    return figure


def distance_figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw which share of each trajectory's transitions is how near to the pool: Fig. 11, through its quantiles."""
    look = strokes(row["name"] for row in rows)
    with style():
        figure = Figure(figsize=(7.5, 4), layout="constrained")
        axes = figure.subplots()
        for row, mark in zip(rows, "osD^", strict=False):
            shares, distances = [float(share) for share in row["quantiles"]], list(row["quantiles"].values())
            own = look[row["name"]]
            axes.plot([0, *distances], [0, *shares], mark, color=own.colour, linestyle=own.dashes, label=row["name"])
        axes.set_xscale("symlog", linthresh=1e-3)
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.set_xlim(left=0)
        axes.set_ylim(0, 1.02)
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axes.set_xlabel("cosine distance to the nearest transition of the pool")
        axes.set_ylabel("share of transitions")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=len(rows))
    return figure


def likeness_figure(policies: Mapping[str, Sequence[Mapping[str, Any]]], networks: Mapping[str, str]) -> Figure:
    """Draw how much each policy resembles each scheme in each network at the same tick: Fig. 13.

    Args:
        policies: by name its rows: network, other (a scheme) and index (a mean cosine).
        networks: titles by id.
    """
    others = list(dict.fromkeys(row["other"] for row in next(iter(policies.values()))))
    with style():
        figure = Figure(figsize=(10.5, 3.6 * len(policies) + 0.6), layout="constrained")
        for axes, (name, rows) in zip(figure.subplots(len(policies), 1, sharex=True), policies.items(), strict=True):
            values = {(row["network"], row["other"]): row["index"] for row in rows}
            grid = np.array([[values.get((network, other), np.nan) for other in others] for network in networks])
            axes.pcolormesh(grid, cmap="Blues", vmin=-0.4, vmax=1.4, edgecolor="white", linewidth=1)
            for (y, x), value in np.ndenumerate(grid):
                best = value == np.nanmax(grid[y])
                axes.text(x + 0.5, y + 0.5, f"{value:.2f}".replace("-0.00", "0.00"), ha="center", va="center",
                          fontsize=9.5, fontweight="bold" if best else "normal")  # fmt: skip
            axes.invert_yaxis()
            axes.grid(visible=False)
            axes.set_yticks(np.arange(len(networks)) + 0.5, list(networks.values()), fontsize=9.5)
            axes.set_xticks(np.arange(len(others)) + 0.5, others, rotation=35, ha="right")
            axes.tick_params(length=0)
            axes.spines[:].set_visible(False)
            axes.set_title(name)
    return figure


def _heuristics(axes: Axes, lines: Mapping[str, float]) -> None:
    """Draw a line for each heuristic; name the best ones and NewReno."""
    best = sorted(lines, key=lambda scheme: -lines[scheme])[:NAMED]
    for scheme, rate in lines.items():
        axes.axhline(rate, color=HEURISTIC, linewidth=0.9, alpha=0.7, linestyle="--" if scheme == BASELINE else "-")
    for names in _labels({scheme: lines[scheme] for scheme in dict.fromkeys([*best, BASELINE])}):
        height = fmean(lines[scheme] for scheme in names)
        axes.annotate(", ".join(names), (1, height), (3, 0), xycoords=axes.get_yaxis_transform(), fontsize=8,
                      textcoords="offset points", va="center")  # fmt: skip


def _labels(heights: Mapping[str, float]) -> list[list[str]]:
    """Return names, highest first, in groups whose labels would otherwise lie over each other."""
    groups: list[list[str]] = []
    for name in sorted(heights, key=lambda each: -heights[each]):
        if groups and fmean(heights[each] for each in groups[-1]) - heights[name] < LABEL_HEIGHT:
            groups[-1].append(name)
        else:
            groups.append([name])
    return groups


def variants_figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw winning rates of variants with their intervals over seeds, a panel for each set, a mark for each league."""
    leagues = list(rows[0]["leagues"])
    with style():
        figure = Figure(figsize=(11.5, 1.5 + 0.5 * len(rows)), layout="constrained")
        for axes, name in zip(figure.subplots(1, 2, sharey=True), SET_TITLES, strict=True):
            for i, league in enumerate(leagues):
                for y, row in enumerate(rows):
                    if league not in row["leagues"]:
                        continue
                    of = row["leagues"][league][name]
                    height, colour = y + 0.24 * (i - (len(leagues) - 1) / 2), (POLICY, HEURISTIC)[i % 2]
                    if of["low"] is not None:
                        axes.plot([of["low"], of["high"]], [height, height], color=colour, linewidth=1.6, alpha=0.6)
                    axes.plot(of["rates"], [height] * len(of["rates"]), "|", color=colour, markersize=7)
                    axes.plot(of["winning_rate"], height, "os"[i % 2], color=colour, markersize=6,
                              label=None if y else league)  # fmt: skip
            full = rows[0]["leagues"][leagues[0]][name]["winning_rate"]
            axes.axvline(full, color=SHADE, linewidth=1, linestyle=":")
            axes.set_xlim(left=0)
            axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
            axes.set_title(SET_TITLES[name])
            axes.set_xlabel("winning rate")
            axes.set_yticks(range(len(rows)), [row["title"] for row in rows])
            axes.set_ylim(len(rows) - 0.5, -0.5)
        figure.legend(*figure.axes[1].get_legend_handles_labels(), loc="outside upper right", ncols=len(leagues))
    return figure
