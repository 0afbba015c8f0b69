# SPDX-License-Identifier: Apache-2.0
"""PCC Vivace (Dong et al., NSDI 2018): a rate that climbs a utility by the differences that it tries out.

Time is cut into monitor intervals (MI) of a smoothed RTT. An MI's outcome is known an RTT later, when the last packet
that was sent in it is acknowledged or lost: its loss rate, and by how much the RTT rose meanwhile. From those follows
its utility (section 3, Eq. 1, "Vivace-latency"). Section 4 says how the rate follows the utility:

- *Starting*: the rate doubles each MI until the utility falls; then the rate before that counts.
- *Online learning*: two MIs at r(1 + EPSILON) and r(1 - EPSILON), in a random order, then r until both outcomes are
  known; their utilities' difference is a gradient, and a step along it makes the next r (`RateLearner`).

What differs here from the paper's sender, which decides at each packet:

- An MI begins at a tick of 10 ms, and has at least MIN_TICKS of them and MIN_PACKETS packets. So at RTTs below 20 ms an
  MI is longer than an RTT, and the rate changes more slowly than the paper's would. With MIs of one tick the gradient
  of the RTT would be a difference of two values (see `docs/guide/your-own-scheme.md` for what that costs).
- The kernel tells the smoothed RTT at each tick, not each sample; `LatestRtt` undoes the smoothing. Without, the RTT
  would come some 20 ms late at 10 Mbps, and of two tried rates the second would have the blame for both.
- An outcome's beginning and end fall between two ticks; counters are interpolated there.
- The utility takes the rate that was asked for. The window never binds, and `pure` paces exactly.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import mul
from random import Random

from sagecc.execution.schemes.scheme import INITIAL_WINDOW, Sample, window_of_rate
from sagecc.schemas.raw import TICK_S

LATENCY = 900.0
"""b of Eq. 1 (section 3), whose t is 0.9."""
LOSS = 11.35
"""c of Eq. 1: the share of losses that is tolerated is 5 %."""

EPSILON = 0.05
"""How far the tried rates lie from r (section 4)."""
CONVERSION = 1.0
"""Theta_0: Mbps per unit of gradient."""
BOUNDARY = 0.05
"""Omega_0: the largest first change, as a share of r."""
BOUNDARY_STEP = 0.1
"""Delta: by how much that share grows each time that it binds."""
TOLERANCE = 0.01
"""A gradient of the RTT nearer to 0 is noise (section 4)."""

BURST_S = 2.0**-10
"""Linux paces bursts of what a rate sends in this time (sk_pacing_shift), of two packets at least. Which packet of a
burst the RTT is of changes around losses: so much of a change says nothing then."""
MIN_TICKS = 2
"""Shortest MI: three values of the RTT, from which a slope can be told from noise."""
MIN_PACKETS = 20
"""Fewest packets in an MI: as in the authors' public code (kMinimumPacketsPerInterval)."""
MIN_MBPS = 0.1
"""Lowest rate, as in the authors' public code (kMinSendingRate)."""

_MBPS = 125_000.0  # bytes/s
_KEPT = tuple(accumulate([7 / 8] * 64, mul, initial=1.0))  # by acknowledgements, what is left of a smoothed RTT


def utility(rate_mbps: float, rtt_gradient: float, loss: float) -> float:
    """Return u = x^0.9 - 900 x dRTT/dT - 11.35 x L (Eq. 1).

    Args:
        rate_mbps: x, the sending rate.
        rtt_gradient: dRTT/dT (s/s).
        loss: l, the share of packets lost.
    """
    return rate_mbps / tenth_root(rate_mbps) - LATENCY * rate_mbps * rtt_gradient - LOSS * rate_mbps * loss


