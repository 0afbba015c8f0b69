# SPDX-License-Identifier: Apache-2.0
"""Critic-Regularized Regression (Wang et al., NeurIPS 2020), as section 4.2 of the paper uses it.

One step on a batch of windows, time first:

    Eq. 5  the critic learns the return's distribution: cross entropy to the projected r + discount * Q'(s', a'),
           a' drawn from the target policy, Q' the target critic.
    Eq. 6  the policy learns the pool's actions, each weighted by a filter of its advantage
           A = Q(s, a) - mean of Q(s, a^j), a^j drawn from the policy. The filter `identity` is behaviour cloning.

The critic may see what only the recorder knows (Batch.states), and learn from several rewards (`n_step`, `trace`).
Where the lab acted nothing is learned, and no sum of rewards goes on.

Every random number is a function of the run's seed and the step, so a run continues from any step bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from sagecc.common import versions
from sagecc.learner.core import WHOLE, Batch, Setting, Share, Update
from sagecc.learner.lazy import tf
from sagecc.learner.optimisers import Averaged, Trained, checkpoint, copy, differentiated, rate_share
from sagecc.learner.reader import bounds, require
from sagecc.learner.specification import LATER, Algorithm
from sagecc.policy.bounds import MAX_UNITS

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

Filter = Literal["exp", "binary", "identity"]


@dataclass(frozen=True, kw_only=True)
class CrrConfig(Algorithm):
    """Its section of a specification."""

    networks = ("sage",)
    sources = ("data",)
    version = versions.CRR

    policy_rate: float
    """Learning rate of the policy's Adam."""
    critic_rate: float
    """Learning rate of the critics' Adam."""
    final_rate: float = 1.0
    """Share of the learning rates left at the last step, along a half cosine; 1 keeps them."""
    atoms: int = 101
    """Support points of the critic's categorical return distribution (C51)."""
    action_scale: float = 0.0
    """Critics see sign(a)*log(1+|a|/action_scale) of an action a = log2(ratio); 0 for a itself."""
    value_range: tuple[float, float] | None = None
    """Lowest and highest return that the critic can represent; `null`: the highest of the pool's discounted returns,
    and the one that a thousandth of them lie below.
    """
    discount: float = 0.95
    """Discount per decision."""
    filter: Filter = "exp"
    """Weight of a pool action in the policy's loss (Eq. 6), from its advantage A: `exp` is min(exp(A/beta), ratio_cap),
    `binary` 1 where A > 0 else 0, `identity` 1, which is behaviour cloning.
    """
    beta: float = 1.0
    """Temperature of the filter `exp`, in units of return."""
    ratio_cap: float = 20.0
    """Largest weight of the filter `exp`."""
    value_samples: int = 4
    """Actions drawn from the policy to estimate V(s) in A = Q(s, a) - V(s) (m of Eq. 6)."""
    td_samples: int = 1
    """Actions drawn from the target policy for the temporal-difference target (Eq. 5)."""
    n_step: int = 1
    """Rewards in the temporal-difference target before the target critic's value; fewer at a window's end."""
    trace: float = field(default=0.0, metadata=LATER)
    """Lambda of a temporal-difference target that mixes those of one reward, two, and so on; 0 for `n_step`."""
    average: float = 0.0
    """Decay per update of the moving average of the policy's weights that is exported; 0 exports the last weights."""
    target_period: int = 100
    """Steps between copies of both networks to their targets."""
    gradient_clip: float = 40.0
    """Largest global norm of each network's gradient; 0 for no limit."""

    def __post_init__(self) -> None:
        low, high = self.value_range or (0.0, 1.0)
        require(
            *bounds(
                self,
                above_0=("policy_rate", "critic_rate", "beta", "ratio_cap", "gradient_clip"),
                at_least_1=("value_samples", "td_samples", "n_step", "target_period"),
                up_to_1=("final_rate", "trace"),
                below_1=("average", "discount"),
            ),
            *(
                (getattr(self, name) <= MAX_UNITS, f"algorithm.{name} must be at most {MAX_UNITS:,}")
                for name in ("atoms", "value_samples", "td_samples")
            ),
            (self.atoms >= 2, "algorithm.atoms must be at least 2"),
            (self.action_scale >= 0, "algorithm.action_scale cannot be negative (0 leaves actions as they are)"),
            (not self.trace or self.n_step == 1, "algorithm.trace goes with an n_step of 1"),
            (low < high, "algorithm.value_range must be [low, high] with low < high"),
        )

    def return_range(self, measured: Callable[[float], tuple[float, float]]) -> tuple[float, float] | None:
        """Return the range of returns that its critic can represent; see Algorithm."""
        return self.value_range or measured(self.discount)

    def learner(self, setting: Setting) -> Crr:
        """Return the learner."""
        return Crr(self, setting)


