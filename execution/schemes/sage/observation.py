# SPDX-License-Identifier: Apache-2.0
"""What Sage observes at run time, from raw counters, as src/sage.cc of its public code reports it.

Lines are those of sage_rl/src/sage.cc at commit eedd281 of https://github.com/Soheil-ab/sage, where no other file is
named; its names of variables are kept. The differences to the pool's features (pool/features.py), which follow the same
table of the paper:

- A report is made where something new was acknowledged, every 10 ms at most (663 to 682); else that tick has none.
  Windows count reports: 10, 200 and 1000 (55 to 57), 100 for rates (624 to 629), 200 for their maximum (633).
- Bytes lost are rises of tcpi_lost, the packets held lost now (688), and not of the counter.
- `acked_rate` is of one report, over the highest sending rate of one of 5000 reports (585, 711 to 716, 784 to 793).
- `cwnd_unacked_rate` is the mean of the bytes unacknowledged at 100 reports over the bytes sent in them (826 to 828).
- `pre_act` is log2 of the ratio that was asked for last, to three decimals (978, 1109), and not of real windows.
- `dr_max_ratio` comes before `dr_max` (973, 974).
- Numbers pass as text with seven decimals (910, 958), and what is not finite becomes 0
  (rl_module/envwapper.py:161 to 167). There is no normaliser (rl_module/envwapper.py:46): divisors are fixed.

Here as there a flow's first report comes with the SYN's acknowledgement. A flow that is met later counts as one that
has just got a packet acknowledged and sent what it has in flight. There the socket is asked again and again once 10 ms
are over, here at each tick.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Bools, Doubles, Floats, Ints
from sagecc.common.errors import SageccError
from sagecc.pool.features import RAW_NEEDED, raw_matrix
from sagecc.schemas.pool import FEATURE_NAMES, WINDOWS_TICKS
from sagecc.schemas.raw import TICK_S

SOURCE = ("sage.public", "1.0")
"""The definition of the observations and its version."""

OBSERVATIONS = (*FEATURE_NAMES[:66], "dr_max_ratio", "dr_max", "pre_act")
"""The columns of rl_module/config-rl-eval.yaml:57 (obs_cols), in order."""

RULES: Mapping[str, str] = MappingProxyType(
    {
        "acknowledged": "a row only at ticks that acknowledged something; without, at each",
        "held-lost": "bytes lost are rises of the packets held lost now; without, those ever marked lost",
        "report-rates": "acked_rate is of one report; without, of the last 100",
        "mean-unacked": "cwnd_unacked_rate takes the mean of 100 reports; without, what is unacknowledged now",
        "requested": "the previous action is the ratio asked for; without, that of the real windows",
        "decimals": "numbers have seven decimals",
    }
)
"""Rules that a policy may be without, by name."""

SHORT, MEDIUM, LONG = WINDOWS_TICKS.values()
RATE_REPORTS = 100
MAX_REPORTS = 200
SENDING_REPORTS = 5000
TICK_US = round(TICK_S * 1e6)

_COLUMNS = ("t_ns", *RAW_NEEDED)
_NO_RTT = 0xFFFFFFFF


class _Recent:
    """The last rows of numbers, oldest first."""

    def __init__(self, length: int, columns: int) -> None:
        self._rows = np.zeros((2 * length, columns))  # twice, so that any stretch of them is one piece
        self._length, self._count = length, 0

    def add(self, *values: float) -> None:
        place = self._count % self._length
        self._rows[place] = self._rows[place + self._length] = values
        self._count += 1

    def last(self, count: int) -> Doubles:
        """Return the last so many rows, or all that there are [n, columns]."""
        end = (self._count - 1) % self._length + 1 + self._length
        return self._rows[end - min(count, self._length, self._count) : end]


class _Flow:
    """A flow's reports so far."""

    def __init__(self, row: Mapping[str, int]) -> None:
        self._report_us = row["t_ns"] // 1000 - TICK_US
        self._before = {
            **row,
            "delivered_pkts": max(row["delivered_pkts"] - 1, 0),
            "bytes_acked": max(row["bytes_acked"] - row["mss_bytes"], 0),
            "bytes_sent": row["bytes_sent"] - row["unacked_pkts"] * row["mss_bytes"],
            "lost_pkts": 0,
        }
        self._series = _Recent(LONG, 6)
        self._second = _Recent(RATE_REPORTS, 6)  # sent, delivered, lost, unacknowledged, acknowledged bytes; us
        self._rates_mbps = _Recent(MAX_REPORTS, 1)
        self._sending_bytes_s = _Recent(SENDING_REPORTS, 1)
        self._dr_before, self._dr_max_before = 0.0, 1.0
        self.requested = 0.0
        """The last action: log2 of the ratio that was asked for."""

    def news(self, row: Mapping[str, int]) -> bool:
        """Tell whether something was acknowledged since the last report (682)."""
        return any(row[name] != self._before[name] for name in ("bytes_acked", "delivered_pkts"))

    def report(self, row: Mapping[str, int], without: frozenset[str]) -> list[float]:
        """Return OBSERVATIONS of a row, which becomes a report."""
        before, mss, rtt, t_us = self._before, row["mss_bytes"], row["srtt_us"], row["t_ns"] // 1000
        min_rtt = row["min_rtt_us"] if row["min_rtt_us"] != _NO_RTT else 0
        dt = max(t_us - self._report_us, 1)  # 684
        sent, acked = (row[name] - before[name] for name in ("bytes_sent", "bytes_acked"))
        delivered = _rise(row, before, "delivered_pkts") * mss  # 678
        lost = max(row["lost_pkts"] - before["lost_pkts"], 0)  # 688
        if "held-lost" in without:
            lost = _rise(row, before, "lost_total_pkts")
        self._second.add(sent, delivered, lost * mss, row["unacked_pkts"] * mss, acked, dt)
        rows = self._second.last(RATE_REPORTS)
        sent_db, dlv_db, loss_db, uack_db, acked_db, dt_sum = rows.sum(axis=0).tolist()
        dr_w, l_w = 8 * dlv_db / dt_sum, 8 * loss_db / dt_sum  # Mbps; 698, 699
        self._rates_mbps.add(dr_w)
        dr_w_max = float(self._rates_mbps.last(MAX_REPORTS).max()) or 1.0  # 701 to 703

        if "report-rates" in without:
            acked, sent, seconds = acked_db, sent_db, dt_sum / 1e6
        else:
            seconds = dt / 1e6
        self._sending_bytes_s.add(math.floor(sent / seconds))  # 786
        acked_rate = _over(acked / seconds, float(self._sending_bytes_s.last(SENDING_REPORTS).max()))  # 793
        rtt_rate = _over(min_rtt, rtt)
        mean_unacked = uack_db // len(rows)
        if "mean-unacked" in without:
            mean_unacked = row["unacked_pkts"] * mss
        pre_act = self.requested
        if "requested" in without:
            pre_act = math.log2(max(row["cwnd_pkts"], 1) / max(before["cwnd_pkts"], 1))
        srtt, rttvar, thr = rtt / 1e5, row["rttvar_us"] / 1e3, row["delivery_rate_bytes_s"] / 125e3 / 100
        self._series.add(srtt, thr, rtt_rate, rttvar, row["unacked_pkts"] / 1e3, row["lost_pkts"] / 1e2)  # 882 to 904
        values = (
            *(srtt, rttvar, thr, float(row["ca_state"])),  # 914, 916, 924, 928
            *self._windows(),  # 930 to 953
            _over(dt, min_rtt, 10.0),  # 791, 798
            rtt_rate,
            l_w / 100,
            acked_rate,
            dr_w / self._dr_before if self._dr_before > 0 else dr_w,  # 969
            dr_w_max * min_rtt / max(row["cwnd_pkts"] * mss * 8, 1),  # 970
            dr_w / 100,
            mean_unacked / sent_db if sent_db > 0 else mean_unacked,  # 828
            dr_w_max / self._dr_max_before,  # 973; never 0, by 703
            dr_w_max / 100,
            round(pre_act, 3),
        )
        self._report_us, self._before = t_us, dict(row)
        self._dr_before, self._dr_max_before = dr_w, dr_w_max
        if "decimals" in without:
            return list(values)
        return [float(f"{value:.7f}") for value in values]

    def _windows(self) -> list[float]:
        """Return average, minimum and maximum over each window of each series."""
        windows = (self._series.last(count) for count in (SHORT, MEDIUM, LONG))
        each = [(rows.sum(axis=0) / len(rows), rows.min(axis=0), rows.max(axis=0)) for rows in windows]
        statistics: list[float] = np.array(each).transpose(2, 0, 1).ravel().tolist()
        return statistics


