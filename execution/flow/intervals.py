# SPDX-License-Identifier: Apache-2.0
"""What happened to flows since their last report, counted from raw rows: for reports and for rewards alike.

Every operation is one that IEEE 754 fixes: the same bits on every machine and in every batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Bools, Doubles, Ints, all_of

PACKETS_PER_ACK = 2
"""Packets that a receiver acknowledges at once (RFC 5681, section 4.2)."""

_WRAP = 0xFFFFFFFF
"""Counters of 32 bits may wrap."""
_NO_RTT = 0xFFFFFFFF
_TRACE = 1024
"""Ticks with an acknowledgement of an interval whose RTTs are known one by one: the first ones, of 10 s."""


@dataclass(frozen=True)
class Report:
    """Some flows' intervals, one element per flow [R]."""

    seconds: Doubles
    """Their lengths."""
    acks: Ints
    """Acknowledgements: the packets delivered, halved and rounded up at ticks at which nothing is out of order."""
    rate_bytes_s: Doubles
    """Mean of `delivery_rate_bytes_s` at the ticks at which something had been acknowledged; 0 without."""
    delivered_bytes_s: Doubles
    """Bytes delivered per second."""
    sent_bytes_s: Doubles
    """Bytes sent per second, retransmissions included."""
    lost_bytes_s: Doubles
    """Bytes newly marked lost per second."""
    rtt_us: Doubles
    """Mean of `srtt_us` at the ticks at which something had been acknowledged; the last one's without."""
    rtt_rise_us: Doubles
    """What the later half of those has as its mean above the earlier half's (the later gets the odd one); 0 below two
    of them, and where it is not asked for."""
    capacity_bytes_s: Doubles
    """What the bottleneck could have carried per second; 0 where that is not known."""


