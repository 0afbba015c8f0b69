# SPDX-License-Identifier: Apache-2.0
"""TD3+BC (Fujimoto and Gu, NeurIPS 2021) and ReBRAC (Tarasov et al., NeurIPS 2023): TD3, held to a pool's actions.

One update on a batch of windows, time first:

    critics  Q_i(s, a) -> r + discount * (min_j Q'_j(s', a') - critic_cloning * (a' - b')^2), a' the target actor's
             action with clipped noise, b' the recorder's; each by its mean square, or by Huber's loss;
    actor    down w (pi(s) - a)^2 - alpha * Q(s, pi(s)) / unit(Q), every `policy_delay` updates; then its target moves.
             unit(Q) is a number: the mean of |Q| over the batch, or Q's deviation. With `unit: slope` each row's pull
             is alpha * g / (|g| + FLAT mean |g|) with g = dQ/da: its direction, however much is at stake there.

TD3+BC follows Q_1 and has no `critic_cloning`. ReBRAC follows the lower Q and normalises the critics' layers; its
weights of both terms, beta_1 and beta_2, are 1 / `alpha` (its actor's loss is ours times beta_1) and `critic_cloning`.

w is 1 or, with `beta`, weights the better actions of the pool more, as advantage-weighted regression does
(learner.advantages): their advantages are the critics' sums of rewards and V(s') less V(s), V the value of the pool's
behaviour, which regresses on these sums.

With `n_step` a target has the rewards of several decisions, then the critics' value. It ends before an action that is
no label, and such an action is neither judged nor imitated. As in td3.py all gradients of an update are of the weights
before it, and the critics' targets move at every update. Critics may see what only the recorder knows (Batch.states).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from sagecc.common import versions
from sagecc.learner.actor_critic import CRITICS, ActorCritic, CriticLosses
from sagecc.learner.advantages import AdvantageWeights, groups_of
from sagecc.learner.core import WHOLE, Batch, Setting, Share, Update
from sagecc.learner.lazy import tf
from sagecc.learner.offline import METRICS, OF_ACTOR, Judges, OfflineConfig
from sagecc.learner.reader import bounds, require
from sagecc.learner.returns import at_rows
from sagecc.learner.specification import RunSpecification

OF_WEIGHTS = ("value_loss", "advantage_std", "filter_weight_mean")
"""Metrics of weights, behind offline.METRICS."""

LEAST_UNIT = 1e-6
"""Least number that Q is divided by."""
FLAT = 0.1
"""A slope of this many mean slopes pulls half as much as a steep one: what critics hardly tell apart counts less."""


@dataclass(frozen=True, kw_only=True)
class Td3BcConfig(OfflineConfig):
    """Its section of a specification."""

    version = versions.TD3_BC

    alpha: float = 2.5
    """Weight of Q in the actor's loss; the cloning term's is 1."""
    alpha_shared: float | None = None
    """The same for flows with competitors; `null`: `alpha`."""
    unit: Literal["mean", "deviation", "slope"] = "mean"
    """Divisor of Q there: the batch's mean of |Q|, its deviation, or each row's slope, so that networks count alike."""
    follows: Literal["first", "lower"] = "first"
    """The Q that the actor follows: the first critic's, as in TD3+BC, or the lower of both, as in ReBRAC."""
    critic_cloning: float = 0.0
    """Loss of a critic's target for each unit of (a' - b')^2, a' the target actor's action and b' the recorded one
    (ReBRAC's beta_2).
    """
    beta: float = 0.0
    """Temperature of the cloning term's weights exp(A / beta), in deviations of A among flows alone, or with
    competitors; 0 for no weights.
    """
    ratio_cap: float = 20.0
    """Largest such weight, before they are divided by their mean."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_0 = ("alpha", "alpha_shared", "critic_cloning", "beta")
        require(*bounds(self, above_0=("ratio_cap",), at_least_0=at_least_0))

    def check(self, whole: RunSpecification) -> None:
        """Raise SageccError where the rest of a specification does not fit it."""
        super().check(whole)
        blind = whole.data and not whole.data.state_names
        require(
            *(
                (not (blind and asked), f"algorithm.{name} tells flows alone from others: give data.states")
                for name, asked in (("alpha_shared", self.alpha_shared is not None), ("beta", self.beta))
            )
        )

    def learner(self, setting: Setting) -> Td3Bc:
        """Return the learner."""
        return Td3Bc(self, setting)


class HeldActorLoss(NamedTuple):
    """What the actor's gradient follows from, for the L rows that learn."""

    loss: Any
    """A scalar."""
    actions: Any
    """pi(s) [L, B]."""


