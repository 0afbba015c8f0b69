# SPDX-License-Identifier: Apache-2.0
"""Fitted-Q evaluation on a chain of states whose values are known: a walk at random, judged by who goes up."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from sagecc.learner.judging.fitted_q import Evaluated, Fitting, Transitions, evaluate

pytestmark = pytest.mark.tensorflow

STATES = 5
DISCOUNT = 0.7
WHOLE = Fitting(steps=1500, batch=128, hidden=(32, 32), rate=3e-3)
SHORT = replace(WHOLE, steps=50)


def walk() -> Transitions:
    """2,000 steps up or down by a coin; 1 is earned by staying at the top, 0 otherwise. A halving is a step down."""
    actions = np.random.default_rng(0).choice([-1.0, 1.0], 2000)
    states, rewards, state = np.zeros(2000, np.int64), np.zeros(2000), 0
    for i, action in enumerate(actions):
        states[i], rewards[i] = state, float(state == STATES - 1 and action > 0)
        state = int(np.clip(state + action, 0, STATES - 1))
    return Transitions(
        observations=np.eye(STATES, dtype=np.float32)[states],
        environments=np.zeros(2000, np.int64),
        done=actions,
        policy=np.ones(2000),
        rewards=rewards,
        counting=np.arange(1999),
    )


WALK = walk()
"""For who always goes up."""
AT = WALK.observations.argmax(axis=1)


def judged(of: Transitions, fitting: Fitting = SHORT, seed: int = 0) -> Evaluated:
    return evaluate(of, DISCOUNT, seed, fitting)


UP = np.array([DISCOUNT ** (STATES - 1 - state) for state in range(STATES)])
"""Value of each state for who always goes up: discount^(steps to the top), as a discounted mean of rewards."""


def test_values_are_the_closed_form() -> None:
    upwards = judged(WALK, WHOLE)
    for state in range(STATES):
        here = state == AT
        assert upwards.policy[here] == pytest.approx(UP[state], abs=0.03)
        assert upwards.done[here & (WALK.done > 0)] == pytest.approx(UP[state], abs=0.03)
        below = DISCOUNT * UP[max(state - 1, 0)]
        assert upwards.done[here & (WALK.done < 0)] == pytest.approx(below, abs=0.03)
    assert np.abs(upwards.errors).max() < 0.05 and len(upwards.errors) == 1999


def test_another_policy_has_other_values() -> None:
    """Who always goes down never earns anything, but for the step that the recorder took."""
    downwards = judged(replace(WALK, policy=-WALK.policy), WHOLE)
    assert downwards.policy == pytest.approx(0, abs=0.03)
    staying = (AT == STATES - 1) & (WALK.done > 0)
    assert downwards.done[staying] == pytest.approx(1 - DISCOUNT, abs=0.03)


def test_it_is_a_function_of_the_seed() -> None:
    first, again, other = judged(WALK), judged(WALK), judged(WALK, seed=1)
    np.testing.assert_array_equal(again.policy, first.policy)
    assert (other.policy != first.policy).any()


def test_what_does_not_count_teaches_nothing() -> None:
    """Kicks: their rewards and actions may be anything."""
    kicks = np.arange(500, 2000, 100)
    rewards, done = WALK.rewards.copy(), WALK.done.copy()
    rewards[kicks], done[kicks] = 1e3, 7.0
    clean = replace(WALK, counting=np.setdiff1d(WALK.counting, kicks))
    np.testing.assert_array_equal(judged(replace(clean, rewards=rewards, done=done)).policy, judged(clean).policy)


def test_environments_that_look_alike_are_told_apart() -> None:
    """In a second one nothing is earned."""
    second = replace(WALK, environments=WALK.environments + 1, rewards=0 * WALK.rewards)
    both = Transitions(*(np.concatenate([getattr(of, field.name) for of in (WALK, second)]) for field in fields(WALK)))
    found = judged(replace(both, counting=np.concatenate([WALK.counting, 2000 + WALK.counting])), WHOLE)
    top = AT == STATES - 1
    assert found.policy[:2000][top] == pytest.approx(1, abs=0.1)
    assert found.policy[2000:][top] == pytest.approx(0, abs=0.1)


def test_values_stay_within_the_rewards() -> None:
    """Even of an action that nobody took."""
    beyond = judged(replace(WALK, policy=40 * WALK.policy)).policy
    assert -1e-6 <= beyond.min() <= beyond.max() <= 1 + 1e-6
