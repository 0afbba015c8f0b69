# SPDX-License-Identifier: Apache-2.0
"""Sprout's model against values worked out by hand, and what it does without deliveries."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from sagecc.execution.lab.controllers import play_episode
from sagecc.execution.schemes.sprout.scheme import (
    BINS,
    RATES,
    Average,
    Belief,
    Sprout,
    deliveries,
    likelihoods,
    spreading,
)
from tests.execution.schemes.samples import after
from tests.helpers.networks import network


def poisson(mean: float, count: int) -> float:
    return math.exp(-mean) * mean**count / math.factorial(count)


def test_the_likelihoods_are_poissons() -> None:
    assert likelihoods()[0, 0] == pytest.approx(poisson(0.0390625, 0))  # 1000 / 512 packets a second
    assert likelihoods()[7, 100] == pytest.approx(poisson(0.02 * 100.5 * 1000 / 256, 7))


def test_the_rate_spreads_as_brownian_motion() -> None:
    moved = spreading()
    assert moved.sum(axis=1) == pytest.approx(np.ones(BINS))
    middle = moved[128]
    mean = float(middle @ RATES)
    assert mean == pytest.approx(RATES[128])
    assert math.sqrt(float(middle @ (RATES - mean) ** 2)) == pytest.approx(200 * math.sqrt(0.02), rel=1e-3)
    assert moved[0, 0] == pytest.approx(math.exp(-0.02))  # an outage goes on, but for 1 a second
    assert moved[255, 255] > 0.5  # no rate is above the highest


def test_an_observation_weighs_what_was_believed() -> None:
    """All of the belief in two bins, which then spreads; each bin's share times its likelihood of 3 deliveries."""
    belief = Belief()
    belief.probability = np.zeros(BINS)
    belief.probability[[20, 60]] = 0.25, 0.75
    believed = 0.25 * spreading()[20] + 0.75 * spreading()[60]
    weighed = believed * np.array([poisson(0.02 * rate, 3) for rate in RATES])
    belief.advance(3)
    assert belief.probability == pytest.approx(weighed / weighed.sum())
    before = belief.probability
    belief.advance(None)
    assert belief.probability == pytest.approx(before @ spreading())


def test_the_forecast_is_the_5th_percentile() -> None:
    """A tick ahead of a rate that is known: the least count with P(count or fewer) of 5 %."""
    belief = Belief()
    belief.probability = np.zeros(BINS)
    belief.probability[127] = 1
    mean = 0.02 * RATES[127]  # 9.96
    assert belief.forecast(1) == 5  # of Poisson(9.96): 2.9 % for 4 or fewer, 6.7 % for 5
    assert sum(poisson(mean, count) for count in range(5)) < 0.05 <= sum(poisson(mean, count) for count in range(6))
    later = [belief.forecast(ticks) for ticks in range(1, 9)]
    assert later == sorted(later) and later[-1] < 8 * mean
    assert len(deliveries()) == 8
    assert all(table[:, -1] == pytest.approx(np.ones(BINS), abs=1e-3) for table in deliveries())


def test_a_steady_link_is_believed_and_an_outage_too() -> None:
    belief = Belief()
    for _ in range(100):
        belief.advance(10)
    assert float(belief.probability @ RATES) == pytest.approx(500, rel=0.05)
    assert 30 <= belief.forecast(5) <= 45
    for _ in range(25):
        belief.advance(0)
    assert belief.forecast(5) <= 2


def test_the_average_goes_on_as_it_was() -> None:
    link = Average()
    for _ in range(200):
        link.advance(10)
    link.advance(None)
    assert link.forecast(5) == pytest.approx(50)
    link.advance(2)
    assert link.forecast(5) == pytest.approx(45)


def test_nothing_delivered_is_an_outage_only_where_something_is_overdue() -> None:
    seen: list[int | None] = []

    class Link:
        def advance(self, delivered: int | None) -> None:
            seen.append(delivered)

        def forecast(self, ticks: int) -> float:
            return 0.0

    flow = Sprout(Link())
    assert flow.on_tick(after(0, sent=10)) == (2, 0)
    for tick in range(1, 9):  # after 40 ms all come back, and nothing else is sent
        flow.on_tick(after(tick, sent=10, delivered=10 if tick >= 4 else 0))
    for tick in range(9, 19):  # four more, which do not
        flow.on_tick(after(tick, sent=14, delivered=10))
    assert seen == [None, 10, None, None, None, None, None, 0, 0]


def test_in_the_lab_few_packets_wait_long(kernel: Path) -> None:
    flow = play_episode(kernel, network(bandwidth_mbps=6, queue_bdp=20, duration_s=6), "sprout").flows[0]
    assert flow.goodput_mbps > 0.8 * 6
    assert flow.delay_p95_ms < 20 + 100
    cubic = play_episode(kernel, network(bandwidth_mbps=6, queue_bdp=20, duration_s=6), "cubic").flows[0]
    assert flow.delay_p95_ms < cubic.delay_p95_ms
