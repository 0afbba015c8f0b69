# SPDX-License-Identifier: Apache-2.0
"""The two rewards: values by hand, the rules at the edges, and their bounds."""

from __future__ import annotations

import math
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagecc.common.errors import SageccError
from sagecc.pool.reward import REWARDS, Measured, friendliness, power, rewards
from sagecc.schemas.environment import Reward


def r1(rate: float, loss: float, capacity: float, rtt_rate: float) -> float:
    return float(power(*(np.array([value], np.float64) for value in (rate, loss, capacity, rtt_rate)))[0])


def r2(rate: float, capacity: float, flows: float) -> float:
    return float(friendliness(*(np.array([value], np.float64) for value in (rate, capacity, flows)))[0])


@pytest.mark.parametrize(
    ("rate", "loss", "rtt_rate", "reward"),
    [
        (100, 0, 1.0, 25.0),  # the whole link, no queue
        (50, 0, 1.0, 6.25),  # half of it: squared
        (90, 0, 0.8, 25 * 0.81),  # delay within the dead-band is free
        (90, 0, 0.79, 25 * 0.81 * 0.79),  # beyond it, all of it counts: the public code's jump
        (90, 0, 0.5, 25 * 0.81 * 0.5),
        (90, 20, 1.0, 25 * 0.25),  # 90 - 2 x 20
        (20, 35, 1.0, -25 * 0.25),  # (20 - 70) / 100, squared, negative
        (20, 10, 1.0, 0.0),
        (150, 0, 1.0, 25 * 0.81),  # more than the link carries counts as 0.9 of it
        (150, 50, 1.0, -25 * 0.01),  # 90 - 100
        (0, 0, 0.0, 0.0),
    ],
)
def test_power_by_hand(rate: float, loss: float, rtt_rate: float, reward: float) -> None:
    assert r1(rate, loss, 100, rtt_rate) == pytest.approx(reward)


@pytest.mark.parametrize(
    ("rate", "flows", "reward"),
    [
        (47.5, 2, 25.0),  # 0.95 of its half
        (0, 2, 25 * math.exp(-8)),
        (23.75, 2, 25 * math.exp(-2)),
        (95, 2, 25 * math.exp(-8)),  # twice its share is as bad as none
        (100, 2, 25 * math.exp(-8)),  # and no worse than that
        (95 / 4, 4, 25.0),
    ],
)
def test_friendliness_by_hand(rate: float, flows: float, reward: float) -> None:
    assert r2(rate, 100, flows) == pytest.approx(reward)


def test_a_link_without_capacity_gives_no_power_and_no_share() -> None:
    assert r1(0, 0, 0, 1) == r1(10, 5, 0, 1) == 0
    assert r2(10, 0, 2) == pytest.approx(25 * math.exp(-8))


RATES = st.integers(0, 10**12)


@given(RATES, RATES, RATES, st.floats(0, 16), st.integers(1, 50))
def test_rewards_are_finite_and_at_most_25(rate: int, loss: int, capacity: int, rtt_rate: float, flows: int) -> None:
    assert r1(rate, loss, capacity, rtt_rate) <= 25 + 1e-9
    assert 0 < r2(rate, capacity, flows) <= 25
    assert np.isfinite(np.float32(r1(rate, loss, capacity, rtt_rate)))


def test_every_reward_that_an_environment_may_name_has_a_formula() -> None:
    assert set(REWARDS) == set(get_args(Reward))


def test_each_row_has_the_reward_of_its_name() -> None:
    values = [np.array([50.0, 50.0, 100.0]), np.zeros(3), np.full(3, 100.0), np.ones(3), np.full(3, 2.0)]
    measured = Measured(*values)
    found = rewards(["friendliness", "power"], np.array([0, 1, 1]), measured)
    np.testing.assert_allclose(found, [r2(50, 100, 2), 6.25, 25])
    with pytest.raises(SageccError, match="there is no reward 'kindness': it must be one of power, friendliness"):
        rewards(["power", "kindness"], np.array([0, 0, 0]), measured)
