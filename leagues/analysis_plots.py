# SPDX-License-Identifier: Apache-2.0
"""Pictures of distance, similarity and hidden layers, in the style of leagues.plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, PercentFormatter

from sagecc.leagues.colours import PALETTE, Stroke, strokes
from sagecc.leagues.plots import SHADE, label, style
from sagecc.schemas.schemes import POLICY_PREFIX

MARKS = "osD^vPX*<>hd"
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
DARK_TEXT_FROM = 0.6
"""Share of a heat map's range from which text on it is dark."""


def distance_figure(table: pl.DataFrame, titles: Mapping[str, str]) -> Figure:
    """Draw the CDF of Distance, one panel per environment, one curve per scheme.

    The axis is linear up to a thousandth and logarithmic beyond.

    Args:
        table: of leagues.distance.DISTANCE_SCHEMA.
        titles: the panels', by environment id.
    """
    environments = table["environment_id"].unique(maintain_order=True).to_list()
    schemes = table["scheme"].unique(maintain_order=True).to_list()
    look = strokes(schemes)
    with style():
        figure = Figure(figsize=(min(5.6 * len(environments), 16.8), 4.2), layout="constrained")
        panels = figure.subplots(1, len(environments), squeeze=False, sharey=True)[0]
        for axes, environment in zip(panels, environments, strict=True):
            for scheme in schemes:
                part = table.filter((pl.col("environment_id") == environment) & (pl.col("scheme") == scheme))
                distance = np.sort(part["distance"].to_numpy())
                if len(distance):
                    share = np.arange(1, len(distance) + 1) / len(distance)
                    axes.step(distance, share, where="post", label=label(scheme), **_line(scheme, look[scheme]))
            axes.set_xscale("symlog", linthresh=1e-3)
            axes.xaxis.set_major_formatter(FuncFormatter(_power))
            axes.set_xlim(left=0)
            axes.set_ylim(0, 1.01)
            axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
            axes.set_title(titles[environment])
            axes.set_xlabel("cosine distance to the nearest transition of the pool")
        panels[0].set_ylabel("share of transitions")
        panels[-1].legend(loc="lower right")
    return figure


def _power(value: float, position: int | None) -> str:
    """Return the mark at a power of ten on a logarithmic axis."""
    return f"10{str(round(np.log10(value))).translate(_RAISED)}" if value > 0 else f"{value:g}"


def similarity_figure(table: pl.DataFrame, titles: Mapping[str, str]) -> Figure:
    """Draw similarity as heat maps, one row per environment, one column per scheme.

    Above at the same tick (the paper's Fig. 13), below to the nearest transition. The largest of a row is in bold.

    Args:
        table: of leagues.similarity.SIMILARITY_SCHEMA.
        titles: the rows', by environment id.
    """
    environments = table["environment_id"].unique(maintain_order=True).to_list()
    others = table["other"].unique(maintain_order=True).to_list()
    kinds = {"index": "at the same tick", "nearest": "to the nearest transition"}
    with style():
        size = (3.4 + 0.72 * len(others), 1.6 + 0.72 * len(environments) + 1.6)
        figure = Figure(figsize=size, layout="constrained")
        values = {
            (row["environment_id"], row["other"]): row
            for row in table.select("environment_id", "other", *kinds).to_dicts()
        }
        for axes, (kind, title) in zip(figure.subplots(2, 1, sharex=True), kinds.items(), strict=True):
            grid = np.array([[_number(values.get((e, other), {}).get(kind)) for other in others] for e in environments])
            low, high = float(np.nanmin(grid)), float(np.nanmax(grid))
            low, high = (low, high) if high - low > 1e-6 else (low - 0.5, high + 0.5)
            axes.imshow(grid, cmap="cividis", vmin=low, vmax=high, aspect="auto")
            for y, x in np.ndindex(grid.shape):
                value = grid[y, x]
                if np.isnan(value):
                    continue
                dark = (value - low) / (high - low) > DARK_TEXT_FROM
                best = value == np.nanmax(grid[y])
                axes.text(
                    x,
                    y,
                    f"{value:.2f}",
                    ha="center",
                    va="center",
                    fontsize=9,
                    color="#000000" if dark else "#ffffff",
                    fontweight="bold" if best else "normal",
                )
            axes.grid(visible=False)
            axes.set_yticks(range(len(environments)), [titles[e] for e in environments], fontsize=9)
            axes.set_xticks(range(len(others)), [label(other) for other in others], rotation=40, ha="right")
            axes.tick_params(length=0)
            axes.spines[:].set_visible(False)
            axes.set_title(title)
        scheme = table["scheme"][0]
        figure.suptitle(f"Similarity of {label(scheme)}", x=0.01, ha="left", fontweight="bold", fontsize=12)
    return figure


def map_figure(table: pl.DataFrame, titles: Mapping[str, str], same_network: Mapping[str, float]) -> Figure:
    """Draw the maps of last hidden layers, one panel per policy.

    Args:
        table: of leagues.hidden.MAP_SCHEMA.
        titles: the legend's, by environment id.
        same_network: by policy, the share of neighbours from the same network (`apart` of leagues.hidden.draw_map).
    """
    policies = table["policy"].unique(maintain_order=True).to_list()
    environments = table["environment_id"].unique(maintain_order=True).to_list()
    with style():
        rows = 1 + (len(environments) + 2) // 3
        figure = Figure(figsize=(max(5.2 * len(policies), 9), 4.6 + 0.26 * rows), layout="constrained")
        panels: Sequence[Axes] = figure.subplots(1, len(policies), squeeze=False)[0]
        for axes, policy in zip(panels, policies, strict=True):
            for i, environment in enumerate(environments):
                part = table.filter((pl.col("policy") == policy) & (pl.col("environment_id") == environment))
                axes.scatter(
                    part["x"],
                    part["y"],
                    s=9,
                    alpha=0.7,
                    linewidths=0,
                    color=PALETTE[i % len(PALETTE)],
                    marker=MARKS[i % len(MARKS)],
                    label=titles[environment],
                )
            axes.set_title(f"{label(policy)}: {same_network[policy]:.0%} of neighbours\nfrom the same network")
            axes.set_xticks([])
            axes.set_yticks([])
            axes.spines[:].set_visible(True)
            axes.spines[:].set_color(SHADE)
        handles, names = panels[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=3, markerscale=2.5, fontsize=9)
    return figure


def _line(scheme: str, stroke: Stroke) -> dict[str, object]:
    """Return how a curve is drawn; a policy's is thicker."""
    width = 2.2 if scheme.startswith(POLICY_PREFIX) else 1.5
    return {"color": stroke.colour, "linestyle": stroke.dashes, "linewidth": width}


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")
