# SPDX-License-Identifier: Apache-2.0
"""How runs share: what the table's lines are made of."""

from __future__ import annotations

import csv
from pathlib import Path

import polars as pl
import pytest

from evidence.leagues.company import COLUMNS, CUBIC, TABLE, command, lines_of, scores_of, share_of, written_anew
from sagecc.common.errors import SageccError
from sagecc.leagues.study.results import VALUES_SCHEMA

CELLS = pl.DataFrame(
    [
        {
            "experiment": "many-cubics",
            "queue_bdp": 1.0,
            "rtt_ms": 30.0,
            "cubics": 6,
            "quantity": "tested_ratio",
            "value": 3,
        },
        {"experiment": "fairness", "queue_bdp": 4.0, "rtt_ms": 60.0, "quantity": "ratio", "value": 0.25},
        {"experiment": "fairness", "queue_bdp": 0.2, "rtt_ms": 60.0, "quantity": "ratio", "value": 0.123456},
        {"experiment": "fairness", "queue_bdp": 0.2, "rtt_ms": 60.0, "quantity": "jain", "value": 0.9},
    ],
    schema=VALUES_SCHEMA,
)


def test_lines_are_the_numbers_that_figures_show() -> None:
    assert lines_of("mine", CELLS, 0.75) == [
        ("mine", "fairness", "0.2", "60.0", "", "0.1235"),
        ("mine", "fairness", "4.0", "60.0", "", "0.25"),
        ("mine", "many-cubics", "1.0", "30.0", "6", "3.0"),
        ("mine", "share", "", "", "", "0.75"),
    ]


def test_a_share_is_that_of_a_network_before_it_is_the_mean() -> None:
    """Two windows of one network (1 and 0.5 of the share), one of another (0.25); Set I is left out."""
    rows = [("II", "a", 6.0, 6.0), ("II", "a", 3.0, 6.0), ("II", "b", 3.0, 12.0), ("I", "c", 9.0, 9.0)]
    scores = pl.DataFrame(rows, ["set", "environment_id", "goodput_mbps", "fair_share_mbps"], orient="row")
    assert share_of(scores) == pytest.approx((0.75 + 0.25) / 2)


def test_lines_take_the_place_of_those_before_and_cubic_stays_last() -> None:
    old = [("a", "1"), ("a", "2"), ("b", "1"), ("cubic", "1")]
    assert written_anew(old, {"a": [("a", "3")], "c": [("c", "1")]}) == [
        ("a", "3"),
        ("b", "1"),
        ("c", "1"),
        ("cubic", "1"),
    ]


def test_cubic_as_it_is_kept_has_the_share_of_the_table() -> None:
    with TABLE.open(newline="") as file:
        (line,) = (row for row in csv.DictReader(file) if (row["policy"], row["experiment"]) == (CUBIC, "share"))
    assert tuple(line) == COLUMNS
    kept = pl.concat([scores_of(CUBIC, CUBIC, league, Path(), 1) for league in ("small", "heldout")])
    assert round(share_of(kept), 4) == float(line["ratio"])


def test_an_unknown_run_is_told_before_anything_is_played() -> None:
    with pytest.raises(SageccError, match="no run 'sagecc-99'"):
        command(["sagecc-99"], standalone_mode=False)
