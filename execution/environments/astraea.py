# SPDX-License-Identifier: Apache-2.0
"""What Astraea's training knows of all flows of a network at once: its reward and its critic's global state.

Equations, sections and tables are those of its paper (EuroSys 2024). Averages are over the flows that are up and have
an MTP behind them; a flow's throughput, latency and loss are those of its last MTP.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Bools, Doubles, Floats, Ints
from sagecc.execution.agent.astraea import LATENCY_UNIT_US, THROUGHPUT_UNIT_BYTES_S, pacing_bytes_s
from sagecc.execution.agent.intervals import Intervals
from sagecc.policy.astraea import HISTORY
from sagecc.policy.task import PAPERS_WEIGHTS, AstraeaWeights
from sagecc.schemas.environment import MTU_BYTES, Environment, Flow

BOUND = 0.1
"""A reward is within plus and minus this (section 3.3)."""

LATENCY_DEAD_BAND = 0.25
"""Beta of Eq. 5, which the paper leaves open: that of Orca, whose idea the term takes up ([3]: up to 1.25 d_min)."""

WINDOW_UNIT_PACKETS = 1000.0
"""Unit of windows and of the buffer in the global state."""


@dataclass(frozen=True)
class Flows:
    """What the flows of several networks did in their last MTPs: L networks of up to n flows."""

    up: Bools
    """Which are up and have an MTP behind them [L, n]; of the others nothing is read."""
    throughput: Doubles
    """In their last w MTPs [L, n, w] (bytes/s), the newest last; NaN where a flow is younger."""
    lost: Doubles
    """Bytes lost per second in the last MTP [L, n]."""
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
        """Throughput in the last MTP [L, n]."""
        return self.throughput[..., -1]

    def sum(self, values: Doubles) -> Doubles:
        """Return the sums over the flows that are up: [L, n] -> [L]."""
        return np.asarray(np.where(self.up, values, 0.0).sum(axis=-1))

    def mean(self, values: Doubles) -> Doubles:
        """Return the means over the flows that are up, 0 without any: [L, n] -> [L]."""
        return np.asarray(self.sum(values) / np.maximum(self.up.sum(axis=-1), 1))


def reward(flows: Flows, capacity: Doubles, weights: AstraeaWeights = PAPERS_WEIGHTS) -> Doubles:
    """Return the rewards of networks, each the same for all of its flows (Eq. 4 to 8), within BOUND [L].

    R = c0 R_thr - c1 R_lat - c2 R_loss - c3 R_fair - c4 R_stab, with thr_i flow i's throughput of the last MTP, a_i its
    mean over the last w MTPs, and

    - R_thr = sum_i thr_i / c;
    - R_loss = 1/n sum_i loss_i / thr_i; a flow without throughput counts 0;
    - R_lat = (1/n sum_i lat_i - (1 + beta) d0) p_rate above the dead-band, 0 within. Its unit is not given: here the
      latency is in units of d0 and p_rate, the sum of all pacing rates, in units of c, so that it is of the order of
      R_thr, as the paper says of all terms. d0 is the mean of the flows' base RTTs;
    - R_fair = sqrt(sum_i (a_i - mean a)^2 / (n (sum_i a_i)^2));
    - R_stab = 1/n sum_i sqrt(sum_j (thr_i,t-j - a_i)^2 / (w a_i^2)).

    Args:
        flows: the networks' flows.
        capacity: the bottlenecks' rates c [L] (bytes/s).
        weights: c0 to c4.
    """
    known = ~np.isnan(flows.throughput)
    count = np.maximum(known.sum(axis=-1), 1)
    average = np.where(known, flows.throughput, 0.0).sum(axis=-1) / count
    deviation = np.where(known, flows.throughput - average[..., None], 0.0)
    unfair = flows.mean((average - flows.mean(average)[..., None]) ** 2)
    inflated = _shares(flows.mean(flows.latency), flows.mean(flows.base_rtt)) - (1 + LATENCY_DEAD_BAND)
    throughput_term = _shares(flows.sum(flows.now), capacity)
    latency_term = np.maximum(inflated, 0.0) * _shares(flows.sum(flows.pacing), capacity)
    loss_term = flows.mean(_shares(flows.lost, flows.now))
    fairness_term = _shares(np.sqrt(unfair), flows.sum(average))
    stability_term = flows.mean(_shares(np.sqrt((deviation**2).sum(axis=-1) / count), average))
    costs = weights.latency * latency_term + weights.loss * loss_term
    costs += weights.fairness * fairness_term + weights.stability * stability_term
    total = weights.throughput * throughput_term - costs
    return np.asarray(np.clip(total, -BOUND, BOUND))


def global_state(flows: Flows, base_rtt: Doubles, buffer: Doubles, capacity: Doubles) -> Floats:
    """Return the global states of networks [L, 12], in the order of policy.astraea.GLOBAL_STATE (Table 2).

    Sum, minimum and maximum of the throughputs; mean latency; minimum, maximum and mean window; mean loss ratio;
    number of flows; base RTT; buffer; capacity. Units, which the paper does not name: 100 Mbps, 100 ms, 1000 packets.

    Args:
        flows: the networks' flows.
        base_rtt: mean of the minimum RTTs of all flows of a network, those that are not up too [L] (us).
        buffer: queue limits of the bottlenecks [L] (bytes).
        capacity: their rates [L] (bytes/s).
    """
    some = flows.up.any(axis=-1)

    def least(values: Doubles) -> Doubles:
        return np.where(some, np.where(flows.up, values, np.inf).min(axis=-1), 0.0)

    def most(values: Doubles) -> Doubles:
        return np.where(some, np.where(flows.up, values, -np.inf).max(axis=-1), 0.0)

    throughput, cwnd = flows.now / THROUGHPUT_UNIT_BYTES_S, flows.cwnd / WINDOW_UNIT_PACKETS
    values = (
        flows.sum(throughput),
        least(throughput),
        most(throughput),
        flows.mean(flows.latency) / LATENCY_UNIT_US,
        least(cwnd),
        most(cwnd),
        flows.mean(cwnd),
        flows.mean(np.minimum(_shares(flows.lost, flows.now), 1.0)),  # an outage would make it any number
        flows.up.sum(axis=-1),
        base_rtt / LATENCY_UNIT_US,
        buffer / MTU_BYTES / WINDOW_UNIT_PACKETS,
        capacity / THROUGHPUT_UNIT_BYTES_S,
    )
    return np.stack(values, axis=-1).astype(np.float32)


def _shares(part: Doubles, whole: Doubles) -> Doubles:
    """Return part / whole, 0 where the whole is not above 0."""
    return np.asarray(part / np.where(whole > 0, whole, np.inf))


class Competition:
    """The flows of several labs and what each did in its last MTPs; slots as those of environments.rollouts."""

    def __init__(self, labs: int, flows: int, weights: AstraeaWeights = PAPERS_WEIGHTS) -> None:
        """Start with no flow.

        Args:
            labs: number of labs.
            flows: slots per lab.
            weights: of the reward's terms.
        """
        slots = labs * flows
        self._flows, self._intervals, self._weights = flows, Intervals(slots), weights
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
        """Take one row of each flow; an MTP of those shown is over.

        Args:
            samples: structured array [B] with the counters of schemas.raw by name.
            slots: the flows' slots [B].
            shown: whose MTP ends here [B].
            ending: who is gone after this tick [B].
        """
        if self._ending.any():
            self._throughput[self._ending] = np.nan
            self._ending[:] = False
        self._intervals.update(samples, slots)
        if not shown.any():
            return
        rows, chosen = samples[shown], slots[shown]
        report = self._intervals.report(shown)
        behind = report.seconds > 0
        at = chosen[behind]
        newest = report.delivered_bytes_s[behind, None]
        self._throughput[at] = np.concatenate([self._throughput[at, 1:], newest], axis=1)
        self._lost[at], self._latency[at] = report.lost_bytes_s[behind], report.rtt_us[behind]
        self._pacing[at], self._cwnd[at] = pacing_bytes_s(rows)[behind], rows["cwnd_pkts"][behind]
        known = report.capacity_bytes_s[behind] > 0
        self._capacity[at[known] // self._flows] = report.capacity_bytes_s[behind][known]
        self._ending[slots[ending]] = True

    def rewards(self, labs: Ints) -> Doubles:
        """Return the rewards of some labs' flows now [n]."""
        return reward(self._of(labs), self._capacity[labs], self._weights)

    def states(self, labs: Ints) -> Floats:
        """Return the global states of some labs now [n, 12]."""
        return global_state(self._of(labs), self._mean_rtt[labs], self._buffer[labs], self._capacity[labs])

    def _of(self, labs: Ints) -> Flows:
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