def tenth_root(x: float) -> float:
    """Return the tenth root of x > 0 by Newton's method: a library's power differs from machine to machine."""
    root = math.ldexp(1.0, math.frexp(x)[1] // 10 + 1)  # above it
    while True:
        square = root * root
        eighth = square * square * square * square
        closer = (9 * root + x / (eighth * root)) / 10
        if closer >= root:
            return root
        root = closer


def amplifier(consecutive: int) -> float:
    """Return the confidence amplifier m (section 4): n up to 3, then 2n - 3.

    Args:
        consecutive: n, steps in one direction in a row, this one included.
    """
    return float(consecutive if consecutive <= 3 else 2 * consecutive - 3)


def rtt_gradient(points: Sequence[tuple[float, float]], noise_s: float = 0.0) -> float:
    """Return the slope of a linear regression of RTTs over time, 0 where that may be noise (section 4).

    Args:
        points: times and RTTs (s).
        noise_s: a change of the RTT that says nothing.

    Returns:
        The slope (s/s); 0 below TOLERANCE, below its standard error, and where the RTT changes by less than noise_s.
    """
    n = len(points)
    mean_t, mean_rtt = sum(t for t, _ in points) / n, sum(rtt for _, rtt in points) / n
    spread = sum((t - mean_t) * (t - mean_t) for t, _ in points)
    if not spread > 0:
        return 0.0
    slope = sum((t - mean_t) * (rtt - mean_rtt) for t, rtt in points) / spread
    left = ((rtt - mean_rtt) - slope * (t - mean_t) for t, rtt in points)
    error = math.sqrt(sum(rest * rest for rest in left) / (n - 2) / spread) if n > 2 else 0.0
    return slope if abs(slope) > max(TOLERANCE, error, noise_s / (points[-1][0] - points[0][0])) else 0.0


@dataclass
class RateLearner:
    """The steps of section 4: a gradient, amplified by confidence, within a boundary that moves."""

    _up: bool = True
    """Direction of the last step."""
    _consecutive: int = 0
    """Steps in that direction in a row."""
    _bounded: int = 0
    """k of the boundary omega_0 + k delta."""

    def step(self, rate_mbps: float, utility_above: float, utility_below: float) -> float:
        """Return the next rate (Mbps).

        Args:
            rate_mbps: r.
            utility_above: utility at r(1 + EPSILON).
            utility_below: utility at r(1 - EPSILON).
        """
        gradient = (utility_above - utility_below) / (2 * EPSILON * rate_mbps)
        if (gradient > 0) == self._up:
            self._consecutive += 1
        else:
            self._up, self._consecutive, self._bounded = gradient > 0, 1, 0
        change = amplifier(self._consecutive) * CONVERSION * gradient
        boundary = (BOUNDARY + self._bounded * BOUNDARY_STEP) * rate_mbps
        if abs(change) > boundary:
            self._bounded += 1
            change = boundary if change > 0 else -boundary
        else:  # the least k whose boundary holds this change
            while self._bounded and abs(change) <= (BOUNDARY + (self._bounded - 1) * BOUNDARY_STEP) * rate_mbps:
                self._bounded -= 1
        return max(rate_mbps + change, MIN_MBPS)


@dataclass(frozen=True)
class FlowCounts:
    """What is known of a flow at a time."""

    t_s: float
    """The time (s)."""
    resolved: float
    """Packets that were sent and are no more in flight: delivered, or held lost."""
    lost: float
    """Packets ever held lost."""
    rtt_s: float
    """RTT of what was acknowledged last (s)."""

    def at(self, resolved: float, later: FlowCounts) -> FlowCounts:
        """Return the counts when so many packets were resolved, on the line to later ones."""
        passed = later.resolved - self.resolved
        share = min(max((resolved - self.resolved) / passed, 0.0), 1.0) if passed > 0 else 1.0
        return FlowCounts(
            self.t_s + share * (later.t_s - self.t_s),
            resolved,
            self.lost + share * (later.lost - self.lost),
            self.rtt_s + share * (later.rtt_s - self.rtt_s),
        )


@dataclass
class MonitorInterval:
    """A monitor interval."""

    rate_mbps: float
    """The rate that its packets were sent at."""
    first: float
    """Packets sent before it."""
    last: float
    """Packets sent when it ended; up to now, of the one being sent."""
    tried: int = 0
    """1 and -1 for the MIs above and below r, 0 for others."""
    points: list[FlowCounts] = field(default_factory=list)
    """From the acknowledgement of its first packet to that of its last."""

    @property
    def loss(self) -> float:
        """Share of its packets that were lost, when all of them are acknowledged or lost."""
        lost = self.points[-1].lost - self.points[0].lost
        return min(max(lost / max(self.last - self.first, 1.0), 0.0), 1.0)

    def outcome(self, noise_s: float, least_gradient: float) -> float:
        """Return its utility, when all of its packets are acknowledged or lost.

        Args:
            noise_s: a change of the RTT that says nothing.
            least_gradient: a steeper fall of the RTT counts as this one (s/s).
        """
        gradient = rtt_gradient([(point.t_s, point.rtt_s) for point in self.points], noise_s)
        return utility(self.rate_mbps, max(gradient, least_gradient), self.loss)


class LatestRtt:
    """The RTTs behind the kernel's smoothed one, which takes an eighth of each (tcp_rtt_estimator)."""

    def __init__(self) -> None:
        """Start with nothing seen."""
        self._smoothed_s = self._latest_s = 0.0
        self._delivered = 0

    def update(self, sample: Sample) -> float:
        """Take a tick; return the RTT (s) that the last one's acknowledgements must have had on average.

        As many are counted as packets were delivered; where a receiver joins two in one, the correction is too small.
        """
        smoothed_s, count = sample.srtt_us / 1e6, sample.delivered_pkts - self._delivered
        if not self._delivered:
            self._latest_s = smoothed_s
        elif count > 0:
            kept = _KEPT[min(count, len(_KEPT) - 1)]
            self._latest_s = self._smoothed_s + (smoothed_s - self._smoothed_s) / (1 - kept)
        self._smoothed_s, self._delivered = smoothed_s, sample.delivered_pkts
        return self._latest_s


class Vivace:
    """One flow's rate."""

    def __init__(self, random: Random) -> None:
        """Start.

        Args:
            random: draws which of two rates is tried first.
        """
        self._random = random
        self._rate_mbps = 0.0
        self._rtt = LatestRtt()
        self._learner = RateLearner()
        self._last: tuple[float, float] | None = None  # rate (Mbps) and utility of the starting phase's last MI
        self._starting = True
        self._to_try: list[int] = []  # the rates of the pair that are still to be sent at
        self._tried: dict[int, float] = {}  # the pair's utilities
        self._under_way: deque[MonitorInterval] = deque()  # sent or being sent, without an outcome
        self._ends_s = 0.0
        self._before: FlowCounts | None = None
        self._packet_bits = 0
        self._lossy = False  # the last MI with an outcome

    def on_tick(self, sample: Sample) -> tuple[float, float]:
        """Return a window that does not bind and the rate of the monitor interval."""
        if not sample.srtt_us:
            return INITIAL_WINDOW, 0.0
        sent, self._packet_bits = float(sample.data_segs_out), 8 * sample.mss_bytes
        now = FlowCounts(
            sample.t_s, sent - sample.inflight_pkts, float(sample.lost_total_pkts), self._rtt.update(sample)
        )
        if not self._rate_mbps:
            self._rate_mbps = INITIAL_WINDOW * sample.mss_bytes / (sample.srtt_us / 1e6) / _MBPS
        if self._under_way:
            self._under_way[-1].last = sent
        self._watch(now)
        if sample.t_s > self._ends_s - TICK_S / 2:
            self._begin(sample, sent)
        rate = self._under_way[-1].rate_mbps * _MBPS
        return window_of_rate(rate, sample), rate

    def _begin(self, sample: Sample, sent: float) -> None:
        """Begin the next monitor interval."""
        tried = 0
        if self._starting and self._under_way:
            self._rate_mbps *= 2
        elif self._to_try:
            tried = self._to_try.pop()
        rate = self._rate_mbps * (1 + tried * EPSILON)
        self._under_way.append(MonitorInterval(rate, sent, sent, tried))
        shortest_s = MIN_PACKETS * sample.mss_bytes / (rate * _MBPS)
        ticks = max(MIN_TICKS, int(max(sample.srtt_us / 1e6, shortest_s) / TICK_S + 0.5))
        self._ends_s = sample.t_s + ticks * TICK_S

    def _watch(self, now: FlowCounts) -> None:
        """Add what is known now to the monitor intervals whose packets come back, and learn of those that are over."""
        before, self._before = self._before or now, now
        while self._under_way:
            interval = self._under_way[0]
            if now.resolved <= interval.first:
                return
            if not interval.points:
                interval.points.append(before.at(interval.first, now))
            if len(self._under_way) == 1 or now.resolved < interval.last:
                interval.points.append(now)
                return
            interval.points.append(before.at(interval.last, now))
            self._learn(self._under_way.popleft())

    def _learn(self, interval: MonitorInterval) -> None:
        """Take an outcome."""
        # In the starting phase the RTT falls as the burst drains that every flow begins with: no merit of the rate.
        noise_s = (
            max(BURST_S, 2 * self._packet_bits / 1e6 / interval.rate_mbps) if interval.loss or self._lossy else 0.0
        )
        self._lossy = interval.loss > 0
        outcome = interval.outcome(noise_s, 0.0 if self._starting else -math.inf)
        if self._starting:
            if self._last and outcome < self._last[1]:
                self._starting, self._rate_mbps = False, self._last[0]
                self._try()
            self._last = interval.rate_mbps, outcome
        elif interval.tried:
            self._tried[interval.tried] = outcome
            if len(self._tried) == 2:
                self._rate_mbps = self._learner.step(self._rate_mbps, self._tried[1], self._tried[-1])
                self._try()

    def _try(self) -> None:
        """Begin a pair at once: there is nothing to learn from the rest of what is being sent."""
        self._tried.clear()
        self._to_try, self._ends_s = self._random.sample([1, -1], 2), 0.0
