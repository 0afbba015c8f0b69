# SPDX-License-Identifier: Apache-2.0
"""Critic-Regularized Regression (Wang et al., NeurIPS 2020), as section 4.2 of the paper uses it.

One step on a batch of windows, time first:

    Eq. 5  the critic learns the return's distribution: cross entropy to the projected r + discount * Q'(s', a'),
           a' drawn from the target policy, Q' the target critic.
    Eq. 6  the policy learns the pool's actions, each weighted by a filter of its advantage
           A = Q(s, a) - mean of Q(s, a^j), a^j drawn from the policy.

Every random number is a function of the run's seed and the step, so a run continues from any step bit for bit.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from sagecc.common.tensorflow_runtime import tf
from sagecc.learner.config import Config
from sagecc.learner.networks import WHOLE, CriticNetwork, PolicyNetwork, Share, sample


class Batch(NamedTuple):
    """Windows of consecutive rows of one episode each."""

    observation: Any
    """Scaled observations [T, B, F]."""
    action: Any
    """log2 of the congestion window's ratio [T, B]."""
    reward: Any
    """Rewards [T, B]."""


METRICS = (
    "critic_loss",
    "policy_loss",
    "q_mean",
    "advantage_mean",
    "advantage_std",
    "filter_weight_mean",
    "filter_weight_at_cap",
    "entropy",
    "policy_gradient_norm",
    "critic_gradient_norm",
)
"""The metrics of a step, in this order."""


class Transitions(NamedTuple):
    """What a step computed for each transition."""

    advantage: Any
    """Advantage of the pool's action [T, B]."""
    weight: Any
    """Its weight in the policy's loss [T, B]."""
    drawn: Any
    """An action drawn from the policy [T, B]."""


class Losses(NamedTuple):
    """Both losses, and what they were computed from for each transition."""

    critic: Any
    """The critic's loss, a scalar."""
    policy: Any
    """The policy's loss, a scalar."""
    q: Any
    """Q(s, a) [T, B]."""
    advantage: Any
    """Advantage of the pool's action [T, B]."""
    weight: Any
    """Its weight in the policy's loss [T, B]."""
    entropy: Any
    """Mean of -log pi(a^j) over the drawn actions a^j [T, B]."""
    drawn: Any
    """One of the drawn actions [T, B]."""