class CrrLosses(NamedTuple):
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
    """The networks, their targets, the optimisers' state, and the step that updates them all."""

    metrics = METRICS

    def __init__(self, config: CrrConfig, setting: Setting) -> None:
        self.config, self.setting = config, setting
        network, observations = setting.network, setting.observations
        seen = observations + setting.states
        self.policy = network.policy(observations)
        self.critic = network.critic(seen, config.atoms, config.action_scale)
        self.target_policy = network.policy(observations)
        self.target_critic = network.critic(seen, config.atoms, config.action_scale)
        self.averaged = Averaged(self.policy, lambda: network.policy(observations), config.average)
        self.acting, self.exported = self.averaged.acting, self.averaged.exported
        low, high = setting.value_range or (0.0, 1.0)
        self.values = tf.linspace(tf.constant(low), tf.constant(high), config.atoms)
        self._policy = Trained("policy", self.policy, config.policy_rate, config.gradient_clip)
        self._critic = Trained("critic", self.critic, config.critic_rate, config.gradient_clip)
        self.steps = tf.Variable(0, dtype=tf.int64, trainable=False, name="steps")
        self.copy_to_targets()

    def update(self, batch: Batch) -> Update:
        """Take a step; see Learner."""
        config, share = self.config, Share.of_replica()
        seed = tf.stack([tf.constant(self.setting.seed, tf.int64), self.steps])
        gradients, metrics, transitions = self._gradients(batch, seed, share)
        gradients, metrics = share.mean((gradients, metrics))
        self.steps.assign_add(1)
        rate = rate_share(self.steps, self.setting.steps, config.final_rate)
        norms = [net.apply(g, self.steps, rate) for net, g in zip((self._policy, self._critic), gradients, strict=True)]
        self.averaged.update(self.steps)
        tf.cond(self.steps % config.target_period == 0, self.copy_to_targets, lambda: None)
        return Update(tf.concat([metrics, norms], axis=0), transitions)

    def _gradients(self, batch: Batch, seed: Any, share: Share) -> tuple[Any, Any, dict[str, Any]]:
        """Return both networks' gradients, METRICS without the gradients' norms, and the batch's transitions."""

        def compute() -> tuple[Any, CrrLosses]:
            losses = self.losses(batch, seed, share)
            return losses.policy + losses.critic, losses

        gradients, losses = differentiated(compute, (self._policy, self._critic))
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
        seen = {"advantage": losses.advantage, "filter_weight": losses.weight, "action": losses.drawn}
        return gradients, metrics, seen

    def losses(self, batch: Batch, seed: Any, share: Share = WHOLE) -> CrrLosses:
        """Return both losses as means over transitions.

        Args:
            batch: a batch, or a replica's share of it.
            seed: two integers from which all drawn actions follow.
            share: which share of the batch it is.
        """
        config = self.config
        td_seed, value_seed = tf.unstack(tf.random.split(seed, 2))
        now, following = batch.rows(slice(None, -1)), batch.rows(slice(1, None))
        states = self._warm_up(now, following)
        now, following = (part.rows(slice(self.setting.burn_in, None)) for part in (now, following))

        # Policy evaluation (Eq. 5). As in Acme, the targets' memory begins at the second row.
        critic_states = self.critic.states(now.inputs, now.actions, states["critic"])
        logits = self.critic.logits(critic_states)
        target_states = self.target_critic.states(following.inputs, following.actions, states["target_critic"])
        target_mixture, _ = self.target_policy.unroll(following.observations, states["target_policy"])
        next_logits = self.target_critic.alternatives(
            following.inputs,
            target_mixture.sample(config.td_samples, td_seed, share),
            _states_before(target_states, states["target_critic"]),
        )
        next_probabilities = tf.reduce_mean(tf.nn.softmax(next_logits), axis=0)
        target, summed = self._target(now, next_probabilities)
        critic_loss = tf.nn.softmax_cross_entropy_with_logits(labels=tf.stop_gradient(target), logits=logits)

        # Policy improvement (Eq. 6).
        mixture, _ = self.policy.unroll(now.observations, states["policy"])
        samples = mixture.sample(config.value_samples, value_seed, share)
        before = _states_before(critic_states, states["critic"])
        value_logits = self.critic.alternatives(now.inputs, samples, before)
        q = self._expected(logits)
        advantage = q - tf.reduce_mean(self._expected(value_logits), axis=0)
        weight = tf.stop_gradient(self._filter(advantage))
        policy_loss = -weight * mixture.log_prob(now.actions)
        return CrrLosses(
            critic=tf.reduce_mean(summed * critic_loss),
            policy=tf.reduce_mean(now.examples * policy_loss),
            q=q,
            advantage=advantage,
            weight=weight,
            entropy=-tf.reduce_mean(mixture.log_prob(samples), axis=0),
            drawn=samples[0],
        )

    def copy_to_targets(self) -> None:
        """Copy both networks to their targets."""
        copy(self.policy, self.target_policy)
        copy(self.critic, self.target_critic)

    def state(self) -> dict[str, Any]:
        """Return every variable that a continued run needs, by name."""
        targets = {"target_policy": self.target_policy, "target_critic": self.target_critic}
        return checkpoint(self.steps, (self._policy, self._critic), {**targets, **self.averaged.networks()})

    def _target(self, now: Batch, following: Any) -> tuple[Any, Any]:
        """Return what the critic learns at each transition [T, B, A], and 1 where it does, else 0 [T, B].

        Args:
            now: the transitions.
            following: distributions of the value after each of them [T, B, A].
        """
        config = self.config
        if config.trace:
            return lambda_returns(now, following, config.discount, config.trace, self.values), now.labels
        reward, last, discount = n_step_returns(now.rewards, config.discount, config.n_step)
        target = project(reward, discount, tf.gather(following, last), self.values)
        return target, labelled_spans(now.labels, config.n_step)

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
        burn_in, size = self.setting.burn_in, tf.shape(now.actions)[1]
        zeros = tf.zeros([size, self.policy.trunk.gru.size])
        if burn_in == 0:
            return dict.fromkeys(("policy", "critic", "target_policy", "target_critic"), zeros)
        now, following = (part.rows(slice(None, burn_in)) for part in (now, following))
        states = {
            "policy": self.policy.unroll(now.observations, zeros)[1],
            "critic": self.critic.states(now.inputs, now.actions, zeros),
            "target_policy": self.target_policy.unroll(following.observations, zeros)[1],
            "target_critic": self.target_critic.states(following.inputs, following.actions, zeros),
        }
        return {name: tf.stop_gradient(after[-1]) for name, after in states.items()}


