# SPDX-License-Identifier: Apache-2.0
"""What a scheme in user space is: a class that is made for each flow and called at each of its ticks of 10 ms.

    class Mine:
        def __init__(self, random): ...
        def on_tick(self, sample): return window_packets, pacing_bytes_s

Its flow runs on the kernel's scheme `pure`, whose window and pacing rate are those of the last tick. The kernel detects
losses and sends again as ever. All that the class may know of its flow is what a sender knows: `Sample`. The same
samples and random numbers must give the same actions, so that the same episode has the same bytes: no clock, no random
numbers but those given, sums in an order of their own (not BLAS's), nothing shared between flows that changes.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple, Protocol

from sagecc.execution.flow.window import RATE_WINDOWS


class Sample(NamedTuple):
    """A flow's counters at a tick, as its kernel holds them: those of schemas.raw that a sender has."""

    t_s: float
    """Virtual time since the episode began (s)."""
    ca_state: int
    """0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss."""
    app_limited: int
    """1 where the last rate sample was limited by the application."""
    cwnd_pkts: int
    """Window (packets)."""
    ssthresh_pkts: int
    """Threshold of slow start (packets); `pure` has none."""
    srtt_us: int
    """Smoothed RTT (us), an average of about eight samples; 0 before the first."""
    rttvar_us: int
    """Its mean deviation (us)."""
    min_rtt_us: int
    """Lowest RTT of 300 s (us), all ones before the first sample."""
    mss_bytes: int
    """Payload of a full packet (bytes)."""
    unacked_pkts: int
    """Packets sent and not acknowledged in order."""
    sacked_pkts: int
    """Of these, those acknowledged out of order."""
    lost_pkts: int
    """Of these, those held lost now: an estimate, no counter."""
    retrans_pkts: int
    """Retransmissions in flight."""
    lost_total_pkts: int
    """Packets ever marked lost (counter)."""
    retrans_total_pkts: int
    """Retransmissions (counter)."""
    delivered_pkts: int
    """Packets delivered, those acknowledged out of order included (counter)."""
    data_segs_out: int
    """Packets sent, retransmissions included (counter)."""
    rto_total: int
    """Retransmission timeouts (counter)."""
    bytes_acked: int
    """Bytes acknowledged in order (counter)."""
    bytes_sent: int
    """Bytes sent, retransmissions included (counter)."""
    delivery_rate_bytes_s: int
    """Rate of the last rate sample (bytes/s)."""
    pacing_rate_bytes_s: int
    """Pacing rate (bytes/s), all ones when unlimited."""

    @property
    def inflight_pkts(self) -> int:
        """Packets in the network, as Linux counts them (tcp_packets_in_flight)."""
        return max(self.unacked_pkts - self.sacked_pkts - self.lost_pkts + self.retrans_pkts, 0)


class UserSpaceScheme(Protocol):
    """Drives one flow."""

    def on_tick(self, sample: Sample) -> tuple[float, float]:
        """Take a tick's counters.

        Args:
            sample: the flow's, now.

        Returns:
            The window (packets; rounded down, at least 1) and the pacing rate (payload bytes/s; 0: not paced).
        """


SchemeClass = Callable[[Random], UserSpaceScheme]
"""Makes the scheme of a new flow from random numbers of its own."""


def window_of_rate(rate_bytes_s: float, sample: Sample) -> float:
    """Return a window that does not bind where a pacing rate is to decide, and still bounds an outage.

    At a pacing rate r a flow has r times its RTT in flight; RATE_WINDOWS says why the window is a multiple of that.

    Args:
        rate_bytes_s: the pacing rate.
        sample: the flow's counters.

    Returns:
        The window (packets), at least Linux's initial one.
    """
    return max(RATE_WINDOWS * rate_bytes_s * sample.srtt_us / 1e6 / max(sample.mss_bytes, 1), INITIAL_WINDOW)


INITIAL_WINDOW = 10
"""Packets that Linux sends before the first acknowledgement (RFC 6928)."""
