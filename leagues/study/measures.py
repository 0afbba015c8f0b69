# SPDX-License-Identifier: Apache-2.0
"""What is measured of one run: from its series and environment to named numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl

from sagecc.leagues.flow_metrics import (
    between,
    convergence,
    flow_means,
    jain_over_time,
    ratio_over_time,
    rebin,
    share_over_time,
    utilisation_over_time,
)
from sagecc.leagues.study.networks import LIFE_S
from sagecc.schemas.environment import Environment

PER_S = 1.0
"""The study looks at goodputs second by second."""

CONVERGENCE_BIN_S = 0.5
"""Goodput of shorter intervals shows every filled hole of the sequence as a burst."""

FLOOR_MBPS = 1.0
"""A goodput beside Cubic counts as at least this, so that a starved flow's ratio stays finite."""

PATH_RTTS_MS = (40.0, 80.0, 120.0, 160.0, 200.0)
"""Base RTTs of five flows on one link (Astraea, section 5.1.2)."""

Numbers = Mapping[str, float | None]
Measure = Callable[[pl.DataFrame, Environment, float], Numbers]
"""From a run's series (flow_metrics.SERIES_SCHEMA), its environment and its interval (s) to numbers by name."""

MEANINGS: Mapping[str, str] = {
    "ratio": "smaller goodput over the larger, mean over seconds",
    "jain": "Jain's index of the goodputs, mean over seconds",
    "utilisation": "goodputs together over the capacity",
    "window_gap_pkts": "difference of the two congestion windows (packets)",
    "hop_ratio": "goodput over three hops over the highest over one, mean over seconds",
    "tested_ratio": "tested goodput over its competitors', mean over seconds",
    "symmetric_ratio": "(smaller goodput + 1 Mbps) over (larger goodput + 1 Mbps)",
    "tested_mbps": "goodput of the tested flow (Mbps)",
    "other_mbps": "mean goodput of the others (Mbps)",
    "rtt_ratio": "mean smoothed RTT over the base RTT while all flows run",
    "utilisation_0_100": "goodputs together over the capacity, first 100 s",
    "rtt_ratio_life": "mean smoothed RTT over the base RTT over each flow's life",
    "retransmission_rate": "packets sent again over packets sent",
    "convergence_s": "time until a joining flow holds its share within 10 % for a second, up to the next event (s)",
    "stability_mbps": "standard deviation of the goodput after that (Mbps)",
    "converged": "share of the joining flows that came to their fair share",
    "goodput_mbps": "mean goodput (Mbps)",
    "optimal_mbps": "mean capacity (Mbps)",
    "optimal_share": "mean goodput over the mean capacity",
    "rtt_ms": "mean smoothed RTT (ms)",
    "loss_rate": "packets dropped on the way over packets sent",
    "power": "mean goodput over mean smoothed RTT (Mbps/ms)",
    "power_ratio": "goodput over smoothed RTT, over Cubic's in the same network",
    "goodput_ratio": "mean goodput of the tested flow over Cubic's",
    **{f"mbps_at_{rtt_ms:g}_ms": f"mean goodput of the flow with {rtt_ms:g} ms (Mbps)" for rtt_ms in PATH_RTTS_MS},
    "short_mbps": "mean goodput of the flows over link 1 (Mbps)",
    "long_mbps": "mean goodput of the flows over both links (Mbps)",
    "short_fair_mbps": "max-min share of a flow over link 1 (Mbps)",
    "long_fair_mbps": "max-min share of a flow over both links (Mbps)",
}
"""What each number is."""

LABELS: Mapping[str, str] = {
    "ratio": "ratio",
    "jain": "Jain",
    "utilisation": "utilisation",
    "window_gap_pkts": "gap (packets)",
    "hop_ratio": "three hops / one",
    "tested_ratio": "tested / Cubic",
    "symmetric_ratio": "symmetric ratio",
    "tested_mbps": "tested (Mbps)",
    "other_mbps": "Cubic (Mbps)",
    "rtt_ratio": "RTT / base",
    "utilisation_0_100": "utilisation to 100 s",
    "rtt_ratio_life": "RTT / base, life",
    "retransmission_rate": "retransmitted",
    "convergence_s": "convergence (s)",
    "stability_mbps": "stability (Mbps)",
    "converged": "converged",
    "goodput_mbps": "goodput (Mbps)",
    "optimal_mbps": "optimum (Mbps)",
    "optimal_share": "of the optimum",
    "rtt_ms": "RTT (ms)",
    "loss_rate": "lost",
    "power": "power (Mbps/ms)",
    "power_ratio": "power / Cubic's",
    "goodput_ratio": "tested / Cubic",
    **{f"mbps_at_{rtt_ms:g}_ms": f"{rtt_ms:g} ms (Mbps)" for rtt_ms in PATH_RTTS_MS},
    "short_mbps": "link 1 (Mbps)",
    "long_mbps": "both links (Mbps)",
    "short_fair_mbps": "link 1, max-min",
    "long_fair_mbps": "both links, max-min",
}
"""Short names of the numbers, for the heads of tables."""

