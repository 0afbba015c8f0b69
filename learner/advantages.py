# SPDX-License-Identifier: Apache-2.0
"""Advantages of a pool's actions over its recorders' own mean, and the weights that imitation gives them.

With V the value of the recorders' behaviour, d_t = r_t + discount V(s_t+1) - V(s_t) and l_t the labels,

    A_t = l_t (d_t + discount trace A_t+1)

generalised advantage estimation (GAE; Schulman et al., ICLR 2016) within a window, at whose end V stands for what
follows. It ends at an action of the lab's, whose consequences are not the recorder's doing. Weights are those of
advantage-weighted regression (Peng et al., 2019): with D the deviation of A in its group and M the mean of the weights
there, both running averages,

    w_t = min(exp(A_t / (beta D)), cap) / M.

Groups are flows that are alone and flows beside others: their rewards are other ones, and so is the reach of A.
"""

from __future__ import annotations

from typing import Any

from sagecc.learner.core import Batch, Share
from sagecc.learner.lazy import tf

GROUPS = 2
"""Alone, beside others."""

KEPT = 0.99
"""Decay of the running averages per update."""

LEAST_DEVIATION = 1e-6


def advantages(rewards: Any, values: Any, labels: Any, discount: Any, trace: float) -> Any:
    """Return the advantages of the actions of windows [T, B]; A + V(s) are the behaviour's lambda-returns.

    Args:
        rewards: reward of each action [T, B].
        values: value of each row and after the last one [T + 1, B].
        labels: 1 where the action is the recorder's own, else 0 [T, B].
        discount: per decision, a number or [T, B].
        trace: lambda: 0 looks one reward ahead, 1 to the window's end.
    """
    differences = rewards + discount * values[1:] - values[:-1]
    kept = labels * discount * trace
    found = [tf.zeros_like(labels[0])]
    for row in reversed(range(labels.shape[0])):
        found.append(labels[row] * differences[row] + kept[row] * found[-1])
    return tf.stack(found[:0:-1])


def groups_of(batch: Batch) -> Any:
    """Return each row's group, 0 or 1, from the first of its states (learner.privileged.FLOWS), int32 [T, B]."""
    return tf.cast(batch.states[..., 0] > 0, tf.int32)


class AdvantageWeights:
    """Weights of actions in the policy's loss; the running averages are part of a learner's state.

    Args:
        beta: temperature, in deviations of the group's advantages.
        cap: largest exponential.
        beta_shared: temperature for flows beside others; None for `beta` there too.
    """

    def __init__(self, beta: float, cap: float, beta_shared: float | None = None) -> None:
        self.betas, self.cap = [beta, beta if beta_shared is None else beta_shared], cap
        self._moments = tf.Variable(tf.zeros([GROUPS, 2]), trainable=False, name="advantage_moments")
        self._weights = tf.Variable(tf.zeros([GROUPS, 1]), trainable=False, name="weight_means")
        self._seen = tf.Variable(tf.zeros([GROUPS, 1]), trainable=False, name="batches_seen")

    def of(self, advantages: Any, groups: Any, labels: Any, share: Share) -> Any:
        """Take a batch's advantages into the averages; return its weights [T, B], 0 where there is no label.

        Args:
            advantages: of the actions [T, B].
            groups: each one's group [T, B].
            labels: 1 where an action counts, else 0 [T, B].
            share: which share of the batch it is.
        """
        shape, advantages = tf.shape(labels), tf.stop_gradient(advantages)
        advantages, labels, groups = (tf.reshape(x, [-1]) for x in (advantages, labels, groups))
        members = tf.one_hot(groups, GROUPS) * labels[:, None]
        counts = share.mean(tf.reduce_sum(members, axis=0))[:, None]
        self._seen.assign_add(tf.cast(counts > 0, tf.float32))

        def averaged(averages: Any, values: Any) -> Any:
            sums = share.mean(tf.matmul(members, tf.stack(values, axis=1), transpose_a=True))
            kept = tf.where(counts > 0, tf.minimum(KEPT, 1 - 1 / tf.maximum(self._seen, 1)), 1.0)
            return averages.assign(kept * averages + (1 - kept) * sums / tf.maximum(counts, 1e-9))

        means, squares = tf.unstack(averaged(self._moments, [advantages, tf.square(advantages)]), axis=1)
        deviations = tf.maximum(tf.sqrt(tf.maximum(squares - tf.square(means), 0.0)), LEAST_DEVIATION)
        weights = tf.minimum(tf.exp(advantages / tf.gather(self.betas * deviations, groups)), self.cap)
        means = averaged(self._weights, [weights])[:, 0]
        # A group that no batch had yet has a mean of 0.
        return tf.reshape(tf.math.divide_no_nan(labels * weights, tf.gather(means, groups)), shape)

    def state(self) -> dict[str, Any]:
        """Return the running averages by name."""
        return {variable.name.partition(":")[0]: variable for variable in (self._moments, self._weights, self._seen)}
