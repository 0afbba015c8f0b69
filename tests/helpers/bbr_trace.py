# SPDX-License-Identifier: Apache-2.0
"""What BBR's states look like in an episode's raw columns, and networks that bring them about.

Pacing rate over bandwidth is a state's gain (less the margin of 1 %), window and packets in flight are its volume.
48 Mbps send 4000 packets of 1500 bytes a second, so 160 in 40 ms and 400 in 100 ms.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest

from sagecc.collector.lab.episode import Episode
from sagecc.schemas.environment import Environment, Link, RateStep, dumbbell
from tests.helpers.networks import network
from tests.helpers.traces import Floats, Ticks, columns

MARGIN = 0.99
PAYLOAD = 1448 / 1500
"""Of a packet on the link, what pacing and delivery rate count."""

RATE = 48 * PAYLOAD
"""What a link of 48 Mbps delivers (Mbps of payload)."""


@dataclass(frozen=True)
class Trace(Ticks):
    """One flow, a value a tick: rates in Mbps of payload, volumes in packets."""

    pacing: Floats
    bandwidth: Floats
    cwnd: Floats
    inflight: Floats
    queue: Floats
    drops: Floats
    ca_state: Floats

    @classmethod
    def of(cls, episode: Episode) -> Trace:
        c = columns(episode)
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


def probes(trace: Trace, rate: float = RATE) -> list[tuple[float, float]]:
    """Return the stretches in UP after STARTUP (s)."""
    return trace.between(drain_start(trace), trace.t_s[-1]).stretches(rate, 1.25)


def with_loss(loss: float) -> Environment:
    """48 Mbps, 100 ms and a queue nothing overflows: whatever is lost is lost at random."""
    environment = network(rtt_ms=100, queue_bdp=4, duration_s=4)
    return replace(environment, links=(replace(environment.links[0], loss=loss),))


def bound_grows_ever_faster(trace: Trace) -> None:
    """Hold what UP does where the rate goes from 24 to 96 Mbps and the bound on what is in flight is at 120."""
    low = 24 * PAYLOAD * MARGIN
    assert trace.between(1, 2).cwnd.max() <= 0.85 * 120 + 2
    start = trace.t_s[np.flatnonzero((trace.t_s > 2) & (trace.pacing > 1.2 * low))[0]]
    limited = start + 0.12  # two rounds until the window fills and its ACKs return
    growth = np.diff([trace.between(t, t + 0.01).cwnd[0] for t in limited + 0.08 * np.arange(4)])
    assert 1 <= growth[0] <= 16
    assert np.all(growth[1:] >= 2 * growth[:-1])
    assert trace.between(4, 5).bandwidth.mean() > 0.9 * 96 * PAYLOAD


def probe_rtts(trace: Trace, end_s: float, count: int) -> list[float]:
    """Hold the PROBE_RTTs from 2 s on, of 48 Mbps and 40 ms; return when they end (s)."""
    small = trace.between(2, end_s).cwnd < 100
    t_s = trace.between(2, end_s).t_s
    edges = np.flatnonzero(np.diff(small))
    starts, ends = t_s[edges[::2] + 1], t_s[edges[1::2] + 1]
    assert len(starts) == count
    assert 5.0 <= starts[0] - trace.t_s[0] <= 5.1
    assert np.diff(starts) == pytest.approx(5.25, abs=0.1)  # 5 s from the end of the one before
    for start, end in zip(starts, ends, strict=True):
        probe = trace.between(start, end - 0.01)
        assert probe.cwnd == pytest.approx(80, abs=2)
        assert probe.pacing == pytest.approx(MARGIN * RATE, rel=0.02)
        at_target = probe.t_s[probe.inflight <= 82]
        assert 0.18 < at_target[-1] - at_target[0] < 0.27  # 200 ms and the ACK after, in ticks of 10 ms
    return [float(end) for end in ends]


def jain(episode: Episode) -> float:
    """Jain's index of the flows' goodputs: 1 when equal."""
    goodputs = np.array([flow.goodput_mbps for flow in episode.flows])
    return float(goodputs.sum() ** 2 / (goodputs**2).sum() / len(goodputs))
