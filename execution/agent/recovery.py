# SPDX-License-Identifier: Apache-2.0
"""A floor under windows while lost packets are repaired, so that a burst of losses does not shut a flow for minutes.

Retransmissions wait for the window as other packets do. A policy that answers thousands of losses with the smallest
window repairs a few per RTT. Linux's schemes come out of a fast recovery with their ssthresh (RFC 6937), half a window
or more. So from the first tick in TCP_CA_Recovery to the last, no window is below a share of what the flow delivered in
an sRTT as it began, which counts its part of the queue and nothing that was lost. A timeout ends the floor.

All numbers are whole, so that another language can compute the same.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Ints
from sagecc.common.machine_code import compiled
from sagecc.execution.flow.window import with_windows
from sagecc.policy.artefact import Control

TCP_CA_RECOVERY = 3
"""Kernel state of a fast recovery."""


@compiled
def _step(
    ca_state: Ints, rate_bytes_s: Ints, mss: Ints, srtt_us: Ints, slots: Ints, thousandths: int, floors: Ints
) -> Ints:
    """Take the next tick of some flows; return their floors [B] (packets), 0 for none.

    Args:
        ca_state: the kernel's state [B].
        rate_bytes_s: its delivery rate [B].
        mss: bytes of a packet [B].
        srtt_us: smoothed RTT [B].
        slots: the flows' slots [B].
        thousandths: share of what is delivered in an sRTT.
        floors: of the recoveries under way [slots]; -1: none.
    """
    found = np.zeros(len(slots), np.int64)
    for row in range(len(slots)):
        slot = slots[row]
        if ca_state[row] != TCP_CA_RECOVERY:
            floors[slot] = -1
            continue
        if floors[slot] < 0:
            packets_s = rate_bytes_s[row] // max(mss[row], 1)
            floors[slot] = packets_s * srtt_us[row] // 1_000_000 * thousandths // 1000
        found[row] = floors[slot]
    return found


class RecoveryFloor:
    """The floors of several flows, one slot per flow; each flow's every tick must be taken."""

    def __init__(self, share: float, flows: int = 1) -> None:
        """Start with nothing seen.

        Args:
            share: of what is delivered in an sRTT; counts in thousandths.
            flows: number of slots.
        """
        self._thousandths = round(share * 1000)
        self._floors = np.full(flows, -1, np.int64)

    def apply(self, samples: npt.NDArray[np.void], slots: Ints, cwnd: Ints, pacing: Ints) -> tuple[Ints, Ints]:
        """Take the next tick of some flows, and raise what is to be set in the kernel to their floors.

        Args:
            samples: structured array [B] with the counters of schemas.raw by name.
            slots: the flows' slots [B].
            cwnd: windows to set [B] (packets), 0 where the kernel's is left.
            pacing: pacing rates to set [B] (bytes/s), 0 where a flow is not paced or the kernel's is left.

        Returns:
            The same, with no set window below its floor, and the rates of raised windows one window per sRTT.
        """
        names = ("ca_state", "delivery_rate_bytes_s", "mss_bytes", "srtt_us")
        ca_state, rate, mss, srtt = (samples[name].astype(np.int64) for name in names)
        floors = _step(ca_state, rate, mss, srtt, slots, self._thousandths, self._floors)
        below = (cwnd > 0) & (cwnd < floors)
        return with_windows(samples, cwnd, pacing, below, floors)

    def reset(self, slot: int) -> None:
        """Forget a flow, so that its slot can serve another."""
        self._floors[slot] = -1


def recovery_floor(control: Control, flows: int) -> RecoveryFloor | None:
    """Return the floors that a policy's card asks for, for so many flows, or None."""
    return RecoveryFloor(control.recovery_floor, flows) if control.recovery_floor else None
