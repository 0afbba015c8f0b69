# SPDX-License-Identifier: Apache-2.0
"""Twin delayed deep deterministic policy gradients (TD3; Fujimoto, van Hoof and Meger, ICML 2018), as Acme has it.

One update on a batch of windows, time first; a transition of a dense network is a window of two rows:

    critics  Q_i(s, a) -> r + discount * min_j Q'_j(s', pi'(s') + noise), the noise Gaussian and clipped, the action
             clipped to [-1, 1], r perhaps scaled and clipped; each by its mean square, or by Huber's loss;
    actor    along dQ_1(s', pi(s')) / da, every `policy_delay` updates; then its target moves.

With `returns: window` a critic's target has the rewards up to the last row of its window and the critics' value there,
r_t + discount * r_t+1 + ... (as in A3C; Mnih et al., ICML 2016, section 4): of T - 1 to 1 rewards, uncorrected for
exploring actions among those that followed.

As in acme.agents.jax.td3 the actor learns at the transitions' next observations, all gradients of an update are of the
weights before it, and the critics' targets move at every update. Unlike there the noise is drawn for each transition
(the paper's; Acme draws one number for the whole batch) and is the same for both critics.

Every random number is a function of the run's seed and the step, so a run continues from any step bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from sagecc.common import versions
from sagecc.learner.actor_critic import ActorCritic, ActorCriticConfig, CriticLosses, error_loss
from sagecc.learner.core import Batch, Setting, Update
from sagecc.learner.exploration import ActionNoise
from sagecc.learner.lazy import tf
from sagecc.learner.optimisers import earned
from sagecc.learner.reader import bounds, require
from sagecc.learner.specification import RunSpecification

METRICS = (
    "critic_loss",
    "policy_loss",
    "q_mean",
    "target_mean",
    "action_mean",
    "action_deviation",
    "policy_gradient_norm",
    "critic_gradient_norm",
)
"""The metrics of an update, in this order; those of the actor are of its last update."""

_OF_ACTOR = ("policy_loss", "action_mean", "action_deviation", "policy_gradient_norm")


@dataclass(frozen=True, kw_only=True)
class Td3Config(ActorCriticConfig):
    """Its section of a specification."""

    sources = ("task",)
    version = versions.TD3

    returns: Literal["step", "window"] = "step"
    """The critics' targets: `step`, a reward and the next value; `window`, all rewards of the record and the value at
    its end.
    """
    noise: float = 0.1
    """Standard deviation of the noise on the actors' actions."""
    uniform_first: float = 0.0
    """Probability of an action that is uniform over all, at the first decision."""
    uniform_last: float = 0.0
    """The same after `uniform_decisions`; in between it falls linearly."""
    uniform_decisions: int = 0
    """Decisions over which it falls."""
    uniform_hold: int = 1
    """Decisions for which an agent holds such an action."""
    drop_every: int = 0
    """Mean decisions between drops, in which an agent holds the lowest action; 0 for never."""
    drop_hold: int = 1
    """Most decisions of a drop; each number from 1 on is as likely."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            *bounds(self, at_least_0=("noise", "drop_every"), at_least_1=("uniform_hold", "drop_hold")),
            (all(0 <= p <= 1 for p in (self.uniform_first, self.uniform_last)), "algorithm.uniform_*: from 0 to 1"),
        )

    def check(self, whole: RunSpecification) -> None:
        """Raise SageccError where the rest of a specification does not fit it."""
        super().check(whole)
        require(
            (not (whole.task or {}).get("expert"), "an expert in the task goes with dagger"),
            (
                whole.network.memory or whole.window == 2 or self.returns == "window",
                "window is for recurrent networks and for returns over it",
            ),
        )

    def exploring(self, warm_up: int) -> ActionNoise:
        """Return how actors explore; see Algorithm."""
        return ActionNoise(
            self.noise,
            self.uniform_first,
            self.uniform_last,
            self.uniform_decisions,
            self.uniform_hold,
            warm_up=warm_up,
            drop_every=self.drop_every,
            drop_hold=self.drop_hold,
        )

    def learner(self, setting: Setting) -> Td3:
        """Return the learner."""
        return Td3(self, setting)


class ActorLoss(NamedTuple):
    """What the actor's gradient follows from."""

    loss: Any
    """Half the mean square of dQ_1/da, whose gradient is that of -Q_1 (Acme's `dpg`), a scalar."""
    gradients: list[Any]
    """The loss's gradients by the actor's variables."""
    actions: Any
    """pi(s') [T, B]."""


