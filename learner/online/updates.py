# SPDX-License-Identifier: Apache-2.0
"""What the online learners' updates share: taking several in one call, limits on gradients, an optimiser's state."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from sagecc.common.tensorflow_runtime import tf
from sagecc.learner.crr import Adam, clip
from sagecc.learner.online.replay import ReplayBatch


def in_turn(update: Callable[[ReplayBatch], Any], batches: ReplayBatch, metrics: int) -> Any:
    """Take an update on each of several batches, in a graph.

    Args:
        update: Takes one; returns its metrics [metrics].
        batches: The batches, one behind another in front of time: observations [K, T, B, D] and so on.
        metrics: Their number.

    Returns:
        The means of the metrics [metrics].
    """
    count = tf.shape(batches.actions)[0]

    def following(number: Any, total: Any) -> tuple[Any, Any]:
        return number + 1, total + update(ReplayBatch(*(x[number] for x in batches)))

    begin = (tf.constant(0), tf.zeros([metrics]))
    _, total = tf.while_loop(lambda number, _: number < count, following, begin, parallel_iterations=1)
    return total / tf.cast(count, tf.float32)


def limit_norm(gradients: list[Any], limit: float) -> tuple[list[Any], Any]:
    """Return gradients with a global norm of at most `limit`, if that is not 0, and the norm that they had."""
    return clip(gradients, limit) if limit else (gradients, tf.linalg.global_norm(gradients))


def adam_state(network: str, weights: Iterable[str], optimizer: Adam) -> dict[str, Any]:
    """Return an optimiser's moments by name.

    Args:
        network: The network's name.
        weights: The names of its weights, in the optimiser's order.
        optimizer: The optimiser.
    """
    named: dict[str, Any] = {}
    for name, m, v in zip(weights, optimizer.m, optimizer.v, strict=True):
        named |= {f"{network}_adam_m/{name}": m, f"{network}_adam_v/{name}": v}
    return named
