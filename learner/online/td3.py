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

from typing import Any, NamedTuple

from sagecc.common.tensorflow_runtime import tf
from sagecc.learner.crr import Adam, rate_share
from sagecc.learner.online.config import OnlineConfig
from sagecc.learner.online.networks import ActorNetwork, Critic, make_actor, make_critic
from sagecc.learner.online.replay import ReplayBatch
from sagecc.learner.online.updates import adam_state, in_turn, limit_norm

CRITICS = 2

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


class CriticLosses(NamedTuple):
    """What the critics' gradients follow from."""

    losses: Any
    """Each critic's mean loss, a list of scalars."""
    values: Any
    """Q_1(s, a) [T, B]."""
    targets: Any
    """What they should be [T, B]."""


class ActorLoss(NamedTuple):
    """What the actor's gradient follows from."""

    loss: Any
    """Half the mean square of dQ_1/da, whose gradient is that of -Q_1 (Acme's `dpg`), a scalar."""
    gradients: list[Any]
    """The loss's gradients by the actor's variables."""
    actions: Any
    """pi(s') [T, B]."""


class Td3:
    """The networks, their targets, the optimisers' state, and the update of them all.

    Args:
        config: The configuration.
        observations: Numbers in an observation.
        states: Numbers in a global state, which the critics see beside it.
        seed: Seed of the target policy's noise.
    """

    metrics = METRICS
    """The metrics of an update."""

    def __init__(self, config: OnlineConfig, observations: int, states: int, seed: int) -> None:
        self.config, self.seed = config, seed
        self.actor, self.target_actor = (make_actor(config, observations) for _ in range(2))
        self.critics, self.target_critics = (
            [make_critic(config, observations + states) for _ in range(CRITICS)] for _ in range(2)
        )
        self.average_actor = make_actor(config, observations) if config.average else self.actor
        self.actor_optimizer = Adam(list(self.actor.weights().values()), config.actor_rate)
        self.critic_optimizers = [Adam(list(c.weights().values()), config.critic_rate) for c in self.critics]
        self.steps = tf.Variable(0, dtype=tf.int64, trainable=False, name="steps")
        self._of_actor = tf.Variable(tf.zeros([len(_OF_ACTOR)]), trainable=False, name="actor_metrics")
        for source, target in self._pairs():
            move(source, target, 1.0)
        if config.average:
            move(self.actor, self.average_actor, 1.0)

    @tf.function(autograph=False, reduce_retracing=True)  # type: ignore[untyped-decorator]
    def learn(self, batches: ReplayBatch) -> Any:
        """Take an update on each of several batches.

        Args:
            batches: The batches, one behind another in front of time: observations [K, T, B, D] and so on.

        Returns:
            The means of METRICS [len(METRICS)].
        """
        return in_turn(self._update, batches, len(METRICS))

    def _update(self, batch: ReplayBatch) -> Any:
        """Take one update; return METRICS."""
        config = self.config
        seed = tf.stack([tf.constant(self.seed, tf.int64), self.steps])
        noise = tf.random.stateless_normal(tf.shape(batch.actions[1:]), seed) * config.target_noise
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            for optimizer in self.critic_optimizers:
                for variable in optimizer.variables:
                    tape.watch(variable)
            judged = self.critic_losses(batch, noise)
            total = tf.add_n(judged.losses)  # each loss reaches only its own critic
        critic_gradients = tape.gradient(total, [optimizer.variables for optimizer in self.critic_optimizers])
        due = self.steps % config.policy_delay == 0
        tf.cond(due, lambda: self._update_actor(batch), lambda: None)
        norms = []
        for optimizer, gradients in zip(self.critic_optimizers, critic_gradients, strict=True):
            limited, norm = limit_norm(gradients, config.gradient_clip)
            optimizer.apply(limited, self.steps + 1, self._rate_share())
            norms.append(norm)
        for source, target in self._pairs()[1:]:
            move(source, target, config.tau)
        self.steps.assign_add(1)
        values = dict(zip(_OF_ACTOR, tf.unstack(self._of_actor), strict=True)) | {
            "critic_loss": total / CRITICS,
            "q_mean": tf.reduce_mean(judged.values),
            "target_mean": tf.reduce_mean(judged.targets),
            "critic_gradient_norm": tf.add_n(norms) / CRITICS,
        }
        return tf.stack([values[name] for name in METRICS])

    def critic_losses(self, batch: ReplayBatch, noise: Any) -> CriticLosses:
        """Return the critics' losses as means over transitions.

        Args:
            batch: A batch of windows.
            noise: What is added to the target policy's actions, before it is clipped [T - 1, B].
        """
        config, skipped = self.config, self.config.burn_in
        inputs = critic_inputs(batch)
        judged = config.window - 1 if config.returns == "window" else 1 + skipped  # the first row whose value counts
        limit = config.target_noise_clip
        actions = self._actions(self.target_actor, batch.observations, judged)
        actions = tf.clip_by_value(actions + tf.clip_by_value(noise[judged - 1 :], -limit, limit), -1.0, 1.0)
        next_values = [
            critic.values(inputs[judged:], actions, self._memory(critic, inputs, batch.actions)[judged:])
            for critic in self.target_critics
        ]
        lower = tf.reduce_min(next_values, axis=0)  # where an episode was cut short too: no state is terminal
        rewards = earned(batch.rewards[skipped:-1], config)
        if config.returns == "window":
            targets = returns_over(rewards, lower[0], config.discount, config.window - 1 - skipped)
        else:
            targets = rewards + config.discount * lower
        targets = tf.stop_gradient(targets)
        values = [
            critic.values(
                inputs[skipped:-1],
                batch.actions[skipped:-1],
                self._memory(critic, inputs, batch.actions)[skipped:-1],
            )
            for critic in self.critics
        ]
        losses = [tf.reduce_mean(error_loss(targets - value, config.huber)) for value in values]
        return CriticLosses(losses, values[0], targets)

    def actor_loss(self, batch: ReplayBatch) -> ActorLoss:
        """Return the actor's loss as a mean over transitions, and its gradients."""
        skipped = self.config.burn_in
        inputs, critic = critic_inputs(batch), self.critics[0]
        memory = self._memory(critic, inputs, batch.actions)[1 + skipped :]
        variables = self.actor_optimizer.variables
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            for variable in variables:
                tape.watch(variable)
            actions = self._actions(self.actor, batch.observations, 1 + skipped)
        with tf.GradientTape(watch_accessed_variables=False) as slope_tape:
            slope_tape.watch(actions)
            values = critic.values(inputs[1 + skipped :], actions, memory)
        slope = slope_tape.gradient(values, actions)
        share = -slope / tf.cast(tf.size(slope), tf.float32)
        gradients = tape.gradient(actions, variables, output_gradients=share)
        return ActorLoss(0.5 * tf.reduce_mean(tf.square(slope)), gradients, actions)

    def state(self) -> dict[str, Any]:
        """Return every variable that a continued run needs, by name."""
        networks: dict[str, ActorNetwork | Critic] = {"actor": self.actor, "target_actor": self.target_actor}
        networks |= {"average_actor": self.average_actor} if self.config.average else {}
        networks |= {f"critic{i}": critic for i, critic in enumerate(self.critics)}
        networks |= {f"target_critic{i}": critic for i, critic in enumerate(self.target_critics)}
        named = {f"{name}/{key}": v for name, network in networks.items() for key, v in network.weights().items()}
        optimizers = {"actor": self.actor_optimizer}
        optimizers |= {f"critic{i}": optimizer for i, optimizer in enumerate(self.critic_optimizers)}
        for name, optimizer in optimizers.items():
            named |= adam_state(name, networks[name].weights(), optimizer)
        return {**named, "steps": self.steps, "actor_metrics": self._of_actor}

    def acting(self) -> dict[str, Any]:
        """Return the weights of the policy that plays to learn."""
        return self.actor.weights()

    def exported(self) -> dict[str, Any]:
        """Return the weights of the policy to use: the average over its last updates (OnlineConfig.average)."""
        return self.average_actor.weights()

    def _update_actor(self, batch: ReplayBatch) -> None:
        """Move the actor and its target."""
        found = self.actor_loss(batch)
        limited, norm = limit_norm(found.gradients, self.config.gradient_clip)
        updates = self.steps // self.config.policy_delay + 1
        self.actor_optimizer.apply(limited, updates, self._rate_share())
        move(self.actor, self.target_actor, self.config.tau)
        if self.config.average:
            # Over all updates so far until they outnumber those that the decay spans.
            move(
                self.actor,
                self.average_actor,
                tf.maximum(1 - self.config.average, 1 / (tf.cast(updates, tf.float32) + 1)),
            )
        of_actor = {
            "policy_loss": found.loss,
            "action_mean": tf.reduce_mean(found.actions),
            "action_deviation": tf.math.reduce_std(found.actions),
            "policy_gradient_norm": norm,
        }
        self._of_actor.assign(tf.stack([of_actor[name] for name in _OF_ACTOR]))

    def _rate_share(self) -> Any:
        return rate_share(self.steps + 1, self.config.steps, self.config.final_rate)

    def _pairs(self) -> list[tuple[Any, Any]]:
        """Return each network with its target, the actor first."""
        return [(self.actor, self.target_actor), *zip(self.critics, self.target_critics, strict=True)]

    def _actions(self, actor: ActorNetwork, observations: Any, begin: int) -> Any:
        """Return an actor's actions from a row after the burn-in on; rows before it only fill the actor's memory."""
        before = _empty(observations, actor.memory)
        if not actor.memory:
            return actor.unroll(observations[begin:], before)[0]
        burn_in = self.config.burn_in
        if burn_in:
            _, states = actor.unroll(observations[:burn_in], before)
            before = tf.stop_gradient(states[-1])
        return actor.unroll(observations[burn_in:], before)[0][begin - burn_in :]

    def _memory(self, critic: Critic, inputs: Any, actions: Any) -> Any:
        """Return a critic's memory before each row [T, B, H]; the burn-in only warms it up."""
        burn_in = self.config.burn_in
        before = _empty(inputs, critic.memory)
        parts = [before[None]]
        if burn_in:
            parts.append(tf.stop_gradient(critic.remember(inputs[:burn_in], actions[:burn_in], before)))
            before = parts[-1][-1]
        parts.append(critic.remember(inputs[burn_in:-1], actions[burn_in:-1], before))
        return tf.concat(parts, axis=0)


