# SPDX-License-Identifier: Apache-2.0
"""Sprout (Winstein, Sivaraman, Balakrishnan, NSDI 2013): send no more than what the link will surely deliver in 100 ms.

Section 3 models a cellular link as a Poisson process of deliveries whose rate is in Brownian motion (`Belief`): every
tick of 20 ms the belief about the rate spreads, and is weighed by what was delivered. Of what may be delivered in the
coming ticks the 5th percentile is the forecast. The sender may have so many packets in flight that all of them will be
out within 5 ticks by the forecast: its window.

What differs here, where a TCP sender stands in for Sprout's receiver:

- The observation is how many packets were acknowledged in a tick, in order or not. Acknowledgements tell of a delivery
  half an RTT later than a receiver sees it, and Linux's receiver joins two packets in one of them.
- The paper's sender announces when it pauses, so that nothing delivered is not taken for an outage (section 3.4's
  time-to-next). Here a tick without a delivery is no observation unless packets are overdue: sent a lowest RTT and a
  tick before, and not back yet.
- The paper's forecast reaches 8 ticks ahead, so that a sender without new ones can go on for 3. Here each
  acknowledgement brings one, so a window of the first 5 ticks is all that is used, and packets in flight take the place
  of the estimated queue.
- A window of 2 packets is always allowed, in place of the paper's packet every 50 ms.

Rates end at 1000 packets a second (section 3.1), 12 Mbps: on faster links the window stays that of 12 Mbps. The bins
are as published, so a flow on a link of 48 Mbps and an RTT of 40 ms gets half of it.
"""

from __future__ import annotations

from collections import deque
from functools import cache
from random import Random
from typing import Protocol

import numpy as np

from sagecc.common.arrays import Doubles
from sagecc.common.machine_code import compiled
from sagecc.execution.schemes.scheme import INITIAL_WINDOW, Sample
from sagecc.policy import exact
from sagecc.schemas.raw import TICK_S

TICK = 0.02
"""A tick (s), section 3.2."""
BINS = 256
"""Rates of the belief (section 3.1)."""
MAX_RATE = 1000.0
"""Highest rate (packets/s)."""
SIGMA = 200.0
"""Deviation of the rate after a second (packets/s per square root of a second)."""
ESCAPE = 1.0
"""Rate at which an outage ends (1/s)."""
AHEAD = 8
"""Ticks of a forecast (section 3.3)."""
CAUTION = 0.05
"""A forecast is delivered with probability 1 - CAUTION."""
WINDOW_TICKS = 5
"""Ticks in which all that is in flight is to be delivered (section 3.5): 100 ms."""
MOST = 40
"""Most deliveries a tick that are told apart: twice the mean of the highest rate."""
LEAST_WINDOW = 2
"""Packets that may always be sent; of one alone the acknowledgement would be delayed."""
GAIN = 1 / 8
"""Weight of the newest tick in Sprout-EWMA's average; the paper (section 5.3) does not give one."""

RATES: Doubles = (np.arange(BINS, dtype=np.float64) + 0.5) * (MAX_RATE / BINS)
"""The rates of the bins, at their centres (packets/s) [BINS]; the first one is an outage."""


@compiled
def _sum_of_rows(weights: Doubles, rows: Doubles) -> Doubles:
    """Return weights [N] times rows [N, M], every sum taken in the order of the rows: the same bits everywhere."""
    total = np.zeros(rows.shape[1])
    for row in range(len(weights)):
        weight = weights[row]
        for column in range(rows.shape[1]):
            total[column] += weight * rows[row, column]
    return total


@cache
def spreading() -> Doubles:
    """Return from each bin's rate the probabilities of all after a tick [BINS, BINS] (section 3.1).

    Brownian motion, which stays at the ends; out of an outage no more than with ESCAPE.
    """
    steps = np.arange(-BINS, BINS + 1) * (MAX_RATE / BINS)
    bell = exact.exp(-(steps * steps) / (2 * SIGMA * SIGMA * TICK))
    below = np.concatenate([[0.0], np.cumsum(bell)])  # [k]: of steps before the kth
    below /= below[-1]
    shares = np.empty((BINS, BINS))
    for bin_ in range(BINS):
        edges = below[BINS - bin_ : 2 * BINS - bin_ + 1].copy()  # bin 0 begins so many steps down
        edges[0], edges[-1] = 0.0, 1.0
        shares[bin_] = edges[1:] - edges[:-1]
    escapes = 1.0 - float(exact.exp(np.array([-ESCAPE * TICK]))[0])
    shares[0] *= escapes / (1.0 - shares[0, 0])
    shares[0, 0] = 1.0 - escapes
    return shares


