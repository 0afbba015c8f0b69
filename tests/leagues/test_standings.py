# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sagecc.common.errors import SageccError
from sagecc.leagues.scores import SCORE_SCHEMA
from sagecc.leagues.standings import breakdown, lost_windows, mark_winners, missing, overall, robustness, standings
from tests.helpers.league_episodes import set_one, set_two

Games = Mapping[tuple[str, int], Mapping[str, float | None]]


def league(scores: Games, metric: str = "power", fair: float | None = None, set_name: str = "I") -> pl.DataFrame:
    """Build a score table from {(environment, window): {scheme: score}}; a score of None is a missing episode.

    With `fair` the figures are goodputs in Mbps and the score is the distance from it.
    """
    table = []
    for (environment, window), by_scheme in scores.items():
        for scheme, figure in by_scheme.items():
            if figure is None:
                score = 0.0 if metric == "power" else math.inf
            else:
                score = abs(fair - figure) if fair else figure
            table.append(
                dict.fromkeys(SCORE_SCHEMA)
                | {
                    "set": set_name,
                    "environment_id": environment,
                    "window": window,
                    "scheme": scheme,
                    "status": "missing" if figure is None else "ok",
                    "metric": metric,
                    "goodput_mbps": figure if fair else None,
                    "fair_share_mbps": fair,
                    "score": score,
                }
            )
    return pl.DataFrame(table, schema=SCORE_SCHEMA)


def winners(table: pl.DataFrame, **options: Any) -> set[str]:
    return set(mark_winners(table, **options).filter("win")["scheme"])


def test_power_within_ten_percent_wins() -> None:
    table = league({("e", 0): {"a": 10.0, "b": 9.0, "c": 8.99, "d": None}})
    assert winners(table) == {"a", "b"}
    assert winners(table, margin=0.05) == {"a"}
    assert winners(table, margin=0.0) == {"a"}
    assert mark_winners(table)["best"].unique().to_list() == [10.0]


def test_friendliness_at_most_best_over_nine_tenths_wins() -> None:
    table = league({("e", 0): {"a": 0.9, "b": 1.0, "c": 1.01, "d": None}}, "friendliness")
    assert winners(table, friendly_margin="score") == {"a", "b"}
    assert winners(table, margin=0.05, friendly_margin="score") == {"a"}


def test_friendliness_margin_on_the_rate() -> None:
    # f = 24, best distance 1: rates from 0.9 * 23 = 20.7 to 1.1 * 25 = 27.5 win.
    table = league({("e", 0): {"a": 23.0, "b": 20.7, "c": 20.6, "d": 27.5, "e": 27.6, "f": None}}, "friendliness", 24.0)
    assert winners(table) == {"a", "b", "d"}
    assert winners(table, friendly_margin="score") == {"a"}


def test_ties_all_win() -> None:
    assert winners(league({("e", 0): {"a": 5.0, "b": 5.0}})) == {"a", "b"}
    assert winners(league({("e", 0): {"a": 0.0, "b": 0.0, "c": 0.1}}, "friendliness"), friendly_margin="score") == {
        "a",
        "b",
    }


@pytest.mark.parametrize("metric", ["power", "friendliness"])
def test_nobody_wins_where_all_are_missing(metric: str) -> None:
    assert winners(league({("e", 0): {"a": None, "b": None}}, metric)) == set()


@pytest.mark.parametrize("margin", [-0.1, 1.0, math.nan])
def test_bad_margin(margin: float) -> None:
    with pytest.raises(SageccError, match="margin"):
        mark_winners(league({("e", 0): {"a": 1.0}}), margin)


GOLDEN = league(
    {
        ("e1", 0): {"a": 10.0, "b": 9.5, "c": 1.0},  # a, b
        ("e1", 1): {"a": 10.0, "b": 5.0, "c": 1.0},  # a
        ("e2", 0): {"a": 1.0, "b": 5.0, "c": None},  # b
        ("e2", 1): {"a": 4.6, "b": 5.0, "c": None},  # a, b
    }
)


def test_winning_rates_by_hand() -> None:
    table = standings(mark_winners(GOLDEN))
    columns = ["set", "rank", "scheme", "wins", "windows", "winning_rate", "environments", "missing"]
    assert table.select(columns).rows() == [
        ("I", 1, "a", 3, 4, 0.75, 2, 0),
        ("I", 1, "b", 3, 4, 0.75, 2, 0),
        ("I", 3, "c", 0, 4, 0.0, 2, 1),
    ]
    assert missing(GOLDEN) == {"c": ["e2"]}


def test_interval_by_hand() -> None:
    # a wins 2 of 2 windows in e1 and 1 of 2 in e2: a draw of two environments gives 1/2, 3/4 or 1,
    # with chances 1/4, 1/2, 1/4; the 2.5 % and 97.5 % points are 1/2 and 1. c never wins.
    table = standings(mark_winners(GOLDEN))
    assert table.filter(pl.col("scheme") == "a").select("low", "high").row(0) == (0.5, 1.0)
    assert table.filter(pl.col("scheme") == "c").select("low", "high").row(0) == (0.0, 0.0)


