# SPDX-License-Identifier: Apache-2.0
"""What BBR's states look like in an episode's raw columns, and networks that bring them about.

Pacing rate over bandwidth is a state's gain (less the margin of 1 %), window and packets in flight are its volume.
48 Mbps send 4000 packets of 1500 bytes a second, so 160 in 40 ms and 400 in 100 ms.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest

from sagecc.collector.lab.episode import Episode
from sagecc.schemas.environment import Environment, Link, RateStep, dumbbell

MARGIN = 0.99
PAYLOAD = 1448 / 1500
"""Of a packet on the link, what pacing and delivery rate count."""

RATE = 48 * PAYLOAD
"""What a link of 48 Mbps delivers (Mbps of payload)."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Trace:
    """One flow, a value a tick: rates in Mbps of payload, volumes in packets."""

    t_s: Floats
    pacing: Floats
    bandwidth: Floats
    cwnd: Floats
    inflight: Floats
    queue: Floats
    drops: Floats
    ca_state: Floats

    @classmethod
    def of(cls, episode: Episode) -> Trace:
        c = {name: episode.rows[name].to_numpy().astype(float) for name in episode.rows.column_names[1:]}
        return cls(
            t_s=c["t_s"],
            pacing=c["pacing_rate_bytes_s"] * 8e-6,
            bandwidth=c["delivery_rate_bytes_s"] * 8e-6,
            cwnd=c["cwnd_pkts"],
            inflight=c["unacked_pkts"] - c["sacked_pkts"] - c["lost_pkts"] + c["retrans_pkts"],
            queue=c["link_queue_bytes"] / 1500,
            drops=c["link_drops"],
            ca_state=c["ca_state"],
        )

    def between(self, start_s: float, end_s: float) -> Trace:
        keep = (self.t_s >= start_s - 1e-9) & (self.t_s <= end_s + 1e-9)
        return Trace(*(values[keep] for values in vars(self).values()))

    def gains(self, rate: float) -> list[tuple[float, float, float]]:
        """Return (start, end, pacing over `rate` to two digits) of each stretch of one pacing rate."""
        gain = np.round(self.pacing / rate / MARGIN, 2)
        edges = [0, *(np.flatnonzero(np.diff(gain)) + 1), len(gain)]
        return [(self.t_s[a], self.t_s[b - 1], gain[a]) for a, b in pairwise(edges)]

    def stretches(self, rate: float, gain: float) -> list[tuple[float, float]]:
        return [(a, b) for a, b, g in self.gains(rate) if g == pytest.approx(gain, abs=0.021)]


def steps(rates: tuple[tuple[float, float], ...], queue_bdp: float, duration_s: float) -> Environment:
    """Return a link of 40 ms whose rate (Mbps) changes at the given times."""
    queue = int(queue_bdp * rates[0][1] * 40 * 125)
    return dumbbell("custom", Link(tuple(RateStep(*r) for r in rates), 20, queue), 20, duration_s, ((0, duration_s),))


def drain_start(trace: Trace) -> float:
    """Return when the pacing rate fell below the bandwidth for the first time (s)."""
    full = np.flatnonzero(trace.pacing > 2 * RATE)[0]
    return float(trace.t_s[full + np.flatnonzero(trace.pacing[full:] < 0.6 * RATE)[0]])


def jain(episode: Episode) -> float:
    """Jain's index of the flows' goodputs: 1 when equal."""
    goodputs = np.array([flow.goodput_mbps for flow in episode.flows])
    return float(goodputs.sum() ** 2 / (goodputs**2).sum() / len(goodputs))
