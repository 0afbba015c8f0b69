# SPDX-License-Identifier: Apache-2.0
"""A bound on windows: k times what the path has been seen to deliver, so that no policy can flood it for long.

With B = the highest delivery rate of the last 2 s, taken over 100 ms, times sRTT, in packets, no window is above
k * B + 3, but 10 are always allowed. A flow that keeps at its bound sends k times what is delivered, so that at most
(k - 1) / k of its packets are lost; with k = 2 slow start still doubles. A flow that had little to send has a small
bound, and grows anew (as RFC 7661 wants it).

Where it tightens with loss, a round (an sRTT, at least 100 ms) in which more than a set share of the packets was lost
makes k 0.9 and forgets the rates before it: the window drains what does not fit. Each round after it without such
loss raises k, to 1.01 first and then by an eighth of what is above 1, up to its full value. So a flow that keeps at its
bound probes as BBRv2 does (draft-cardwell-iccrg-bbr-congestion-control-02, 4.3.3), and loses little on average.
Where a path takes few packets, 3 more are what 0.9 takes away, and nothing drains; a bound that drains goes without
them in the round after a loss.

For slow flows an RTT may be the lowest one: 100 ms then hold a packet or none, and sRTT is mostly the flow's own queue.
So no bound grows with the queue that it allows. Next to others that queue is theirs, and 10 packets in it may be less
than is called slow: such a flow stays there.

Everything is a whole number, so that the kernel (execution/stock/bpf) computes the same.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Ints
from sagecc.common.machine_code import compiled
from sagecc.execution.flow.intervals import times_us
from sagecc.execution.flow.window import with_windows
from sagecc.policy.artefact import Control
from sagecc.pool.features import step32
from sagecc.schemas.environment import BYTES_S_PER_MBPS, MTU_BYTES

RATE_TICKS = 10
"""A delivery rate is taken over 100 ms; over less while a flow is younger."""
PEAK_TICKS = 200
"""The highest rate is that of 2 s."""
SPARE_PKTS = 3
"""Packets above k * B, so that the smallest windows can grow."""
LEAST_PKTS = 10
"""No bound is below: Linux's initial window (RFC 6928)."""
MAX_RATE = 0xFFFFFFFF
"""Highest rate that can be told the kernel: 4.3 million packets a second."""

ROUND_US = 100_000
"""Shortest round."""
TIGHT = 900
"""k after a round of loss, in thousandths: what was in the queue then drains."""
LOOSENING = 10
"""k above 1 after the first round without loss, in thousandths."""

_SLOTS = 16  # a power of two above RATE_TICKS
_BEGUN, _DELIVERED, _LOST, _FACTOR = range(4)  # of a round: since when, counters then; k in thousandths