class Td3:
    """The networks, their targets, the optimisers' state, and the update of them all."""

    metrics = METRICS

    def __init__(self, config: Td3Config, setting: Setting) -> None:
        self.config, self.setting = config, setting
        self.networks = ActorCritic(config, setting, _OF_ACTOR)
        self.state, self.acting, self.exported = self.networks.state, self.networks.acting, self.networks.exported

    def update(self, batch: Batch) -> Update:
        """Take one update; see Learner."""
        noise = self.networks.noise(batch.actions[1:])
        values = self.networks.update(lambda: self._judged(batch, noise), lambda _: self._acted(batch))
        return Update(tf.stack([values[name] for name in METRICS]), {})

    def critic_losses(self, batch: Batch, noise: Any) -> CriticLosses:
        """Return the critics' losses as means over transitions.

        Args:
            batch: a batch of windows.
            noise: what is added to the target policy's actions, before it is clipped [T - 1, B].
        """
        config, networks, skipped = self.config, self.networks, self.setting.burn_in
        inputs = batch.inputs
        judged = (
            self.setting.window - 1 if config.returns == "window" else 1 + skipped
        )  # the first row whose value counts
        actions = networks.answers_from(networks.target_actor.unroll, batch.observations, judged)
        actions = networks.perturbed(actions, noise[judged - 1 :])
        next_values = [
            critic.values(inputs[judged:], actions, networks.memory(critic, inputs, batch.actions)[judged:])
            for critic in networks.target_critics
        ]
        lower = tf.reduce_min(next_values, axis=0)  # where an episode was cut short too: no state is terminal
        rewards = earned(batch.rewards[skipped:-1], config.reward_scale, config.reward_limit)
        if config.returns == "window":
            targets = returns_over(rewards, lower[0], config.discount, self.setting.window - 1 - skipped)
        else:
            targets = rewards + config.discount * lower
        targets = tf.stop_gradient(targets)
        values = [
            critic.values(
                inputs[skipped:-1],
                batch.actions[skipped:-1],
                networks.memory(critic, inputs, batch.actions)[skipped:-1],
            )
            for critic in networks.critics
        ]
        losses = [tf.reduce_mean(error_loss(targets - value, config.huber)) for value in values]
        return CriticLosses(losses, values, targets)

    def actor_loss(self, batch: Batch) -> ActorLoss:
        """Return the actor's loss as a mean over transitions, and its gradients."""
        networks, skipped = self.networks, self.setting.burn_in
        inputs, critic = batch.inputs, networks.critics[0]
        memory = networks.memory(critic, inputs, batch.actions)[1 + skipped :]
        variables = networks.actor_variables
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            for variable in variables:
                tape.watch(variable)
            actions = networks.answers_from(networks.actor.unroll, batch.observations, 1 + skipped)
        with tf.GradientTape(watch_accessed_variables=False) as slope_tape:
            slope_tape.watch(actions)
            values = critic.values(inputs[1 + skipped :], actions, memory)
        slope = slope_tape.gradient(values, actions)
        share = -slope / tf.cast(tf.size(slope), tf.float32)
        gradients = tape.gradient(actions, variables, output_gradients=share)
        return ActorLoss(0.5 * tf.reduce_mean(tf.square(slope)), gradients, actions)

    def _judged(self, batch: Batch, noise: Any) -> tuple[Any, tuple[dict[str, Any], None]]:
        """Return the sum of the critics' losses, and the metrics of their update; nothing for the actor's."""
        found = self.critic_losses(batch, noise)
        return tf.add_n(found.losses), (found.metrics, None)

    def _acted(self, batch: Batch) -> tuple[list[Any], dict[str, Any]]:
        """Return the actor's gradients and the metrics of its update."""
        found = self.actor_loss(batch)
        return found.gradients, {
            "policy_loss": found.loss,
            "action_mean": tf.reduce_mean(found.actions),
            "action_deviation": tf.math.reduce_std(found.actions),
        }


def returns_over(rewards: Any, last: Any, discount: float, count: int) -> Any:
    """Return at each of some rows in turn the discounted rewards from there on and the value after them.

    Args:
        rewards: what each row's action earned [count, B].
        last: the value after the last of them [B].
        discount: per row.
        count: the rows.

    Returns:
        [count, B]
    """
    returns = [last]
    for row in reversed(range(count)):
        returns.append(rewards[row] + discount * returns[-1])
    return tf.stack(returns[:0:-1])
