# SPDX-License-Identifier: Apache-2.0
"""What algorithms share of an update: Adam, limits on gradients, falling rates, targets, averages, several in a row."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from sagecc.learner.core import Batch, Update
from sagecc.learner.lazy import tf

T = TypeVar("T")


class Weighted(Protocol):
    """A network."""

    def weights(self) -> dict[str, Any]:
        """Return every variable by name."""


class Adam:
    """Adam (Kingma and Ba, ICLR 2015) through TensorFlow's fused kernel: one operation per variable."""

    def __init__(self, variables: list[Any], rate: float) -> None:
        self.variables, self.rate = variables, rate
        self.m = [tf.Variable(tf.zeros_like(v), trainable=False) for v in variables]
        self.v = [tf.Variable(tf.zeros_like(v), trainable=False) for v in variables]

    def apply(self, gradients: list[Any], step: Any, share: Any = 1.0) -> None:
        """Update the variables; `step` is the number of this update, from 1, `share` what is left of the rate."""
        count = tf.cast(step, tf.float32)
        for variable, m, v, gradient in zip(self.variables, self.m, self.v, gradients, strict=True):
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle,
                m=m.handle,
                v=v.handle,
                beta1_power=tf.pow(0.9, count),
                beta2_power=tf.pow(0.999, count),
                lr=self.rate * share,
                beta1=0.9,
                beta2=0.999,
                epsilon=1e-8,
                grad=gradient,
            )


class Trained:
    """A network, and Adam on its weights.

    Args:
        name: in a checkpoint.
        network: the network.
        rate: learning rate.
        limit: largest global norm of its gradient; 0 for none.
    """

    def __init__(self, name: str, network: Weighted, rate: float, limit: float) -> None:
        self.name, self.network, self._limit = name, network, limit
        self.optimizer = Adam(list(network.weights().values()), rate)

    @property
    def variables(self) -> list[Any]:
        """The network's variables."""
        return self.optimizer.variables

    def apply(self, gradients: list[Any], step: Any, share: Any) -> Any:
        """Update the network (Adam.apply); return the global norm of the gradients."""
        limited, norm = clip(gradients, self._limit)
        self.optimizer.apply(limited, step, share)
        return norm

    def state(self) -> dict[str, Any]:
        """Return the weights and Adam's moments by name."""
        named = named_weights(self.name, self.network)
        for weight, m, v in zip(self.network.weights(), self.optimizer.m, self.optimizer.v, strict=True):
            named |= {f"{self.name}_adam_m/{weight}": m, f"{self.name}_adam_v/{weight}": v}
        return named


def differentiated(compute: Callable[[], tuple[Any, T]], networks: Sequence[Trained]) -> tuple[list[list[Any]], T]:
    """Return the gradients of several networks' losses in one pass, and what they were computed from.

    Args:
        compute: returns the losses' sum, each of which reaches only its own network, and what else is wanted of them.
        networks: the networks.
    """
    variables = [network.variables for network in networks]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        for variable in (each for of in variables for each in of):
            tape.watch(variable)
        total, losses = compute()
    return tape.gradient(total, variables), losses


def earned(rewards: Any, scale: float, limit: float) -> Any:
    """Return what critics learn of rewards: multiplied by `scale`, then clipped to plus or minus `limit`, if any."""
    scaled = rewards * scale
    return tf.clip_by_value(scaled, -limit, limit) if limit else scaled


def named_weights(name: str, network: Weighted) -> dict[str, Any]:
    """Return a network's weights by the names that they have in a checkpoint."""
    return {f"{name}/{weight}": variable for weight, variable in network.weights().items()}


def clip(gradients: list[Any], limit: float) -> tuple[list[Any], Any]:
    """Scale gradients to a global norm of at most `limit`, if that is not 0; return them and the norm they had."""
    norm = tf.linalg.global_norm(gradients)
    if not limit:
        return gradients, norm
    # Most steps are below the limit, and need no pass over all gradients.
    clipped = tf.cond(norm > limit, lambda: [g * (limit / norm) for g in gradients], lambda: list(gradients))
    return clipped, norm


