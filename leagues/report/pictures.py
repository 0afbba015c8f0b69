# SPDX-License-Identifier: Apache-2.0
"""The page's still pictures, made of a league's tables and trajectories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from sagecc.common.errors import SageccError
from sagecc.leagues.analysis_plots import distance_figure, map_figure, similarity_figure
from sagecc.leagues.colours import strokes
from sagecc.leagues.plots import (
    INK,
    Track,
    label,
    plane_figure,
    standings_figure,
    style,
    trajectory_figure,
)
from sagecc.leagues.report.contents import CURVE_TITLES, Analysis, Contents
from sagecc.leagues.scores import read_rows
from sagecc.leagues.standings import sets
from sagecc.schemas.environment import Environment, step_rates
from sagecc.schemas.schemes import POLICY_PREFIX

_DRAWN = {
    "set": pl.String,
    "rank": pl.Int64,
    "scheme": pl.String,
    "winning_rate": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
}
"""Of the standings."""
_CURVE_POINTS = 400
_CDF_POINTS = 300


@dataclass(frozen=True)
class Picture:
    """A figure of the report."""

    name: str
    """Its file's stem, and the prefix of its SVG ids."""
    title: str
    text: str
    """The caption."""
    figure: Figure


def league_pictures(contents: Contents) -> list[Picture]:
    """Return the standings, the plane of throughput and delay, and an example of each set that has one."""
    table = pl.DataFrame([{name: row[name] for name in _DRAWN} for row in contents.summary["standings"]], _DRAWN)
    pictures = [
        Picture("standings", "Winning rates", "", standings_figure(table)),
        Picture(
            "plane",
            "Throughput and delay",
            "Each point is a scheme: its mean over all environments, with the ellipse of one standard deviation. "
            "Delay is relative to the smallest any scheme had in the same window. Up and left is better; beside "
            "Cubic, the dashed line is the fair share.",
            plane_figure(contents.wins),
        ),
    ]
    for set_name in contents.sets:
        choice = example(contents, set_name)
        if not choice:
            continue
        environment, scheme, rival = choice
        look = strokes([scheme, rival])
        tracks = [
            Track(label(name), read_rows(contents.episodes[environment.id, name]), look[name])
            for name in (scheme, rival)
        ]
        title = f"{label(scheme)} and {label(rival)}, each in its own run\n{in_words(environment)}"
        text = f"Set {set_name}, environment {environment.id}: goodput and capacity, one-way delay, congestion window."
        name = f"example-{set_name}"
        pictures.append(Picture(name, f"An example of Set {set_name}", text, trajectory_figure(tracks, title)))
    return pictures


