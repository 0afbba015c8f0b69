# SPDX-License-Identifier: Apache-2.0
"""What the connections of a trial did in an interval, and both groups as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sagecc.common.arrays import Ints
from sagecc.execution.stock.shared import Structured
from sagecc.execution.stock.trial import GROUPS, RECORD

ACTIVITY = np.dtype(
    [
        ("id", "<i8"),
        ("group", "<i8"),
        ("begun", "<i8"),
        ("sent_segs", "<i8"),
        ("retrans_segs", "<i8"),
        ("acked_bytes", "<i8"),
        ("alive_ns", "<i8"),
        ("srtt_sum_us", "<i8"),
        ("srtt_count", "<i8"),
        ("min_rtt_us", "<i8"),
    ]
)
"""What a connection did; `begun` is 1 where it was seen for the first time. All but id, group and minimum RTT can be
added up. A sum of sRTTs has one for each look at the connection that found it active."""

ADDED = ("begun", "sent_segs", "retrans_segs", "acked_bytes", "alive_ns", "srtt_sum_us", "srtt_count")


def merged(parts: Sequence[Structured]) -> Structured:
    """Return what each connection did in several intervals [n], by id."""
    rows = np.concatenate([np.zeros(0, ACTIVITY), *parts])
    rows = rows[np.argsort(rows["id"], kind="stable")]
    first = np.flatnonzero(np.diff(rows["id"], prepend=-1))
    whole = rows[first]
    if len(first):
        for name in ADDED:
            whole[name] = np.add.reduceat(rows[name], first)
        whole["min_rtt_us"] = np.minimum.reduceat(rows["min_rtt_us"], first)
    return whole


def srtts_us(rows: Structured) -> Ints:
    """Return the connections' mean sRTTs [n]."""
    means: Ints = rows["srtt_sum_us"] // rows["srtt_count"]
    return means


class Tally:
    """Adds up what connections do, from look to look and from interval to interval.

    While connections come and go, the kernel's iterator may show one twice or leave one out
    (bpf_sk_storage_map_seq_find_next counts elements of a list to whose head new ones are added), and one may end
    after the queue of the ended ones was read. So a connection that is left out once is remembered for one look more.
    """

    def __init__(self) -> None:
        self.open = np.zeros(0, RECORD)
        """Records of the connections that were open at the last look [n], by id."""
        self._left_out = np.zeros(0, RECORD)
        self._parts: list[Structured] = []

    def look(self, records: Structured) -> Structured:
        """Add what happened since the last look, and return it [n].

        Args:
            records: of the connections that are open or have ended since (execution.stock.trial); a connection may be
                there twice.
        """
        records = records[np.lexsort((records["t_ns"], records["ended"], records["id"]))]
        last = np.ones(len(records), np.bool_)
        last[:-1] = records["id"][1:] != records["id"][:-1]
        records = records[last]
        known = np.concatenate([self.open, self._left_out])
        before = np.zeros(len(records), RECORD)
        _, now, then = np.intersect1d(records["id"], known["id"], assume_unique=True, return_indices=True)
        before[now] = known[then]
        rows = np.zeros(len(records), ACTIVITY)
        for name in ("id", "group", "min_rtt_us"):
            rows[name] = records[name]
        rows["begun"] = before["id"] == 0
        rows["sent_segs"] = _grown(records, before, "data_segs_out")
        rows["retrans_segs"] = _grown(records, before, "retrans_total_pkts")
        rows["acked_bytes"] = _grown(records, before, "bytes_acked")
        rows["alive_ns"] = records["t_ns"] - np.maximum(records["since_ns"], before["t_ns"])
        moved = ((rows["sent_segs"] > 0) | (rows["acked_bytes"] > 0)) & (records["srtt_us"] > 0)
        rows["srtt_sum_us"], rows["srtt_count"] = np.where(moved, records["srtt_us"], 0), moved
        self._parts.append(rows[moved])
        self._left_out = self.open[~np.isin(self.open["id"], records["id"])]
        self.open = records[records["ended"] == 0]
        return rows

    def close(self) -> Structured:
        """Return what each active connection did since the last call [n]: it sent something, or had it acknowledged."""
        whole = merged(self._parts)
        self._parts = []
        return whole


def _grown(records: Structured, before: Structured, name: str) -> Ints:
    grown: Ints = records[name].astype(np.int64) - before[name].astype(np.int64)
    return grown


@dataclass(frozen=True)
class GroupFigures:
    """A group in an interval; every figure is over its active connections, each of the same weight."""

    connections: int
    goodput_mbps: float
    """Of all together."""
    each_mbps: float
    """Median."""
    retransmitted: float
    """Mean share of the segments."""
    srtt_ms: float
    """Geometric mean of the connections' mean sRTTs."""
    srtt_p95_ms: float
    min_rtt_ms: float
    """Median."""


def figures(rows: Structured, group: str, interval_s: float) -> GroupFigures:
    """Return the figures of a group's connections among those active in an interval [n]."""
    rows = rows[rows["group"] == GROUPS.index(group)]
    if not len(rows):
        return GroupFigures(0, 0.0, *[float("nan")] * 5)
    rates = 8e3 * rows["acked_bytes"] / np.maximum(rows["alive_ns"], 1)
    srtts_ms = srtts_us(rows) / 1e3
    return GroupFigures(
        connections=len(rows),
        goodput_mbps=float(8e-6 * rows["acked_bytes"].sum() / interval_s),
        each_mbps=float(np.median(rates)),
        retransmitted=float(retransmitted(rows).mean()),
        srtt_ms=float(np.exp(np.log(srtts_ms).mean())),
        srtt_p95_ms=float(np.percentile(srtts_ms, 95)),
        min_rtt_ms=float(np.median(rows["min_rtt_us"]) / 1e3),
    )


def retransmitted(rows: Structured) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the share of each connection's segments that were retransmissions [n]."""
    return np.asarray(rows["retrans_segs"] / np.maximum(rows["sent_segs"], 1))


HEADER = "interval  group    connections  goodput, Mbps  median each  retransmitted  sRTT, ms  p95, ms  min RTT, ms"
"""Of the table that `lines` continues."""


def lines(number: int, rows: Structured, interval_s: float) -> list[str]:
    """Return an interval's lines of the table, one a group."""
    return [
        f"{number:>8}  {group:<7}  {f.connections:>11,}  {f.goodput_mbps:>13.2f}  {f.each_mbps:>11.3f}"
        f"  {f.retransmitted:>13.2%}  {f.srtt_ms:>8.2f}  {f.srtt_p95_ms:>7.2f}  {f.min_rtt_ms:>11.2f}"
        for group in reversed(GROUPS)
        for f in [figures(rows, group, interval_s)]
    ]