class Td3Bc:
    """The networks, their targets, the optimisers' state, and the update of them all."""

    def __init__(self, config: Td3BcConfig, setting: Setting) -> None:
        self.config, self.setting = config, setting
        self.networks = ActorCritic(config, setting, OF_ACTOR, value=bool(config.beta))
        self.judges = Judges(config, self.networks)
        self.weights = AdvantageWeights(config.beta, config.ratio_cap) if config.beta else None
        self.metrics = (*METRICS, *OF_WEIGHTS) if config.beta else METRICS
        self.acting, self.exported = self.networks.acting, self.networks.exported

    def update(self, batch: Batch) -> Update:
        """Take one update; see Learner."""
        share = Share.of_replica()
        noise = self.networks.noise(batch.actions[self.judges.rows], share)
        values = self.networks.update(
            lambda: self._judged(batch, noise, share), lambda weights: self._acted(batch, weights, share), share
        )
        return Update(tf.stack([values[name] for name in self.metrics]), {})

    def critic_losses(self, batch: Batch, noise: Any) -> CriticLosses:
        """Return the critics' losses; see Judges.losses."""

        def price(actions: Any, rows: Any) -> Any:
            own = at_rows(batch.examples, rows)  # no other action is one to be near to
            return self.config.critic_cloning * own * tf.square(actions - at_rows(batch.actions, rows))

        return self.judges.losses(batch, noise, price if self.config.critic_cloning else None)

    def advantages(self, batch: Batch) -> Any:
        """Return the advantages of the pool's actions over V at the rows that learn [L, B], with V(s)'s gradient."""
        networks, judges, inputs = self.networks, self.judges, batch.inputs
        coming, unroll = judges.ahead(batch), networks.value.unroll
        following = tf.stop_gradient(networks.answers_at(unroll, inputs, judges.ends(coming)))
        return coming.returns(following) - networks.answers_from(unroll, inputs[: judges.rows.stop], judges.rows.start)

    def actor_loss(self, batch: Batch, weights: Any, share: Share = WHOLE) -> HeldActorLoss:
        """Return the actor's loss as a mean over the rows that learn.

        Args:
            batch: a batch of windows, or a replica's share of it.
            weights: of the pool's actions, 0 where one is no label [L, B].
            share: which share of the batch it is.
        """
        actions = self.judges.actions(batch)
        error = tf.square(actions - batch.actions[self.judges.rows])
        return HeldActorLoss(tf.reduce_mean(weights * error) - self._pull(batch, actions, share), actions)

    def state(self) -> dict[str, Any]:
        """Return every variable that a continued run needs, by name."""
        return {**self.networks.state(), **(self.weights.state() if self.weights else {})}

    def _alpha(self, batch: Batch) -> Any:
        """Return the weight of Q: a number, or [L, B]."""
        config = self.config
        if config.alpha_shared is None:
            return config.alpha
        return tf.gather([config.alpha, config.alpha_shared], groups_of(batch)[self.judges.rows])

    def _pull(self, batch: Batch, actions: Any, share: Share) -> Any:
        """Return the term that raises Q, as a mean over the rows that learn."""
        alpha = self._alpha(batch)
        if self.config.unit == "slope":
            return tf.reduce_mean(alpha * self._direction(batch, tf.stop_gradient(actions), share) * actions)
        q = self._followed(batch, actions)
        return tf.reduce_mean(alpha * q) / tf.stop_gradient(self._unit(q, share))

    def _followed(self, batch: Batch, actions: Any) -> Any:
        """Return the Q that the actor follows [L, B]."""
        return self.judges.lower(batch, actions, 1 if self.config.follows == "first" else CRITICS)

    def _direction(self, batch: Batch, actions: Any, share: Share) -> Any:
        """Return where Q rises at some actions, from -1 to 1 [L, B], without gradient."""
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(actions)
            q = self._followed(batch, actions)
        slopes = tape.gradient(q, actions)
        sizes = tf.abs(slopes)
        return tf.stop_gradient(slopes / (sizes + FLAT * share.mean(tf.reduce_mean(sizes)) + LEAST_UNIT))

    def _unit(self, q: Any, share: Share) -> Any:
        """Return what Q is divided by, of the whole batch."""
        if self.config.unit == "mean":
            return tf.maximum(share.mean(tf.reduce_mean(tf.abs(q))), LEAST_UNIT)
        variance = share.mean(tf.reduce_mean(tf.square(q - share.mean(tf.reduce_mean(q)))))
        return tf.maximum(tf.sqrt(variance), LEAST_UNIT)

    def _judged(self, batch: Batch, noise: Any, share: Share) -> tuple[Any, tuple[dict[str, Any], Any]]:
        """Return the sum of the losses of critics and value, metrics of them, and the actions' weights."""
        rows = self.judges.rows
        found, labels, examples = self.critic_losses(batch, noise), batch.labels[rows], batch.examples[rows]
        if not self.weights:
            return tf.add_n(found.losses), (found.metrics, examples)
        advantages = self.advantages(batch)
        value_loss = tf.reduce_mean(labels * tf.square(advantages))
        weights = self.weights.of(advantages, groups_of(batch)[rows], examples, share)
        metrics = {
            "value_loss": value_loss,
            "advantage_std": tf.math.reduce_std(advantages),
            "filter_weight_mean": tf.reduce_mean(weights),
        }
        return tf.add_n([*found.losses, value_loss]), (found.metrics | metrics, weights)

    def _acted(self, batch: Batch, weights: Any, share: Share) -> tuple[list[Any], dict[str, Any]]:
        """Return the actor's gradients and the metrics of its update."""

        def compute() -> tuple[Any, HeldActorLoss]:
            found = self.actor_loss(batch, weights, share)
            return found.loss, found

        gradients, found = self.networks.actor_gradients(compute)
        return gradients, {"policy_loss": found.loss, **self.judges.action_metrics(batch, found.actions)}
