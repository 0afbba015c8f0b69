# SPDX-License-Identifier: Apache-2.0
"""What an algorithm is to all else: a learner takes updates on batches. The loop (learner.loop) knows no more of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from sagecc.learner.lazy import tf


class Batch(NamedTuple):
    """Windows of consecutive decisions of one flow each, time first; a learner takes of it what it needs."""

    observations: Any
    """Scaled observations [T, B, D]."""
    actions: Any
    """Actions [T, B]; a pool's are log2 of the window's ratio, those of labs from -1 to 1, the last row's 0."""
    rewards: Any
    """Reward of each action [T, B]."""
    states: Any
    """What critics see beside the observations [T, B, G]; G is 0 where there is nothing."""
    labels: Any
    """1 where the action is the recorder's own, 0 where the lab disturbed it [T, B]: such an action is not to be
    imitated, and what follows it is not its recorder's doing, so that sums of rewards end before it."""
    examples: Any
    """The labels, 0 too where the recorder explores: values learn from such an action, no policy imitates it [T, B]."""

    @property
    def inputs(self) -> Any:
        """What critics see beside the action: observations and states [T, B, D + G]."""
        if self.states.shape[-1] == 0:
            return self.observations
        return tf.concat([self.observations, self.states], axis=-1)

    def rows(self, which: slice) -> Batch:
        """Return some of the rows."""
        return Batch(*(x[which] for x in self))


class Update(NamedTuple):
    """What an update says of itself."""

    metrics: Any
    """The values of Learner.metrics."""
    transitions: dict[str, Any]
    """By name, numbers of each transition [T, B] for histograms; `action` is one that the policy would take."""


@dataclass(frozen=True)
class Share:
    """One replica's part of a batch that is split equally."""

    index: int = 0
    """Which part."""
    count: int = 1
    """Number of parts."""

    @classmethod
    def of_replica(cls) -> Share:
        """Return the share of the replica that asks, within an update."""
        replica = tf.distribute.get_replica_context()
        return cls(int(tf.get_static_value(replica.replica_id_in_sync_group)), replica.num_replicas_in_sync)

    def part_of(self, draw: Callable[[Any], Any], shape: Any, axis: int) -> Any:
        """Return this part of a random draw for the whole batch.

        Args:
            draw: draws random numbers of a shape.
            shape: shape of this part.
            axis: axis of the batch's windows.
        """
        if self.count == 1:
            return draw(shape)
        whole = tf.tensor_scatter_nd_update(shape, [[axis]], [shape[axis] * self.count])
        return tf.split(draw(whole), self.count, axis)[self.index]

    def mean(self, values: Any) -> Any:
        """Return the mean over all replicas of values in any nest."""
        if self.count == 1:
            return values
        # What is reduced must know its device: an identity in the replica's context provides it.
        return tf.distribute.get_replica_context().all_reduce("MEAN", tf.nest.map_structure(tf.identity, values))


WHOLE = Share()


@dataclass(frozen=True)
class Setting:
    """What a learner is made for."""

    network: Any
    """The policy's kind of network, one of Algorithm.networks, which makes the critics' too (learner.architectures)."""
    observations: int
    """Numbers D in an observation."""
    states: int
    """Numbers G that critics see beside it."""
    burn_in: int
    """First transitions of a window that only warm up recurrent states, without loss."""
    window: int
    """Rows T of a window."""
    steps: int
    """Updates in all."""
    seed: int
    """Every random number is a function of it and the update."""
    value_range: tuple[float, float] | None = None
    """Lowest and highest return that a categorical critic can represent (Algorithm.return_range)."""
    weights: Mapping[str, Any] | None = None
    """The policy's weights to begin with, by name; None for new ones."""


class Learner(Protocol):
    """The networks, their targets and optimisers, and the update of them all."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of an update's metrics; the first two are bounded (learner.loop.diverged)."""

    def update(self, batch: Batch) -> Update:
        """Take one update, in a graph; of several replicas each with its share of the batch.

        All take the same step, along the mean of their gradients, and return the mean of their metrics.
        """

    def state(self) -> dict[str, Any]:
        """Return every TensorFlow variable that a continued run needs, by name; `steps` is among them."""

    def acting(self) -> dict[str, Any]:
        """Return the weights of the policy that plays to learn."""

    def exported(self) -> dict[str, Any]:
        """Return the weights of the policy to use."""
