# SPDX-License-Identifier: Apache-2.0
"""The rewards: values by hand, the rules at the edges, and their bounds."""

from __future__ import annotations

import math
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagecc.common.errors import SageccError
from sagecc.pool.reward import (
    REWARDS,
    Measured,
    friendliness,
    graded,
    of_networks,
    power,
    reward_of,
    shared,
)
from sagecc.schemas.environment import RewardKind


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
    assert set(get_args(RewardKind)) <= set(REWARDS)


def test_a_reward_says_what_it_is() -> None:
    for name, reward in REWARDS.items():
        assert reward.name == name
        assert all((reward.formula, reward.source, reward.function.__doc__))


def test_a_reward_has_its_names_and_no_other() -> None:
    assert reward_of("graded") is reward_of("pool-log")
    assert reward_of("fair") is reward_of("pool-fair")
    with pytest.raises(SageccError, match="there is no reward 'kindness': it must be one of power, friendliness, pool"):
        reward_of("kindness")


def test_each_row_has_the_reward_of_its_network() -> None:
    values = [np.array([50.0, 50.0, 100.0]), np.zeros(3), np.full(3, 100.0), np.ones(3), np.full(3, 2.0)]
    found = of_networks(["friendliness", "power"], np.array([0, 1, 1]), Measured(*values))
    np.testing.assert_allclose(found, [r2(50, 100, 2), 6.25, 25])


def test_the_graded_reward_is_felt_from_far_away() -> None:
    """R of 25 / e is 25 / 2; beside others a share x of the fair one earns 25 / (1 + 8 (x - 1)^2)."""
    np.testing.assert_allclose(graded(25 * np.exp([0.0, -1, -3])), [25, 12.5, 6.25])
    share = np.array([0.0, 0.25, 0.5, 1, 1.5])
    capacity, flows = np.full(5, 1e6), np.full(5, 2.0)
    rewards = friendliness(share * 0.95e6 / 2, capacity, flows)
    np.testing.assert_allclose(graded(rewards), 25 / (1 + 8 * (share - 1) ** 2))
    np.testing.assert_allclose(graded(np.array([-25.0, 0])), [-25, 0])  # losing more than half is as bad as it was


@pytest.mark.parametrize(
    ("share", "lost", "expected"),
    [(1, 0, 25), (1, 0.02, 25 * 0.9), (1.5, 0, 25 / 3), (0, 0, 25 / 9), (1, 0.2, 0), (0.5, 0.5, 0)],
    ids=["fair", "lossy", "greedy", "starved", "flood", "greater-flood"],
)
def test_a_share_counts_less_by_what_it_costs(share: float, lost: float, expected: float) -> None:
    """25 / (1 + 8 (x - 1)^2), less five times the share of packets lost, down to 0."""
    rate = np.array([share * 0.95e6 / 2])
    found = shared(rate, rate * lost / (1 - lost), np.array([1e6]), np.array([2.0]))
    np.testing.assert_allclose(found, [expected], atol=1e-9)


@given(st.lists(st.floats(-25, 25, allow_subnormal=False), min_size=2, max_size=20))
def test_the_graded_reward_keeps_the_order(rewards: list[float]) -> None:
    values = np.sort(np.array(rewards))
    found = graded(values)
    assert np.all(np.diff(found) >= 0)
    assert np.all(np.abs(found) <= 25)
    assert np.all(np.sign(found) == np.sign(values))