def n_step_returns(reward: Any, discount: float, steps: int) -> tuple[Any, Any, Any]:
    """Sum the discounted rewards of up to `steps` transitions from each one on; fewer at the window's end.

    Args:
        reward: rewards [T, B].
        discount: discount per transition.
        steps: most transitions in a sum.

    Returns:
        The sums [T, B], the last transition in each [T], and the discount of the value that follows it [T, 1, 1].
    """
    length = reward.shape[0]
    total = tf.add_n([discount**k * tf.pad(reward[k:], [[0, k], [0, 0]]) for k in range(min(steps, length))])
    last = [min(t + steps, length) - 1 for t in range(length)]
    discounts = [discount ** (end - t + 1) for t, end in enumerate(last)]
    return total, tf.constant(last), tf.constant(discounts, tf.float32)[:, None, None]


def labelled_spans(labels: Any, steps: int) -> Any:
    """Return 1 for each transition in whose sum of `steps` rewards every action is a label, else 0 [T, B]."""
    length = labels.shape[0]
    ahead = [tf.pad(labels[k:], [[0, k], [0, 0]], constant_values=1) for k in range(min(steps, length))]
    return tf.reduce_min(tf.stack(ahead), axis=0)


def lambda_returns(now: Batch, following: Any, discount: float, trace: float, values: Any) -> Any:
    """Return the distribution of each transition's lambda-return on the support of values [T, B, A].

    It is that of reward + discount * z, where z has with probability `trace` the distribution of the next transition's
    lambda-return, else that of the value there; the latter alone where the next action is no label and at the window's
    end. Its mean is the lambda-return of the means (Sutton and Barto, 2018, section 12.1).

    Args:
        now: the transitions.
        following: distributions of the value after each of them [T, B, A].
        discount: per transition.
        trace: lambda.
        values: the support [A].
    """
    found: list[Any] = []
    for row in reversed(range(now.rewards.shape[0])):
        after = following[row]
        if found:
            after += trace * now.labels[row + 1][:, None] * (found[-1] - after)
        found.append(project(now.rewards[row], discount, after, values))
    return tf.stack(found[::-1])


def project(reward: Any, discount: Any, probabilities: Any, values: Any) -> Any:
    """Project the distribution of reward + discount * z back onto the evenly spaced support of z (C51).

    Each shifted point, clipped to the support, shares its probability between its two neighbours in proportion to
    nearness (Bellemare et al., ICML 2017, algorithm 1). A sum by segment needs one pass and no [.., A, A] tensor.

    Args:
        reward: rewards [...].
        discount: a number, or what broadcasts to [..., A].
        probabilities: distribution over the support [..., A].
        values: the support [A].

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
