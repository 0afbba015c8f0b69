# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from evidence.paper.pictures import learning_figure
from tests.evidence.paper.made_up import training


def test_heuristics_whose_rates_are_near_share_a_label() -> None:
    run = training("small", 0, [(0.1, 0.05), (0.3, 0.2)])
    for point in run["points"]:
        point["rates"]["I"] |= {"bbr2": 0.42, "yeah": 0.3}
    one, two = learning_figure({"league": "heldout", "runs": [run]}).axes
    assert [text.get_text() for text in one.texts] == ["bbr2, vegas", "yeah", "reno"]
    assert [text.get_text() for text in two.texts][:2] == ["reno", "vegas"]


def test_a_short_axis_of_cpu_time_has_numbers() -> None:
    (axes, _) = learning_figure({"runs": [training("small", 0, [(0.1, 0.0), (0.2, 0.0), (0.3, 0.0)])]}).axes
    low, high = axes.get_xlim()
    assert [tick for tick in axes.get_xticks() if low <= tick <= high] == [0.1, 0.2]


def test_an_axis_over_decades_of_cpu_time_has_two_numbers_in_each() -> None:
    run = training("small", 0, [(0.1, 0.0), (0.2, 0.0)])
    run["points"][0]["cpu_h"], run["points"][1]["cpu_h"] = 0.01, 12.0
    (axes, _) = learning_figure({"runs": [run]}).axes
    low, high = axes.get_xlim()
    ticks = [round(tick, 9) for tick in axes.get_xticks() if low <= tick <= high]
    assert ticks == [0.01, 0.03, 0.1, 0.3, 1, 3, 10]
