# SPDX-License-Identifier: Apache-2.0
"""Behaviour cloning (Pomerleau, 1991): the policy learns the pool's actions a, all alike.

An update lowers, over the transitions of a batch whose actions are the recorder's own, the mean of

    (pi(s) - a)^2      of a deterministic policy, which so learns the mean of what was done in a state;
    -log pi(a | s)     of a mixture, which learns its distribution.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from sagecc.common import versions
from sagecc.learner.core import Batch, Setting, Share, Update
from sagecc.learner.imitation import action_of, answers, misfit
from sagecc.learner.lazy import tf
from sagecc.learner.optimisers import Averaged, Trained, checkpoint, differentiated, rate_share
from sagecc.learner.reader import bounds, require
from sagecc.learner.specification import Algorithm


@dataclass(frozen=True, kw_only=True)
class BcConfig(Algorithm):
    """Its section of a specification."""

    networks = ("mlp", "recurrent", "sage")
    sources = ("data",)
    version = versions.BC

    policy_rate: float
    """Learning rate of the policy's Adam."""
    final_rate: float = 1.0
    """Share of the learning rates left at the last step, along a half cosine; 1 keeps them."""
    average: float = 0.0
    """Decay per update of the moving average of the policy's weights that is exported; 0 exports the last weights."""
    gradient_clip: float = 0.0
    """Largest global norm of each network's gradient; 0 for no limit."""

    def __post_init__(self) -> None:
        above_0, at_least_0 = ("policy_rate",), ("gradient_clip",)
        require(*bounds(self, above_0=above_0, at_least_0=at_least_0, up_to_1=("final_rate",), below_1=("average",)))

    def learner(self, setting: Setting) -> Bc:
        """Return the learner."""
        return Bc(self, setting)


class BcLoss(NamedTuple):
    """The loss, and what it was computed from."""

    policy: Any
    """A scalar."""
    said: Any
    """What the policy says at each transition [T, B]: an action, or a mixture of them."""


class Bc:
    """The policy, its average, its optimiser's state, and the update of them all."""

    metrics = ("policy_loss", "action_error", "policy_gradient_norm")
    """The metrics of an update, in this order: its loss, the mean of |pi(s) - a|, the gradient's norm."""

    def __init__(self, config: BcConfig, setting: Setting) -> None:
        self.config, self.setting = config, setting
        self.policy = setting.network.policy(setting.observations)
        self.averaged = Averaged(self.policy, lambda: setting.network.policy(setting.observations), config.average)
        self.acting, self.exported = self.averaged.acting, self.averaged.exported
        self._policy = Trained("policy", self.policy, config.policy_rate, config.gradient_clip)
        self.steps = tf.Variable(0, dtype=tf.int64, trainable=False, name="steps")

    def update(self, batch: Batch) -> Update:
        """Take an update; see Learner."""
        config, share = self.config, Share.of_replica()
        seed = tf.stack([tf.constant(self.setting.seed, tf.int64), self.steps])

        def compute() -> tuple[Any, BcLoss]:
            loss = self.losses(batch)
            return loss.policy, loss

        (gradients,), loss = differentiated(compute, (self._policy,))
        action = action_of(loss.said, seed, share)
        error = tf.reduce_mean(tf.abs(action - batch.actions[self.setting.burn_in : -1]))
        gradients, metrics = share.mean((gradients, tf.stack([loss.policy, error])))
        self.steps.assign_add(1)
        rate = rate_share(self.steps, self.setting.steps, config.final_rate)
        norm = self._policy.apply(gradients, self.steps, rate)
        self.averaged.update(self.steps)
        return Update(tf.concat([metrics, [norm]], axis=0), {"action": action})

    def losses(self, batch: Batch) -> BcLoss:
        """Return the loss of a batch, or of a replica's share of it; its burn-in only warms the memory up."""
        setting, now = self.setting, batch.rows(slice(None, -1))
        said = answers(self.policy.unroll, now.observations, setting.network.memory, setting.burn_in)
        found = misfit(said, now.actions[setting.burn_in :])
        return BcLoss(tf.reduce_mean(now.examples[setting.burn_in :] * found), said)

    def state(self) -> dict[str, Any]:
        """Return every variable that a continued run needs, by name."""
        return checkpoint(self.steps, [self._policy], self.averaged.networks())
