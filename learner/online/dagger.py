# SPDX-License-Identifier: Apache-2.0
"""DAgger (Ross, Gordon and Bagnell, AISTATS 2011): learn to do what an expert would in the states that one gets into.

The replay has all that the actors saw and, as its states, what the expert would have done there; its first decisions
are the expert's own. An update lowers the mean cross-entropy of the policy's scores and the expert's choices on a batch
of windows.
"""

from __future__ import annotations

from typing import Any

from sagecc.common.tensorflow_runtime import tf
from sagecc.learner.crr import Adam, rate_share
from sagecc.learner.online.config import OnlineConfig
from sagecc.learner.online.networks import ChoiceActor
from sagecc.learner.online.replay import ReplayBatch
from sagecc.learner.online.updates import adam_state, in_turn, limit_norm


class Dagger:
    """The network, its optimiser's state, and the update of both.

    Args:
        config: The configuration.
        observations: Numbers in an observation.
    """

    metrics = ("cross_entropy", "disagreement", "gradient_norm")
    """The metrics of an update, in this order: its loss, how often the policy would choose another action than the
    expert, and the gradient's norm."""

    def __init__(self, config: OnlineConfig, observations: int) -> None:
        self.config = config
        self.chooser = ChoiceActor(config, observations)
        self.optimizer = Adam(list(self.chooser.weights().values()), config.actor_rate)
        self.steps = tf.Variable(0, dtype=tf.int64, trainable=False, name="steps")

    @tf.function(autograph=False, reduce_retracing=True)  # type: ignore[untyped-decorator]
    def learn(self, batches: ReplayBatch) -> Any:
        """Take an update on each of several batches.

        Args:
            batches: The batches, one behind another in front of time: observations [K, T, B, D] and so on.

        Returns:
            The means of `metrics` [len(metrics)].
        """
        return in_turn(self._update, batches, len(self.metrics))

    def _update(self, batch: ReplayBatch) -> Any:
        """Take one update; return the metrics."""
        variables = self.optimizer.variables
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            for variable in variables:
                tape.watch(variable)
            loss, disagreement = self.losses(batch)
        gradients = tape.gradient(loss, variables)
        gradients, norm = limit_norm(gradients, self.config.gradient_clip)
        share = rate_share(self.steps + 1, self.config.steps, self.config.final_rate)
        self.optimizer.apply(gradients, self.steps + 1, share)
        self.steps.assign_add(1)
        return tf.stack([loss, disagreement, norm])

    def losses(self, batch: ReplayBatch) -> tuple[Any, Any]:
        """Return the mean cross-entropy and disagreement of a batch; its burn-in only warms the memory up."""
        scores = self.chooser.scores(batch.observations)[self.config.burn_in :]
        choices = tf.cast(tf.round((batch.states[self.config.burn_in :, :, 0] + 1) * 2), tf.int32)
        entropies = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=choices, logits=scores)
        differs = tf.not_equal(tf.argmax(scores, axis=-1, output_type=tf.int32), choices)
        return tf.reduce_mean(entropies), tf.reduce_mean(tf.cast(differs, tf.float32))

    def state(self) -> dict[str, Any]:
        """Return every variable that a continued run needs, by name."""
        weights = self.chooser.weights()
        named = {f"actor/{name}": variable for name, variable in weights.items()}
        return {**named, **adam_state("actor", weights, self.optimizer), "steps": self.steps}

    def acting(self) -> dict[str, Any]:
        """Return the weights of the policy that plays to learn: those to use."""
        return self.exported()

    def exported(self) -> dict[str, Any]:
        """Return the weights of the policy to use."""
        return self.chooser.weights()
