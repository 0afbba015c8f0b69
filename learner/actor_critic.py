# SPDX-License-Identifier: Apache-2.0
"""What TD3 and its offline kin share: a deterministic actor, two critics, their targets, what runs over windows.

Time comes first. Recurrent networks begin a window with an empty memory, and the burn-in's rows only warm it up; dense
ones have no memory, so that any row stands alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from sagecc.learner.core import WHOLE, Setting, Share
from sagecc.learner.imitation import answers
from sagecc.learner.lazy import tf
from sagecc.learner.optimisers import Trained, assign, checkpoint, copy, differentiated, move, rate_share
from sagecc.learner.reader import bounds, require
from sagecc.learner.returns import at_rows
from sagecc.learner.specification import LATER, Algorithm, RunSpecification

if TYPE_CHECKING:
    from sagecc.learner.deterministic import Critic

T = TypeVar("T")

CRITICS = 2


@dataclass(frozen=True, kw_only=True)
class ActorCriticConfig(Algorithm):
    """The fields that they share."""

    networks = ("mlp", "recurrent")

    policy_rate: float
    """Learning rate of the policy's Adam."""
    critic_rate: float
    """Learning rate of the critics' Adam."""
    final_rate: float = 1.0
    """Share of the learning rates left at the last step, along a half cosine; 1 keeps them."""
    discount: float = 0.99
    """Discount per decision."""
    reward_scale: float = 1.0
    """Factor of rewards before values learn from them."""
    reward_limit: float = 0.0
    """A reward, so multiplied, is clipped to plus or minus this; 0 for no limit."""
    tau: float = 0.005
    """Share of the weights that a target network takes over at each update."""
    average: float = 0.0
    """Decay per update of the moving average of the policy's weights that is exported; 0 exports the last weights."""
    policy_delay: int = 2
    """Updates of the critics per update of the actor and of its target."""
    policy_after: int = field(default=0, metadata=LATER)
    """Updates of the critics alone before the actor's first: a policy to go on from waits until they judge it."""
    target_noise: float = 0.2
    """Standard deviation of the noise on the target policy's actions; actions reach from -1 to 1."""
    target_noise_clip: float = 0.5
    """Most that this noise moves an action."""
    huber: float = 0.0
    """Temporal-difference error from which the critics' loss is linear (Huber's loss); 0 for the mean square."""
    gradient_clip: float = 0.0
    """Largest global norm of each network's gradient; 0 for no limit."""

    def __post_init__(self) -> None:
        require(
            *bounds(
                self,
                above_0=("policy_rate", "critic_rate", "tau", "reward_scale"),
                at_least_0=(
                    "target_noise",
                    "target_noise_clip",
                    "huber",
                    "gradient_clip",
                    "reward_limit",
                    "policy_after",
                ),
                at_least_1=("policy_delay",),
                at_most_1=("tau",),
                up_to_1=("final_rate",),
                below_1=("discount", "average"),
            )
        )

    def check(self, whole: RunSpecification) -> None:
        """Raise SageccError where the rest of a specification does not fit it."""
        require(
            (self.policy_after < whole.steps, f"algorithm.policy_after must be below the {whole.steps:,} steps of all")
        )

    def critic(self, network: Any, inputs: int) -> Any:
        """Return a new critic of a kind of network, for so many numbers of observation and state."""
        return network.critic(inputs)


class CriticLosses(NamedTuple):
    """What the critics' gradients follow from, for some L rows of windows."""

    losses: Any
    """Each critic's mean loss, a list of scalars."""
    values: Any
    """Each critic's Q(s, a), a list of [L, B]."""
    targets: Any
    """What they should be [L, B]."""

    @property
    def metrics(self) -> dict[str, Any]:
        """Metrics of the critics' update."""
        return {
            "critic_loss": tf.add_n(self.losses) / CRITICS,
            "q_mean": tf.reduce_mean(self.values[0]),
            "target_mean": tf.reduce_mean(self.targets),
        }


