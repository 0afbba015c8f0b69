# SPDX-License-Identifier: Apache-2.0
"""Pictures of what kicks are worth, from figures made up here."""

from __future__ import annotations

from typing import Any

import pytest

from evidence.training import recovery
from sagecc.common.errors import SageccError


def run(name: str, rates: tuple[float, float], starves: int) -> dict[str, Any]:
    leagues = {
        of: {"policy": {"winning_rate": rate}, "best_heuristic": {"winning_rate": 0.5}}
        for of, rate in zip(("I", "II"), rates, strict=True)
    }
    return {"name": name, "leagues": {"heldout": leagues}, "harm": {"heldout": {"starves": ["x"] * starves}}}


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    runs = [run("clone", (0.1, 0.2), 3), run("clone-1", (0.3, 0.4), 1), run("clone-plain", (0.9, 0.9), 0)]
    found = {each["name"]: each for each in runs}
    monkeypatch.setattr(recovery, "read_results", lambda path: found)
    return found


def test_a_recipe_s_seeds_are_gathered_and_no_other_recipe_s(results: dict[str, Any]) -> None:
    assert recovery.gathered("clone") == {
        "recipe": "clone",
        "seeds": 2,
        "rates": {"I": [0.1, 0.3], "II": [0.2, 0.4]},
        "starves": [3, 1],
        "best": {"I": 0.5, "II": 0.5},
    }
    with pytest.raises(SageccError, match="offline: not done yet"):
        recovery.gathered("offline")


def test_the_pictures_show_every_seed_and_every_window(results: dict[str, Any]) -> None:
    of = [recovery.gathered("clone-plain"), recovery.gathered("clone")]
    first, second = recovery.rates_figure({"cloning": of, "learning": of[::-1]}).axes
    assert [line.get_ydata()[0] for line in first.lines] == pytest.approx([0.9, 0.2, 0.5])
    assert sum(len(dots.get_offsets()) for dots in second.collections) == 2 * (1 + 2)
    played = [
        {"name": name, "cwnd_pkts": [1.0, 2.0], "goodput_mbps": 3.0, "beside_mbps": 4.0} for name in recovery.CLONES
    ]
    (axes,) = recovery.windows_figure(played).axes
    assert [line.get_label() for line in axes.lines] == [f"{text}: 3.0 Mbps" for text in recovery.CLONES.values()]
