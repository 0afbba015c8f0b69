# SPDX-License-Identifier: Apache-2.0
"""Sprout and Sprout-EWMA held against their paper (NSDI 2013): Fig. 7's points on two of its cellular traces.

The traces are those that come with Mahimahi, by the same authors; SAGECC_TRACES names their folder. As in section 4.2
packets take 20 ms in each direction beside the queue, which has no limit.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np

from evidence.rivals.check import Number
from sagecc.collector.lab.episode import Episode
from sagecc.collector.run.grid import bottleneck
from sagecc.common.errors import SageccError
from sagecc.execution.lab.controllers import play_episode
from sagecc.leagues.claims import Bounds, Claim
from sagecc.schemas.environment import Environment, Link, Trace, dumbbell
from sagecc.schemas.trace_file import read_trace

DELAY_MS = 20.0
"""Propagation in each direction."""
STEADY_MBPS, STEADY_S = 6.0, 60.0


@dataclass(frozen=True)
class CellularPoint:
    """A point of Fig. 7."""

    throughput_kbps: float
    """Mean throughput."""
    delay_ms: float
    """Self-inflicted delay (section 5.1)."""


def network(link: Link, duration_s: float) -> Environment:
    """Return a path of 20 ms in each direction round a link."""
    return dumbbell("custom", link, DELAY_MS, duration_s, ((0, duration_s),))


def self_inflicted_ms(episode: Episode, trace: Trace) -> float:
    """Return the 95th percentile over time of the delay, less that of a sender that knows the trace (section 5.1).

    The delay at a time is how long ago the newest packet was sent that has left the link by then.
    """
    rows = {name: episode.rows[name].to_numpy() for name in ("t_s", "data_segs_out", "link_packets")}
    sent = np.maximum(rows["data_segs_out"], rows["link_packets"])  # a tick's last packets may be on their way
    sent_s = rows["t_s"][np.searchsorted(sent, rows["link_packets"])]
    moments_s = np.array(trace.opportunities_ms) / 1000
    latest = np.searchsorted(moments_s, rows["t_s"], side="right") - 1
    known = latest >= 0
    least = rows["t_s"][known] - moments_s[latest[known]]
    return 1000 * float(np.percentile((rows["t_s"] - sent_s)[known], 95) - np.percentile(least, 95))


@cache
def on_trace(kernel: Path, scheme: str, name: str) -> CellularPoint:
    """Return what a scheme has on a whole trace."""
    folder = os.environ.get("SAGECC_TRACES")
    if not folder:
        raise SageccError("SAGECC_TRACES names no traces: set it to the folder of those that come with Mahimahi")
    trace = read_trace(Path(folder) / name)
    duration_s = float(int(trace.opportunities_ms[-1] / 1000))
    link = Link(trace=trace, delay_ms=DELAY_MS)
    episode = play_episode(kernel, network(link, duration_s), scheme)
    return CellularPoint(1000 * episode.flows[0].goodput_mbps, self_inflicted_ms(episode, trace))


def throughput_kbps(scheme: str, name: str, kernel: Path) -> float:
    """Return a scheme's throughput on a trace."""
    return on_trace(kernel, scheme, name).throughput_kbps


def delay_ms(scheme: str, name: str, kernel: Path) -> float:
    """Return a scheme's self-inflicted delay on a trace."""
    return on_trace(kernel, scheme, name).delay_ms


def queueing_ms(kernel: Path) -> float:
    """Return the 95th percentile of what packets wait on a steady link."""
    link = bottleneck(STEADY_MBPS, 1, 2 * DELAY_MS, 100, STEADY_S)
    return play_episode(kernel, network(link, STEADY_S), "sprout").flows[0].delay_p95_ms - DELAY_MS


FIG_7 = {
    ("sprout", "TMobile-UMTS-driving.down"): CellularPoint(680, 331),
    ("sprout", "Verizon-EVDO-driving.down"): CellularPoint(209, 1287),
    ("sprout-ewma", "TMobile-UMTS-driving.down"): CellularPoint(1600, 487),
    ("sprout-ewma", "Verizon-EVDO-driving.down"): CellularPoint(402, 1608),
}
"""By scheme and trace, its published point."""

_WHERE = {"TMobile-UMTS-driving.down": "T-Mobile 3G (UMTS)", "Verizon-EVDO-driving.down": "Verizon 3G (1xEV-DO)"}


WHY = {
    "Verizon-EVDO-driving.down": "the paper's sender sends a packet every 50 ms through an outage; here "
    "no more than two are out while nothing is forecast"
}
"""By trace, why a delay cannot agree."""


def _checks() -> list[Claim[Number]]:
    rows = []
    for (scheme, name), point in FIG_7.items():
        source = f"Sprout (NSDI 2013), Fig. 7: {_WHERE[name]} downlink"
        rate, delay = point.throughput_kbps, point.delay_ms
        measured = partial(throughput_kbps, scheme, name)
        rows.append(
            Claim(
                source,
                "Throughput on the whole trace",
                Number(scheme, "kbps", rate, measured),
                Bounds(0.7 * rate, 1.4 * rate),
            )
        )
        rows.append(
            Claim(
                source,
                "Self-inflicted delay, 95th percentile",
                Number(scheme, "ms", delay, partial(delay_ms, scheme, name), WHY.get(name, "")),
                Bounds(0.5 * delay, 1.5 * delay),
            )
        )
    return rows


CHECKS = (
    *_checks(),
    Claim(
        "Sprout (NSDI 2013), section 1: each packet's delay less than 100 ms with 95 % probability",
        "One flow on a steady 6 Mbps, 40 ms: 95th percentile of what packets wait",
        Number("sprout", "ms", 100.0, queueing_ms),
        Bounds(0.0, 100.0),
    ),
)
