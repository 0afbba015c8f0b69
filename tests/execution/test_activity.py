# SPDX-License-Identifier: Apache-2.0
"""What connections did between looks, and a group's figures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sagecc.execution.stock.activity import ACTIVITY, HEADER, Tally, figures, lines, merged
from sagecc.execution.stock.trial import RECORD

S = 10**9


def record(number: int, t_s: float, **values: int) -> np.ndarray[Any, Any]:
    row = np.zeros(1, RECORD)
    row["id"], row["t_ns"] = number, round(t_s * S)
    for name, value in {"srtt_us": 20_000, "min_rtt_us": 10_000, **values}.items():
        row[name] = value
    return row


def test_an_interval_has_what_happened_in_it_alone() -> None:
    tally = Tally()
    tally.look(record(1, 1, data_segs_out=10, retrans_total_pkts=1, bytes_acked=9000))
    tally.look(record(1, 2, data_segs_out=30, retrans_total_pkts=4, bytes_acked=30_000, srtt_us=40_000))
    [first] = tally.close()
    assert {name: int(first[name]) for name in ("begun", "sent_segs", "retrans_segs", "acked_bytes", "alive_ns")} == {
        "begun": 1,
        "sent_segs": 30,
        "retrans_segs": 4,
        "acked_bytes": 30_000,
        "alive_ns": 2 * S,
    }
    assert (first["srtt_sum_us"], first["srtt_count"]) == (60_000, 2)
    tally.look(record(1, 3, data_segs_out=35, retrans_total_pkts=4, bytes_acked=31_000, min_rtt_us=8_000))
    [second] = tally.close()
    assert (second["begun"], second["sent_segs"], second["retrans_segs"], second["alive_ns"]) == (0, 5, 0, S)
    assert second["min_rtt_us"] == 8_000


def test_who_did_nothing_is_open_and_not_active() -> None:
    tally = Tally()
    tally.look(record(1, 1, data_segs_out=10))
    tally.close()
    rows = tally.look(np.concatenate([record(2, 2, srtt_us=0), record(1, 2, data_segs_out=10)]))
    assert rows["begun"].tolist() == [0, 1]
    assert len(tally.close()) == 0
    assert tally.open["id"].tolist() == [1, 2]


def test_a_connection_between_two_looks_counts_and_is_forgotten() -> None:
    tally = Tally()
    tally.look(record(1, 1, since_ns=round(0.9 * S), data_segs_out=3, bytes_acked=2000, ended=1))
    [row] = tally.close()
    assert (row["begun"], row["sent_segs"], row["alive_ns"]) == (1, 3, S // 10)
    assert len(tally.open) == 0


def test_a_connection_that_is_shown_twice_counts_once() -> None:
    """The iterator repeats one, and one ends between the look at the queue and the iterator's."""
    tally = Tally()
    twice = [record(1, 1, data_segs_out=10), record(2, 1, data_segs_out=5, ended=1), record(1, 1.1, data_segs_out=12)]
    rows = tally.look(np.concatenate([*twice, record(2, 1.1, data_segs_out=5)]))
    assert rows["id"].tolist() == [1, 2] and rows["sent_segs"].tolist() == [12, 5]
    assert tally.open["id"].tolist() == [1]
    [row] = tally.look(record(1, 2, data_segs_out=15))
    assert (row["begun"], row["sent_segs"]) == (0, 3)


def test_a_connection_that_is_left_out_once_goes_on() -> None:
    tally = Tally()
    tally.look(np.concatenate([record(1, 1, data_segs_out=10), record(2, 1, data_segs_out=10)]))
    assert len(tally.look(record(2, 2, data_segs_out=11))) == 1
    rows = tally.look(np.concatenate([record(1, 3, data_segs_out=14, ended=1), record(2, 3, data_segs_out=12)]))
    assert (rows["begun"].tolist(), rows["sent_segs"].tolist()) == ([0, 0], [4, 1])
    assert rows["alive_ns"].tolist() == [2 * S, S]
    for t_s in (4, 5):
        tally.look(record(3, t_s))
    assert not len(tally._left_out)


def test_a_connection_in_several_intervals_is_one() -> None:
    parts = []
    tally = Tally()
    for t_s in (1, 2, 3):
        both = [record(1, t_s, data_segs_out=10 * t_s), record(2, t_s, data_segs_out=t_s, group=1)]
        tally.look(np.concatenate(both))
        parts.append(tally.close())
    whole = merged(parts)
    assert whole["id"].tolist() == [1, 2] and whole["sent_segs"].tolist() == [30, 3]
    assert whole["group"].tolist() == [0, 1] and whole["srtt_count"].tolist() == [3, 3]
    assert len(merged([])) == 0


def test_the_table_has_a_line_for_each_group() -> None:
    rows = np.zeros(3, ACTIVITY)
    rows["id"], rows["group"] = (1, 2, 3), (1, 1, 0)
    rows["sent_segs"], rows["retrans_segs"] = 100, (10, 30, 0)
    rows["acked_bytes"], rows["alive_ns"] = (125_000, 250_000, 500_000), S
    rows["srtt_sum_us"], rows["srtt_count"], rows["min_rtt_us"] = (20_000, 80_000, 30_000), 1, (10_000, 30_000, 9_000)
    canary = figures(rows, "canary", 10)
    assert canary.connections == 2
    assert (canary.goodput_mbps, canary.each_mbps) == pytest.approx((0.3, 1.5))
    assert (canary.retransmitted, canary.srtt_ms, canary.min_rtt_ms) == pytest.approx((0.2, 40, 20))
    assert canary.srtt_p95_ms == pytest.approx(77)
    first, second = lines(7, rows, 10)
    assert first.split() == ["7", "canary", "2", "0.30", "1.500", "20.00%", "40.00", "77.00", "20.00"]
    assert second.split()[:3] == ["7", "control", "1"] and len(first) == len(second) == len(HEADER)
    assert lines(1, rows[:0], 10)[0].split()[2:4] == ["0", "0.00"]