class Intervals:
    """The intervals of flows, one slot per flow; one begins with a flow's first row and each when it is told to."""

    def __init__(self, flows: int, rises: bool = False) -> None:
        """Start with no flow known.

        Args:
            flows: number of slots.
            rises: whether reports have `rtt_rise_us`, for which every tick is kept.
        """
        self._seen = np.zeros(flows, np.bool_)
        self._delivered = np.zeros(flows, np.int64)  # at the last tick
        self._began_s = np.zeros(flows)
        self._lost = np.zeros(flows, np.int64)  # when the interval began
        self._capacity = np.zeros(flows, np.int64)
        self._acks = np.zeros(flows, np.int64)
        self._packets = np.zeros(flows, np.int64)
        self._rate_sum = np.zeros(flows)
        self._sent = np.zeros(flows, np.int64)  # bytes, when the interval began
        # Of the first n ticks; whatever is last is not read.
        self._rtt_sums = np.zeros((flows, _TRACE + 2), np.int64) if rises else None
        self._rtt_sum = np.zeros(flows, np.int64)
        self._ticks = np.zeros(flows, np.int64)  # with an acknowledgement
        self.samples: npt.NDArray[np.void] = np.zeros(0, [])
        """The rows of the last update [B]."""
        self.slots = np.zeros(0, np.int64)
        """Their slots [B]."""

    def update(self, samples: npt.NDArray[np.void], slots: Ints) -> Bools:
        """Take one row of each flow; return which have got acknowledgements in their interval [B]."""
        self.samples, self.slots = samples, slots
        delivered = samples["delivered_pkts"].astype(np.int64)
        if not all_of(self._seen[slots]):
            new = ~self._seen[slots]
            self._delivered[slots[new]] = delivered[new]
            self.begin(new)
            self._seen[slots] = True
        newly_delivered = (delivered - self._delivered[slots]) & _WRAP
        acked = newly_delivered > 0
        self._delivered[slots] = delivered
        in_order = samples["ca_state"] == 0
        self._acks[slots] += np.where(in_order, -(-newly_delivered // PACKETS_PER_ACK), newly_delivered)
        self._packets[slots] += newly_delivered
        self._rate_sum[slots] += np.where(acked, samples["delivery_rate_bytes_s"].astype(np.float64), 0.0)
        self._rtt_sum[slots] += np.where(acked, samples["srtt_us"].astype(np.int64), 0)
        self._ticks[slots] += acked
        if self._rtt_sums is not None:
            self._rtt_sums[slots, np.minimum(self._ticks[slots], _TRACE + 1)] = self._rtt_sum[slots]
        return np.asarray(self._acks[slots] > 0)

    def report(self, chosen: Bools) -> Report:
        """Return the intervals of the chosen flows of the last update up to now, and begin new ones.

        Args:
            chosen: which [B].
        """
        samples, slots = some(chosen, self.samples, self.slots)
        seconds = _time_s(samples) - self._began_s[slots]
        past = np.where(seconds > 0, seconds, np.inf)
        mss = samples["mss_bytes"].astype(np.float64)
        lost = (samples["lost_total_pkts"].astype(np.int64) - self._lost[slots]) & _WRAP
        ticks = np.maximum(self._ticks[slots], 1)
        rtt = np.where(self._ticks[slots] > 0, self._rtt_sum[slots] / ticks, samples["srtt_us"])
        report = Report(
            seconds=seconds,
            acks=self._acks[slots],
            rate_bytes_s=self._rate_sum[slots] / ticks,
            delivered_bytes_s=self._packets[slots] * mss / past,
            sent_bytes_s=(samples["bytes_sent"].astype(np.int64) - self._sent[slots]) / past,
            lost_bytes_s=lost * mss / past,
            rtt_us=rtt,
            rtt_rise_us=np.zeros(len(slots)) if self._rtt_sums is None else self._rises(self._rtt_sums, slots),
            capacity_bytes_s=(_capacity(samples) - self._capacity[slots]) / past,
        )
        self.begin(chosen)
        return report

    def begin(self, chosen: Bools) -> None:
        """Begin new intervals for the chosen flows of the last update [B]."""
        samples, slots = some(chosen, self.samples, self.slots)
        self._began_s[slots] = _time_s(samples)
        self._lost[slots] = samples["lost_total_pkts"]
        self._sent[slots] = samples["bytes_sent"]
        self._capacity[slots] = _capacity(samples)
        self._acks[slots] = self._packets[slots] = self._ticks[slots] = 0
        self._rate_sum[slots] = self._rtt_sum[slots] = 0

    def _rises(self, sums: Ints, slots: Ints) -> Doubles:
        """Return how much higher the later half of the intervals' RTTs is than the earlier one [R] (us)."""
        count = np.minimum(self._ticks[slots], _TRACE)
        half = count // 2
        early, all_of_them = sums[slots, half], sums[slots, count]
        rise = (all_of_them - early) / np.maximum(count - half, 1) - early / np.maximum(half, 1)
        return np.where(half > 0, rise, 0.0)

    def reset(self, slot: int) -> None:
        """Forget a flow."""
        self._seen[slot] = False


def some(which: Bools, *columns: Any) -> tuple[Any, ...]:
    """Return the chosen rows [B] of columns, without copies where they are all: choosing costs more than most work."""
    return columns if all_of(which) else tuple(column[which] for column in columns)


def min_rtts_us(samples: npt.NDArray[np.void]) -> Doubles:
    """Return the flows' lowest RTTs, 0 before the first sample [B]."""
    rtts_us = samples["min_rtt_us"]
    return np.where(rtts_us == _NO_RTT, 0, rtts_us).astype(np.float64)


def _time_s(samples: npt.NDArray[np.void]) -> Doubles:
    """Return the rows' times; they have `t_s` or, as the lab's, `t_ns`."""
    names = samples.dtype.names or ()
    return np.asarray(samples["t_s"] if "t_s" in names else samples["t_ns"] / 1e9, np.float64)


def _capacity(samples: npt.NDArray[np.void]) -> Ints:
    """Return the bytes that the rows' bottlenecks could have sent so far; 0 on a real network."""
    known = "link_capacity_bytes" in (samples.dtype.names or ())
    return samples["link_capacity_bytes"].astype(np.int64) if known else np.zeros(len(samples), np.int64)


def times_us(samples: npt.NDArray[np.void]) -> Ints:
    """Return the times of rows that have `t_ns` or `t_s` [B] (us)."""
    if "t_ns" in (samples.dtype.names or ()):
        return samples["t_ns"].astype(np.int64) // 1000
    return np.rint(samples["t_s"] * 1e6).astype(np.int64)
