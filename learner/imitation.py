# SPDX-License-Identifier: Apache-2.0
"""What algorithms share that imitate a pool's actions, by policies of every kind of network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sagecc.learner.core import Share
from sagecc.learner.lazy import tf


def answers(unroll: Callable[[Any, Any], tuple[Any, Any]], rows: Any, memory: int, burn_in: int) -> Any:
    """Return what a network says at the rows after the burn-in, whose rows only warm its memory up.

    Args:
        unroll: runs the network over rows from a memory (deterministic.ActorNetwork, mixture.PolicyNetwork).
        rows: what it sees [T, B, F], or several such.
        memory: size H of its memory.
        burn_in: rows of the burn-in.
    """

    def part(which: slice) -> Any:
        return tf.nest.map_structure(lambda x: x[which], rows)

    before = tf.zeros([tf.shape(tf.nest.flatten(rows)[0])[1], memory])
    if burn_in and memory:
        before = tf.stop_gradient(unroll(part(slice(burn_in)), before)[1][-1])
    return unroll(part(slice(burn_in, None)), before)[0]


def misfit(said: Any, actions: Any) -> Any:
    """Return how far what a policy says is from some actions [T, B].

    It is (pi(s) - a)^2 of a deterministic policy, and -log pi(a | s) of a mixture.
    """
    return tf.square(said - actions) if tf.is_tensor(said) else -said.log_prob(actions)


def action_of(said: Any, seed: Any, share: Share) -> Any:
    """Return an action that a policy would take at each row [T, B]: its only one, or one drawn from its mixture."""
    return said if tf.is_tensor(said) else said.sample(1, seed, share)[0]