def critic_inputs(batch: ReplayBatch) -> Any:
    """Return what critics see beside the action [T, B, D + G]."""
    return tf.concat([batch.observations, batch.states], axis=-1)


def earned(rewards: Any, config: OnlineConfig) -> Any:
    """Return what the critics learn of rewards."""
    scaled = rewards * config.reward_scale
    return tf.clip_by_value(scaled, -config.reward_limit, config.reward_limit) if config.reward_limit else scaled


def returns_over(rewards: Any, last: Any, discount: float, count: int) -> Any:
    """Return at each of some rows in turn the discounted rewards from there on and the value after them.

    Args:
        rewards: What each row's action earned [count, B].
        last: The value after the last of them [B].
        discount: Per row.
        count: The rows.

    Returns:
        [count, B]
    """
    returns = [last]
    for row in reversed(range(count)):
        returns.append(rewards[row] + discount * returns[-1])
    return tf.stack(returns[:0:-1])


def error_loss(error: Any, huber: float) -> Any:
    """Return the square of each error or, up to `huber` half of it and linear beyond, Huber's loss."""
    if not huber:
        return tf.square(error)
    size = tf.abs(error)
    inner = tf.minimum(size, huber)
    return 0.5 * tf.square(inner) + huber * (size - inner)


def move(source: ActorNetwork | Critic, target: ActorNetwork | Critic, share: Any) -> None:
    """Move a target network's weights towards the network's by a share of the way."""
    for variable, moved in zip(source.weights().values(), target.weights().values(), strict=True):
        moved.assign(moved * (1 - share) + variable * share)


def _empty(rows: Any, size: int) -> Any:
    """Return the memory before the first of rows [T, B, ...]: zeros [B, H]."""
    return tf.zeros([tf.shape(rows)[1], size])
