# SPDX-License-Identifier: Apache-2.0
"""What all flows of a network did in their last intervals: for rewards of them all, and for critics that see them all.

Averages are over the flows that are up and have an interval behind them; a flow's throughput, latency and loss are
those of its last interval.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Bools, Doubles, Floats, Ints, any_of
from sagecc.execution.flow.intervals import Intervals
from sagecc.execution.flow.window import one_window_bytes_s
from sagecc.schemas.environment import Environment, Flow

THROUGHPUT_UNIT_BYTES_S = 100e6 / 8
"""100 Mbps."""
LATENCY_UNIT_US = 100e3

HISTORY = 5
"""Intervals whose throughputs are kept, of each flow."""


@dataclass(frozen=True)
class Flows:
    """What the flows of several networks did in their last intervals: L networks of up to n flows."""

    up: Bools
    """Which are up and have an interval behind them [L, n]; of the others nothing is read."""
    throughput: Doubles
    """In their last w intervals [L, n, w] (bytes/s), the newest last; NaN where a flow is younger."""
    lost: Doubles
    """Bytes lost per second in the last interval [L, n]."""
    latency: Doubles
    """Mean RTT in it [L, n] (us)."""
    pacing: Doubles
    """Pacing rate [L, n] (bytes/s)."""
    cwnd: Doubles
    """Window [L, n] (packets)."""
    base_rtt: Doubles
    """Minimum RTT of the path [L, n] (us)."""

    @property
    def now(self) -> Doubles:
        """Throughput in the last interval [L, n]."""
        return self.throughput[..., -1]

    def sum(self, values: Doubles) -> Doubles:
        """Return the sums over the flows that are up: [L, n] -> [L]."""
        return np.asarray(np.where(self.up, values, 0.0).sum(axis=-1))

    def mean(self, values: Doubles) -> Doubles:
        """Return the means over the flows that are up, 0 without any: [L, n] -> [L]."""
        return np.asarray(self.sum(values) / np.maximum(self.up.sum(axis=-1), 1))


def shares(part: Doubles, whole: Doubles) -> Doubles:
    """Return part / whole, 0 where the whole is not above 0."""
    return np.asarray(part / np.where(whole > 0, whole, np.inf))


StateFunction = Callable[[Flows, Doubles, Doubles, Doubles], Floats]
"""From flows, mean minimum RTTs (us), queue limits (bytes) and rates (bytes/s) of L networks to their states [L, G]."""


class Competition:
    """The flows of several labs and what each did in its last intervals; slots as those of environments.rollouts."""

    def __init__(self, labs: int, flows: int) -> None:
        """Start with no flow.

        Args:
            labs: number of labs.
            flows: slots per lab.
        """
        slots = labs * flows
        self._flows, self._intervals = flows, Intervals(slots)
        self._throughput = np.full((slots, HISTORY), np.nan)
        self._lost, self._latency, self._pacing, self._cwnd = np.zeros((4, slots))
        self._base_rtt = np.zeros(slots)
        self._mean_rtt, self._capacity, self._buffer = np.zeros((3, labs))
        self._ending = np.zeros(slots, np.bool_)

    def begin(self, lab: int, environment: Environment, driven: dict[int, Flow]) -> None:
        """Forget a lab's flows and take those of its next episode, by number."""
        within = slice(lab * self._flows, (lab + 1) * self._flows)
        self._throughput[within] = np.nan
        for number, flow in driven.items():
            slot = lab * self._flows + number
            self._intervals.reset(slot)
            self._base_rtt[slot] = environment.min_rtt_of(flow) * 1e3
        self._mean_rtt[lab] = np.mean([environment.min_rtt_of(flow) * 1e3 for flow in driven.values()])
        bottleneck = environment.links[environment.narrowest(next(iter(driven.values())))]
        self._capacity[lab] = bottleneck.rate_mbps_at(0.0) * 1e6 / 8
        self._buffer[lab] = bottleneck.limit_bytes or 0

    def update(self, samples: npt.NDArray[np.void], slots: Ints, shown: Bools, ending: Bools) -> None:
        """Take one row of each flow; an interval of those shown is over.

        Args:
            samples: structured array [B] with the counters of schemas.raw by name.
            slots: the flows' slots [B].
            shown: whose MTP ends here [B].
            ending: who is gone after this tick [B].
        """
        if any_of(self._ending):
            self._throughput[self._ending] = np.nan
            self._ending[:] = False
        self._intervals.update(samples, slots)
        if not any_of(shown):
            return
        rows, chosen = samples[shown], slots[shown]
        report = self._intervals.report(shown)
        behind = report.seconds > 0
        at = chosen[behind]
        newest = report.delivered_bytes_s[behind, None]
        self._throughput[at] = np.concatenate([self._throughput[at, 1:], newest], axis=1)
        self._lost[at], self._latency[at] = report.lost_bytes_s[behind], report.rtt_us[behind]
        self._pacing[at], self._cwnd[at] = one_window_bytes_s(rows)[behind], rows["cwnd_pkts"][behind]
        known = report.capacity_bytes_s[behind] > 0
        self._capacity[at[known] // self._flows] = report.capacity_bytes_s[behind][known]
        self._ending[slots[ending]] = True

    def capacity(self, labs: Ints) -> Doubles:
        """Return the rates of some labs' bottlenecks in the last interval [n] (bytes/s)."""
        return np.asarray(self._capacity[labs])

    def states(self, labs: Ints, function: StateFunction) -> Floats:
        """Return the global states of some labs now, as a function has them [n, G]."""
        return function(self.flows(labs), self._mean_rtt[labs], self._buffer[labs], self._capacity[labs])

    def flows(self, labs: Ints) -> Flows:
        """Return what the flows of some labs did."""
        slots = labs[:, None] * self._flows + np.arange(self._flows)
        throughput = self._throughput[slots]
        return Flows(
            up=~np.isnan(throughput[..., -1]),
            throughput=throughput,
            lost=self._lost[slots],
            latency=self._latency[slots],
            pacing=self._pacing[slots],
            cwnd=self._cwnd[slots],
            base_rtt=self._base_rtt[slots],
        )
