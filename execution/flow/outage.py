# SPDX-License-Identifier: Apache-2.0
"""How a flow continues after an outage: by the RTT and the window of before.

A packet that an outage holds back is acknowledged seconds late. sRTT counts each of them, and a rate of one window per
sRTT then sends too little to bring it down. RFC 6298 (section 5) lets a sender forget such an sRTT. The window has
shrunk too: after a spurious timeout (RFC 5682) the kernel's schemes restore the one of before, and `pure` does not.

An outage is a timeout (TCP_CA_Loss) and no delivery for OUTAGE_US, and for OUTAGE_GAPS times as long as there lately
was none: on slow links packets come seconds apart. From then on, until FRESH_PKTS packets that were
sent after it are delivered:

- the RTT to pace by is at most the sRTT before the outage;
- while the outage lasts and the kernel is in TCP_CA_Loss, the window is one packet (RFC 5681, section 3.1): what is
  retransmitted into an outage, the kernel repairs late;
- once something is delivered and the kernel has left TCP_CA_Loss, the window is at least the one before the outage, and
  lets PROBE_PKTS go beyond those in flight.

By then sRTT, of gain 1/8, has forgotten the outage, and observations begin as a new flow's do. Without an outage
nothing changes. All numbers are whole, so that another language can compute the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Bools, Ints
from sagecc.common.machine_code import compiled
from sagecc.execution.flow.intervals import times_us

OUTAGE_US = 500_000
"""Shortest time without a delivery: no outage is shorter than a second timeout of Linux, 0.2 s and 0.4 s apart."""
OUTAGE_GAPS = 4
"""The same as a multiple of the longest gap between deliveries, which is forgotten by an eighth with each delivery."""
FRESH_PKTS = 64
"""Packets after which (7/8)^64 is left of an sRTT, 0.02 %."""
PROBE_PKTS = 3
"""Packets that a flow may send beyond those in flight: their SACKs tell which of the others are lost."""
LOSS_WINDOW_PKTS = 1
"""Window after a timeout (RFC 5681, section 3.1)."""
NO_LIMIT = 2**32
"""Beyond any window (packets)."""
TCP_CA_LOSS = 4
"""Kernel state after a timeout."""

_WRAP = 0xFFFFFFFF  # counters of 32 bits may wrap

# Of a flow: packets delivered; since when no more (us; -1: not seen yet); longest gap (us; 0: nothing delivered yet);
# sRTT (us; 0: no outage) and window before the outage; window that lets probes go; packets to deliver until the outage
# is over (0: it lasts).
_DELIVERED, _SINCE, _GAP, _RTT, _WINDOW, _PROBE, _LEFT = range(7)


@compiled
def _step(
    t_us: Ints,
    cwnd: Ints,
    srtt_us: Ints,
    delivered: Ints,
    unacked: Ints,
    in_flight: Ints,
    ca_state: Ints,
    slots: Ints,
    states: Ints,
    found: Ints,
) -> bool:
    """Take the next tick of some flows, and tell whether any matters; `found` [4, B] takes the RTTs and AfterOutage."""
    rtts, least, most, over = found
    rtts[:], least[:], most[:], over[:] = srtt_us, 0, NO_LIMIT, 0
    matters = False
    for row in range(len(slots)):
        state = states[slots[row]]
        first = state[_SINCE] < 0
        gap_us = 0 if first else t_us[row] - state[_SINCE]
        silent = state[_GAP] > 0 and gap_us >= max(OUTAGE_US, OUTAGE_GAPS * state[_GAP])
        packets = (delivered[row] - state[_DELIVERED]) & _WRAP
        if first or packets or not unacked[row]:
            state[_DELIVERED], state[_SINCE] = delivered[row], t_us[row]
            if not state[_RTT]:
                state[_WINDOW] = cwnd[row]
                state[_GAP] = max(gap_us, state[_GAP] - state[_GAP] // 8) if packets else state[_GAP]
            elif silent and packets:
                state[_LEFT], state[_PROBE] = unacked[row] + FRESH_PKTS, in_flight[row] + PROBE_PKTS
            elif packets:
                state[_LEFT] -= packets
                if state[_LEFT] <= 0:
                    state[_RTT], over[row], matters = 0, 1, True
        elif silent:
            state[_LEFT] = 0
            if not state[_RTT] and ca_state[row] == TCP_CA_LOSS:
                state[_RTT] = srtt_us[row]
        if state[_RTT]:
            rtts[row], matters = min(srtt_us[row], state[_RTT]), True
            if ca_state[row] == TCP_CA_LOSS:
                most[row] = NO_LIMIT if state[_LEFT] > 0 else LOSS_WINDOW_PKTS
            elif state[_LEFT] > 0:
                state[_PROBE] = min(state[_PROBE], in_flight[row] + PROBE_PKTS)
                least[row] = max(state[_WINDOW], state[_PROBE])
    return matters


@dataclass(frozen=True)
class AfterOutage:
    """What holds for some flows at a tick [B], of which at least one is in an outage or just after it."""

    samples: npt.NDArray[np.void]
    """Their raw rows, `srtt_us` being the RTT to pace by."""
    least: Ints
    """Their least windows (packets); 0 for none."""
    most: Ints
    """Their largest windows (packets)."""
    over: Bools
    """Whose sRTT has just forgotten its outage."""


class Outages:
    """The outages of several flows, one slot per flow; each flow's every tick must be taken."""

    def __init__(self, flows: int = 1) -> None:
        """Start with nothing seen.

        Args:
            flows: number of slots.
        """
        self._states = np.zeros((flows, 7), np.int64)
        self._states[:, _SINCE] = -1

    def step(self, samples: npt.NDArray[np.void], slots: Ints) -> AfterOutage | None:
        """Take the next tick of some flows.

        Args:
            samples: structured array [B] with `t_ns` or `t_s` and the counters of schemas.raw by name.
            slots: the flows' slots [B].

        Returns:
            What holds for the flows, or None where no outage has an effect.
        """
        names = ("cwnd_pkts", "srtt_us", "delivered_pkts", "unacked_pkts", "sacked_pkts", "lost_pkts", "retrans_pkts")
        cwnd, srtt, delivered, unacked, sacked, lost, retrans = (samples[name].astype(np.int64) for name in names)
        in_flight = unacked - sacked - lost + retrans  # tcp_packets_in_flight
        ca_state = samples["ca_state"].astype(np.int64)
        found = np.empty((4, len(slots)), np.int64)  # an array that compiled code makes costs more than all it computes
        now_us = times_us(samples)
        if not _step(now_us, cwnd, srtt, delivered, unacked, in_flight, ca_state, slots, self._states, found):
            return None
        rtts, least, most, over = found
        paced = samples.copy()
        paced["srtt_us"] = rtts
        return AfterOutage(paced, least, most, over != 0)

    def reset(self, slot: int) -> None:
        """Forget a flow, so that its slot can serve another."""
        self._states[slot] = 0, -1, 0, 0, 0, 0, 0
