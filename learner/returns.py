# SPDX-License-Identifier: Apache-2.0
"""Sums of rewards within windows of a pool, which end before an action that is not the recorder's own."""

from __future__ import annotations

from typing import Any, NamedTuple

from sagecc.learner.lazy import tf


class Ahead(NamedTuple):
    """What lies ahead of each row [L, B] until the value that is added."""

    rewards: Any
    """The discounted rewards."""
    discounts: Any
    """The discount of the value."""
    ends: Any
    """Rows from here to the state of the value, an integer."""

    def returns(self, values: Any) -> Any:
        """Return the discounted rewards and value, of values [L, B]."""
        return self.rewards + self.discounts * values


def ahead(rewards: Any, labels: Any, discount: Any, steps: int) -> Ahead:
    """Return the sums of up to `steps` rewards, of the L = R - steps + 1 rows that have so many.

    A sum goes no further than the state in which the next action is no label: that state is the recorder's doing, what
    follows it is not. A row's own label is not looked at.

    Args:
        rewards: what each row's action earned [R, B].
        labels: 1 where an action is the recorder's own, else 0 [R, B].
        discount: discount per row, a number or [B].
        steps: most rewards in a sum, from 1 to R.
    """
    rows = rewards.shape[0] - steps + 1
    total, kept, ends = rewards[:rows], tf.ones_like(rewards[:rows]), tf.ones_like(rewards[:rows])
    for step in range(1, steps):
        kept *= labels[step : step + rows]
        total += discount**step * kept * rewards[step : step + rows]
        ends += kept
    return Ahead(total, tf.pow(discount, ends), tf.cast(ends, tf.int32))


def at_rows(values: Any, rows: Any) -> Any:
    """Return what stands at some row of each window: values [T, B, ...], rows [L, B] -> [L, B, ...]."""
    shape = tf.shape(values)
    flat = tf.reshape(values, tf.concat([[shape[0] * shape[1]], shape[2:]], axis=0))
    return tf.gather(flat, rows * shape[1] + tf.range(shape[1]))
