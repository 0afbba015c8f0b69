# SPDX-License-Identifier: Apache-2.0
"""Deterministic actors and critics that learn from a pool: which rows of its windows do, values and targets there.

Rewards are multiplied by 1 - discount, so that a value is a discounted mean of what is earned, whatever the discount.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sagecc.learner.actor_critic import CRITICS, ActorCritic, ActorCriticConfig, CriticLosses, error_loss
from sagecc.learner.advantages import groups_of
from sagecc.learner.core import Batch
from sagecc.learner.lazy import tf
from sagecc.learner.optimisers import earned
from sagecc.learner.reader import bounds, require
from sagecc.learner.returns import Ahead, ahead, at_rows
from sagecc.learner.specification import RunSpecification

METRICS = (
    "critic_loss",
    "policy_loss",
    "q_mean",
    "target_mean",
    "cloning_error",
    "action_mean",
    "action_deviation",
    "policy_gradient_norm",
    "critic_gradient_norm",
)
"""The metrics of an update, in this order; those of the actor are of its last update."""

OF_ACTOR = ("policy_loss", "cloning_error", "action_mean", "action_deviation", "policy_gradient_norm")
"""Those of the actor."""


@dataclass(frozen=True, kw_only=True)
class OfflineConfig(ActorCriticConfig):
    """The fields that they share."""

    sources = ("data",)

    discount_shared: float | None = None
    """The discount for flows with competitors, whose share moves over tens of seconds; `null`: `discount`."""
    n_step: int = 1
    """Rewards in a critic's target before the value; only rows with so many after them learn."""
    critic_norm: bool = False
    """Normalise the outputs of the critics' hidden layers, as ReBRAC does (kind `mlp`)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(*bounds(self, at_least_1=("n_step",), below_1=("discount_shared",)))

    def check(self, whole: RunSpecification) -> None:
        """Raise SageccError where the rest of a specification does not fit it."""
        super().check(whole)
        require(
            (
                self.n_step <= whole.transitions - whole.burn_in,
                "algorithm.n_step must be at most the transitions of a window after its burn_in",
            ),
            (
                self.discount_shared is None or not whole.data or whole.data.state_names,
                "algorithm.discount_shared tells flows alone from others: give data.states",
            ),
            (not self.critic_norm or whole.network.kind == "mlp", "algorithm.critic_norm is for networks of kind mlp"),
        )

    def seen(self, whole: RunSpecification) -> tuple[int, ...] | None:
        """Return which observations it looks at: a network without memory sees no row between a sum's two ends."""
        if whole.network.memory:
            return None
        learning = range(whole.burn_in, whole.transitions + 1 - self.n_step)
        return tuple(sorted({*learning, *(row + self.n_step for row in learning)}))

    def critic(self, network: Any, inputs: int) -> Any:
        """Return a new critic; see ActorCriticConfig."""
        return network.critic(inputs, normalised=True) if self.critic_norm else network.critic(inputs)


class Judges:
    """The critics of an algorithm, on the rows of a pool's windows that learn.

    Args:
        config: the algorithm's section.
        networks: its networks.
    """

    def __init__(self, config: OfflineConfig, networks: ActorCritic) -> None:
        self._config, self._networks = config, networks
        setting = networks.setting
        self.rows = slice(setting.burn_in, setting.window - config.n_step)
        """The rows that learn."""

    def losses(self, batch: Batch, noise: Any, price: Callable[[Any, Any], Any] | None = None) -> CriticLosses:
        """Return the critics' losses as means over the rows that learn; an action that is no label has none.

        Args:
            batch: a batch of windows, or a replica's share of it.
            noise: what is added to the target policy's actions, before it is clipped [L, B].
            price: returns what the value in a target loses, of the target policy's actions and their rows [L, B].
        """
        config, actions = self._config, batch.actions[self.rows]
        coming = self.ahead(batch)
        targets = tf.stop_gradient(coming.returns(self._next_values(batch, self.ends(coming), noise, price)))
        values = [self.values(critic, batch, actions) for critic in self._networks.critics]
        labels = batch.labels[self.rows]
        losses = [tf.reduce_mean(labels * error_loss(targets - value, config.huber)) for value in values]
        return CriticLosses(losses, values, targets)

    def values(self, critic: Any, batch: Batch, actions: Any) -> Any:
        """Return a critic's Q of any actions at the rows that learn [L, B]."""
        inputs, memory = batch.inputs, self._memory(critic, batch)
        return critic.values(inputs[self.rows], actions, memory[self.rows])

    def alternatives(self, critic: Any, batch: Batch, actions: Any) -> Any:
        """Return a critic's Q of N other actions at each row that learns: actions [N, L, B] -> [N, L, B]."""
        inputs, memory = batch.inputs[self.rows], self._memory(critic, batch)[self.rows]
        shape = tf.shape(actions)

        def repeated(rows: Any) -> Any:
            return tf.tile(rows, [shape[0], 1, 1])

        flat = tf.reshape(actions, [-1, shape[2]])
        return tf.reshape(critic.values(repeated(inputs), flat, repeated(memory)), shape)

    def lower(self, batch: Batch, actions: Any, critics: int = CRITICS) -> Any:
        """Return the lowest Q of the first critics of any actions at the rows that learn [L, B]."""
        return tf.reduce_min([self.values(of, batch, actions) for of in self._networks.critics[:critics]], axis=0)

    def ahead(self, batch: Batch) -> Ahead:
        """Return what lies ahead of the rows that learn."""
        config, own = self._config, slice(self.rows.start, -1)
        discount: Any = config.discount
        if config.discount_shared is not None:
            discount = tf.gather([config.discount, config.discount_shared], groups_of(batch)[0])
        rewards = earned(batch.rewards[own], config.reward_scale, config.reward_limit) * (1 - discount)
        return ahead(rewards, batch.labels[own], discount, config.n_step)

    def ends(self, coming: Ahead) -> Any:
        """Return the rows of the states in which the sums ahead end [L, B]."""
        return tf.range(self.rows.start, self.rows.stop)[:, None] + coming.ends

    def actions(self, batch: Batch) -> Any:
        """Return the actor's actions at the rows that learn [L, B]."""
        seen = batch.observations[: self.rows.stop]
        return self._networks.answers_from(self._networks.actor.unroll, seen, self.rows.start)

    def action_metrics(self, batch: Batch, actions: Any) -> dict[str, Any]:
        """Return metrics of the actor's actions at the rows that learn."""
        error = batch.labels[self.rows] * tf.square(actions - batch.actions[self.rows])
        return {
            "cloning_error": tf.reduce_mean(error),
            "action_mean": tf.reduce_mean(actions),
            "action_deviation": tf.math.reduce_std(actions),
        }

    def _next_values(self, batch: Batch, ends: Any, noise: Any, price: Any) -> Any:
        """Return the value of the states at some rows [L, B]."""
        networks, inputs = self._networks, at_rows(batch.inputs, ends)
        actions = networks.answers_at(networks.target_actor.unroll, batch.observations, ends)
        actions = networks.perturbed(actions, noise)
        values = [
            critic.values(inputs, actions, at_rows(self._memory(critic, batch), ends))
            for critic in networks.target_critics
        ]
        lower = tf.reduce_min(values, axis=0)  # where an episode ends too: no state is terminal
        return lower - price(actions, ends) if price else lower

    def _memory(self, critic: Any, batch: Batch) -> Any:
        return self._networks.memory(critic, batch.inputs, batch.actions)
