# SPDX-License-Identifier: Apache-2.0
"""Windows that a host has ordered and that do not hold yet, of a flow whose orders take effect late."""

from __future__ import annotations

import math
from collections import deque

from sagecc.schemas.raw import TICK_S


def lateness(latency_us: int) -> str:
    """Return what tells the plays of a late host from others, and from those before it saw what it ordered."""
    return f"late by {latency_us} us as ordered"


class OrdersUnderWay:
    """What a flow's window will be once all that was ordered of it holds.

    To whoever ordered it the latest order is the window, until another hand sets one, which is told once: so it is on a
    stock kernel (execution/stock/bpf: `window_of`). Otherwise steps of less than a packet would each begin from a whole
    window of before, and never add up.
    """

    def __init__(self, latency_us: int) -> None:
        """Begin with nothing ordered.

        Args:
            latency_us: from a sample until the order for it takes effect (us).
        """
        self._orders = deque[int]([0], maxlen=math.ceil(latency_us / (TICK_S * 1e6)) + 1)
        self._kernel_pkts = 0

    def window(self, kernel_pkts: int) -> int:
        """Return the window of a flow's next sample, whose window in the kernel is this one (packets)."""
        another_hand = kernel_pkts != self._kernel_pkts and kernel_pkts not in self._orders
        self._kernel_pkts = kernel_pkts
        return kernel_pkts if another_hand else self._orders[-1] or kernel_pkts

    def order(self, cwnd_pkts: int) -> None:
        """Take the order for the latest sample (packets); 0 leaves the window to its scheme."""
        self._orders.append(cwnd_pkts)