def test_interval_narrows_with_environments() -> None:
    def width(count: int) -> float:
        table = league({(f"e{i}", 0): {"a": 10.0 if i % 2 else 1.0, "b": 5.0} for i in range(count)})
        row = standings(mark_winners(table)).filter(pl.col("scheme") == "a").to_dicts()[0]
        assert row["low"] < 0.5 < row["high"]
        return float(row["high"] - row["low"])

    # 1.96 standard errors of a share of a half on each side
    assert width(400) == pytest.approx(2 * 1.96 * 0.5 / 20, rel=0.15)
    assert width(25) > width(100) > width(400)


def test_same_seed_same_table() -> None:
    assert standings(mark_winners(GOLDEN), 1).equals(standings(mark_winners(GOLDEN), 1))


def test_overall_is_the_mean_over_sets() -> None:
    both = pl.concat(
        [
            GOLDEN,
            league({("e3", 0): {"a": 1.0, "b": 9.0, "c": 1.0}}, "friendliness", set_name="II"),
        ]
    )
    table = standings(mark_winners(both, friendly_margin="score"))
    assert table["set"].unique(maintain_order=True).to_list() == ["I", "II"]
    assert overall(table).rows() == [(1, "a", 0.875), (2, "c", 0.5), (3, "b", 0.375)]


def test_breakdown_by_hand() -> None:
    one, other = set_one(12.0), set_one(24.0, step=2, rtt_ms=40)
    table = league(
        {
            (one.id, 0): {"a": 10.0, "b": 1.0},
            (one.id, 1): {"a": 10.0, "b": 1.0},
            (other.id, 0): {"a": 10.0, "b": 1.0},
            (other.id, 1): {"a": 1.0, "b": 10.0},
        }
    )
    classes = breakdown(mark_winners(table), [one, other])
    rate = {(r["class"], r["value"], r["scheme"]): r["winning_rate"] for r in classes.to_dicts()}
    assert rate["bandwidth_mbps", 12.0, "a"] == 1.0
    assert rate["bandwidth_mbps", 24.0, "a"] == 0.5
    assert rate["min_rtt_ms", 40.0, "b"] == 0.5
    assert rate["step", 1.0, "b"] == 0.0
    assert rate["step", 2.0, "a"] == 0.5
    assert rate["queue_bdp", 1.0, "a"] == 0.75
    assert rate["window", 1.0, "b"] == 0.5
    assert classes.filter((pl.col("class") == "step") & (pl.col("value") == 2.0))["windows"].to_list() == [2, 2]


def test_breakdown_has_intervals_over_the_class_s_environments() -> None:
    one, other, third = set_one(12.0), set_one(24.0), set_one(24.0, rtt_ms=40)
    table = league({(e.id, 0): {"a": 10.0 if e is other else 1.0, "b": 5.0} for e in (one, other, third)})
    classes = breakdown(mark_winners(table), [one, other, third]).filter(pl.col("scheme") == "a")
    row = {(r["class"], r["value"]): (r["low"], r["winning_rate"], r["high"]) for r in classes.to_dicts()}
    assert row["bandwidth_mbps", 12.0] == (0.0, 0.0, 0.0)
    assert row["bandwidth_mbps", 24.0] == (0.0, 0.5, 1.0)  # a quarter of the draws take one environment twice
    assert row["min_rtt_ms", 40.0] == (0.0, 0.0, 0.0)


def test_lost_windows_are_listed() -> None:
    table = league({("e1", 0): {"a": 1.0, "b": None}, ("e1", 1): {"a": 0.0, "b": None}})
    table = table.with_columns(
        status=pl.when((pl.col("scheme") == "a") & (pl.col("window") == 1)).then(pl.lit("silent")).otherwise("status")
    )
    assert lost_windows(table).rows() == [("I", "e1", "a", "silent", 1), ("I", "e1", "b", "missing", 2)]


def rates(
    games: Mapping[tuple[str, int], Mapping[str, tuple[float, float]]], set_name: str = "I", fair: float | None = None
) -> pl.DataFrame:
    """Build a score table from {(environment, window): {scheme: (goodput in Mbps, delay in ms)}}, scores left out."""
    rows = [
        dict.fromkeys(SCORE_SCHEMA)
        | {
            "set": set_name,
            "environment_id": environment,
            "window": window,
            "scheme": scheme,
            "status": "ok",
            "metric": "friendliness" if fair else "power",
            "goodput_mbps": float(r),
            "delay_ms": float(d),
            "fair_share_mbps": fair,
        }
        for (environment, window), by_scheme in games.items()
        for scheme, (r, d) in by_scheme.items()
    ]
    return pl.DataFrame(rows, schema=SCORE_SCHEMA)


