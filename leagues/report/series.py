# SPDX-License-Identifier: Apache-2.0
"""Trajectories for the page's charts: thinned out to a few hundred points, in few bytes.

A value is a level from 0 to LEVELS of its series' largest; NONE where there is none. The page has for each environment
one string of base64: deflated, first the low bytes and then the high bytes of all levels, each series as differences.
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
from sagecc.common.errors import SageccError
from sagecc.common.tables import first_line
from sagecc.leagues.plots import bin_width
from sagecc.leagues.scores import Episode, scan
from sagecc.schemas.environment import Environment

LEVELS = 4000
NONE = 65535
QUANTITIES = ("goodput_mbps", "delay_ms", "cwnd_pkts", "drops")
"""Of a trajectory in each bin: mean goodput, mean one-way delay of its packets, mean cwnd, packets dropped."""
MOST_TRAJECTORIES = 1500
"""On one page, unless told otherwise: it stays at a few MB."""

_COUNTERS = ("received_bytes", "link_capacity_bytes", "link_packets", "link_delay_ns", "link_drops")
_SLACK = 1e-6  # of a bin: ticks are whole nanoseconds, bins' edges decimal fractions of a second


def choose(environments: Sequence[Environment], count: int, named: Sequence[str] = ()) -> list[Environment]:
    """Return the environments named and others, `count` in all, in the order given: spread evenly over each set.

    A set has as many as its share of all; an environment's neighbours in the order given are those like it.
    """
    chosen = {e.id for e in environments if e.id in named}
    for set_name in sorted({e.set for e in environments}):
        left = [e.id for e in environments if e.set == set_name and e.id not in named]
        wanted = max(round((count - len(named)) * len(left) / max(len(environments) - len(named), 1)), 0)
        at = np.linspace(0, len(left) - 1, min(wanted, len(left))).round().astype(int)
        chosen |= {left[i] for i in at}
    return [e for e in environments if e.id in chosen]


def binned(environments: Sequence[Environment], episodes: Mapping[tuple[str, str], Episode]) -> dict[str, Doubles]:
    """Return each episode's QUANTITIES and the link's capacity (Mbps) in bins of time: [5, bins], by episode id.

    Bin i of an environment ends at (first + i + 1) times its width (`grid`); NaN where no tick or no packet fell.
    """
    by_id = {e.id: e for e in environments}
    wanted = [e for (environment, _), e in episodes.items() if environment in by_id]
    found: dict[str, Doubles] = {}
    for folder in sorted({e.folder for e in wanted}):
        here = [episode for episode in wanted if episode.folder == folder]
        ticks = scan(folder, here, ["episode_id", "t_s", "cwnd_pkts", *_COUNTERS])
        groups: dict[tuple[int, float, int], list[str]] = {}
        for episode in here:
            groups.setdefault(grid(episode.environment), []).append(episode.id)
        for (first, width, count), ids in sorted(groups.items()):
            found |= _fill(_bins(folder, ticks, ids, width), first, count)
    return found


def grid(environment: Environment) -> tuple[int, float, int]:
    """Return an environment's bins: the number of the first, their width (s), how many."""
    width = bin_width(environment.duration_s - environment.start_s)
    first = int(environment.start_s / width + _SLACK)
    return first, width, int(np.ceil(environment.duration_s / width - _SLACK)) - first


def _bins(folder: Path, ticks: pl.LazyFrame, ids: Sequence[str], width: float) -> pl.DataFrame:
    own = ticks.filter(pl.col("episode_id").is_in(ids))
    bins = own.group_by("episode_id", bin=(pl.col("t_s") / width - _SLACK).ceil().cast(pl.Int64) - 1).agg(
        pl.col("cwnd_pkts").mean(),
        pl.col("t_s", *_COUNTERS).max().cast(pl.Float64),
        pl.col("t_s", *_COUNTERS).min().cast(pl.Float64).name.prefix("first_"),
    )
    try:
        return bins.sort("episode_id", "bin").collect(engine="streaming")
    except (pl.exceptions.PolarsError, OSError) as error:
        why = f"cannot read the raw trajectories ({first_line(error)})"
        raise SageccError(f"{folder}: {why}; collect them again") from error


