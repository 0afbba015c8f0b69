# SPDX-License-Identifier: Apache-2.0
"""What Astraea's training knows of all flows of a network at once: its reward and its critic's global state.

Equations, sections and tables are those of its paper (EuroSys 2024). Averages are over the flows that are up and have
an MTP behind them; a flow's throughput, latency and loss are those of its last MTP.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Bools, Doubles, Floats, Ints
from sagecc.execution.agent.astraea import LATENCY_UNIT_US, THROUGHPUT_UNIT_BYTES_S, pacing_bytes_s
from sagecc.execution.agent.intervals import Intervals
from sagecc.policy.astraea import GLOBAL_STATE, HISTORY
from sagecc.schemas.environment import MTU_BYTES, Environment, Flow

WEIGHTS = (0.1, 0.02, 1.0, 0.02, 0.01)
"""c0 to c4 of Eq. 8 (Table 4): of throughput, latency, loss, fairness, stability."""

BOUND = 0.1
"""A reward is within plus and minus this (section 3.3)."""

LATENCY_DEAD_BAND = 0.25
"""Beta of Eq. 5, which the paper leaves open: that of Orca, whose idea the term takes up ([3]: up to 1.25 d_min)."""

WINDOW_UNIT_PACKETS = 1000.0
"""Unit of windows and of the buffer in the global state."""


def reward(
    throughput: Doubles, lost: Doubles, latency: Doubles, pacing: Doubles, base_rtt: Doubles, capacity: float
) -> float:
    """Return the reward of a network, the same for all of its flows (Eq. 4 to 8), within BOUND.

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
        throughput: of n flows in their last w MTPs [n, w] (bytes/s), the newest last; NaN where a flow is younger.
        lost: bytes lost per second in the last MTP [n].
        latency: mean RTT in it [n] (us).
        pacing: pacing rate [n] (bytes/s).
        base_rtt: minimum RTT of each flow's path [n] (us).
        capacity: the bottleneck's rate c (bytes/s).
    """
    flows = len(throughput)
    if not flows or not capacity > 0:
        return 0.0
    now, mean = throughput[:, -1], np.nanmean(throughput, axis=1)
    delay = latency.mean() / base_rtt.mean()
    inflated = delay - (1 + LATENCY_DEAD_BAND)
    terms = (
        now.sum() / capacity,
        inflated * pacing.sum() / capacity if inflated > 0 else 0.0,
        _shares(lost, now).mean(),
        float(_shares(np.sqrt(((mean - mean.mean()) ** 2).sum() / flows), mean.sum())),
        _shares(np.sqrt(np.nanmean((throughput - mean[:, None]) ** 2, axis=1)), mean).mean(),
    )
    signs = (1, -1, -1, -1, -1)
    total = sum(sign * weight * float(term) for sign, weight, term in zip(signs, WEIGHTS, terms, strict=True))
    return min(max(total, -BOUND), BOUND)


def global_state(
    throughput: Doubles,
    lost: Doubles,
    latency: Doubles,
    cwnd: Doubles,
    base_rtt: Doubles,
    buffer: float,
    capacity: float,
) -> Floats:
    """Return the global state of a network [12], in the order of policy.astraea.GLOBAL_STATE (Table 2).

    Sum, minimum and maximum of the throughputs; mean latency; minimum, maximum and mean window; mean loss ratio;
    number of flows; base RTT; buffer; capacity. Units, which the paper does not name: 100 Mbps, 100 ms, 1000 packets.

    Args:
        throughput: of n flows in their last MTP [n] (bytes/s).
        lost: bytes lost per second [n].
        latency: mean RTT [n] (us).
        cwnd: windows [n] (packets).
        base_rtt: minimum RTTs of all flows of the network [m] (us).
        buffer: queue limit of the bottleneck (bytes).
        capacity: its rate (bytes/s).
    """
    state = np.zeros(len(GLOBAL_STATE))
    if flows := len(throughput):
        state[:3] = np.array([throughput.sum(), throughput.min(), throughput.max()]) / THROUGHPUT_UNIT_BYTES_S
        state[3] = latency.mean() / LATENCY_UNIT_US
        state[4:7] = np.array([cwnd.min(), cwnd.max(), cwnd.mean()]) / WINDOW_UNIT_PACKETS
        state[7] = _shares(lost, throughput).mean()
        state[8] = flows
    state[9] = base_rtt.mean() / LATENCY_UNIT_US
    state[10] = buffer / MTU_BYTES / WINDOW_UNIT_PACKETS
    state[11] = capacity / THROUGHPUT_UNIT_BYTES_S
    return state.astype(np.float32)


def _shares(part: Doubles, whole: Doubles) -> Doubles:
    """Return part / whole, 0 where the whole is 0."""
    return np.asarray(part / np.where(whole > 0, whole, np.inf))


class Competition:
    """The flows of several labs and what each did in its last MTPs; slots as those of environments.rollouts."""

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
        self._base_rtt, self._capacity, self._buffer = np.full(slots, np.nan), np.zeros(labs), np.zeros(labs)
        self._ending = np.zeros(slots, np.bool_)

    def begin(self, lab: int, environment: Environment, driven: dict[int, Flow]) -> None:
        """Forget a lab's flows and take those of its next episode, by number."""
        within = slice(lab * self._flows, (lab + 1) * self._flows)
        self._throughput[within] = self._base_rtt[within] = np.nan
        for number, flow in driven.items():
            slot = lab * self._flows + number
            self._intervals.reset(slot)
            self._base_rtt[slot] = environment.min_rtt_of(flow) * 1e3
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

    def reward(self, lab: int) -> float:
        """Return the reward of a lab's flows now."""
        up = self._up(lab)
        return reward(
            throughput=self._throughput[up],
            lost=self._lost[up],
            latency=self._latency[up],
            pacing=self._pacing[up],
            base_rtt=self._base_rtt[up],
            capacity=float(self._capacity[lab]),
        )

    def state(self, lab: int) -> Floats:
        """Return the global state of a lab now [12]."""
        up, all_flows = self._up(lab), self._base_rtt[lab * self._flows : (lab + 1) * self._flows]
        return global_state(
            throughput=self._throughput[up, -1],
            lost=self._lost[up],
            latency=self._latency[up],
            cwnd=self._cwnd[up],
            base_rtt=all_flows[~np.isnan(all_flows)],
            buffer=float(self._buffer[lab]),
            capacity=float(self._capacity[lab]),
        )

    def _up(self, lab: int) -> Ints:
        """Return the slots of the lab's flows that have an MTP behind them."""
        first = lab * self._flows
        return first + np.flatnonzero(~np.isnan(self._throughput[first : first + self._flows, -1]))
