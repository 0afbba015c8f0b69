# SPDX-License-Identifier: Apache-2.0
"""When a canary is taken off, and how rarely one that is no worse is."""

from __future__ import annotations

import math
import re
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagecc.execution.stock.activity import ACTIVITY
from sagecc.execution.stock.watch import ALPHA, LEAST, SPANS, Margins, Watch, chance_bound

Rows = np.ndarray[Any, Any]
MARGINS = Margins(rtt=0.25, loss=0.01)


def activity(
    random: np.random.Generator, canary: int, control: int, rtt: float = 1.0, loss: float = 0.0, first: int = 0
) -> Rows:
    """RTTs of many paths, losses in a tenth of the connections; the canary's RTT times `rtt`, its loss larger."""
    rows = np.zeros(canary + control, ACTIVITY)
    rows["id"] = first + 1 + np.arange(len(rows))
    rows["group"][:canary] = 1
    rows["sent_segs"] = 1000
    lost = np.where(random.random(len(rows)) < 0.1, random.integers(0, 100, len(rows)), 0)
    rows["retrans_segs"] = lost + 1000 * loss * rows["group"]
    rtts = random.lognormal(10, 1, len(rows))
    rows["srtt_sum_us"] = np.where(rows["group"] == 1, rtts * rtt, rtts)
    rows["srtt_count"] = 1
    return rows


@pytest.mark.parametrize(
    ("worse", "words"),
    [
        ((4.0, 0.0), r"sRTT [\d.]+ ms against [\d.]+ ms \(margin 0.25 of it\)"),
        ((1.0, 0.1), r"retransmitted 1\d\.\d\d% against 0\.\d\d% \(margin 1 points\)"),
    ],
)
def test_one_that_is_far_worse_is_taken_off_after_an_interval(worse: tuple[float, float], words: str) -> None:
    excess = Watch(MARGINS).add(activity(np.random.default_rng(1), 100, 1900, *worse))
    assert excess is not None and excess.chance < ALPHA and excess.intervals == 1
    assert re.fullmatch(rf"{words}, over 100 and 1,900 connections in 1 interval \(p < \S+\)", str(excess))


def test_one_that_is_a_little_worse_is_taken_off_after_many() -> None:
    random, watch = np.random.default_rng(2), Watch(MARGINS)
    excess = None
    while excess is None and watch.intervals < 64:
        excess = watch.add(activity(random, 30, 570, rtt=1.25 * 1.5, first=1000 * watch.intervals))
    assert excess is not None and excess.intervals > 1


def test_one_at_the_margin_is_hardly_ever_taken_off() -> None:
    """One watch in a hundred may err at most."""
    for seed in range(20):
        random, watch = np.random.default_rng(seed), Watch(MARGINS)
        for interval in range(SPANS[2]):
            assert watch.add(activity(random, 25, 225, rtt=1.25, loss=0.01, first=1000 * interval)) is None


def test_a_few_connections_say_nothing() -> None:
    random, watch = np.random.default_rng(3), Watch(MARGINS)
    assert watch.add(activity(random, LEAST - 1, 500, rtt=100, loss=0.5)) is None
    assert watch.add(activity(random, 500, LEAST - 1, rtt=100, loss=0.5)) is None


def test_few_in_each_interval_add_up() -> None:
    random, watch = np.random.default_rng(4), Watch(MARGINS)
    found = [watch.add(activity(random, 8, 200, loss=0.5, first=1000 * interval)) for interval in range(SPANS[1])]
    assert [excess is not None for excess in found] == [False, False, False, True]


@given(
    st.lists(st.integers(-5, 5), min_size=2, max_size=7),
    st.integers(1, 6),
)
def test_the_bound_is_never_below_the_chance_itself(values: list[int], size: int) -> None:
    """Over all ways to draw a sample, none is less likely to be reached or passed than its bound says."""
    size = min(size, len(values) - 1)
    draws = [list(chosen) for chosen in combinations(range(len(values)), size)]
    population = np.array(values, np.float64)
    means = np.array([population[draw].mean() for draw in draws])
    for draw, mean in zip(draws, means, strict=True):
        exact = float((means >= mean - 1e-9).mean())
        assert chance_bound(population[draw], np.delete(population, draw)) >= exact * (1 - 1e-6)


def test_the_bound_is_close_where_a_sample_is_extreme() -> None:
    assert chance_bound(np.ones(20), np.zeros(380)) == pytest.approx(0.05**20)
    assert chance_bound(np.zeros(20), np.ones(30)) == 1
    assert chance_bound(np.zeros(20), np.zeros(30)) == 1
    sample, rest = np.repeat([1.0, 0.0], [12, 88]), np.repeat([1.0, 0.0], [20, 880])
    ways = sum(math.comb(32, ones) * math.comb(968, 100 - ones) for ones in range(12, 33))
    exact = ways / math.comb(1000, 100)
    assert exact < chance_bound(sample, rest) < math.sqrt(exact) < 0.01
