# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from evidence.behaviour.astraea import over, rows
from sagecc.leagues.study.networks import Cell


def test_a_number_has_its_mean_its_interval_and_its_least_value() -> None:
    """Student's t of two degrees of freedom is 4.303; the mean's deviation 0.1 / sqrt(3)."""
    found = over([0.9, 1.0, 1.1])
    assert found["mean"] == pytest.approx(1.0)
    assert found["least"] == 0.9
    assert found["high"] == pytest.approx(1.0 + 4.3027 * 0.1 / 3**0.5, abs=1e-4)
    assert over([0.5]) == {"mean": 0.5, "low": None, "high": None, "least": 0.5}


def test_a_cell_has_a_row_of_what_was_measured_in_it() -> None:
    cell = Cell(queue_bdp=1.0, bandwidth_mbps=20.0, rtt_ms=30.0, flows=3)
    (row,) = rows({cell: {"jain": [0.99], "convergence_s": []}})
    assert (row["bandwidth_mbps"], row["rtt_ms"], row["flows"], row["jain"]["mean"]) == (20.0, 30.0, 3, 0.99)
    assert "convergence_s" not in row
