# SPDX-License-Identifier: Apache-2.0
"""DAgger (Ross, Gordon and Bagnell, AISTATS 2011): learn to do what an expert would in the states that one gets into.

The replay has all that the actors saw and, as its states, what the expert would have done there; its first decisions
are the expert's own. An update lowers the mean cross-entropy of the policy's scores and the expert's choices on a batch
of windows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sagecc.common import versions
from sagecc.learner.core import Batch, Setting, Update
from sagecc.learner.exploration import ExpertFirst
from sagecc.learner.lazy import tf
from sagecc.learner.optimisers import Trained, assign, rate_share
from sagecc.learner.reader import bounds, require
from sagecc.learner.specification import Algorithm, RunSpecification


@dataclass(frozen=True, kw_only=True)
class DaggerConfig(Algorithm):
    """Its section of a specification."""

    networks = ("choice",)
    sources = ("task",)
    version = versions.DAGGER

    policy_rate: float
    """Learning rate of the policy's Adam."""
    final_rate: float = 1.0
    """Share of the learning rates left at the last step, along a half cosine; 1 keeps them."""
    gradient_clip: float = 0.0
    """Largest global norm of each network's gradient; 0 for no limit."""

    def __post_init__(self) -> None:
        require(*bounds(self, above_0=("policy_rate",), at_least_0=("gradient_clip",), up_to_1=("final_rate",)))

    def check(self, whole: RunSpecification) -> None:
        """Raise SageccError where the rest of a specification does not fit it."""
        require(
            ((whole.task or {}).get("expert"), "dagger learns from an expert in the task"),
            (whole.pool is None, "dagger learns from an expert, whose actions no pool has: leave pool out"),
        )

    def exploring(self, warm_up: int) -> ExpertFirst:
        """Return how actors explore; see Algorithm."""
        return ExpertFirst(warm_up)

    def learner(self, setting: Setting) -> Dagger:
        """Return the learner."""
        return Dagger(self, setting)


class Dagger:
    """The network, its optimiser's state, and the update of both."""

    metrics = ("cross_entropy", "disagreement", "gradient_norm")
    """The metrics of an update, in this order: its loss, how often the policy would choose another action than the
    expert, and the gradient's norm."""

    def __init__(self, config: DaggerConfig, setting: Setting) -> None:
        self.config, self.setting = config, setting
        self.chooser = setting.network.policy(setting.observations)
        assign(self.chooser, setting.weights)
        self._trained = Trained("actor", self.chooser, config.policy_rate, config.gradient_clip)
        self.steps = tf.Variable(0, dtype=tf.int64, trainable=False, name="steps")

    def update(self, batch: Batch) -> Update:
        """Take one update; see Learner."""
        variables = self._trained.variables
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            for variable in variables:
                tape.watch(variable)
            loss, disagreement = self.losses(batch)
        gradients = tape.gradient(loss, variables)
        share = rate_share(self.steps + 1, self.setting.steps, self.config.final_rate)
        norm = self._trained.apply(gradients, self.steps + 1, share)
        self.steps.assign_add(1)
        return Update(tf.stack([loss, disagreement, norm]), {})

    def losses(self, batch: Batch) -> tuple[Any, Any]:
        """Return the mean cross-entropy and disagreement of a batch; its burn-in only warms the memory up."""
        scores = self.chooser.scores(batch.observations)[self.setting.burn_in :]
        choices = tf.cast(tf.round((batch.states[self.setting.burn_in :, :, 0] + 1) * 2), tf.int32)
        entropies = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=choices, logits=scores)
        differs = tf.not_equal(tf.argmax(scores, axis=-1, output_type=tf.int32), choices)
        return tf.reduce_mean(entropies), tf.reduce_mean(tf.cast(differs, tf.float32))

    def state(self) -> dict[str, Any]:
        """Return every variable that a continued run needs, by name."""
        return {**self._trained.state(), "steps": self.steps}

    def acting(self) -> dict[str, Any]:
        """Return the weights of the policy that plays to learn: those to use."""
        return self.exported()

    def exported(self) -> dict[str, Any]:
        """Return the weights of the policy to use."""
        weights: dict[str, Any] = self.chooser.weights()
        return weights
