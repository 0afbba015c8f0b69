# SPDX-License-Identifier: Apache-2.0
"""What a league tells of each scheme beside winning, by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from sagecc.leagues.harm import harm
from sagecc.leagues.scores import StoredEpisode
from tests.helpers.league_episodes import set_one

Game = tuple[float, int, int]
"""Goodput (Mbps), data packets sent and lost."""


def episodes(games: dict[tuple[int, str], Game]) -> dict[tuple[str, str], StoredEpisode]:
    found = {}
    for (mbps, scheme), (goodput_mbps, sent, lost) in games.items():
        environment = set_one(mbps)
        found[environment.id, scheme] = StoredEpisode(
            "e", environment, scheme, 0, "k", Path(), 1, goodput_mbps=goodput_mbps, sent_packets=sent, lost_packets=lost
        )
    return found


def test_harm_by_hand() -> None:
    table = harm(
        episodes(
            {
                (12, "cubic"): (10, 1000, 10),
                (24, "cubic"): (20, 1000, 30),
                (12, "flood"): (12, 1000, 510),
                (24, "flood"): (9.9, 1000, 50),
                (12, "silent"): (0, 0, 0),
            }
        )
    )
    rows = {row["scheme"]: row for row in table.to_dicts()}
    assert list(rows) == ["cubic", "flood", "silent"]
    assert rows["cubic"]["loss_mean"] == pytest.approx(0.02)
    assert (rows["cubic"]["flooded"], rows["cubic"]["starved"]) == (0, 0)
    flood = rows["flood"]
    assert (flood["networks"], flood["loss_worst"], flood["flooded"], flood["starved"]) == (2, 0.51, 1, 1)
    assert flood["loss_mean"] == pytest.approx(0.28)
    assert flood["worst_environment_id"] == set_one(12).id
    assert (rows["silent"]["loss_mean"], rows["silent"]["starved"]) == (0, 1)


def test_without_cubic_nobody_is_said_to_starve() -> None:
    (row,) = harm(episodes({(12, "vegas"): (1, 100, 0)})).to_dicts()
    assert row["starved"] is None


def test_no_episodes() -> None:
    assert harm({}).is_empty()
