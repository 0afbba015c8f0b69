# SPDX-License-Identifier: Apache-2.0
"""Advantage-weighted regression in one step (Peng et al., 2019, arXiv 1910.00177), on windows, time first.

The policy imitates the pool's actions, each the more the better it was than what the schemes do there on average.
It never judges an action that the pool does not have, and never its own: one step of improvement over the behaviour
(Brandfonbrener et al., NeurIPS 2021), with nothing for errors to build up on.

    value   V(s, g) regresses on the behaviour's lambda-returns G = A + V'(s, g), V' a target that moves along, g what
            only the recorder knows (learner.privileged); rewards are multiplied by 1 - discount, so V is a discounted
            mean. An expectile above 1/2 makes V that of the better schemes (Kostrikov et al., ICLR 2022, Eq. 5):
            the mean of 2 |expectile - (G < V)| (G - V)^2;
    A, w    advantages by GAE with V', and their weights (learner.advantages);
    policy  the mean of w (pi(s) - a)^2 or, of a mixture, of -w log pi(a | s).

Where the lab acted there is no loss, and sums of rewards end there. All gradients of an update are of the weights
before it; the target moves after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from sagecc.common import versions
from sagecc.learner.advantages import AdvantageWeights, advantages, groups_of
from sagecc.learner.core import WHOLE, Batch, Setting, Share, Update
from sagecc.learner.imitation import action_of, answers, misfit
from sagecc.learner.lazy import tf
from sagecc.learner.optimisers import Averaged, Trained, checkpoint, copy, differentiated, earned, move, rate_share
from sagecc.learner.reader import bounds, require
from sagecc.learner.specification import Algorithm, RunSpecification

METRICS = (
    "value_loss",
    "policy_loss",
    "value_mean",
    "advantage_std",
    "filter_weight_mean",
    "effective_share",
    "value_gradient_norm",
    "policy_gradient_norm",
)
"""The metrics of an update, in this order; the effective share of the transitions is (sum of w)^2 / (n sum of w^2)."""


@dataclass(frozen=True, kw_only=True)
class AwrConfig(Algorithm):
    """Its section of a specification."""

    networks = ("mlp", "recurrent", "sage")
    sources = ("data",)
    version = versions.AWR

    policy_rate: float
    """Learning rate of the policy's Adam."""
    value_rate: float
    """Learning rate of the value's Adam."""
    final_rate: float = 1.0
    """Share of the learning rates left at the last step, along a half cosine; 1 keeps them."""
    discount: float = 0.99
    """Discount per decision."""
    discount_shared: float | None = None
    """The discount for flows with competitors, whose share moves over tens of seconds; `null`: `discount`."""
    trace: float = 0.97
    """Lambda of the returns and advantages: 0 looks one reward ahead, 1 to the window's end."""
    expectile: float = 0.5
    """Expectile of the returns that V is: 0.5 their mean, towards 1 the best of them."""
    beta: float = 0.5
    """Temperature of the weights exp(A / beta), in deviations of A among flows alone, or with competitors."""
    beta_shared: float | None = None
    """The same for flows with competitors; `null`: `beta`."""
    ratio_cap: float = 20.0
    """Largest such weight, before they are divided by their mean."""
    reward_scale: float = 1.0
    """Factor of rewards before values learn from them."""
    reward_limit: float = 0.0
    """A reward, so multiplied, is clipped to plus or minus this; 0 for no limit."""
    tau: float = 0.005
    """Share of the weights that a target network takes over at each update."""
    average: float = 0.0
    """Decay per update of the moving average of the policy's weights that is exported; 0 exports the last weights."""
    gradient_clip: float = 0.0
    """Largest global norm of each network's gradient; 0 for no limit."""

    def __post_init__(self) -> None:
        require(
            *bounds(
                self,
                above_0=("policy_rate", "value_rate", "beta", "beta_shared", "ratio_cap", "reward_scale", "tau"),
                at_least_0=("reward_limit", "gradient_clip"),
                at_most_1=("tau",),
                up_to_1=("trace", "final_rate"),
                below_1=("discount", "discount_shared", "average"),
            ),
            (0 < self.expectile < 1, "algorithm.expectile must be between 0 and 1"),
        )

    def check(self, whole: RunSpecification) -> None:
        """Raise SageccError where the rest of a specification does not fit it."""
        require((whole.data and whole.data.state_names, "awr tells flows alone from others: give data.states"))

    def learner(self, setting: Setting) -> Awr:
        """Return the learner."""
        return Awr(self, setting)


