# SPDX-License-Identifier: Apache-2.0
"""Sums of rewards that end before an action that is no label."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagecc.common.tensorflow_runtime import tf
from sagecc.learner.returns import ahead, at_rows

pytestmark = pytest.mark.tensorflow


def column(*values: float) -> tf.Tensor:
    return tf.constant(values, tf.float32)[:, None]


def test_sums_of_three_rewards_by_hand() -> None:
    """Rewards 1, 2, 4, 8, 16, the fourth action no label: sums from the rows before it end in its state."""
    found = ahead(column(1, 2, 4, 8, 16), column(1, 1, 1, 0, 1), 0.5, 3)
    np.testing.assert_allclose(found.rewards[:, 0], [1 + 1 + 1, 2 + 2, 4])
    np.testing.assert_array_equal(found.ends[:, 0], [3, 2, 1])
    np.testing.assert_allclose(found.discounts[:, 0], [0.125, 0.25, 0.5])
    np.testing.assert_allclose(found.returns(column(8, 8, 8))[:, 0], [4, 6, 8])


def test_of_one_reward_no_label_ends_anything() -> None:
    found = ahead(column(1, 2, 4), column(0, 0, 1), 0.5, 1)
    np.testing.assert_array_equal(found.rewards[:, 0], [1, 2, 4])
    np.testing.assert_array_equal(found.ends[:, 0], [1, 1, 1])


@settings(max_examples=20, deadline=None)
@given(
    labels=st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=6),
    steps=st.integers(1, 6),
    seed=st.integers(0, 9),
)
def test_sums_agree_with_a_walk_along_each_window(labels: list[list[bool]], steps: int, seed: int) -> None:
    steps = min(steps, len(labels))
    own, rewards = np.array(labels, np.float32), np.random.default_rng(seed).normal(size=(len(labels), 3))
    found = ahead(tf.constant(rewards, tf.float32), tf.constant(own), 0.9, steps)
    for t in range(len(labels) - steps + 1):
        for b in range(3):
            total, row = rewards[t, b], t + 1
            while row < t + steps and own[row, b]:
                total += 0.9 ** (row - t) * rewards[row, b]
                row += 1
            assert found.ends[t, b] == row - t
            assert float(found.rewards[t, b]) == pytest.approx(total, rel=1e-4, abs=1e-5)
            assert float(found.discounts[t, b]) == pytest.approx(0.9 ** (row - t), rel=1e-5)


def test_what_stands_at_a_row_of_each_window() -> None:
    values = tf.constant(np.arange(24).reshape(4, 3, 2))
    found = at_rows(values, tf.constant([[0, 1, 3], [2, 2, 0]]))
    np.testing.assert_array_equal(found, [[[0, 1], [8, 9], [22, 23]], [[12, 13], [14, 15], [4, 5]]])
