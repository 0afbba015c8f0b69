# SPDX-License-Identifier: Apache-2.0
"""Implicit Q-learning (Kostrikov, Nair and Levine, ICLR 2022; arXiv 2110.06169), on windows, time first.

It never judges an action that the pool does not have. With Q' the lower of two target critics and A = Q'(s, a) - V(s):

    Eq. 5  V(s) regresses on an expectile of Q'(s, a) over the pool's actions: |expectile - (A < 0)| A^2;
    Eq. 6  each critic regresses on the next state's value: (r + discount * V(s') - Q(s, a))^2;
    Eq. 7  the policy learns the pool's actions, each weighted by exp(A / beta), at most `ratio_cap` (beta is 1 / beta
           of the paper, as in crr).

All gradients of an update are of the weights before it; the targets move after it. Every random number is a function of
the run's seed and the step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from sagecc.learner.core import Batch, Setting, Share, Update
from sagecc.learner.imitation import answers
from sagecc.learner.lazy import tf
from sagecc.learner.optimisers import Averaged, Trained, checkpoint, copy, differentiated, earned, move, rate_share
from sagecc.learner.reader import bounds, require
from sagecc.learner.specification import Algorithm

METRICS = (
    "critic_loss",
    "policy_loss",
    "value_loss",
    "q_mean",
    "value_mean",
    "advantage_mean",
    "filter_weight_mean",
    "filter_weight_at_cap",
    "policy_gradient_norm",
    "value_gradient_norm",
    "critic_gradient_norm",
)
"""The metrics of an update, in this order; the critics' are means over both."""


@dataclass(frozen=True, kw_only=True)
class IqlConfig(Algorithm):
    """Its section of a specification."""

    networks = ("sage",)
    sources = ("data",)
    version = 1

    policy_rate: float
    """Learning rate of the policy's Adam."""
    critic_rate: float
    """Learning rate of the critics' Adam."""
    final_rate: float = 1.0
    """Share of the learning rates left at the last step, along a half cosine; 1 keeps them."""
    discount: float = 0.95
    """Discount per decision."""
    expectile: float = 0.7
    """Expectile of Q over the pool's actions that V is: 0.5 their mean, towards 1 the best of them."""
    beta: float = 1.0
    """Temperature of the policy's weights, in units of return."""
    ratio_cap: float = 100.0
    """Largest weight of a pool action in the policy's loss."""
    reward_scale: float = 1.0
    """Factor of rewards before values learn from them."""
    reward_limit: float = 0.0
    """A reward, so multiplied, is clipped to plus or minus this; 0 for no limit."""
    action_scale: float = 0.0
    """Critics see sign(a)*log(1+|a|/action_scale) of an action a = log2(ratio); 0 for a itself."""
    tau: float = 0.005
    """Share of the weights that a target network takes over at each update."""
    average: float = 0.0
    """Decay per update of the moving average of the policy's weights that is exported; 0 exports the last weights."""
    gradient_clip: float = 40.0
    """Largest global norm of each network's gradient; 0 for no limit."""

    def __post_init__(self) -> None:
        require(
            *bounds(
                self,
                above_0=("policy_rate", "critic_rate", "beta", "ratio_cap", "reward_scale", "tau"),
                at_least_0=("reward_limit", "action_scale", "gradient_clip"),
                at_most_1=("tau",),
                up_to_1=("final_rate",),
                below_1=("discount", "average"),
            ),
            (0 < self.expectile < 1, "algorithm.expectile must be between 0 and 1"),
        )

    def learner(self, setting: Setting) -> Iql:
        """Return the learner."""
        return Iql(self, setting)


class IqlLosses(NamedTuple):
    """The losses as means over transitions, and what they were computed from for each transition [T, B]."""

    critic: Any
    """Of both critics together, a scalar."""
    value: Any
    """A scalar."""
    policy: Any
    """A scalar."""
    q: Any
    """Q'(s, a)."""
    v: Any
    """V(s)."""
    weight: Any
    """Weight of the pool's action in the policy's loss."""
    mixture: Any
    """The policy's (learner.mixture.Mixture)."""


