# SPDX-License-Identifier: Apache-2.0
"""The memory that the programs in the kernel and the agent share (execution/stock/bpf/shared.h): no call per flow.

A tick is one walk of the iterator, which updates the row of every socket, and one write of all orders.
"""

from __future__ import annotations

import mmap
import os
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Ints
from sagecc.execution.stock import libbpf

STALL_NS = 200_000_000
"""How long an order is valid; after that a flow follows Reno's rules."""

SILENT_NS = 30_000_000
"""From when on an order's window is bounded anew at each ACK: three ticks."""

MODES = ("new", "policy", "reno")
"""A flow's modes: it has no order yet, follows orders, follows Reno's rules."""

ROW = np.dtype(
    [
        ("flow", "<u8"),
        ("tick", "<u8"),
        ("t_ns", "<u8"),
        ("bytes_acked", "<u8"),
        ("bytes_sent", "<u8"),
        ("delivery_rate_bytes_s", "<u8"),
        ("pacing_rate_bytes_s", "<u8"),
        ("ca_state", "<u4"),
        ("app_limited", "<u4"),
        ("cwnd_pkts", "<u4"),
        ("ssthresh_pkts", "<u4"),
        ("srtt_us", "<u4"),
        ("rttvar_us", "<u4"),
        ("min_rtt_us", "<u4"),
        ("mss_bytes", "<u4"),
        ("unacked_pkts", "<u4"),
        ("sacked_pkts", "<u4"),
        ("lost_pkts", "<u4"),
        ("retrans_pkts", "<u4"),
        ("lost_total_pkts", "<u4"),
        ("retrans_total_pkts", "<u4"),
        ("delivered_pkts", "<u4"),
        ("data_segs_out", "<u4"),
        ("mode", "<u4"),
        ("pad", "<u4"),
    ]
)
"""A socket's counters at `tick`, with the names, units and meaning of schemas/raw.py."""

ORDER = np.dtype(
    [("flow", "<u8"), ("pacing_bytes_s", "<u8"), ("cwnd_pkts", "<u4"), ("bounding_rate", "<u4"), ("stamp_ns", "<u8")]
)
"""The agent's order for a socket; pacing 0: not paced; bounding rate 0: no bound; the stamp in CLOCK_MONOTONIC."""

AGENT = np.dtype([("tick", "<u8"), ("beat_ns", "<u8"), ("pid", "<u8"), ("reported", "<u8")])
"""The agent itself; beat_ns 0: there is none. reported: how many of the flows that fell back are in a log."""

COUNTS = np.dtype([(name, "<u8") for name in ("flows", "ended", "without_slot", "fell_back", "resumed", "not_chosen")])
"""Since the programs were loaded. fell_back: from the policy to Reno's rules; resumed: from them to the policy."""

Structured = npt.NDArray[np.void]


class Descriptors(NamedTuple):
    """File descriptors of the shared maps and of the iterator's link."""

    rows: int
    orders: int
    agent: int
    counts: int
    iterator: int

    def close(self) -> None:
        """Close them."""
        for fd in self:
            os.close(fd)


def mapped(fd: int, kind: np.dtype[Any]) -> Structured:
    """Return an array map's memory as an array of its entries."""
    entries = libbpf.map_info(fd).max_entries
    pages_bytes = -(-entries * kind.itemsize // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(fd, pages_bytes, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    return np.frombuffer(memory, kind, entries)


class Shared:
    """The shared memory as numpy arrays."""

    def __init__(self, descriptors: Descriptors) -> None:
        """Map the memory; the caller goes on owning the descriptors."""
        self._iterator = descriptors.iterator
        self.slots = libbpf.map_info(descriptors.rows).max_entries
        self.rows = mapped(descriptors.rows, ROW)
        self.orders = mapped(descriptors.orders, ORDER)
        self.agent = mapped(descriptors.agent, AGENT)
        self.counts = mapped(descriptors.counts, COUNTS)

    def observe(self, tick: int) -> Ints:
        """Update the row of every socket; return the slots in use [n], ascending."""
        self.agent["tick"] = tick
        libbpf.walk(self._iterator)
        return np.flatnonzero(self.rows["tick"] == tick)

    def order(
        self, slots: Ints, flows: npt.NDArray[np.uint64], cwnd: Ints, pacing: Ints, bounding: Ints, now_ns: int
    ) -> None:
        """Write orders.

        Args:
            slots: of the flows [n].
            flows: their ids [n], which tell a slot's flow from its next.
            cwnd: windows [n] (packets).
            pacing: rates [n] (bytes/s), 0 for none.
            bounding: rates [n] that bound the windows while the agent is silent (execution.agent.bound, thousandths of
                packets per second), 0 for none.
            now_ns: CLOCK_MONOTONIC; the orders are valid for STALL_NS from here.
        """
        # x86 keeps the order of writes, so that no one sees a stamp before what it stamps
        self.orders["pacing_bytes_s"][slots] = pacing
        self.orders["cwnd_pkts"][slots] = cwnd
        self.orders["bounding_rate"][slots] = bounding
        self.orders["flow"][slots] = flows
        self.orders["stamp_ns"][slots] = now_ns
        self.agent["beat_ns"] = now_ns

    def withdraw(self) -> None:
        """Withdraw every order: each flow follows Reno's rules from its next ACK on."""
        self.agent["beat_ns"] = 0
        self.orders["stamp_ns"] = 0

    def count(self, name: str) -> int:
        """Return one of COUNTS."""
        return int(self.counts[name][0])

    def report(self, fallbacks: int) -> None:
        """Note how many of the flows that fell back are in a log."""
        self.agent["reported"] = fallbacks % (1 << 64)  # an agent can have written any count

    def close(self) -> None:
        """Drop the arrays; the memory is unmapped with the last view of it."""
        del self.rows, self.orders, self.agent, self.counts