SHARES = frozenset({"ratio", "jain", "symmetric_ratio", "retransmission_rate", "loss_rate", "converged"})
"""Numbers that end at 1; all of them begin at 0."""


@dataclass(frozen=True)
class Relative:
    """A number of one run over that of another scheme in the same cell and repeat."""

    quantity: str
    scheme: str


RELATIVE: Mapping[str, Relative] = {"power_ratio": Relative("power", "cubic")}
"""Numbers that a run does not have by itself; results.values_table adds them."""


def fairness(series: pl.DataFrame, environment: Environment, interval_s: float) -> Numbers:
    """Measure how two flows of one scheme share the link in the scored window."""
    window = _scored(series, environment, interval_s)
    return {
        "ratio": mean_of(ratio_over_time(window)["ratio"]),
        "jain": mean_of(jain_over_time(window)["jain"]),
        "utilisation": mean_of(utilisation_over_time(window)["utilisation"]),
    }


def windows(series: pl.DataFrame, environment: Environment, interval_s: float) -> Numbers:
    """Measure how far apart two flows' congestion windows are in the scored window."""
    window = _scored(series, environment, interval_s)
    gap = window.group_by("t_s").agg(gap=pl.col("cwnd_pkts").max() - pl.col("cwnd_pkts").min(), flows=pl.len())
    return {"window_gap_pkts": mean_of(gap.filter(pl.col("flows") == 2)["gap"])}


def parking_lot(series: pl.DataFrame, environment: Environment, interval_s: float) -> Numbers:
    """Measure the three-hop flow's goodput over the highest one-hop flow's in the scored window."""
    return {"hop_ratio": mean_of(share_over_time(_scored(series, environment, interval_s), against="max")["ratio"])}


def friendliness(series: pl.DataFrame, environment: Environment, interval_s: float) -> Numbers:
    """Measure the tested flow's goodput over Cubic's (the mean of several) in the scored window."""
    window = _scored(series, environment, interval_s)
    tested = window.filter(pl.col("flow") == 0)["goodput_mbps"]
    others = window.filter(pl.col("flow") > 0)["goodput_mbps"]
    both = window.with_columns(pl.col("goodput_mbps") + FLOOR_MBPS)
    alone = environment.flow_count == 2
    return {
        "tested_ratio": mean_of(share_over_time(window, floor_mbps=FLOOR_MBPS)["ratio"]),
        "tested_mbps": mean_of(tested),
        "other_mbps": mean_of(others),
    } | ({"symmetric_ratio": mean_of(ratio_over_time(both)["ratio"])} if alone else {})


def efficiency(series: pl.DataFrame, environment: Environment, interval_s: float) -> Numbers:
    """Measure use and delay of the link while all flows run, and as the authors' own table has them."""
    seconds = rebin(series, interval_s, PER_S)
    window = _scored(series, environment, interval_s)
    means = flow_means(window)
    first = between(seconds, 0.0, LIFE_S)
    return {
        "utilisation": mean_of(utilisation_over_time(window)["utilisation"]),
        "rtt_ratio": _over(mean_of(means["srtt_ms"]), environment.min_rtt_ms),
        "utilisation_0_100": mean_of(utilisation_over_time(first)["utilisation"]),
        "rtt_ratio_life": _over(mean_of(flow_means(seconds)["srtt_ms"]), environment.min_rtt_ms),
        "retransmission_rate": _over(float(window["retransmitted_pkts"].sum()), float(window["sent_pkts"].sum())),
    }


def efficiency_points(series: pl.DataFrame, environment: Environment, interval_s: float) -> pl.DataFrame:
    """Return use and delay of the link second by second while all flows run: t_s, utilisation, rtt_ratio."""
    window = _scored(series, environment, interval_s)
    delay = window.group_by("t_s").agg(rtt_ratio=pl.col("srtt_ms").mean() / environment.min_rtt_ms)
    return utilisation_over_time(window).join(delay, on="t_s").sort("t_s").drop_nulls()