class Iql:
    """The networks, the target critics, the optimisers' state, and the update of them all."""

    metrics = METRICS

    def __init__(self, config: IqlConfig, setting: Setting) -> None:
        self.config, self.setting = config, setting
        network, observations = setting.network, setting.observations
        seen = observations + setting.states
        self.policy, self.value = network.policy(observations), network.value(seen)
        self.critics, self.targets = (
            [network.critic(seen, action_scale=config.action_scale) for _ in range(2)] for _ in range(2)
        )
        self.averaged = Averaged(self.policy, lambda: network.policy(observations), config.average)
        self.acting, self.exported = self.averaged.acting, self.averaged.exported
        rates = {"value": config.critic_rate, "critic0": config.critic_rate, "critic1": config.critic_rate}
        networks = {"policy": self.policy, "value": self.value, "critic0": self.critics[0], "critic1": self.critics[1]}
        self._trained = [
            Trained(name, of, rates.get(name, config.policy_rate), config.gradient_clip)
            for name, of in networks.items()
        ]
        self.steps = tf.Variable(0, dtype=tf.int64, trainable=False, name="steps")
        for source, target in zip(self.critics, self.targets, strict=True):
            copy(source, target)

    def update(self, batch: Batch) -> Update:
        """Take an update; see Learner."""
        config, share = self.config, Share.of_replica()
        seed = tf.stack([tf.constant(self.setting.seed, tf.int64), self.steps])
        gradients, metrics, transitions = self._gradients(batch, seed, share)
        gradients, metrics = share.mean((gradients, metrics))
        self.steps.assign_add(1)
        rate = rate_share(self.steps, self.setting.steps, config.final_rate)
        policy, value, *critics = (
            net.apply(g, self.steps, rate) for net, g in zip(self._trained, gradients, strict=True)
        )
        self.averaged.update(self.steps)
        for critic, target in zip(self.critics, self.targets, strict=True):
            move(critic, target, config.tau)
        return Update(tf.concat([metrics, [policy, value, tf.add_n(critics) / 2]], axis=0), transitions)

    def _gradients(self, batch: Batch, seed: Any, share: Share) -> tuple[Any, Any, dict[str, Any]]:
        """Return each network's gradient, METRICS without the gradients' norms, and the batch's transitions."""

        def compute() -> tuple[Any, IqlLosses]:
            losses = self.losses(batch)
            return losses.critic + losses.value + losses.policy, losses

        gradients, losses = differentiated(compute, self._trained)
        advantage = losses.q - losses.v
        at_cap = tf.cast(losses.weight >= self.config.ratio_cap, tf.float32)
        means = [tf.reduce_mean(x) for x in (losses.q, losses.v, advantage, losses.weight, at_cap)]
        metrics = tf.stack([losses.critic / 2, losses.policy, losses.value, *means])
        action = losses.mixture.sample(1, seed, share)[0]
        return gradients, metrics, {"advantage": advantage, "filter_weight": losses.weight, "action": action}

    def losses(self, batch: Batch) -> IqlLosses:
        """Return the losses of a batch, or of a replica's share of it; its burn-in only warms the memory up."""
        config, skipped = self.config, self.setting.burn_in
        now = batch.rows(slice(None, -1))
        actions, labels = now.actions[skipped:], now.labels[skipped:]
        rewards = earned(now.rewards[skipped:], config.reward_scale, config.reward_limit)
        values = self._answers(self.value.unroll, batch.inputs)
        v, following = values[:-1], tf.stop_gradient(values[1:])
        q = tf.stop_gradient(tf.reduce_min([self._judged(target, now) for target in self.targets], axis=0))
        advantage = q - v
        expectile = tf.abs(config.expectile - tf.cast(advantage < 0, tf.float32))
        goal = rewards + config.discount * following
        weight = tf.stop_gradient(tf.minimum(tf.exp(advantage / config.beta), config.ratio_cap))
        mixture = self._answers(self.policy.unroll, now.observations)
        return IqlLosses(
            critic=tf.add_n(
                [tf.reduce_mean(labels * tf.square(goal - self._judged(critic, now))) for critic in self.critics]
            ),
            value=tf.reduce_mean(labels * expectile * tf.square(advantage)),
            policy=tf.reduce_mean(-weight * now.examples[skipped:] * mixture.log_prob(actions)),
            q=q,
            v=v,
            weight=weight,
            mixture=mixture,
        )

    def state(self) -> dict[str, Any]:
        """Return every variable that a continued run needs, by name."""
        targets = {f"target_critic{i}": target for i, target in enumerate(self.targets)}
        return checkpoint(self.steps, self._trained, {**targets, **self.averaged.networks()})

    def _judged(self, critic: Any, now: Batch) -> Any:
        """Return a critic's Q(s, a) after the burn-in [T, B]."""

        def unroll(rows: tuple[Any, Any], state: Any) -> tuple[Any, Any]:
            states = critic.states(*rows, state)
            return critic.logits(states)[..., 0], states

        return self._answers(unroll, (now.inputs, now.actions))

    def _answers(self, unroll: Callable[[Any, Any], tuple[Any, Any]], rows: Any) -> Any:
        """Return what a network says at the rows after the burn-in (learner.imitation)."""
        return answers(unroll, rows, self.setting.network.memory, self.setting.burn_in)