@cache
def likelihoods() -> Doubles:
    """Return the probabilities of 0 to MOST deliveries in a tick [MOST + 1, BINS]: Poisson's."""
    mean = RATES * TICK
    table = np.empty((MOST + 1, BINS))
    table[0] = exact.exp(-mean)
    for count in range(1, MOST + 1):
        table[count] = table[count - 1] * mean / count
    return table


@cache
def deliveries() -> tuple[Doubles, ...]:
    """Return by ticks ahead, 1 to AHEAD, of each bin the probabilities of so many deliveries or fewer till then.

    Section 3.3: each tick's deliveries follow from where the rate may be by then. [BINS, ticks * MOST + 1] each.
    """
    counts, moved = np.ascontiguousarray(likelihoods().T), spreading()
    where, total, table = np.eye(BINS), np.ones((BINS, 1)), []
    for _ in range(AHEAD):
        now = np.array([_sum_of_rows(row, counts) for row in where])
        longer = np.zeros((BINS, total.shape[1] + MOST))
        for count in range(MOST + 1):
            longer[:, count : count + total.shape[1]] += now[:, count : count + 1] * total
        total = longer
        table.append(np.cumsum(total, axis=1))
        where = np.array([_sum_of_rows(row, moved) for row in where])
    return tuple(table)


class Estimate(Protocol):
    """What is thought of a link's rate."""

    def advance(self, delivered: int | None) -> None:
        """Go on by a tick.

        Args:
            delivered: packets that were delivered in it; None where that says nothing of the link.
        """

    def forecast(self, ticks: int) -> float:
        """Return how many packets the link will deliver in the coming ticks."""


class Belief:
    """Probabilities of the link's rates (sections 3.1 to 3.3)."""

    def __init__(self) -> None:
        """Start with all rates alike."""
        self.probability: Doubles = np.full(BINS, 1 / BINS)
        """Of each bin [BINS]."""

    def advance(self, delivered: int | None) -> None:
        """Go on by a tick; see Estimate."""
        believed = _sum_of_rows(self.probability, spreading())
        if delivered is not None:
            believed *= likelihoods()[min(delivered, MOST)]
        self.probability = believed / np.cumsum(believed)[-1]

    def forecast(self, ticks: int) -> float:
        """Return the packets that will be delivered with probability 1 - CAUTION in 1 to AHEAD ticks."""
        fewer = _sum_of_rows(self.probability, deliveries()[ticks - 1])
        return float(np.searchsorted(fewer, CAUTION))


class Average:
    """A moving average of what a tick delivered, which is expected to go on (section 5.3)."""

    def __init__(self) -> None:
        """Start with what Linux's initial window would need."""
        self._per_tick = INITIAL_WINDOW / WINDOW_TICKS

    def advance(self, delivered: int | None) -> None:
        """Go on by a tick; see Estimate."""
        if delivered is not None:
            self._per_tick += GAIN * (delivered - self._per_tick)

    def forecast(self, ticks: int) -> float:
        """Return the packets of so many ticks."""
        return self._per_tick * ticks


class Sprout:
    """One flow's window."""

    def __init__(self, link: Estimate) -> None:
        """Start.

        Args:
            link: what forecasts the link.
        """
        self._link = link
        self._calls = 0
        self._delivered = 0  # at the last tick
        self._sent: deque[tuple[float, int]] = deque()  # time (s), packets sent by then, from when packets are due on

    def on_tick(self, sample: Sample) -> tuple[float, float]:
        """Return the forecast of 5 ticks as window, without pacing."""
        overdue = self._overdue(sample)
        if not self._calls:
            self._delivered = sample.delivered_pkts
        elif self._calls % round(TICK / TICK_S) == 0:
            delivered, self._delivered = sample.delivered_pkts - self._delivered, sample.delivered_pkts
            self._link.advance(delivered if delivered or overdue else None)
        self._calls += 1
        return max(self._link.forecast(WINDOW_TICKS), LEAST_WINDOW), 0.0

    def _overdue(self, sample: Sample) -> bool:
        """Tell whether packets are in flight that a link without an outage would have delivered."""
        self._sent.append((sample.t_s, sample.data_segs_out))
        due_s = sample.t_s - sample.min_rtt_us / 1e6 - TICK
        while len(self._sent) > 1 and self._sent[1][0] <= due_s:
            self._sent.popleft()
        t_s, sent = self._sent[0]
        return t_s <= due_s and sent > sample.data_segs_out - sample.inflight_pkts


def sprout(_: Random) -> Sprout:
    """Return Sprout for a flow; nothing is drawn."""
    return Sprout(Belief())


def sprout_ewma(_: Random) -> Sprout:
    """Return Sprout-EWMA for a flow (section 5.3): faster, and with more delay."""
    return Sprout(Average())