def example(contents: Contents, set_name: str) -> tuple[Environment, str, str] | None:
    """Choose a set's example.

    Shown is the best policy, or the best scheme in a league without one; the rival is the other scheme that won most
    windows of that environment.

    Returns:
        An environment (of those with a changing rate, if any), the scheme shown and its rival; None when fewer than
        two schemes have an episode there.
    """
    schemes = contents.schemes
    tested = next((s for s in schemes if s.startswith(POLICY_PREFIX)), schemes[0])
    environments = [e for e in contents.environments if e.set == set_name and (e.id, tested) in contents.episodes]
    steps = [e for e in environments if e.step != 1] or environments
    for environment in steps[len(steps) // 2 :]:
        won = (
            contents.wins.filter((pl.col("environment_id") == environment.id) & (pl.col("scheme") != tested))
            .filter(pl.col("status") != "missing")
            .group_by("scheme")
            .agg(pl.col("win").sum())
        )
        order = {scheme: position for position, scheme in enumerate(schemes)}
        with_episode = [row for row in won.iter_rows() if (environment.id, row[0]) in contents.episodes]
        rivals = sorted(with_episode, key=lambda row: (-row[1], order[row[0]]))
        if rivals:
            return environment, tested, rivals[0][0]
    return None


def friendliness(wins: pl.DataFrame) -> pl.DataFrame:
    """Return goodput over fair share by scheme, in the windows of environments whose score is friendliness.

    Returns:
        scheme, windows, p05, p25, p50, p75 and p95 (quantiles over the windows), near (the share of windows in which it
        lies within 10 % of 1); the scheme nearest to 1 first.
    """
    share = pl.col("goodput_mbps") / pl.col("fair_share_mbps")
    return (
        wins.filter((pl.col("metric") == "friendliness") & (pl.col("status") == "ok"))
        .group_by("scheme")
        .agg(
            windows=pl.len().cast(pl.Int64),
            **{f"p{round(100 * q):02}": share.quantile(q, "linear") for q in (0.05, 0.25, 0.5, 0.75, 0.95)},
            near=share.is_between(0.9, 1.1).mean(),
        )
        .sort((pl.col("p50") - 1).abs(), "scheme")
    )


def friendliness_figure(table: pl.DataFrame) -> Figure:
    """Draw `friendliness`: a dot at the median, a thick line over half of the windows, a thin one over 90 %."""
    with style():
        figure = Figure(figsize=(5.6, 1.2 + 0.3 * len(table)), layout="constrained")
        axes = figure.subplots()
        look = strokes(table["scheme"])
        for y, row in enumerate(table.to_dicts()):
            shade = look[row["scheme"]].colour
            axes.plot([row["p05"], row["p95"]], [y, y], color=shade, linewidth=1.2)
            axes.plot([row["p25"], row["p75"]], [y, y], color=shade, linewidth=5, solid_capstyle="butt", alpha=0.6)
            axes.plot(row["p50"], y, "o", color=shade, markersize=7, markeredgecolor=INK, markeredgewidth=0.8)
        axes.axvline(1, color=INK, linewidth=1, linestyle=(0, (4, 3)), alpha=0.6)
        axes.set_yticks(range(len(table)), [label(s) for s in table["scheme"]])
        axes.set_ylim(len(table) - 0.4, -0.6)
        axes.set_xlim(left=0)
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("goodput / fair share (dashed: a fair share)")
    return figure


def training_figures(curves: Mapping[str, pl.DataFrame]) -> dict[str, Figure]:
    """Draw each policy's training curves on axes of its own, one panel for each of CURVE_TITLES that it has.

    Policies differ in their number of updates and in the scale of their losses.
    """
    look = strokes(curves)
    figures = {}
    for policy, table in curves.items():
        if names := [name for name in CURVE_TITLES if name in table.columns]:
            rows = np.linspace(0, len(table) - 1, min(len(table), _CURVE_POINTS)).astype(int)
            points = table[np.unique(rows)]
            with style():
                figures[policy] = figure = Figure(figsize=(5.6, 0.6 + 1.7 * len(names)), layout="constrained")
                panels = figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
                for axes, name in zip(panels, names, strict=True):
                    axes.plot(points["step"], points[name], color=look[policy].colour)
                    axes.set_title(CURVE_TITLES[name])
                panels[-1].set_xlabel("updates")
                panels[-1].xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
                panels[-1].locator_params(axis="x", nbins=5)
    return figures


def analysis_picture(name: str, analysis: Analysis) -> Picture:
    """Return the picture of the analysis of `sagecc distance`, `similarity` or `tsne`, which `name` says."""
    titles = analysis.summary["environments"]
    if name == "distance":
        extent = f"{analysis.summary['searched']:,} of its {analysis.summary['pool_transitions']:,} transitions"
        text = (
            "How far each transition of a trajectory is from the nearest one of the pool, by cosine distance: the "
            f"share of transitions within so much. Compared with {extent}; a scheme of the pool without its own "
            "episode."
        )
        return Picture(name, "Distance to the pool", text, distance_figure(_thin(analysis.table), titles))
    if name == "similarity":
        text = (
            "Mean cosine of a scheme's transitions and the others' in the same environment, 1 for perfect likeness; "
            "the largest of a row in bold."
        )
        return Picture(name, "Similarity to the schemes", text, similarity_figure(analysis.table, titles))
    if name != "tsne":
        raise SageccError(f"report: there is no picture of an analysis '{name}'")
    same_network = {row["policy"]: row["apart"] for row in analysis.summary["maps"]}
    text = (
        "The last hidden layer at each decision, laid out by t-SNE; only nearness has a meaning. By chance "
        f"{analysis.summary['maps'][0]['by_chance']:.0%} of a point's neighbours would be from the same network."
    )
    return Picture(name, "What the policy tells apart", text, map_figure(analysis.table, titles, same_network))


def _thin(table: pl.DataFrame) -> pl.DataFrame:
    """Reduce each trajectory's distances to as many quantiles as a curve shows."""
    keys = ["environment_id", "scheme"]
    parts: list[pl.DataFrame] = []
    for key, part in table.group_by(keys, maintain_order=True):
        shares = np.linspace(0, 1, min(len(part), _CDF_POINTS))
        distance = np.quantile(part["distance"].to_numpy(), shares)
        columns: dict[str, Any] = {name: [value] * len(shares) for name, value in zip(keys, key, strict=True)}
        parts.append(pl.DataFrame({**columns, "distance": distance}))
    return pl.concat(parts)


def policies(schemes: Sequence[str]) -> list[str]:
    """Return those of the schemes that are policies."""
    return [scheme for scheme in schemes if scheme.startswith(POLICY_PREFIX)]


def competing(wins: pl.DataFrame) -> list[str]:
    """Return the sets whose score is friendliness."""
    return sets(wins.filter(pl.col("metric") == "friendliness"))


def in_words(environment: Environment) -> str:
    """Return a network as the title of its example has it."""
    rates, step = environment.bottleneck.rates, ""
    if rates == step_rates(environment.bandwidth_mbps, environment.step, environment.duration_s):
        step = "" if len(rates) == 1 else f", rate x {environment.step:g} every other 7 s"
    elif rates:
        step = f" at first, {len(rates) - 1} changes of rate"
    cross = "" if not environment.cross else f", beside {', '.join(c.scheme for c in environment.cross)}"
    return f"{environment.bandwidth_mbps:g} Mbps{step}, {environment.min_rtt_ms:g} ms, {environment.queue_text}{cross}"
