# SPDX-License-Identifier: Apache-2.0
"""What a league tells of each scheme beside winning, by hand; what competitors lost, against their own rows."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from sagecc.collector.lab.episode import run_episode
from sagecc.collector.run.grid import set_two as of_grid
from sagecc.leagues.harm import beside_reference, harm, taken
from sagecc.leagues.scores import SCORE_SCHEMA, StoredEpisode
from sagecc.leagues.table import harm_cells
from sagecc.schemas.environment import Environment
from tests.helpers.league_episodes import set_one

Game = tuple[float, int, int]
"""Goodput (Mbps), data packets sent and lost."""

NONE = pl.DataFrame(schema=SCORE_SCHEMA)


def episodes(games: dict[tuple[int, str], Game]) -> dict[tuple[str, str], StoredEpisode]:
    found = {}
    for (mbps, scheme), (goodput_mbps, sent, lost) in games.items():
        environment = set_one(mbps)
        found[environment.id, scheme] = StoredEpisode(
            "e", environment, scheme, 0, "k", Path(), 1, goodput_mbps=goodput_mbps, sent_packets=sent, lost_packets=lost
        )
    return found


def window(
    environment: str,
    scheme: str,
    goodput_mbps: float,
    flows: int,
    from_s: float = 0,
    to_s: float = 10,
    mbps: float = 24,
) -> dict[str, object]:
    """A scored window; the goodput is given as packets on the link, headers with them."""
    return {
        "environment_id": environment,
        "window": int(from_s),
        "from_s": from_s,
        "to_s": to_s,
        "scheme": scheme,
        "status": "ok",
        "goodput_mbps": goodput_mbps * 1448 / 1500,
        "capacity_mbps": mbps,
        "fair_share_mbps": mbps / flows,
    }


def scored(*rows: dict[str, object]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SCORE_SCHEMA)


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
        ),
        NONE,
    )
    rows = {row["scheme"]: row for row in table.to_dicts()}
    assert list(rows) == ["cubic", "flood", "silent"]
    assert rows["cubic"]["loss_mean"] == pytest.approx(0.02)
    assert (rows["cubic"]["flooded"], rows["cubic"]["starved"]) == (0, 0)
    flood = rows["flood"]
    assert (flood["networks"], flood["loss_worst"], flood["flooded"], flood["starved"]) == (2, 0.51, 1, 1)
    assert flood["loss_mean"] == pytest.approx(0.28)
    assert flood["worst_environment_id"] == set_one(12).id
    assert (rows["silent"]["loss_mean"], rows["silent"]["loss_worst"], rows["silent"]["starved"]) == (None, None, 1)
    assert harm_cells(rows["silent"])[:2] == ("-", "-")
    assert [row["beside"] for row in rows.values()] == [0, 0, 0]
    assert {row["taken_mean"] for row in rows.values()} == {None}


def test_without_cubic_nobody_is_said_to_starve() -> None:
    (row,) = harm(episodes({(12, "vegas"): (1, 100, 0)}), NONE).to_dicts()
    assert row["starved"] is None


def test_no_episodes() -> None:
    assert harm({}, NONE).is_empty()


def test_what_competitors_lost_by_hand() -> None:
    """24 Mbps for four: 18 are the others'. 15 taken leave them 9, half; 6 or less are no harm; alone there is none."""
    wins = scored(
        window("one", "greedy", 15, 4),
        window("two", "greedy", 6, 4),
        window("three", "greedy", 24, 1),
        window("one", "shy", 2, 4),
        window("two", "shy", 24, 4, to_s=3),  # 0 of 18 are left for 3 s
        window("two", "shy", 1.5, 4, from_s=3, to_s=10),  # 22.5 for 7 s: 157.5 of 180 in all
        window("one", "silent", 15, 4) | {"status": "silent"},
    )
    found = {(row["environment_id"], row["scheme"]): row["taken"] for row in taken(wins).to_dicts()}
    assert found == pytest.approx(
        {("one", "greedy"): 0.5, ("two", "greedy"): 0, ("one", "shy"): 0, ("two", "shy"): 22.5 / 180}
    )


def test_harm_to_competitors_in_a_league() -> None:
    networks = {mbps: set_one(mbps).id for mbps in (12, 24)}
    wins = scored(
        window(networks[12], "greedy", 9, 2, mbps=12),
        window(networks[24], "greedy", 13.2, 2),
        window(networks[24], "shy", 2, 2),
    )
    games = {(12, "greedy"): (9.0, 100, 0), (24, "greedy"): (13.0, 100, 0), (24, "shy"): (2.0, 100, 0)}
    rows = {row["scheme"]: row for row in harm(episodes(games), wins).to_dicts()}
    greedy = rows["greedy"]
    assert (greedy["beside"], greedy["taken_environment_id"]) == (2, networks[12])
    assert (greedy["taken_mean"], greedy["taken_worst"]) == pytest.approx((0.3, 0.5))
    assert (rows["shy"]["beside"], rows["shy"]["taken_worst"]) == (1, 0)


@pytest.mark.parametrize("scheme", ["cubic", "scalable"])
def test_what_is_derived_is_what_the_competitors_own_rows_say(scheme: str, kernel: Path) -> None:
    """The link's queue is never empty there, so what the tested flow left is what they got."""
    environment: Environment = of_grid(12, 20, 1)
    episode = run_episode(kernel, environment, scheme, every_flow=True)
    assert episode.every_flow is not None
    rows = pl.DataFrame(pl.from_arrow(episode.every_flow))
    (from_s, _), (_, to_s) = environment.windows_s[1], environment.windows_s[-1]

    def grown(flow: int, counter: str) -> int:
        edges = rows.filter((pl.col("flow") == flow) & pl.col("t_s").is_between(from_s, to_s)).sort("t_s")[counter]
        return int(edges[-1]) - int(edges[0])

    def mbps(flow: int, counter: str) -> float:
        return grown(flow, counter) * 8e-6 / (to_s - from_s)

    capacity = mbps(0, "link_capacity_bytes")
    own = {"goodput_mbps": mbps(0, "received_bytes"), "capacity_mbps": capacity, "fair_share_mbps": capacity / 2}
    derived = taken(scored(window("one", scheme, 0, 2, from_s, to_s) | own))["taken"].item()
    assert derived == pytest.approx(max(0.0, 1 - mbps(1, "link_bytes") / (capacity / 2)), abs=0.005)
    assert (derived > 0.1) == (scheme == "scalable")


def test_beside_cubic_by_hand() -> None:
    """Cubic loses 1 %, so up to 3 % are no flood; in the network of 48 Mbps the policy has no episode."""
    games: dict[tuple[int, str], Game] = {
        (12, "cubic"): (10, 1000, 10),
        (12, "p"): (5, 1000, 30),
        (24, "cubic"): (20, 1000, 10),
        (24, "p"): (9.9, 1000, 31),
        (48, "cubic"): (40, 1000, 0),
        (96, "p"): (1, 10, 5),
    }
    table = beside_reference(episodes(games), "p")
    by_rate = {int(row["environment_id"].split("mbps")[0].split("-")[1]): row for row in table.to_dicts()}
    assert by_rate.keys() == {12, 24, 48}
    assert [by_rate[mbps]["floods"] for mbps in (12, 24, 48)] == [False, True, True]
    assert [by_rate[mbps]["starves"] for mbps in (12, 24, 48)] == [False, True, False]
    assert by_rate[24]["goodput_share"] == pytest.approx(0.495)
    assert by_rate[48]["loss"] is by_rate[48]["goodput_share"] is None
