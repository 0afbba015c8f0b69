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
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sagecc.common import versions
from sagecc.learner.core import Batch, Setting, Update
from sagecc.learner.exploration import ActionNoise
from sagecc.learner.lazy import tf
from sagecc.learner.optimisers import Trained, earned, move, named_weights, rate_share
from sagecc.learner.reader import require
from sagecc.learner.specification import Algorithm, RunSpecification

if TYPE_CHECKING:
    from sagecc.learner.deterministic import ActorNetwork, Critic

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


@dataclass(frozen=True, kw_only=True)
class Td3Config(Algorithm):
    """Its section of a specification."""

    networks = ("mlp", "recurrent")
    sources = ("task",)
    version = versions.TD3

    policy_rate: float
    """Learning rate of the actor's Adam."""
    critic_rate: float
    """Learning rate of the critics' Adam."""
    final_rate: float = 1.0
    """Share of the learning rates that is left at the last step, down to which they fall along a half cosine."""
    discount: float = 0.99
    """Discount per decision."""
    returns: Literal["step", "window"] = "step"
    """What the critics learn from: `step`, an action's reward and the value of the next decision; `window`, all rewards
    up to the record's last decision and the value there."""
    reward_scale: float = 1.0
    """What rewards are multiplied by before the critics learn from them."""
    reward_limit: float = 0.0
    """What they learn of a reward, so multiplied, is clipped to plus or minus this; 0 for no limit."""
    tau: float = 0.005
    """Share of the weights that a target network takes over at each of its updates."""
    average: float = 0.0
    """Decay per update of the actor of the moving average of its weights, which is the policy that comes out; 0 takes
    the last weights. What plays to learn has the last weights."""
    policy_delay: int = 2
    """Updates of the critics per update of the actor and of its target."""
    target_noise: float = 0.2
    """Standard deviation of the noise on the target policy's actions; actions reach from -1 to 1."""
    target_noise_clip: float = 0.5
    """Most that this noise moves an action."""
    huber: float = 0.0
    """Temporal-difference error from which the critics' loss is linear (Huber's loss); 0 for the mean square."""
    gradient_clip: float = 0.0
    """Largest global norm of the actor's and of each critic's gradient; 0 for no limit."""
    noise: float = 0.1
    """Standard deviation of the noise on the actors' actions."""
    uniform_first: float = 0.0
    """Probability of an action that is uniform over all, at the first decision."""
    uniform_last: float = 0.0
    """The same after `uniform_decisions`; in between it falls linearly."""
    uniform_decisions: int = 0
    """Decisions over which it falls."""
    uniform_hold: int = 1
    """Decisions for which an agent holds such an action, so that what it does to a window adds up."""
    drop_every: int = 0
    """Decisions of an agent from the end of a drop to the next, on average: it holds the lowest action then, and the
    policy goes on from few packets; 0 for never."""
    drop_hold: int = 1
    """Most decisions for which a drop holds that action; each number from 1 on is as likely."""

    def __post_init__(self) -> None:
        counts = ("policy_delay", "uniform_hold", "drop_hold")
        positive = ("policy_rate", "critic_rate", "tau", "reward_scale")
        at_least_0 = (
            "target_noise",
            "target_noise_clip",
            "huber",
            "gradient_clip",
            "noise",
            "reward_limit",
            "drop_every",
        )
        require(
            *((getattr(self, name) >= 1, f"algorithm.{name} must be at least 1") for name in counts),
            *((getattr(self, name) > 0, f"algorithm.{name} must be above 0") for name in positive),
            *((getattr(self, name) >= 0, f"algorithm.{name} cannot be negative") for name in at_least_0),
            (self.tau <= 1, "algorithm.tau must be at most 1"),
            (0 <= self.final_rate <= 1, "algorithm.final_rate must be from 0 to 1"),
            (0 <= self.discount < 1, "algorithm.discount must be from 0 to below 1"),
            (0 <= self.average < 1, "algorithm.average must be from 0 to below 1"),
            (all(0 <= p <= 1 for p in (self.uniform_first, self.uniform_last)), "algorithm.uniform_*: from 0 to 1"),
        )

    def check(self, whole: RunSpecification) -> None:
        """Raise SageccError where the rest of a specification does not fit it."""
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
    """The networks, their targets, the optimisers' state, and the update of them all."""

    metrics = METRICS

    def __init__(self, config: Td3Config, setting: Setting) -> None:
        self.config, self.setting = config, setting
        network, observations = setting.network, setting.observations
        self.actor, self.target_actor = (network.policy(observations) for _ in range(2))
        self.critics, self.target_critics = (
            [network.critic(observations + setting.states) for _ in range(CRITICS)] for _ in range(2)
        )
        self.average_actor = network.policy(observations) if config.average else self.actor
        self._actor = Trained("actor", self.actor, config.policy_rate, config.gradient_clip)
        self._critics = [
            Trained(f"critic{i}", critic, config.critic_rate, config.gradient_clip)
            for i, critic in enumerate(self.critics)
        ]
        self.steps = tf.Variable(0, dtype=tf.int64, trainable=False, name="steps")
        self._of_actor = tf.Variable(tf.zeros([len(_OF_ACTOR)]), trainable=False, name="actor_metrics")
        for source, target in self._pairs():
            move(source, target, 1.0)
        if config.average:
            move(self.actor, self.average_actor, 1.0)

    def update(self, batch: Batch) -> Update:
        """Take one update; see Learner."""
        config = self.config
        seed = tf.stack([tf.constant(self.setting.seed, tf.int64), self.steps])
        noise = tf.random.stateless_normal(tf.shape(batch.actions[1:]), seed) * config.target_noise
        variables = [critic.variables for critic in self._critics]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            for variable in (each for of in variables for each in of):
                tape.watch(variable)
            judged = self.critic_losses(batch, noise)
            total = tf.add_n(judged.losses)  # each loss reaches only its own critic
        critic_gradients = tape.gradient(total, variables)
        tf.cond(self.steps % config.policy_delay == 0, lambda: self._update_actor(batch), lambda: None)
        norms = [
            critic.apply(gradients, self.steps + 1, self._rate_share())
            for critic, gradients in zip(self._critics, critic_gradients, strict=True)
        ]
        for source, target in self._pairs()[1:]:
            move(source, target, config.tau)
        self.steps.assign_add(1)
        values = dict(zip(_OF_ACTOR, tf.unstack(self._of_actor), strict=True)) | {
            "critic_loss": total / CRITICS,
            "q_mean": tf.reduce_mean(judged.values),
            "target_mean": tf.reduce_mean(judged.targets),
            "critic_gradient_norm": tf.add_n(norms) / CRITICS,
        }
        return Update(tf.stack([values[name] for name in METRICS]), {})

    def critic_losses(self, batch: Batch, noise: Any) -> CriticLosses:
        """Return the critics' losses as means over transitions.

        Args:
            batch: a batch of windows.
            noise: what is added to the target policy's actions, before it is clipped [T - 1, B].
        """
        config, skipped = self.config, self.setting.burn_in
        inputs = critic_inputs(batch)
        judged = (
            self.setting.window - 1 if config.returns == "window" else 1 + skipped
        )  # the first row whose value counts
        limit = config.target_noise_clip
        actions = self._actions(self.target_actor, batch.observations, judged)
        actions = tf.clip_by_value(actions + tf.clip_by_value(noise[judged - 1 :], -limit, limit), -1.0, 1.0)
        next_values = [
            critic.values(inputs[judged:], actions, self._memory(critic, inputs, batch.actions)[judged:])
            for critic in self.target_critics
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
                self._memory(critic, inputs, batch.actions)[skipped:-1],
            )
            for critic in self.critics
        ]
        losses = [tf.reduce_mean(error_loss(targets - value, config.huber)) for value in values]
        return CriticLosses(losses, values[0], targets)

    def actor_loss(self, batch: Batch) -> ActorLoss:
        """Return the actor's loss as a mean over transitions, and its gradients."""
        skipped = self.setting.burn_in
        inputs, critic = critic_inputs(batch), self.critics[0]
        memory = self._memory(critic, inputs, batch.actions)[1 + skipped :]
        variables = self._actor.variables
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
        others = {"target_actor": self.target_actor}
        others |= {"average_actor": self.average_actor} if self.config.average else {}
        others |= {f"target_critic{i}": critic for i, critic in enumerate(self.target_critics)}
        named = {"steps": self.steps, "actor_metrics": self._of_actor}
        for trained in (self._actor, *self._critics):
            named |= trained.state()
        for name, network in others.items():
            named |= named_weights(name, network)
        return named

    def acting(self) -> dict[str, Any]:
        """Return the weights of the policy that plays to learn."""
        weights: dict[str, Any] = self.actor.weights()
        return weights

    def exported(self) -> dict[str, Any]:
        """Return the weights of the policy to use: the average over its last updates (Td3Config.average)."""
        weights: dict[str, Any] = self.average_actor.weights()
        return weights

    def _update_actor(self, batch: Batch) -> None:
        """Move the actor and its target."""
        found = self.actor_loss(batch)
        updates = self.steps // self.config.policy_delay + 1
        norm = self._actor.apply(found.gradients, updates, self._rate_share())
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
        return rate_share(self.steps + 1, self.setting.steps, self.config.final_rate)

    def _pairs(self) -> list[tuple[Any, Any]]:
        """Return each network with its target, the actor first."""
        return [(self.actor, self.target_actor), *zip(self.critics, self.target_critics, strict=True)]

    def _actions(self, actor: ActorNetwork, observations: Any, begin: int) -> Any:
        """Return an actor's actions from a row after the burn-in on; rows before it only fill the actor's memory."""
        before = _empty(observations, actor.memory)
        if not actor.memory:
            return actor.unroll(observations[begin:], before)[0]
        burn_in = self.setting.burn_in
        if burn_in:
            _, states = actor.unroll(observations[:burn_in], before)
            before = tf.stop_gradient(states[-1])
        return actor.unroll(observations[burn_in:], before)[0][begin - burn_in :]

    def _memory(self, critic: Critic, inputs: Any, actions: Any) -> Any:
        """Return a critic's memory before each row [T, B, H]; the burn-in only warms it up."""
        burn_in = self.setting.burn_in
        before = _empty(inputs, critic.memory)
        parts = [before[None]]
        if burn_in:
            parts.append(tf.stop_gradient(critic.remember(inputs[:burn_in], actions[:burn_in], before)))
            before = parts[-1][-1]
        parts.append(critic.remember(inputs[burn_in:-1], actions[burn_in:-1], before))
        return tf.concat(parts, axis=0)


def critic_inputs(batch: Batch) -> Any:
    """Return what critics see beside the action [T, B, D + G]."""
    return tf.concat([batch.observations, batch.states], axis=-1)


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


def error_loss(error: Any, huber: float) -> Any:
    """Return the square of each error or, up to `huber` half of it and linear beyond, Huber's loss."""
    if not huber:
        return tf.square(error)
    size = tf.abs(error)
    inner = tf.minimum(size, huber)
    return 0.5 * tf.square(inner) + huber * (size - inner)


def _empty(rows: Any, size: int) -> Any:
    """Return the memory before the first of rows [T, B, ...]: zeros [B, H]."""
    return tf.zeros([tf.shape(rows)[1], size])