@compiled
def bound_of(rate: int, srtt_us: int) -> int:
    """Return the bound of a window (packets).

    Args:
        rate: k times the highest delivery rate (thousandths of packets per second).
        srtt_us: smoothed RTT.
    """
    return max(rate * srtt_us // 1_000_000_000 + SPARE_PKTS, LEAST_PKTS)


@compiled
def _bounds(rate: Ints, srtt_us: Ints) -> Ints:
    bounds = np.empty(len(rate), np.int64)
    for row in range(len(rate)):
        bounds[row] = bound_of(rate[row], srtt_us[row])
    return bounds


@compiled
def _peaks(t_us: Ints, delivered: Ints, slots: Ints, times: Ints, counts: Ints, rates: Ints, ticks: Ints) -> Ints:
    """Take the next tick of some flows; return their highest rates [B], in thousandths of packets per second."""
    peaks = np.empty(len(slots), np.int64)
    for row in range(len(slots)):
        slot, tick = slots[row], ticks[slots[row]]
        newest, oldest = tick % _SLOTS, max(0, tick - RATE_TICKS) % _SLOTS
        times[slot, newest], counts[slot, newest] = t_us[row], delivered[row]
        passed_us = t_us[row] - times[slot, oldest]
        packets = step32(delivered[row], counts[slot, oldest])
        rates[slot, tick % PEAK_TICKS] = packets * 1_000_000_000 // passed_us if passed_us > 0 else 0
        peak = rates[slot, 0]
        for known in range(1, min(tick + 1, PEAK_TICKS)):
            peak = max(peak, rates[slot, known])
        peaks[row] = peak
        ticks[slot] = tick + 1
    return peaks


@compiled
def _loosened(factor: int, most: int) -> int:
    """Return k after a round without loss."""
    return min(max(1000 + LOOSENING, 1000 + (factor - 1000) * 9 // 8), most)


@compiled
def _tighten(
    t_us: Ints,
    srtt_us: Ints,
    delivered: Ints,
    lost: Ints,
    slots: Ints,
    rounds: Ints,
    rates: Ints,
    most: int,
    limit: int,
) -> None:
    """Take the next tick of some flows: where a round ends, set k by what was lost in it.

    Args:
        t_us: time [B].
        srtt_us: smoothed RTT [B].
        delivered: packets delivered so far [B].
        lost: packets lost so far [B].
        slots: the flows' slots [B].
        rounds: their rounds [slots, 4]; one that began at -1 has not.
        rates: their delivery rates, to be forgotten [slots, PEAK_TICKS].
        most: largest k, in thousandths.
        limit: largest share of lost packets, in thousandths.
    """
    for row in range(len(slots)):
        of_flow = rounds[slots[row]]
        if of_flow[_BEGUN] >= 0:
            if t_us[row] - of_flow[_BEGUN] < max(srtt_us[row], ROUND_US):
                continue
            passed, missing = step32(delivered[row], of_flow[_DELIVERED]), step32(lost[row], of_flow[_LOST])
            if missing * 1000 > limit * (passed + missing):
                of_flow[_FACTOR] = TIGHT
                rates[slots[row]] = 0
            else:
                of_flow[_FACTOR] = _loosened(of_flow[_FACTOR], most)
        of_flow[_BEGUN], of_flow[_DELIVERED], of_flow[_LOST] = t_us[row], delivered[row], lost[row]


class WindowBound:
    """The bounds of several flows, one slot per flow; each flow's every tick must be taken.

    What multiplies a window goes on from the kernel's, which is the bounded one: nothing winds up above the bound.
    """

    def __init__(
        self,
        factor: float,
        flows: int = 1,
        loss: float | None = None,
        drains: bool = False,
        slow_mbps: float | None = None,
    ) -> None:
        """Start with nothing seen.

        Args:
            factor: k; counts in thousandths.
            flows: number of slots.
            loss: share of a round's packets above which their loss tightens the bound, in thousandths; None: never.
            drains: whether a round after such a loss goes without SPARE_PKTS.
            slow_mbps: highest rate below which an RTT is the lowest one; None: at no rate.
        """
        self._most = round(factor * 1000)
        self._limit = None if loss is None else round(loss * 1000)
        self._drains = drains
        self._slow = None if slow_mbps is None else round(slow_mbps * BYTES_S_PER_MBPS / MTU_BYTES * 1000)
        self._rounds = np.zeros((flows, 4), np.int64)
        self._rounds[:] = -1, 0, 0, self._most
        self._times, self._counts = np.zeros((2, flows, _SLOTS), np.int64)
        self._rates = np.zeros((flows, PEAK_TICKS), np.int64)
        self._ticks = np.zeros(flows, np.int64)
        self._bounding = np.zeros(flows, np.int64)

    def apply(self, samples: npt.NDArray[np.void], slots: Ints, cwnd: Ints, pacing: Ints) -> tuple[Ints, Ints]:
        """Take the next tick of some flows, and bound what is to be set in the kernel.

        A window that is left to an underlying scheme and is above its bound is set to it.

        Args:
            samples: structured array [B] with `t_ns` or `t_s` and the counters of schemas.raw by name.
            slots: the flows' slots [B].
            cwnd: windows to set [B] (packets), 0 where the kernel's is left.
            pacing: pacing rates to set [B] (bytes/s), 0 where a flow is not paced or the kernel's is left.

        Returns:
            The same, with no window above its bound, and the rates of lowered windows one window per sRTT.
        """
        kernel, srtt, delivered = (
            samples[name].astype(np.int64) for name in ("cwnd_pkts", "srtt_us", "delivered_pkts")
        )
        t_us = times_us(samples)
        if self._limit is not None:
            lost = samples["lost_total_pkts"].astype(np.int64)
            _tighten(t_us, srtt, delivered, lost, slots, self._rounds, self._rates, self._most, self._limit)
        peaks = _peaks(t_us, delivered, slots, self._times, self._counts, self._rates, self._ticks)
        factors = self._rounds[slots, _FACTOR]
        rates = np.minimum(peaks * factors // 1000, MAX_RATE)
        if self._slow is not None:
            min_rtt = samples["min_rtt_us"].astype(np.int64)
            rates = np.where(peaks < self._slow, rates * np.minimum(min_rtt, srtt) // np.maximum(srtt, 1), rates)
        if self._drains:
            spare = SPARE_PKTS * 1_000_000_000 // np.maximum(srtt, 1)  # what `bound_of` adds, as a rate
            rates = np.where(factors < 1000, np.maximum(rates - spare, 0), rates)
        self._bounding[slots] = rates
        bounds = _bounds(rates, srtt)
        above = np.where(cwnd > 0, cwnd, kernel) > bounds
        return with_windows(samples, cwnd, pacing, above, bounds)

    def rates(self, slots: Ints) -> Ints:
        """Return k times the highest delivery rates as of the flows' last ticks [B] (thousandths of packets/s)."""
        rates: Ints = self._bounding[slots]
        return rates

    def reset(self, slot: int) -> None:
        """Forget a flow, so that its slot can serve another."""
        self._ticks[slot] = self._bounding[slot] = 0
        self._rounds[slot] = -1, 0, 0, self._most


def window_bound(control: Control, flows: int) -> WindowBound | None:
    """Return the bounds that a policy's card asks for, for so many flows, or None."""
    if not control.window_bound:
        return None
    loss, drains, slow_mbps = control.window_bound_loss, control.window_bound_drains, control.window_bound_slow_mbps
    return WindowBound(control.window_bound, flows, loss, drains, slow_mbps)
