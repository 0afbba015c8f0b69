# SPDX-License-Identifier: Apache-2.0
"""Vivace's formulas against values worked out by hand, and its phases."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagecc.execution.lab.controllers import play_episode
from sagecc.execution.schemes.vivace.scheme import (
    FlowCounts,
    LatestRtt,
    MonitorInterval,
    RateLearner,
    Vivace,
    amplifier,
    rtt_gradient,
    tenth_root,
    utility,
)
from tests.execution.schemes.samples import IDLE, after
from tests.helpers.networks import network


def test_the_utility_of_equation_1() -> None:
    """10^0.9 = 7.943282; 900 x 10 x 0.02 = 180; 11.35 x 10 x 0.01 = 1.135."""
    assert utility(10, 0, 0) == pytest.approx(7.943282347, abs=1e-9)
    assert utility(10, 0.02, 0.01) == pytest.approx(7.943282347 - 180 - 1.135, abs=1e-9)
    assert utility(1, -0.1, 0) == pytest.approx(1 + 90)


@given(st.floats(1e-3, 1e6))
def test_a_tenth_root(x: float) -> None:
    assert tenth_root(x) ** 10 == pytest.approx(x, rel=1e-13)


def test_the_confidence_amplifier() -> None:
    assert [amplifier(n) for n in (1, 2, 3, 4, 5, 10)] == [1, 2, 3, 5, 7, 17]


def test_a_step_along_the_gradient() -> None:
    """At 20 Mbps the rates are 21 and 19: (12 - 10.5) / 2 = 0.75 per Mbps; again, and it counts twice."""
    learner = RateLearner()
    assert learner.step(20, 12, 10.5) == pytest.approx(20.75)
    assert learner.step(20, 12, 10.5) == pytest.approx(21.5 - 0.5)  # 1.5 is above 5 % of 20
    assert learner.step(20, 12, 10.5) == pytest.approx(20 + 2.25)  # within 15 % now
    assert learner.step(20, 10.5, 12) == pytest.approx(20 - 0.75)  # turned: once, within 5 %


def test_the_boundary_moves_while_it_binds_and_comes_back() -> None:
    learner = RateLearner()
    assert [learner.step(10, 0, 100) for _ in range(4)] == pytest.approx([9.5, 8.5, 7.5, 6.5])
    assert learner.step(10, 1, 0.99) == pytest.approx(10.01)  # 0.01 per Mbps, up
    assert learner.step(10, 100, 0) == pytest.approx(10.5)  # 5 % again


def test_a_slope_and_what_is_noise() -> None:
    line = [(0.0, 0.040), (0.01, 0.0405), (0.02, 0.041), (0.03, 0.0415)]
    assert rtt_gradient(line) == pytest.approx(0.05)
    assert rtt_gradient(line, noise_s=0.002) == 0  # it rises by 1.5 ms
    assert rtt_gradient([(t, 0.04 + 0.0099 * t) for t, _ in line]) == 0  # below 0.01
    assert rtt_gradient([(0.0, 0.04), (0.01, 0.042), (0.02, 0.04), (0.03, 0.0415)]) == 0  # below its error
    assert rtt_gradient([(1.0, 0.04), (1.0, 0.05)]) == 0


def test_the_rtt_behind_the_smoothed_one() -> None:
    """Two acknowledgements of 48 ms bring 40 ms to 40 + 8 (1 - 49/64) = 41.875 ms."""
    rtt = LatestRtt()
    assert rtt.update(IDLE._replace(delivered_pkts=1)) == pytest.approx(0.040)
    assert rtt.update(IDLE._replace(delivered_pkts=3, srtt_us=41_875)) == pytest.approx(0.048)
    assert rtt.update(IDLE._replace(delivered_pkts=3, srtt_us=41_875)) == pytest.approx(0.048)


def test_an_outcome_counts_what_was_lost_of_its_own_packets() -> None:
    points = [FlowCounts(1.0, 100, 5, 0.04), FlowCounts(1.1, 150, 6, 0.04), FlowCounts(1.2, 200, 7, 0.04)]
    interval = MonitorInterval(10, 100, 200, points=points)
    assert interval.loss == pytest.approx(0.02)
    assert interval.outcome(0, 0) == pytest.approx(utility(10, 0, 0.02))
    assert points[0].at(125, points[1]) == FlowCounts(1.05, 125, 5.5, 0.04)


def test_the_starting_phase_doubles_until_the_utility_falls() -> None:
    """A link of 8 packets a tick: 9.3 Mbps. Whatever is sent comes back an RTT of 40 ms later, or is lost."""
    flow, sent, delivered, lost = Vivace(Random(0)), 10, 0, 0
    rates, history = [], [0, 0, 0, 10]
    for tick in range(4, 80):
        passed = history[tick - 4]
        arrived = min(passed - delivered - lost, 8)
        delivered, lost = delivered + arrived, passed - delivered - arrived
        _, rate = flow.on_tick(after(tick, sent, delivered, lost))
        rates.append(rate * 8 / 1e6)
        sent += round(rate * 0.01 / 1448)
        history.append(sent)
    highest = rates.index(max(rates))
    assert {round(after_ / before) for before, after_ in pairwise(rates[: highest + 1])} <= {1, 2}
    assert max(rates) > 9.3 > 0.5 * rates[-1]
    assert all(0.5 * 9.3 <= rate <= 1.5 * 9.3 for rate in rates[-20:])


def test_in_the_lab_it_fills_a_link_and_no_queue(kernel: Path) -> None:
    flow = play_episode(kernel, network(bandwidth_mbps=24, rtt_ms=20, duration_s=10), "vivace").flows[0]
    assert flow.goodput_mbps > 0.75 * 24
    assert flow.delay_mean_ms < 10 + 5