class PublicReports:
    """The reports of flows, one slot per flow; an ObservationSource."""

    def __init__(self, names: tuple[str, ...], flows: int, without: frozenset[str] = frozenset()) -> None:
        """Start with no flow known.

        Args:
            names: of the observations asked for.
            flows: number of slots.
            without: which of RULES are not to hold.

        Raises:
            SageccError: the names are others.
        """
        if names != OBSERVATIONS:
            raise SageccError("does not observe the 69 numbers of Sage's public code in their order")
        self._without = without
        self._flows: list[_Flow | None] = [None] * flows
        self._rows: list[dict[str, int]] = []
        self._slots = np.zeros(0, np.int64)

    def update(self, samples: npt.NDArray[np.void], slots: Ints) -> Bools:
        """Take one row of each flow; return which have something to report [B]."""
        self._rows = [dict(zip(_COLUMNS, row, strict=True)) for row in raw_matrix(samples).tolist()]
        self._slots = slots
        ready = np.ones(len(slots), np.bool_)
        for place, (slot, row) in enumerate(zip(slots.tolist(), self._rows, strict=True)):
            flow = self._flows[slot]
            if flow is None:
                flow = self._flows[slot] = _Flow(row)
            ready[place] = "acknowledged" in self._without or flow.news(row)
        return ready

    def report(self, due: Bools) -> Floats:
        """Return the due flows' reports of this tick [n, 69]."""
        reports = [flow.report(row, self._without) for flow, row in self._chosen(due)]
        return np.array(reports, np.float32).reshape(len(reports), len(OBSERVATIONS))

    def acted(self, slots: Ints, actions: Doubles) -> None:
        """Note what flows asked for."""
        for slot, action in zip(slots.tolist(), actions.tolist(), strict=True):
            if flow := self._flows[slot]:
                flow.requested = action

    def skip(self, skipped: Bools) -> None:
        """Make reports of those flows of the last update that nobody sees."""
        self.report(skipped)

    def reset(self, slot: int) -> None:
        """Forget a flow."""
        self._flows[slot] = None

    def _chosen(self, which: Bools) -> list[tuple[_Flow, dict[str, int]]]:
        pairs = zip(which.tolist(), self._slots.tolist(), self._rows, strict=True)
        return [(flow, row) for chosen, slot, row in pairs if chosen and (flow := self._flows[slot])]


def _rise(row: Mapping[str, int], before: Mapping[str, int], name: str) -> int:
    """Return by how much a counter of 32 bits has risen, which may wrap."""
    return (row[name] - before[name]) % 2**32


def _over(numerator: float, denominator: float, otherwise: float = 0.0) -> float:
    return numerator / denominator if denominator > 0 else otherwise
