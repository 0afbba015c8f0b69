# SPDX-License-Identifier: Apache-2.0
"""Trajectories for the page's charts: thinned out to a few hundred points, in few bytes.

A value is a level from 0 to LEVELS of its series' largest, or NONE. For each environment the page has one string of
base64: deflated, first the low bytes and then the high bytes of all levels, each series as differences.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from sagecc.common.arrays import Doubles
from sagecc.common.tables import reading_error
from sagecc.leagues.plots import bin_width
from sagecc.leagues.scores import StoredEpisode, scan
from sagecc.schemas.environment import BYTES_S_PER_MBPS, Environment

LEVELS = 4000
NONE = 65535
QUANTITIES = ("goodput_mbps", "delay_ms", "cwnd_pkts", "drops")
"""A trajectory's values in each bin: mean goodput, mean one-way delay of its packets, mean cwnd, packets dropped."""
MAX_TRAJECTORIES = 1500
"""On one page by default, so that it has a few MB."""

_COUNTERS = ("received_bytes", "link_capacity_bytes", "link_packets", "link_delay_ns", "link_drops")
_SLACK = 1e-6  # of a bin: ticks are whole nanoseconds, bins' edges decimal fractions of a second


def choose(environments: Sequence[Environment], count: int, named: Sequence[str] = ()) -> list[Environment]:
    """Choose environments, spread evenly over each set; a set has as many as its share of all.

    Args:
        environments: to choose from, similar ones next to each other.
        count: how many in all.
        named: ids that are chosen in any case.

    Returns:
        The chosen environments, in the order given.
    """
    ids = {e.id for e in environments if e.id in named}
    for set_name in sorted({e.set for e in environments}):
        others = [e.id for e in environments if e.set == set_name and e.id not in named]
        share = max(round((count - len(named)) * len(others) / max(len(environments) - len(named), 1)), 0)
        positions = np.linspace(0, len(others) - 1, min(share, len(others))).round().astype(int)
        ids |= {others[i] for i in positions}
    return [e for e in environments if e.id in ids]


def binned(
    environments: Sequence[Environment], episodes: Mapping[tuple[str, str], StoredEpisode]
) -> dict[str, Doubles]:
    """Return trajectories in bins of time.

    Args:
        environments: whose trajectories.
        episodes: by (environment id, scheme).

    Returns:
        By episode id, QUANTITIES and the link's capacity (Mbps) [5, bins]. Bin i of an environment ends at
        (first + i + 1) times its width (`grid`); NaN where it has no tick or no packet.
    """
    by_id = {e.id: e for e in environments}
    choice = [e for (environment, _), e in episodes.items() if environment in by_id]
    series: dict[str, Doubles] = {}
    for folder in sorted({e.folder for e in choice}):
        in_folder = [episode for episode in choice if episode.folder == folder]
        ticks = scan(folder, in_folder, ["episode_id", "t_s", "cwnd_pkts", *_COUNTERS])
        groups: dict[tuple[int, float, int], list[str]] = {}
        for episode in in_folder:
            groups.setdefault(grid(episode.environment), []).append(episode.id)
        for (first, width, count), ids in sorted(groups.items()):
            series |= _fill(_bins(folder, ticks, ids, width), first, count)
    return series


def grid(environment: Environment) -> tuple[int, float, int]:
    """Return an environment's bins: the first one's number, their width (s), their count."""
    width = bin_width(environment.duration_s - environment.start_s)
    first = int(environment.start_s / width + _SLACK)
    return first, width, int(np.ceil(environment.duration_s / width - _SLACK)) - first


def _bins(folder: Path, ticks: pl.LazyFrame, ids: Sequence[str], width: float) -> pl.DataFrame:
    rows = ticks.filter(pl.col("episode_id").is_in(ids))
    bins = rows.group_by("episode_id", bin=(pl.col("t_s") / width - _SLACK).ceil().cast(pl.Int64) - 1).agg(
        pl.col("cwnd_pkts").mean(),
        pl.col("t_s", *_COUNTERS).max().cast(pl.Float64),
        pl.col("t_s", *_COUNTERS).min().cast(pl.Float64).name.prefix("first_"),
    )
    try:
        return bins.sort("episode_id", "bin").collect(engine="streaming")
    except (pl.exceptions.PolarsError, OSError) as error:
        raise reading_error(f"{folder}: a raw trajectory", error, "collect them again") from error


