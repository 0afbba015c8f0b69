# SPDX-License-Identifier: Apache-2.0
"""A trial of a policy: a share of the scheme's new connections is driven, the others get the system's scheme.

The programs in the kernel draw each connection by lot as it begins (execution/stock/bpf/sagecc_pure.bpf.c), so that
nothing about a connection decides its group. They write the counters of both groups, which the agent cannot reach.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np

from sagecc.execution.stock import libbpf
from sagecc.execution.stock.shared import Structured, mapped

STATES = ("none", "on", "stopped")
"""Every connection of the scheme is driven; a trial is on; every connection gets the other scheme."""

GROUPS = ("control", "canary")
"""A connection's groups: it has the system's scheme, it is driven by the policy."""

TRIAL = np.dtype(
    [
        ("threshold", "<u8"),
        ("connections", "<u8"),
        ("unseen", "<u8"),
        ("number", "<u4"),
        ("state", "<u4"),
        ("scheme", "S16"),
    ]
)
"""What the programs and who watches share (execution/stock/bpf/shared.h)."""

RECORD = np.dtype(
    [
        ("id", "<u8"),
        ("since_ns", "<u8"),
        ("t_ns", "<u8"),
        ("bytes_acked", "<u8"),
        ("group", "<u4"),
        ("ended", "<u4"),
        ("data_segs_out", "<u4"),
        ("retrans_total_pkts", "<u4"),
        ("srtt_us", "<u4"),
        ("min_rtt_us", "<u4"),
    ]
)
"""A connection's counters since its beginning, as of `t_ns` (CLOCK_MONOTONIC)."""


class TrialDescriptors(NamedTuple):
    """File descriptors of a trial's maps and of its programs' links."""

    trial: int
    ended: int
    survey: int
    end: int

    def close(self) -> None:
        """Close them."""
        for fd in self:
            os.close(fd)


class TrialMemory:
    """The trial of the scheme that is loaded; there is one at a time."""

    def __init__(self, descriptors: TrialDescriptors) -> None:
        """Map the memory; the caller goes on owning the descriptors."""
        self._descriptors = descriptors
        self._memory = mapped(descriptors.trial, TRIAL)

    def begin(self, share: float, scheme: str) -> None:
        """Draw connections from now on.

        Args:
            share: of the new connections that is driven, in (0, 1].
            scheme: the others' scheme.
        """
        self._memory["state"] = 0
        libbpf.drain(self._descriptors.ended)
        self._memory["number"] += 1
        self._memory["unseen"] = 0
        self._memory["threshold"] = round(share * 2**32)
        self._memory["scheme"] = scheme.encode()
        self._memory["state"] = STATES.index("on")

    def stop(self) -> None:
        """Give the other scheme to every new connection, and to the driven ones from their next ACK on."""
        self._memory["state"] = STATES.index("stopped")

    def clear(self) -> None:
        """Have every new connection of the scheme driven again."""
        self._memory["state"] = STATES.index("none")

    @property
    def unseen(self) -> int:
        """Connections whose end was not recorded, as too many ended at once."""
        return int(self._memory["unseen"][0])

    def records(self) -> Structured:
        """Return the last counters of each connection that is open, or has ended since the last call [n]."""
        ended = libbpf.drain(self._descriptors.ended)
        return np.frombuffer(ended + libbpf.walk(self._descriptors.survey), RECORD)

    def close(self) -> None:
        """Drop the array; the memory is unmapped with the last view of it."""
        del self._memory