class AwrLosses(NamedTuple):
    """The losses as means over transitions, and what they were computed from for each transition [T, B]."""

    value: Any
    """A scalar."""
    policy: Any
    """A scalar."""
    v: Any
    """V(s, g)."""
    advantage: Any
    """A."""
    weight: Any
    """Weight of the pool's action in the policy's loss."""
    said: Any
    """What the policy says: an action, or a mixture of them."""


class Awr:
    """Policy, value and its target, the weights' averages, the optimisers' state, and the update of them all."""

    metrics = METRICS

    def __init__(self, config: AwrConfig, setting: Setting) -> None:
        self.config, self.setting = config, setting
        network, observations = setting.network, setting.observations
        self.policy = network.policy(observations)
        self.value, self.target = (network.value(observations + setting.states) for _ in range(2))
        self.averaged = Averaged(self.policy, lambda: network.policy(observations), config.average)
        self.acting, self.exported = self.averaged.acting, self.averaged.exported
        self.weights = AdvantageWeights(config.beta, config.ratio_cap, config.beta_shared)
        self._trained = (
            Trained("value", self.value, config.value_rate, config.gradient_clip),
            Trained("policy", self.policy, config.policy_rate, config.gradient_clip),
        )
        self.steps = tf.Variable(0, dtype=tf.int64, trainable=False, name="steps")
        copy(self.value, self.target)

    def update(self, batch: Batch) -> Update:
        """Take an update; see Learner."""
        config, share = self.config, Share.of_replica()
        seed = tf.stack([tf.constant(self.setting.seed, tf.int64), self.steps])

        def compute() -> tuple[Any, AwrLosses]:
            losses = self.losses(batch, share)
            return losses.value + losses.policy, losses

        gradients, losses = differentiated(compute, self._trained)
        found = [
            losses.value,
            losses.policy,
            tf.reduce_mean(losses.v),
            tf.math.reduce_std(losses.advantage),
            tf.reduce_mean(losses.weight),
            tf.square(tf.reduce_mean(losses.weight)) / tf.reduce_mean(tf.square(losses.weight)),
        ]
        gradients, metrics = share.mean((gradients, tf.stack(found)))
        self.steps.assign_add(1)
        rate = rate_share(self.steps, self.setting.steps, config.final_rate)
        norms = [net.apply(g, self.steps, rate) for net, g in zip(self._trained, gradients, strict=True)]
        self.averaged.update(self.steps)
        move(self.value, self.target, config.tau)
        seen = {"advantage": losses.advantage, "filter_weight": losses.weight}
        return Update(tf.concat([metrics, norms], axis=0), {**seen, "action": action_of(losses.said, seed, share)})

    def losses(self, batch: Batch, share: Share = WHOLE) -> AwrLosses:
        """Return the losses of a batch, or of a replica's share of it; its burn-in only warms the memory up."""
        config, memory, skipped = self.config, self.setting.network.memory, self.setting.burn_in
        now = batch.rows(slice(skipped, -1))
        inputs = tf.concat([batch.observations, batch.states], axis=-1)
        values = answers(self.target.unroll, inputs, memory, skipped)
        groups, shared = groups_of(now), config.discount_shared
        discount = tf.gather([config.discount, config.discount if shared is None else shared], groups)
        rewards = earned(now.rewards, config.reward_scale, config.reward_limit) * (1 - discount)
        advantage = advantages(rewards, values, now.labels, discount, config.trace)
        weight = self.weights.of(advantage, groups, now.examples, share)
        v = answers(self.value.unroll, inputs[:-1], memory, skipped)
        said = answers(self.policy.unroll, batch.observations[:-1], memory, skipped)
        error = tf.stop_gradient(advantage + values[:-1]) - v
        expectile = 2 * tf.abs(config.expectile - tf.cast(error < 0, tf.float32))
        return AwrLosses(
            value=tf.reduce_mean(now.labels * expectile * tf.square(error)),
            policy=tf.reduce_mean(weight * misfit(said, now.actions)),
            v=v,
            advantage=advantage,
            weight=weight,
            said=said,
        )

    def state(self) -> dict[str, Any]:
        """Return every variable that a continued run needs, by name."""
        named = checkpoint(self.steps, self._trained, {"target": self.target, **self.averaged.networks()})
        return named | self.weights.state()