def rate_share(step: Any, steps: int, final: float) -> Any:
    """Return the share of the learning rates at a step (from 1 to `steps`): from 1 down to `final`, a half cosine."""
    if final == 1:
        return 1.0
    progress = tf.cast(step - 1, tf.float32) / max(1, steps - 1)
    return final + (1 - final) * 0.5 * (1 + tf.cos(math.pi * progress))


def assign(network: Weighted, weights: Mapping[str, Any] | None) -> None:
    """Give a network weights by name, all that it has; leave it as it is where there are none."""
    if weights is not None:
        for name, variable in network.weights().items():
            variable.assign(weights[name])


def copy(source: Weighted, target: Weighted) -> None:
    """Copy a network's weights to its target's."""
    for variable, other in zip(source.weights().values(), target.weights().values(), strict=True):
        other.assign(variable)


def move(source: Weighted, target: Weighted, share: Any) -> None:
    """Move a target's weights towards the network's by a share of the way."""
    for variable, moved in zip(source.weights().values(), target.weights().values(), strict=True):
        moved.assign(moved * (1 - share) + variable * share)


def average(source: Weighted, mean: Weighted, decay: float, count: Any) -> None:
    """Take a network's weights into the moving average of all of its updates.

    Args:
        source: the network.
        mean: the same network with the average.
        decay: what is left of the average at each update, once so many have been that it spans them.
        count: updates so far: until then the average is over all of them.
    """
    count = tf.cast(count, tf.float32)
    kept = tf.minimum(decay, count / (count + 1))
    for variable, other in zip(source.weights().values(), mean.weights().values(), strict=True):
        other.assign(variable + kept * (other - variable))


class Averaged:
    """A policy, and the moving average of its weights over its updates.

    Args:
        policy: the policy.
        make: makes another like it.
        decay: of `average`; 0 for no average, in whose place the policy itself stands.
    """

    def __init__(self, policy: Weighted, make: Callable[[], Weighted], decay: float) -> None:
        self.policy, self._decay = policy, decay
        self.mean = make() if decay else policy
        copy(policy, self.mean)

    def update(self, count: Any) -> None:
        """Take the policy's weights into the average, once so many updates were taken."""
        if self._decay:
            average(self.policy, self.mean, self._decay, count)

    def acting(self) -> dict[str, Any]:
        """Return the weights of the policy as it is."""
        return self.policy.weights()

    def exported(self) -> dict[str, Any]:
        """Return the weights of the policy to use: the average."""
        return self.mean.weights()

    def networks(self) -> dict[str, Weighted]:
        """Return the average by its name in a checkpoint, where there is one."""
        return {"average_policy": self.mean} if self._decay else {}


def checkpoint(steps: Any, trained: Iterable[Trained], others: Mapping[str, Weighted]) -> dict[str, Any]:
    """Return every variable of a learner's networks that a continued run needs, by name.

    Args:
        steps: counts its updates.
        trained: the networks that it trains, with Adam's state.
        others: further networks by their names in a checkpoint.
    """
    named = {"steps": steps}
    for each in trained:
        named |= each.state()
    for name, network in others.items():
        named |= named_weights(name, network)
    return named


def compiled(update: Callable[[Batch], Update]) -> Callable[[Batch], Update]:
    """Return an update as a graph, which is traced once."""
    graph: Callable[[Batch], Update] = tf.function(update, autograph=False, reduce_retracing=True)
    return graph


def in_turn(update: Callable[[Batch], Update], metrics: int) -> Callable[[Batch], Update]:
    """Return what takes an update on each of several batches, one behind another in front of time.

    Args:
        update: takes one.
        metrics: the number of its metrics, of which the means are returned.
    """

    def updates(batches: Batch) -> Update:
        count = tf.shape(batches.actions)[0]

        def following(number: Any, total: Any) -> tuple[Any, Any]:
            return number + 1, total + update(Batch(*(x[number] for x in batches))).metrics

        begin = (tf.constant(0), tf.zeros([metrics]))
        _, total = tf.while_loop(lambda number, _: number < count, following, begin, parallel_iterations=1)
        return Update(total / tf.cast(count, tf.float32), {})

    return updates