def _fill(table: pl.DataFrame, first: int, count: int) -> dict[str, Doubles]:
    """Turn bins into rates: a counter's increase between the last ticks of two bins, over the time between them."""

    def increase(name: str) -> pl.Expr:
        return pl.col(name) - pl.col(name).shift(1).over("episode_id").fill_null(pl.col(f"first_{name}"))

    rates = table.select(
        "episode_id",
        pl.col("bin") - first,
        goodput=increase("received_bytes") / increase("t_s") / BYTES_S_PER_MBPS,
        delay=increase("link_delay_ns") / increase("link_packets") / 1e6,
        cwnd="cwnd_pkts",
        drops=increase("link_drops"),
        capacity=increase("link_capacity_bytes") / increase("t_s") / BYTES_S_PER_MBPS,
    ).filter(pl.col("bin").is_between(0, count - 1))
    series = {}
    for (episode,), part in rates.group_by("episode_id"):
        values = np.full((len(QUANTITIES) + 1, count), np.nan)
        values[:, part["bin"].to_numpy()] = part.drop("episode_id", "bin").to_numpy().T
        values[~np.isfinite(values)] = np.nan
        series[str(episode)] = values
    return series


def pack(series: Sequence[Doubles]) -> tuple[list[float], str]:
    """Return each series' largest value, and all series as levels of it in base64 (see the module)."""
    tops, levels = [], []
    for values in series:
        finite = np.isfinite(values)
        top = float(f"{max(values[finite].max(initial=0.0), 1e-9):.6g}")
        level = np.full(len(values), NONE, np.int64)
        level[finite] = np.clip(np.rint(values[finite] / top * LEVELS), 0, LEVELS).astype(np.int64)
        tops.append(top)
        levels.append(np.diff(level, prepend=0) % 65536)
    flat = np.concatenate(levels).astype("<u2").view(np.uint8).reshape(-1, 2)
    return tops, base64.b64encode(zlib.compress(flat.T.tobytes(), 9)).decode()


def payload(
    chosen: Sequence[Environment],
    schemes: Sequence[str],
    episodes: Mapping[tuple[str, str], StoredEpisode],
    wins: pl.DataFrame,
) -> dict[str, dict[str, Any]]:
    """Return what report.js draws.

    Args:
        chosen: the environments on the page.
        schemes: in order of rank.
        episodes: by (environment id, scheme).
        wins: the table of leagues.standings.mark_winners.

    Returns:
        By id of each environment that has a trajectory: its bins (`first`, `width`, `count`), its `windows`, the
        `schemes` with a trajectory as indices into the argument, `tops` and `data` of `pack` (the capacity, then
        QUANTITIES of each scheme), and each scheme's `results` in each window: goodput (Mbps), delay (ms), and 1 if it
        won.
    """
    series = binned(chosen, episodes)
    ids = [e.id for e in chosen]
    results: dict[tuple[str, str], list[list[float | None]]] = {}
    of_chosen = wins.filter(pl.col("environment_id").is_in(ids)).sort("environment_id", "scheme", "window")
    columns = ("environment_id", "scheme", "goodput_mbps", "delay_ms", "win")
    for environment, scheme, goodput, delay, win in of_chosen.select(columns).iter_rows():
        results.setdefault((environment, scheme), []).append([_rounded(goodput), _rounded(delay), int(win)])
    environments = {}
    for environment in chosen:
        flows = [
            (i, series[episodes[environment.id, s].id])
            for i, s in enumerate(schemes)
            if (environment.id, s) in episodes and episodes[environment.id, s].id in series
        ]
        if not flows:
            continue
        first, width, count = grid(environment)
        capacity = np.fmax.reduce([values[-1] for _, values in flows])  # no tick of any of them: NaN
        tops, data = pack([capacity, *(row for _, values in flows for row in values[:-1])])
        environments[environment.id] = {
            "set": environment.set,
            "bandwidth_mbps": environment.bandwidth_mbps,
            "step": environment.step,
            "min_rtt_ms": environment.min_rtt_ms,
            "queue": environment.queue_text,
            "first": first,
            "width": width,
            "count": count,
            "windows": [list(window) for window in environment.windows_s],
            "schemes": [i for i, _ in flows],
            "results": [results.get((environment.id, schemes[i]), []) for i, _ in flows],
            "tops": tops,
            "data": data,
        }
    return environments


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
