# SPDX-License-Identifier: Apache-2.0
"""The window of each scheme of the pool over time on one network: runs them and draws docs/img/schemes.svg.

Virtual time: the picture depends on the kernel's bytes, not on the machine.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from tqdm import tqdm

from evidence.machine import KERNEL
from sagecc.cli import errors_in_one_line
from sagecc.collector.lab.episode import Episode, run_episode
from sagecc.collector.run.grid import bottleneck
from sagecc.leagues.colours import stroke
from sagecc.leagues.plots import INK, SHADE, save_figure
from sagecc.schemas.environment import dumbbell
from sagecc.schemas.schemes import SCHEMES

PICTURE = Path("docs/img/schemes.svg")
BANDWIDTH_MBPS = 48.0
RTT_MS = 40.0
DURATION_S = 30.0
BDP_PACKETS = BANDWIDTH_MBPS * RTT_MS / 12
"""1500 bytes are 12 kbit. The queue holds as many again."""
TOP_PACKETS = 420
COLUMNS = 3
EVERY = 4
"""Ticks from one point of a line to the next."""


def play(scheme: str) -> Episode:
    """Run one scheme alone on the network of the picture."""
    link = bottleneck(BANDWIDTH_MBPS, 1, RTT_MS, 1, DURATION_S)
    return run_episode(KERNEL, dumbbell("custom", link, RTT_MS / 2, DURATION_S, ((0, DURATION_S),)), scheme)


def panel(axes: Axes, episode: Episode) -> None:
    """Draw the window, what path and queue hold, and when packets were dropped."""
    t_s, cwnd, drops = (episode.rows[name].to_numpy().astype(float) for name in ("t_s", "cwnd_pkts", "link_drops"))
    lost_s = np.unique(np.round(t_s[1:][np.diff(drops) > 0], 1))
    axes.axhspan(BDP_PACKETS, 2 * BDP_PACKETS, color=SHADE, alpha=0.22, linewidth=0)
    axes.plot(t_s[::EVERY], cwnd[::EVERY], color=stroke(episode.scheme).colour, linewidth=1.4)
    axes.plot(lost_s, np.full(len(lost_s), 14.0), linestyle="none", marker="|", markersize=7, color=INK)
    own = episode.flows[0]
    axes.set_title(episode.scheme, loc="left", fontsize=12, fontweight="bold", color=INK)
    queueing_ms = own.delay_mean_ms - RTT_MS / 2
    axes.set_title(f"{own.goodput_mbps:.1f} Mbps, {queueing_ms:.0f} ms queueing", loc="right", fontsize=9.5, color=INK)
    frame(axes)


def frame(axes: Axes) -> None:
    """Give a panel the scales that all share."""
    axes.set_xlim(0, DURATION_S)
    axes.set_ylim(0, TOP_PACKETS)
    axes.set_xticks(np.arange(0, DURATION_S + 1, 10))
    axes.set_yticks([0, BDP_PACKETS, 2 * BDP_PACKETS])
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9.5, colors=INK)


def legend(marks_axes: Axes, text_axes: Axes) -> None:
    """Say in panels of their own what the marks are, and what network this is."""
    marks = (
        marks_axes.plot([], [], color=stroke("cubic").colour, linewidth=1.6, label="congestion window (packets)")[0],
        marks_axes.axhspan(np.nan, np.nan, color=SHADE, alpha=0.3, label="beyond the BDP: in the queue"),
        marks_axes.plot([], [], linestyle="none", marker="|", markersize=9, color=INK, label="packets dropped")[0],
    )
    marks_axes.legend(handles=marks, loc="upper left", frameon=False, fontsize=10.5, labelcolor=INK)
    text = (
        f"{BANDWIDTH_MBPS:g} Mbps, {RTT_MS:g} ms: a BDP of {BDP_PACKETS:g} packets,\n"
        "and a queue of as many. Across: seconds.\n"
        f"Some slow starts reach beyond {TOP_PACKETS}.\n"
        "bbr2 paces: less than its window is in flight."
    )
    text_axes.text(0, 0.93, text, va="top", fontsize=10.5, color=INK, transform=text_axes.transAxes, linespacing=1.4)


def picture(episodes: list[Episode]) -> Figure:
    """Return small multiples, a panel an episode, all on the same scales."""
    rows = -(-(len(episodes) + 2) // COLUMNS)
    figure = Figure(figsize=(11.5, 1.95 * rows), layout="constrained")
    grid = list(figure.subplots(rows, COLUMNS, squeeze=False).ravel())
    for axes in grid[len(episodes) :]:
        axes.set_axis_off()
    legend(*grid[len(episodes) : len(episodes) + 2])
    for axes, episode in zip(grid, episodes, strict=False):
        panel(axes, episode)
    return figure


def main() -> None:
    """Run every scheme of the pool and write the picture."""
    save_figure(picture([play(scheme) for scheme in tqdm(sorted(SCHEMES), unit="episode")]), PICTURE)


if __name__ == "__main__":
    with errors_in_one_line("evidence.behaviour.schemes"):
        main()
