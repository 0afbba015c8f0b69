# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from sagecc.leagues.claims import NEGATIVE, POSITIVE, TRUE, Bounds, Claim, Judgement, Measurement, exact, fact
from sagecc.leagues.intervals import Interval


@pytest.mark.parametrize(
    ("low", "mean", "high", "verdict", "opposite"),
    [
        (0.1, 0.2, 0.3, "yes", "no"),
        (-0.1, 0.2, 0.3, "in the mean", "not in the mean"),
        (None, 0.2, None, "in the mean", "not in the mean"),
        (None, 0.0, None, "not in the mean", "not in the mean"),
        (0.0, 0.0, 0.0, "not in the mean", "not in the mean"),
        (-0.3, -0.1, 0.1, "not in the mean", "in the mean"),
        (-0.3, -0.2, -0.1, "no", "yes"),
        (None, None, None, "not measured", "not measured"),
    ],
)
def test_what_an_interval_says(
    low: float | None, mean: float | None, high: float | None, verdict: str, opposite: str
) -> None:
    assert POSITIVE.verdict(Interval(3, mean, low, high)) == verdict
    assert NEGATIVE.verdict(Interval(3, mean, low, high)) == opposite


@pytest.mark.parametrize(("number", "verdict"), [(0.9, "no"), (1, "yes"), (2.5, "yes"), (3, "yes"), (3.1, "no")])
def test_an_exact_number_is_within_the_bounds_or_not(number: float, verdict: str) -> None:
    assert Bounds(1, 3).verdict(exact(number)) == verdict


def test_a_fact_is_so_or_not() -> None:
    assert [TRUE.verdict(fact(holds)) for holds in (True, False)] == ["yes", "no"]


def each_rate(rates: dict[str, float]) -> list[Measurement]:
    return [Measurement(exact(rate), f"{rate:g}", who) for who, rate in rates.items()]


def test_a_claim_is_judged_for_each_of_those_that_it_is_about() -> None:
    claim = Claim("6.2", "wins", each_rate)
    assert claim.judged({"a": 1, "b": -1}) == [
        Judgement(claim, Measurement(exact(1), "1", "a"), "yes"),
        Judgement(claim, Measurement(exact(-1), "-1", "b"), "no"),
    ]
    assert claim.judged({}) == []


def test_of_several_statements_the_weakest_counts() -> None:
    values = (exact(1), Interval(2, -1, -3, 1), Interval(2, 1, -1, 3))
    claim = Claim("", "both", lambda _: [Measurement(values)])
    assert [judgement.verdict for judgement in claim.judged(None)] == ["not in the mean"]