class Crr:
    """The networks, their targets, the optimisers' state, and the step that updates them all.

    Args:
        config: The configuration.
        observations: Number of features that the networks see.
        value_range: Lowest and highest return that the critic can represent.
        seed: Seed of the actions that are drawn.
    """

    def __init__(self, config: Config, observations: int, value_range: tuple[float, float], seed: int) -> None:
        self.config, self.seed = config, seed
        self.policy = PolicyNetwork(observations, config)
        self.critic = CriticNetwork(observations, config)
        self.target_policy = PolicyNetwork(observations, config, name="target_policy")
        self.target_critic = CriticNetwork(observations, config, name="target_critic")
        self.average_policy = (
            PolicyNetwork(observations, config, name="average_policy") if config.average else self.policy
        )
        self.values = tf.linspace(tf.constant(value_range[0]), tf.constant(value_range[1]), config.atoms)
        self.policy_optimizer = Adam(list(self.policy.weights().values()), config.policy_rate)
        self.critic_optimizer = Adam(list(self.critic.weights().values()), config.critic_rate)
        self.steps = tf.Variable(0, dtype=tf.int64, trainable=False, name="steps")
        compiled = tf.function(self._gradients, autograph=False, reduce_retracing=True, jit_compile=True)
        self._differentiate = compiled if config.xla else self._gradients
        self.copy_to_targets()
        if config.average:
            self._update_average(0.0)

    def step(self, observation: Any, action: Any, reward: Any) -> Any:
        """Take one optimiser step on a batch.

        Args:
            observation: Scaled observations [T, B, F].
            action: log2 of the congestion window's ratio [T, B].
            reward: Rewards [T, B].

        Returns:
            The values of METRICS [len(METRICS)].
        """
        return self.learn(observation, action, reward)[0]

    @tf.function(autograph=False, reduce_retracing=True)  # type: ignore[untyped-decorator]
    def learn(self, observation: Any, action: Any, reward: Any) -> tuple[Any, Transitions]:
        """Take one optimiser step as `step` does; return what it computed for the batch's transitions too."""
        return self.update(observation, action, reward)

    def update(self, observation: Any, action: Any, reward: Any) -> tuple[Any, Transitions]:
        """Take one optimiser step as `learn` does, to be compiled by the caller.

        Of several replicas each calls it with its share of the batch. All take the same step, along the mean of their
        gradients, and return the mean of their metrics.
        """
        replica = tf.distribute.get_replica_context()
        share = Share(int(tf.get_static_value(replica.replica_id_in_sync_group)), replica.num_replicas_in_sync)
        seed = tf.stack([tf.constant(self.seed, tf.int64), self.steps])
        gradients, metrics, transitions = self._differentiate(Batch(observation, action, reward), seed, share)
        if share.count > 1:
            # What is reduced must know its device: an identity in the replica's context provides it.
            parts = tf.nest.map_structure(tf.identity, (gradients, metrics))
            gradients, metrics = replica.all_reduce("MEAN", parts)
        policy_gradient, policy_norm = clip(gradients[0], self.config.gradient_clip)
        critic_gradient, critic_norm = clip(gradients[1], self.config.gradient_clip)
        self.steps.assign_add(1)
        share = rate_share(self.steps, self.config.steps, self.config.final_rate)
        self.policy_optimizer.apply(policy_gradient, self.steps, share)
        self.critic_optimizer.apply(critic_gradient, self.steps, share)
        if self.config.average:
            count = tf.cast(self.steps, tf.float32)
            # The average is over all steps so far until they outnumber those that the decay spans.
            self._update_average(tf.minimum(self.config.average, count / (count + 1)))
        tf.cond(self.steps % self.config.target_period == 0, self.copy_to_targets, lambda: None)
        return tf.concat([metrics, [policy_norm, critic_norm]], axis=0), transitions

    def _gradients(self, batch: Batch, seed: Any, share: Share) -> tuple[Any, Any, Transitions]:
        """Return both networks' gradients, METRICS without the gradients' norms, and the batch's transitions."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            for variable in (*self.policy_optimizer.variables, *self.critic_optimizer.variables):
                tape.watch(variable)
            losses = self.losses(batch, seed, share)
            # Each loss reaches only its own network, so their sum gives both gradients in one pass.
            total = losses.policy + losses.critic
        gradients = tape.gradient(total, (self.policy_optimizer.variables, self.critic_optimizer.variables))
        metrics = tf.stack(
            [
                losses.critic,
                losses.policy,
                tf.reduce_mean(losses.q),
                tf.reduce_mean(losses.advantage),
                tf.math.reduce_std(losses.advantage),
                tf.reduce_mean(losses.weight),
                tf.reduce_mean(tf.cast(losses.weight >= self.config.ratio_cap, tf.float32)),
                tf.reduce_mean(losses.entropy),
            ]
        )
        return gradients, metrics, Transitions(losses.advantage, losses.weight, losses.drawn)

    def losses(self, batch: Batch, seed: Any, share: Share = WHOLE) -> Losses:
        """Return both losses as means over transitions.

        Args:
            batch: A batch, or a replica's share of it.
            seed: Two integers from which all drawn actions follow.
            share: Which share of the batch it is.
        """
        config = self.config
        td_seed, value_seed = tf.unstack(tf.random.split(seed, 2))
        if config.reward_before_action:
            batch = Batch(batch.observation[1:], batch.action[1:], batch.reward[:-1])
        now = Batch(*(x[:-1] for x in batch))
        following = Batch(*(x[1:] for x in batch))
        states = self._warm_up(now, following)
        now, following = (Batch(*(x[config.burn_in :] for x in part)) for part in (now, following))

        # Policy evaluation (Eq. 5). As in Acme, the targets' memory begins at the second row.
        critic_states = self.critic.states(now.observation, now.action, states["critic"])
        logits = self.critic.logits(critic_states)
        target_states = self.target_critic.states(following.observation, following.action, states["target_critic"])
        target_mixture, _ = self.target_policy.unroll(following.observation, states["target_policy"])
        next_logits = self.target_critic.alternatives(
            following.observation,
            sample(target_mixture, config.td_samples, td_seed, share),
            _states_before(target_states, states["target_critic"]),
        )
        next_probabilities = tf.reduce_mean(tf.nn.softmax(next_logits), axis=0)
        reward, last, discount = n_step_returns(now.reward, config.discount, config.n_step)
        target = project(reward, discount, tf.gather(next_probabilities, last), self.values)
        critic_loss = tf.nn.softmax_cross_entropy_with_logits(labels=tf.stop_gradient(target), logits=logits)

        # Policy improvement (Eq. 6).
        mixture, _ = self.policy.unroll(now.observation, states["policy"])
        samples = sample(mixture, config.value_samples, value_seed, share)
        before = _states_before(critic_states, states["critic"])
        value_logits = self.critic.alternatives(now.observation, samples, before)
        q = self._expected(logits)
        advantage = q - tf.reduce_mean(self._expected(value_logits), axis=0)
        weight = tf.stop_gradient(self._filter(advantage))
        policy_loss = -weight * mixture.log_prob(now.action)
        return Losses(
            critic=tf.reduce_mean(critic_loss),
            policy=tf.reduce_mean(policy_loss),
            q=q,
            advantage=advantage,
            weight=weight,
            entropy=-tf.reduce_mean(mixture.log_prob(samples), axis=0),
            drawn=samples[0],
        )

    def copy_to_targets(self) -> None:
        """Copy both networks to their targets."""
        for source, target in ((self.policy, self.target_policy), (self.critic, self.target_critic)):
            for variable, copy in zip(source.weights().values(), target.weights().values(), strict=True):
                copy.assign(variable)

    def exported(self) -> dict[str, Any]:
        """Return the weights of the policy to use: the average over the last steps (Config.average)."""
        return self.average_policy.weights()

    def state(self) -> dict[str, Any]:
        """Return every variable that a continued run needs, by name."""
        networks = ["policy", "critic", "target_policy", "target_critic"]
        networks += ["average_policy"] if self.config.average else []
        named = {f"{n}/{k}": v for n in networks for k, v in getattr(self, n).weights().items()}
        for name in ("policy", "critic"):
            optimizer = getattr(self, f"{name}_optimizer")
            for weight, m, v in zip(getattr(self, name).weights(), optimizer.m, optimizer.v, strict=True):
                named |= {f"{name}_adam_m/{weight}": m, f"{name}_adam_v/{weight}": v}
        return {**named, "steps": self.steps}

    def _update_average(self, decay: Any) -> None:
        """Move the averaged policy towards the policy."""
        for source, average in zip(self.policy.weights().values(), self.average_policy.weights().values(), strict=True):
            average.assign(source + decay * (average - source))

    def _filter(self, advantage: Any) -> Any:
        """Return the weights f(A) of Eq. 6."""
        config = self.config
        match config.filter:
            case "exp":
                return tf.minimum(tf.exp(advantage / config.beta), config.ratio_cap)
            case "binary":
                return tf.cast(advantage > 0, tf.float32)
            case "identity":
                return tf.ones_like(advantage)

    def _expected(self, logits: Any) -> Any:
        """Return the means of return distributions: logits [..., atoms] -> [...]."""
        return tf.linalg.matvec(tf.nn.softmax(logits), self.values)

    def _warm_up(self, now: Batch, following: Batch) -> dict[str, Any]:
        """Return the recurrent states with which the loss begins: zeros, or those after the burn-in rows."""
        burn_in, size = self.config.burn_in, tf.shape(now.action)[1]
        zeros = tf.zeros([size, self.policy.trunk.gru.size])
        if burn_in == 0:
            return dict.fromkeys(("policy", "critic", "target_policy", "target_critic"), zeros)
        now, following = (Batch(*(x[:burn_in] for x in part)) for part in (now, following))
        states = {
            "policy": self.policy.unroll(now.observation, zeros)[1],
            "critic": self.critic.states(now.observation, now.action, zeros),
            "target_policy": self.target_policy.unroll(following.observation, zeros)[1],
            "target_critic": self.target_critic.states(following.observation, following.action, zeros),
        }
        return {name: tf.stop_gradient(after[-1]) for name, after in states.items()}


def rate_share(step: Any, steps: int, final: float) -> Any:
    """Return the share of the learning rates at a step (from 1 to `steps`): from 1 down to `final`, a half cosine."""
    if final == 1:
        return 1.0
    progress = tf.cast(step - 1, tf.float32) / max(1, steps - 1)
    return final + (1 - final) * 0.5 * (1 + tf.cos(math.pi * progress))


def clip(gradients: list[Any], limit: float) -> tuple[list[Any], Any]:
    """Scale gradients to a global norm of at most `limit`; return them and the norm they had."""
    norm = tf.linalg.global_norm(gradients)
    # Most steps are below the limit, and need no pass over all gradients.
    clipped = tf.cond(norm > limit, lambda: [g * (limit / norm) for g in gradients], lambda: list(gradients))
    return clipped, norm


def n_step_returns(reward: Any, discount: float, steps: int) -> tuple[Any, Any, Any]:
    """Sum the discounted rewards of up to `steps` transitions from each one on; fewer at the window's end.

    Args:
        reward: Rewards [T, B].
        discount: Discount per transition.
        steps: Most transitions in a sum.

    Returns:
        The sums [T, B], the last transition in each [T], and the discount of the value that follows it [T, 1, 1].
    """
    length = reward.shape[0]
    total = tf.add_n([discount**k * tf.pad(reward[k:], [[0, k], [0, 0]]) for k in range(min(steps, length))])
    last = [min(t + steps, length) - 1 for t in range(length)]
    discounts = [discount ** (end - t + 1) for t, end in enumerate(last)]
    return total, tf.constant(last), tf.constant(discounts, tf.float32)[:, None, None]


def project(reward: Any, discount: Any, probabilities: Any, values: Any) -> Any:
    """Project the distribution of reward + discount * z back onto the evenly spaced support of z (C51).

    Each shifted point, clipped to the support, shares its probability between its two neighbours in proportion to
    nearness (Bellemare et al., ICML 2017, algorithm 1). A sum by segment needs one pass and no [.., A, A] tensor.

    Args:
        reward: Rewards [...].
        discount: A number, or what broadcasts to [..., A].
        probabilities: Distribution over the support [..., A].
        values: The support [A].

    Returns:
        The projected distribution [..., A].
    """
    atoms = values.shape[0]
    low, high = values[0], values[-1]
    shifted = tf.clip_by_value(reward[..., None] + discount * values, low, high)
    position = (shifted - low) * ((atoms - 1) / (high - low))
    lower = tf.clip_by_value(tf.floor(position), 0.0, atoms - 2.0)
    share = tf.clip_by_value(position - lower, 0.0, 1.0)
    rows = tf.reshape(probabilities, [-1, atoms])
    count = tf.shape(rows)[0]
    index = tf.reshape(tf.cast(lower, tf.int32), [-1, atoms]) + atoms * tf.range(count)[:, None]
    share = tf.reshape(share, [-1, atoms])
    weights = tf.stack([rows * (1 - share), rows * share], axis=-1)
    summed = tf.reshape(tf.math.unsorted_segment_sum(weights, index, count * atoms), [-1, atoms, 2])
    shared = summed[..., 0] + tf.pad(summed[:, :-1, 1], [[0, 0], [1, 0]])
    return tf.reshape(shared, tf.shape(probabilities))


def _states_before(states: Any, initial: Any) -> Any:
    """Return the states before each row [T, B, H] from those after each row and the first [B, H]."""
    return tf.concat([initial[None], states[:-1]], axis=0)


class Adam:
    """Adam (Kingma and Ba, ICLR 2015) through TensorFlow's fused kernel: one operation per variable."""

    def __init__(self, variables: list[Any], rate: float) -> None:
        self.variables, self.rate = variables, rate
        self.m = [tf.Variable(tf.zeros_like(v), trainable=False) for v in variables]
        self.v = [tf.Variable(tf.zeros_like(v), trainable=False) for v in variables]

    def apply(self, gradients: list[Any], step: Any, share: Any = 1.0) -> None:
        """Update the variables; `step` is the number of this update, from 1, `share` what is left of the rate."""
        count = tf.cast(step, tf.float32)
        for variable, m, v, gradient in zip(self.variables, self.m, self.v, gradients, strict=True):
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle,
                m=m.handle,
                v=v.handle,
                beta1_power=tf.pow(0.9, count),
                beta2_power=tf.pow(0.999, count),
                lr=self.rate * share,
                beta1=0.9,
                beta2=0.999,
                epsilon=1e-8,
                grad=gradient,
            )