def staggered_convergence(series: pl.DataFrame, environment: Environment, interval_s: float) -> Numbers:
    """Measure how each joining flow converges to its share before the next event (Astraea, section 5.2)."""
    bins = rebin(series, interval_s, CONVERGENCE_BIN_S)
    starts = [flow.start_s for flow in environment.all_flows]
    ends = [*starts[1:], environment.stop_s]
    events = [  # the first flow converges to the whole link, not to a share
        _Event(flow, start_s, end_s, environment.bandwidth_mbps / (flow + 1))
        for flow, (start_s, end_s) in enumerate(zip(starts, ends, strict=True))
        if flow
    ]
    window = _scored(series, environment, interval_s)
    return {**_converge(bins, events), "jain": mean_of(jain_over_time(window)["jain"])}


def convergence_of_events(series: pl.DataFrame, environment: Environment, interval_s: float) -> Numbers:
    """Measure how flows converge to their share after each other's start or stop (Astraea, section 5.2).

    After a start the joining flow counts, after a stop each that stays; not the first start, nor the last stop.
    """
    bins = rebin(series, interval_s, CONVERGENCE_BIN_S)
    lives = [(flow.start_s, environment.stop_of(flow)) for flow in environment.all_flows]
    times = sorted({time_s for life in lives for time_s in life})
    events = []
    for time_s, end_s in pairwise(times):
        living = [flow for flow, (start_s, stop_s) in enumerate(lives) if start_s <= time_s < stop_s]
        joining = [flow for flow in living if lives[flow][0] == time_s]
        if len(living) > 1 or not joining:
            fair_mbps = environment.bandwidth_mbps / len(living)
            events += [_Event(flow, time_s, end_s, fair_mbps) for flow in joining or living]
    return {**_converge(bins, events), "jain": mean_of(slots(series, interval_s)["jain"])}


def jain_in_slots(series: pl.DataFrame, environment: Environment, interval_s: float) -> Numbers:
    """Measure Jain's index in each slot in which at least two flows live (Astraea, section 5.1.1)."""
    return {"jain": mean_of(slots(series, interval_s)["jain"])}


def slots(series: pl.DataFrame, interval_s: float) -> pl.DataFrame:
    """Return Jain's index of each slot with at least two flows: t_s, jain."""
    bins = rebin(series, interval_s, CONVERGENCE_BIN_S)
    return jain_over_time(bins.filter(pl.len().over("t_s") > 1)).drop_nulls()


def tested_flow(series: pl.DataFrame, environment: Environment, interval_s: float) -> Numbers:
    """Measure what the tested flow had in the scored window, and how full the link was."""
    window = _scored(series, environment, interval_s)
    own = window.filter(pl.col("flow") == 0)
    others = window.filter(pl.col("flow") > 0)
    goodput_mbps, rtt_ms = mean_of(own["goodput_mbps"]), mean_of(own["srtt_ms"])
    return {
        "goodput_mbps": goodput_mbps,
        "rtt_ms": rtt_ms,
        "rtt_ratio": _over(rtt_ms, environment.min_rtt_ms),
        "utilisation": mean_of(utilisation_over_time(window)["utilisation"]),
        "loss_rate": _over(float(own["lost_pkts"].sum()), float(own["sent_pkts"].sum())),
        "power": None if goodput_mbps is None or rtt_ms is None else goodput_mbps / rtt_ms,
    } | ({"other_mbps": mean_of(others["goodput_mbps"])} if environment.cross else {})


def friendliness_of_means(series: pl.DataFrame, environment: Environment, interval_s: float) -> Numbers:
    """Measure the tested flow's mean goodput over Cubic's (Orca, section 5.6)."""
    window = _scored(series, environment, interval_s)
    tested_mbps, other_mbps = (mean_of(window.filter(flows)["goodput_mbps"]) for flows in _TESTED_AND_OTHERS)
    floored = [None if each is None else max(each, FLOOR_MBPS) for each in (tested_mbps, other_mbps)]
    ratio = None if floored[0] is None or floored[1] is None else floored[0] / floored[1]
    return {"goodput_ratio": ratio, "tested_mbps": tested_mbps, "other_mbps": other_mbps}


