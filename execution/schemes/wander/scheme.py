# SPDX-License-Identifier: Apache-2.0
"""`wander`: windows that hold, drift and move fast at random, whatever the network says, so that a pool has them.

In the heuristics' trajectories the way a window moved tells what share of the link its flow has: Vegas's stands still
where it has little, Cubic's grows after a loss. A policy that learns from them takes these signs for the network's,
and its own movements mislead it (causal confusion; de Haan, Jayaraman and Levine, NeurIPS 2019). Here movements follow
from random numbers, so they tell nothing.

Slow start is left to acknowledgements, until a loss or a queue. Then come segments: two of five hold the window, two
drift, one moves fast; some have noise on top. The last second's losses send it down, the fewest packets up. As a policy
does, it decides every 50 ms, multiplies or divides the window by 2**0.1 at most, in equal parts at each tick, and paces
one window per smoothed RTT.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import NamedTuple

from sagecc.execution.schemes.scheme import Sample

DECISION_TICKS = 5
"""Ticks of 10 ms from one decision to the next."""
MOST = 0.1
"""Most that a decision moves log2 of the window."""
FAST = (0.03, 0.1)
"""Range of a fast segment's slope, log2 per decision."""
DRIFTS = tuple(0.001 * 1.25**step for step in range(16))
"""Slopes of drifts, log2 per decision: 0.001 to 0.028."""
NOISES = (0.0, 0.02, 0.05)
"""Largest noise of a decision, log2; each as often."""
HOLD_S, DRIFT_S, FAST_S = (1.0, 10.0), (1.0, 6.0), (0.3, 1.5)
"""Ranges of segments' lengths (s)."""
UP = 0.57
"""Share of moving segments that go up: losses send it down often enough."""
LOSS = 0.03
"""Share of packets lost from which it goes down."""
FEWEST, LARGEST = 4.0, 20_000.0
"""Range of windows (packets)."""
BOUND = 1.6
"""Most windows of what an RTT delivers."""
LEAST_BOUND = 8.0
"""The bound is no lower than this (packets)."""
QUEUE_S = 0.02
"""Slow start ends where the smoothed RTT is above twice the minimum and this (s)."""

_LN2 = 0.6931471805599453


class _Counted(NamedTuple):
    t_s: float
    delivered_pkts: int
    lost_pkts: int


class Wander:
    """One flow's windows."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._window, self._starting = 10.0, True
        self._until_s, self._slope, self._noise = 0.0, 0.0, 0.0
        self._ticks, self._factor = 0, 1.0
        self._counted: deque[_Counted] = deque()
        self._delivered_pkts = 0

    def on_tick(self, sample: Sample) -> tuple[float, float]:
        """Take a tick's counters; see UserSpaceScheme."""
        rtt_s = sample.srtt_us / 1e6
        if rtt_s == 0:
            return self._window, 0.0
        now = _Counted(sample.t_s, sample.delivered_pkts, sample.lost_total_pkts)
        self._count(now, max(1.0, rtt_s))
        if self._starting:
            return self._start(sample, rtt_s)
        first = self._counted[0]
        over_s, delivered = now.t_s - first.t_s, now.delivered_pkts - first.delivered_pkts
        if self._ticks % DECISION_TICKS == 0:
            lost = now.lost_pkts - first.lost_pkts
            self._decide(now, over_s > 0.1 and lost > LOSS * (delivered + lost))
        self._ticks += 1
        self._window *= self._factor
        if over_s > 0.05 and delivered > 20:
            self._window = min(self._window, max(BOUND * delivered / over_s * rtt_s, LEAST_BOUND))
        self._window = min(max(self._window, FEWEST), LARGEST)
        return self._window, self._window * sample.mss_bytes / rtt_s

    def _count(self, now: _Counted, over_s: float) -> None:
        self._counted.append(now)
        while len(self._counted) > 2 and self._counted[0].t_s < now.t_s - over_s:
            self._counted.popleft()

    def _start(self, sample: Sample, rtt_s: float) -> tuple[float, float]:
        self._window = min(self._window + sample.delivered_pkts - self._delivered_pkts, LARGEST)
        self._delivered_pkts = sample.delivered_pkts
        if sample.lost_total_pkts or rtt_s > 2 * sample.min_rtt_us / 1e6 + QUEUE_S:
            self._starting = False
        return self._window, 2 * self._window * sample.mss_bytes / rtt_s

    def _decide(self, now: _Counted, loses: bool) -> None:
        if loses and self._slope >= 0:
            self._begin(now.t_s, down=True)
            self._counted = deque([now])
        elif now.t_s >= self._until_s:
            self._begin(now.t_s)
        if self._window <= FEWEST and self._slope < 0:
            self._slope = -self._slope
        noise = self._noise * self._random.uniform(-1.0, 1.0)
        exponent = min(max(self._slope + noise, -MOST), MOST) / DECISION_TICKS * _LN2
        # 2**x to 1e-9 by products alone, which are the same on every machine
        self._factor = 1 + exponent * (1 + exponent / 2 * (1 + exponent / 3))

    def _begin(self, t_s: float, down: bool = False) -> None:
        draw, kind = self._random, self._random.random()
        sign = 1 if draw.random() < UP else -1
        if down or kind < 0.2:
            self._slope, length_s = (-1 if down else sign) * draw.uniform(*FAST), draw.uniform(*FAST_S)
        elif kind < 0.6:
            self._slope, length_s = 0.0, draw.uniform(*HOLD_S)
        else:
            self._slope, length_s = sign * DRIFTS[int(draw.random() * len(DRIFTS))], draw.uniform(*DRIFT_S)
        self._noise = NOISES[int(draw.random() * len(NOISES))]
        self._until_s = t_s + length_s