class ActorCritic:
    """The networks, their targets and their optimisers.

    Args:
        config: the algorithm's section.
        setting: what the learner is made for.
        of_actor: names of the metrics of an actor's update, the norm of its gradient among them.
        value: whether a value V(s) is trained beside the critics, as they are but without a target.
    """

    def __init__(
        self, config: ActorCriticConfig, setting: Setting, of_actor: tuple[str, ...], value: bool = False
    ) -> None:
        self.config, self.setting = config, setting
        network, observations = setting.network, setting.observations
        self.actor, self.target_actor = (network.policy(observations) for _ in range(2))
        self.critics, self.target_critics = (
            [config.critic(network, observations + setting.states) for _ in range(CRITICS)] for _ in range(2)
        )
        self.average_actor = network.policy(observations) if config.average else self.actor
        self.value: Any = network.value(observations + setting.states) if value else None
        self._actor = Trained("actor", self.actor, config.policy_rate, config.gradient_clip)
        judging = {f"critic{i}": critic for i, critic in enumerate(self.critics)}
        judging |= {"value": self.value} if value else {}
        self._judging = [Trained(name, of, config.critic_rate, config.gradient_clip) for name, of in judging.items()]
        self.steps = tf.Variable(0, dtype=tf.int64, trainable=False, name="steps")
        self._names = of_actor
        self._of_actor = tf.Variable(tf.zeros([len(of_actor)]), trainable=False, name="actor_metrics")
        assign(self.actor, setting.weights)
        for source, target in self.pairs():
            copy(source, target)
        if config.average:
            copy(self.actor, self.average_actor)

    @property
    def actor_variables(self) -> list[Any]:
        """The actor's variables, in the order of its gradients."""
        return self._actor.variables

    def pairs(self) -> list[tuple[Any, Any]]:
        """Return each network with its target, the actor first."""
        return [(self.actor, self.target_actor), *zip(self.critics, self.target_critics, strict=True)]

    def rate_share(self) -> Any:
        """Return what is left of the learning rates at the update under way."""
        return rate_share(self.steps + 1, self.setting.steps, self.config.final_rate)

    def seed(self) -> Any:
        """Return the two integers from which all random numbers of the update under way follow."""
        return tf.stack([tf.constant(self.setting.seed, tf.int64), self.steps])

    def noise(self, actions: Any, share: Share = WHOLE, seed: Any = None) -> Any:
        """Return the noise on target actions at so many rows [T, B], before it is clipped.

        Args:
            actions: actions at as many rows.
            share: which share of the batch they are of.
            seed: the noise's; `seed()` where nothing else is drawn.
        """
        seed = self.seed() if seed is None else seed
        drawn = share.part_of(lambda shape: tf.random.stateless_normal(shape, seed), tf.shape(actions), axis=1)
        return drawn * self.config.target_noise

    def update(
        self,
        judge: Callable[[], tuple[Any, tuple[dict[str, Any], T]]],
        act: Callable[[T], tuple[list[Any], dict[str, Any]]],
        share: Share = WHOLE,
    ) -> dict[str, Any]:
        """Update the critics and, where that is due, the actor, along gradients of the weights before; return metrics.

        Args:
            judge: returns the sum of the losses of critics and value, each of which reaches its own alone, metrics of
                them, and what `act` is given.
            act: returns the actor's gradients and its metrics but their norm, `policy_gradient_norm`.
            share: which share of the batch these are of.
        """
        gradients, (metrics, given) = differentiated(judge, self._judging)
        gradients, metrics = share.mean((gradients, metrics))
        of_actor = self._update_actor(lambda: act(given), share)
        return {**metrics, **of_actor, "critic_gradient_norm": self._update_critics(gradients)}

    def actor_gradients(self, compute: Callable[[], tuple[Any, T]]) -> tuple[list[Any], T]:
        """Return the actor's gradients of a loss; `compute` returns the loss and what else is wanted, returned too."""
        (gradients,), found = differentiated(compute, (self._actor,))
        return gradients, found

    def perturbed(self, actions: Any, noise: Any) -> Any:
        """Return a target policy's actions with noise, both clipped."""
        limit = self.config.target_noise_clip
        return tf.clip_by_value(actions + tf.clip_by_value(noise, -limit, limit), -1.0, 1.0)

    def answers_from(self, unroll: Callable[[Any, Any], tuple[Any, Any]], seen: Any, begin: int) -> Any:
        """Return what an actor or a value says from a row after the burn-in on; arguments as those of `answers_at`."""
        memory, burn_in = self.setting.network.memory, self.setting.burn_in
        if not memory:
            return answers(unroll, seen[begin:], 0, 0)
        return answers(unroll, seen, memory, burn_in)[begin - burn_in :]

    def answers_at(self, unroll: Callable[[Any, Any], tuple[Any, Any]], seen: Any, rows: Any) -> Any:
        """Return what an actor or a value says at some rows of each window, all after the burn-in [L, B].

        Args:
            unroll: runs the network over rows from a memory.
            seen: what it sees [T, B, F].
            rows: the rows [L, B].
        """
        memory, burn_in = self.setting.network.memory, self.setting.burn_in
        if not memory:
            return answers(unroll, at_rows(seen, rows), 0, 0)
        return at_rows(answers(unroll, seen, memory, burn_in), rows - burn_in)

    def memory(self, critic: Critic, inputs: Any, actions: Any) -> Any:
        """Return a critic's memory before each row [T, B, H]; the burn-in only warms it up."""
        burn_in = self.setting.burn_in
        before = _empty(inputs, critic.memory)
        parts = [before[None]]
        if burn_in:
            parts.append(tf.stop_gradient(critic.remember(inputs[:burn_in], actions[:burn_in], before)))
            before = parts[-1][-1]
        parts.append(critic.remember(inputs[burn_in:-1], actions[burn_in:-1], before))
        return tf.concat(parts, axis=0)

    def state(self) -> dict[str, Any]:
        """Return every variable that a continued run needs, by name."""
        others = {"target_actor": self.target_actor}
        others |= {"average_actor": self.average_actor} if self.config.average else {}
        others |= {f"target_critic{i}": critic for i, critic in enumerate(self.target_critics)}
        return {**checkpoint(self.steps, (self._actor, *self._judging), others), "actor_metrics": self._of_actor}

    def acting(self) -> dict[str, Any]:
        """Return the weights of the policy that plays to learn."""
        weights: dict[str, Any] = self.actor.weights()
        return weights

    def exported(self) -> dict[str, Any]:
        """Return the weights of the policy to use: the average over its last updates (ActorCriticConfig.average)."""
        weights: dict[str, Any] = self.average_actor.weights()
        return weights

    def _update_actor(self, act: Callable[[], tuple[list[Any], dict[str, Any]]], share: Share) -> dict[str, Any]:
        """Update the actor, its target and average where that is due; return the metrics of its last update."""
        delay, after = self.config.policy_delay, self.config.policy_after
        due = self.steps % delay == 0
        due = tf.logical_and(due, self.steps >= after) if after else due
        # Replicas cannot meet where some update may be skipped, so that several compute in each.
        whole = share.mean(act()) if share.count > 1 else None

        def take() -> None:
            gradients, metrics = whole or act()
            updates = (self.steps - after) // delay + 1
            norm = self._actor.apply(gradients, updates, self.rate_share())
            move(self.actor, self.target_actor, self.config.tau)
            if self.config.average:
                # Over all updates so far until they outnumber those that the decay spans.
                share = tf.maximum(1 - self.config.average, 1 / (tf.cast(updates, tf.float32) + 1))
                move(self.actor, self.average_actor, share)
            found = {**metrics, "policy_gradient_norm": norm}
            self._of_actor.assign(tf.stack([found[name] for name in self._names]))

        tf.cond(due, take, lambda: None)
        return dict(zip(self._names, tf.unstack(self._of_actor), strict=True))

    def _update_critics(self, gradients: list[list[Any]]) -> Any:
        """Update the critics and their targets, and end the update; return the mean norm of the gradients."""
        norms = [
            trained.apply(each, self.steps + 1, self.rate_share())
            for trained, each in zip(self._judging, gradients, strict=True)
        ]
        for source, target in self.pairs()[1:]:
            move(source, target, self.config.tau)
        self.steps.assign_add(1)
        return tf.add_n(norms[:CRITICS]) / CRITICS


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