def test_the_four_rules_by_hand() -> None:
    # Window 0: r^2/d is 1, 0.955, 0.920; r^3/d is 10, 7.64, 8.28.
    # Window 1: r^2/d is 0.5, 0.8, 0.545; r^3/d is 2.5, 3.2, 3.27.
    games = {
        ("e", 0): {"a": (10, 100), "b": (8, 67), "c": (9, 88)},
        ("e", 1): {"a": (5, 50), "b": (4, 20), "c": (6, 66)},
    }
    # Fair share 10, nearest 10.4: a margin of 10 % takes 8.64 to 11.44, one of 5 % 9.12 to 10.92.
    beside = {("f", 0): {"a": (9.5, 1), "b": (10.4, 1), "c": (11.2, 1)}}
    table = robustness(pl.concat([rates(games), rates(beside, "II", 10.0)]))
    wins = {(r["set"], r["alpha"], r["margin"], r["scheme"]): r["wins"] for r in table.to_dicts()}
    expected = {
        ("I", 2.0, 0.1): (1, 2, 1),  # a, b and c; b
        ("I", 2.0, 0.05): (1, 2, 0),  # a and b; b
        ("I", 3.0, 0.1): (1, 1, 1),  # a; b and c
        ("I", 3.0, 0.05): (1, 1, 1),  # a; b and c
        ("II", 2.0, 0.1): (1, 1, 1),
        ("II", 2.0, 0.05): (1, 1, 0),
        ("II", 3.0, 0.1): (1, 1, 1),
        ("II", 3.0, 0.05): (1, 1, 0),
    }
    assert wins == {(*key, scheme): n for key, row in expected.items() for scheme, n in zip("abc", row, strict=True)}
    tight = table.filter((pl.col("alpha") == 2.0) & (pl.col("margin") == 0.05) & (pl.col("set") == "I"))
    assert tight.select("scheme", "rank", "overall").rows() == [("b", 1, 1), ("a", 2, 2), ("c", 3, 3)]


def test_own_rules_are_among_them() -> None:
    table = robustness(rates({("e", 0): {"a": (10, 100), "b": (8, 67)}}), league_rule=(1.0, 0.2))
    rules = table.select("alpha", "margin").unique(maintain_order=True).rows()
    assert rules == [(1.0, 0.2), (2.0, 0.1), (2.0, 0.05), (3.0, 0.1), (3.0, 0.05)]


SCORES = st.lists(st.floats(0.001, 1000), min_size=1, max_size=8)
METRICS = st.sampled_from(["power", "friendliness"])


@given(SCORES, METRICS, st.floats(0, 0.5))
def test_the_best_always_wins_and_no_loser_beats_a_winner(scores: list[float], metric: str, margin: float) -> None:
    table = mark_winners(league({("e", 0): {f"s{i}": s for i, s in enumerate(scores)}}, metric), margin, "score")
    won = table.filter("win")["score"].to_list()
    lost = table.filter(~pl.col("win"))["score"].to_list()
    assert (max if metric == "power" else min)(scores) in won
    assert all((min(won) > s) if metric == "power" else (max(won) < s) for s in lost)


@given(SCORES, METRICS, st.floats(0, 0.5), st.floats(0, 0.4))
def test_a_wider_margin_never_has_fewer_winners(scores: list[float], metric: str, margin: float, more: float) -> None:
    table = league({("e", 0): {f"s{i}": s for i, s in enumerate(scores)}}, metric)
    assert winners(table, margin=margin, friendly_margin="score") <= winners(
        table, margin=margin + more, friendly_margin="score"
    )


@given(st.lists(st.floats(0, 48), min_size=1, max_size=8), st.floats(0, 0.5))
@example([1e-9], 0.0)
def test_the_rate_nearest_the_fair_share_always_wins(rates: list[float], margin: float) -> None:
    table = league({("e", 0): {f"s{i}": rate for i, rate in enumerate(rates)}}, "friendliness", 24.0)
    nearest = min(rates, key=lambda rate: abs(24.0 - rate))
    won = winners(table, margin=margin)
    assert {f"s{i}" for i, rate in enumerate(rates) if rate == nearest} <= won


@given(SCORES, METRICS, st.integers(-8, 8))
def test_winners_do_not_depend_on_the_unit(scores: list[float], metric: str, power: int) -> None:
    # a power of two scales a float exactly
    plain, scaled = (
        league({("e", 0): {f"s{i}": s * unit for i, s in enumerate(scores)}}, metric) for unit in (1.0, 2.0**power)
    )
    assert winners(plain, friendly_margin="score") == winners(scaled, friendly_margin="score")


@given(st.lists(SCORES.filter(lambda s: len(s) >= 3).map(lambda s: s[:3]), min_size=1, max_size=6))
def test_rates_and_intervals_are_shares(games: list[list[float]]) -> None:
    table = league({(f"e{i}", 0): dict(zip("abc", g, strict=True)) for i, g in enumerate(games)})
    result = standings(mark_winners(table))
    for row in result.to_dicts():
        assert 0 <= row["low"] <= row["winning_rate"] <= row["high"] <= 1
    assert result["wins"].sum() >= len(games)


def test_set_two_environment_is_scored_by_friendliness() -> None:
    assert set_two().reward == "friendliness"
