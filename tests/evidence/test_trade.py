# SPDX-License-Identifier: Apache-2.0
"""What conditions cost: rows of results that are made up, and the picture of them."""

from __future__ import annotations

import numpy as np
import pytest

from evidence.leagues.trade import LEAGUE, RECIPES, points, trade_figure
from evidence.paper import SEEDS
from evidence.training.runs import seed_name
from sagecc.common.shipped import SAFEST_POLICY
from sagecc.leagues.vetting.conditions import CONDITIONS

NAMES = [seed_name(recipe, seed) for recipe in RECIPES for seed in SEEDS]
RESULTS = {
    name: {"leagues": {LEAGUE: {kind: {"policy": {"winning_rate": number / 20 + more}} for kind, more in SETS.items()}}}
    for SETS in ({"I": 0.3, "II": 0.0},)
    for number, name in enumerate(NAMES)
}
ROWS = points(RESULTS, {name: {"met": number, "shares": 3 - number / 4} for number, name in enumerate(NAMES)})


def test_each_seed_has_its_weight_rates_and_conditions() -> None:
    assert [row["name"] for row in ROWS] == NAMES
    assert {row["name"]: row["weight"] for row in ROWS}[SAFEST_POLICY] == 2
    assert ROWS[4] == {"name": "trade-1-1", "weight": 1, "seed": 1, "met": 4, "shares": 2.0, "I": 0.5, "II": 0.2}


def test_the_picture_has_a_line_of_means_over_the_weights() -> None:
    alone, company, met, shares = trade_figure(ROWS).axes
    panels = {
        alone: (0.35, 0.5, 0.65, 0.8),
        company: (0.05, 0.2, 0.35, 0.5),
        met: (1, 4, 7, 10),
        shares: (2.75, 2, 1.25, 0.5),
    }
    for axes, means in panels.items():
        line = axes.get_lines()[0]
        assert np.asarray(line.get_xdata()).tolist() == [0.5, 1, 2, 4]
        assert np.asarray(line.get_ydata()) == pytest.approx(means)
    assert met.get_ylim() == (0, len(CONDITIONS))
