# SPDX-License-Identifier: Apache-2.0
"""How far the other host's clock is ahead, from round trips before and after a run.

As NTP does it (RFC 5905 section 8): a round trip has four times, and the one that took least is the best. The offset is
wrong by half of that round trip at most, which happens where all of its time passes in one direction. Between the two
estimates of a run the offset is interpolated.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from sagecc.common.arrays import Ints
from sagecc.common.errors import SageccError

MOST_DRIFT = 500e-6
"""How fast a clock may run away from another: the most by which NTP adjusts one (RFC 5905, 500 ppm)."""


@dataclass(frozen=True)
class HostClock:
    """CLOCK_REALTIME, by which the kernel stamps packets."""

    ahead_ns: int = 0
    """By how much it is set wrong (ns), for tests."""

    def now_ns(self) -> int:
        """Return the time (ns)."""
        return self.stamp_ns(time.time_ns())

    def stamp_ns(self, kernel_ns: int) -> int:
        """Return by this clock what the kernel has stamped (ns)."""
        return kernel_ns + self.ahead_ns


@dataclass(frozen=True)
class RoundTrip:
    """A message and its answer."""

    sent_ns: int
    """When the message left, by this host's clock."""

    peer_received_ns: int
    """When it arrived, by the other host's clock."""

    peer_sent_ns: int
    """When the answer left, by the other host's clock."""

    received_ns: int
    """When it arrived, by this host's clock."""

    @property
    def rtt_ns(self) -> int:
        """Time on the path in both directions (ns)."""
        return self.received_ns - self.sent_ns - (self.peer_sent_ns - self.peer_received_ns)

    @property
    def offset_ns(self) -> float:
        """How far the other host's clock is ahead if both directions take equally long (ns)."""
        return (self.peer_received_ns - self.sent_ns + self.peer_sent_ns - self.received_ns) / 2


@dataclass(frozen=True)
class ClockOffset:
    """How far the other host's clock is ahead at one moment."""

    at_ns: int
    """The moment, by this host's clock."""

    offset_ns: int
    """The offset (ns)."""

    rtt_ns: int
    """The least round trip (ns)."""

    @classmethod
    def of(cls, trips: Iterable[RoundTrip]) -> ClockOffset:
        """Return the offset by the shortest of some round trips."""
        best = min(trips, key=lambda trip: trip.rtt_ns)
        return cls(best.received_ns, round(best.offset_ns), best.rtt_ns)

    @property
    def error_ns(self) -> float:
        """By how much it is wrong at most (ns)."""
        return self.rtt_ns / 2


@dataclass(frozen=True)
class RunClock:
    """The offset over a run."""

    before: ClockOffset
    """Before it."""

    after: ClockOffset
    """After it."""

    def check(self) -> None:
        """Raise SageccError where a clock was set during the run: there is no common time then."""
        moved_ns = abs(self.after.offset_ns - self.before.offset_ns)
        passed_ns = self.after.at_ns - self.before.at_ns
        allowed_ns = self.before.error_ns + self.after.error_ns + MOST_DRIFT * max(passed_ns, 0)
        if passed_ns <= 0 or moved_ns > allowed_ns:
            raise SageccError(
                f"the hosts have no common time: their clocks moved apart by {moved_ns / 1e6:.1f} ms in"
                f" {passed_ns / 1e9:.1f} s; wait until NTP has set both, and measure again"
            )

    def local_ns(self, peer_ns: Ints) -> Ints:
        """Return by this host's clock times of the other's (ns) [n]."""
        before, after = self.before, self.after
        since = peer_ns - before.offset_ns - before.at_ns
        moved = np.interp(since, [0, after.at_ns - before.at_ns], [0, after.offset_ns - before.offset_ns])
        local: Ints = peer_ns - before.offset_ns - np.rint(moved).astype(np.int64)
        return local

    @property
    def error_ns(self) -> float:
        """By how much a one-way delay of the run is wrong at most for the clocks' sake (ns)."""
        return max(self.before.error_ns, self.after.error_ns)

    @property
    def rtt_ns(self) -> int:
        """The least round trip before and after the run (ns)."""
        return min(self.before.rtt_ns, self.after.rtt_ns)