def goodput_by_rtt(series: pl.DataFrame, environment: Environment, interval_s: float) -> Numbers:
    """Measure the mean goodput of each of five flows with unlike base RTTs, and Jain's index of them over seconds."""
    window = _scored(series, environment, interval_s)
    means = dict(flow_means(window).select("flow", "goodput_mbps").iter_rows())
    by_rtt = {f"mbps_at_{rtt_ms:g}_ms": means.get(flow) for flow, rtt_ms in enumerate(PATH_RTTS_MS)}
    return {"jain": mean_of(jain_over_time(window)["jain"]), **by_rtt}


def flow_sets(series: pl.DataFrame, environment: Environment, interval_s: float) -> Numbers:
    """Measure the mean goodput of flows over both links and over the first alone, and their max-min shares.

    Long flows hold a share of the narrower link, unless the first, among all flows, gives less.
    """
    means = flow_means(_scored(series, environment, interval_s))
    long = [number for number, flow in enumerate(environment.all_flows) if len(environment.path(flow)) > 1]
    wide_mbps, narrow_mbps = (link.base_mbps for link in environment.links)
    flows = environment.flow_count
    long_fair_mbps = min(narrow_mbps / len(long), wide_mbps / flows)
    return {
        "long_mbps": mean_of(means.filter(pl.col("flow").is_in(long))["goodput_mbps"]),
        "short_mbps": mean_of(means.filter(~pl.col("flow").is_in(long))["goodput_mbps"]),
        "long_fair_mbps": long_fair_mbps,
        "short_fair_mbps": (wide_mbps - len(long) * long_fair_mbps) / (flows - len(long)),
    }


def responsiveness(series: pl.DataFrame, environment: Environment, interval_s: float) -> Numbers:
    """Measure one flow's mean goodput on a link that changes, and what the link could have carried."""
    own = series.filter(pl.col("flow") == 0)
    goodput_mbps = float(own["goodput_mbps"].sum()) * interval_s / environment.duration_s
    rates = environment.bottleneck.rates
    ends = [*(step.t_s for step in rates[1:]), environment.duration_s]
    carried = sum(step.rate_mbps * (end_s - step.t_s) for step, end_s in zip(rates, ends, strict=True))
    optimal_mbps = carried / environment.duration_s
    return {
        "goodput_mbps": goodput_mbps,
        "optimal_mbps": optimal_mbps,
        "optimal_share": goodput_mbps / optimal_mbps,
    }


@dataclass(frozen=True)
class _Event:
    """A flow that has to come to its share between two times."""

    flow: int
    start_s: float
    end_s: float
    fair_mbps: float


def _converge(bins: pl.DataFrame, events: Sequence[_Event]) -> Numbers:
    """Return convergence_s, stability_mbps and converged over events; bins: goodputs of CONVERGENCE_BIN_S."""
    times, deviations, converged = [], [], 0
    for event in events:
        begin_s = np.floor(event.start_s / CONVERGENCE_BIN_S) * CONVERGENCE_BIN_S
        own = between(bins.filter(pl.col("flow") == event.flow), begin_s, event.end_s, CONVERGENCE_BIN_S).sort("t_s")
        late = round((float(own["t_s"][0]) - begin_s) / CONVERGENCE_BIN_S) if len(own) else 0
        rates = [0.0] * late + own["goodput_mbps"].to_list()
        result = convergence(rates, event.fair_mbps, CONVERGENCE_BIN_S)
        times.append(event.end_s - event.start_s if result.time_s is None else result.time_s)
        converged += result.time_s is not None
        deviations += [] if result.deviation_mbps is None else [result.deviation_mbps]
    return {
        "convergence_s": float(np.mean(times)),
        "stability_mbps": float(np.mean(deviations)) if deviations else None,
        "converged": converged / len(times),
    }


_TESTED_AND_OTHERS = (pl.col("flow") == 0, pl.col("flow") > 0)


def _scored(series: pl.DataFrame, environment: Environment, interval_s: float) -> pl.DataFrame:
    """Return the seconds of the environment's scored window."""
    return between(rebin(series, interval_s, PER_S), *environment.windows_s[0])


def mean_of(values: pl.Series) -> float | None:
    """Return the mean of what is known; None of nothing."""
    known = values.drop_nulls()
    return float(known.to_numpy().mean()) if len(known) else None


def _over(value: float | None, base: float) -> float | None:
    return value / base if value is not None and base else None


LOGARITHMIC = frozenset({"tested_ratio", "goodput_ratio", "power_ratio"})
"""Numbers whose mean and interval over repeats are taken of their logarithms: ratios without an upper end."""