def _fill(table: pl.DataFrame, first: int, count: int) -> dict[str, Doubles]:
    """Turn bins into rates: what a counter grew by between the last ticks of two bins, over the time between them."""

    def grown(name: str) -> pl.Expr:
        return pl.col(name) - pl.col(name).shift(1).over("episode_id").fill_null(pl.col(f"first_{name}"))

    rates = table.select(
        "episode_id",
        pl.col("bin") - first,
        goodput=grown("received_bytes") / grown("t_s") / 125_000,
        delay=grown("link_delay_ns") / grown("link_packets") / 1e6,
        cwnd="cwnd_pkts",
        drops=grown("link_drops"),
        capacity=grown("link_capacity_bytes") / grown("t_s") / 125_000,
    ).filter(pl.col("bin").is_between(0, count - 1))
    found = {}
    for (episode,), part in rates.group_by("episode_id"):
        values = np.full((len(QUANTITIES) + 1, count), np.nan)
        values[:, part["bin"].to_numpy()] = part.drop("episode_id", "bin").to_numpy().T
        values[~np.isfinite(values)] = np.nan
        found[str(episode)] = values
    return found


def pack(series: Sequence[Doubles]) -> tuple[list[float], str]:
    """Return each series' largest value, and all of them as levels of it in base64 (see the module)."""
    tops, levels = [], []
    for values in series:
        there = np.isfinite(values)
        top = float(f"{max(values[there].max(initial=0.0), 1e-9):.6g}")
        level = np.full(len(values), NONE, np.int64)
        level[there] = np.clip(np.rint(values[there] / top * LEVELS), 0, LEVELS).astype(np.int64)
        tops.append(top)
        levels.append(np.diff(level, prepend=0) % 65536)
    flat = np.concatenate(levels).astype("<u2").view(np.uint8).reshape(-1, 2)
    return tops, base64.b64encode(zlib.compress(flat.T.tobytes(), 9)).decode()


def payload(
    chosen: Sequence[Environment],
    schemes: Sequence[str],
    episodes: Mapping[tuple[str, str], Episode],
    wins: pl.DataFrame,
) -> dict[str, dict[str, Any]]:
    """Return what report.js draws, by environment id; an environment of which there is no trajectory is left out.

    Each has its bins (`first`, `width`, `count`), its `windows`, the `schemes` that are there as indices into
    `schemes`, `tops` and `data` of `pack` (the capacity, then QUANTITIES of each scheme), and of each scheme's
    `results` in each window: goodput (Mbps), delay (ms), and 1 if it won.
    """
    found = binned(chosen, episodes)
    ids = [e.id for e in chosen]
    measured: dict[tuple[str, str], list[list[float | None]]] = {}
    own = wins.filter(pl.col("environment_id").is_in(ids)).sort("environment_id", "scheme", "window")
    columns = ("environment_id", "scheme", "goodput_mbps", "delay_ms", "win")
    for environment, scheme, goodput, delay, win in own.select(columns).iter_rows():
        measured.setdefault((environment, scheme), []).append([_short(goodput), _short(delay), int(win)])
    environments = {}
    for environment in chosen:
        there = [
            (i, found[episodes[environment.id, s].id])
            for i, s in enumerate(schemes)
            if (environment.id, s) in episodes and episodes[environment.id, s].id in found
        ]
        if not there:
            continue
        first, width, count = grid(environment)
        capacity = np.fmax.reduce([values[-1] for _, values in there])  # no tick of any of them: NaN
        tops, data = pack([capacity, *(row for _, values in there for row in values[:-1])])
        environments[environment.id] = {
            "set": environment.set,
            "bandwidth_mbps": environment.bandwidth_mbps,
            "step": environment.step,
            "min_rtt_ms": environment.min_rtt_ms,
            "queue_bdp": round(environment.queue_bdp, 2),
            "first": first,
            "width": width,
            "count": count,
            "windows": [list(window) for window in environment.windows_s],
            "schemes": [i for i, _ in there],
            "results": [measured.get((environment.id, schemes[i]), []) for i, _ in there],
            "tops": tops,
            "data": data,
        }
    return environments


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
