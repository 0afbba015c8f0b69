# SPDX-License-Identifier: Apache-2.0
"""Conservative Q-learning (Kumar et al., NeurIPS 2020): critics that hold what the pool does not show for worse.

Its CQL(H), Eq. 4, over TD3. One update on a batch of windows, time first:

    critics  the mean square, or Huber's loss, of Q_i(s, a) less r + discount * min_j Q'_j(s', pi'(s') + noise); and
             alpha times the mean of T log of the integral of exp(Q_i(s, u) / T) over u from -1 to 1, less Q_i(s, a);
    actor    up the lower Q(s, pi(s)), every `policy_delay` updates; then its target moves.

The first part of the conservative term pushes down the Q of all actions, above all of those that seem best; the second
pushes up that of the recorder's. The paper has T = 1, half of the mean square, and an actor with an entropy (SAC). Its
code estimates the integral from actions of the policy and uniform ones; an action of one number needs no more than one
drawn in each of `samples` equal parts.

Targets of several rewards, kicks and what critics see are as in td3_bc.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from sagecc.common import versions
from sagecc.learner.actor_critic import CRITICS, ActorCritic
from sagecc.learner.core import Batch, Setting, Share, Update
from sagecc.learner.lazy import tf
from sagecc.learner.offline import METRICS, OF_ACTOR, Judges, OfflineConfig
from sagecc.learner.reader import bounds, require
from sagecc.policy.bounds import MAX_UNITS


@dataclass(frozen=True, kw_only=True)
class CqlConfig(OfflineConfig):
    """Its section of a specification."""

    version = versions.CQL

    alpha: float = 1.0
    """Weight of the conservative term."""
    temperature: float = 1.0
    """T, in units of value; the lower, the more the best action alone is pushed down."""
    samples: int = 10
    """Actions from which the integral is estimated."""
    thinning: int = 1
    """One in so many of a batch's windows has the conservative term."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            *bounds(self, above_0=("temperature",), at_least_0=("alpha",), at_least_1=("thinning",)),
            (1 <= self.samples <= MAX_UNITS, f"algorithm.samples must be at least 1 and at most {MAX_UNITS:,}"),
        )

    def learner(self, setting: Setting) -> Cql:
        """Return the learner."""
        return Cql(self, setting)


class Cql:
    """The networks, their targets, the optimisers' state, and the update of them all."""

    metrics = (*METRICS, "conservative_gap")
    """The last is the conservative term without its weight, less T log 2: 0 where Q does not depend on the action."""

    def __init__(self, config: CqlConfig, setting: Setting) -> None:
        self.config, self.setting = config, setting
        self.networks = ActorCritic(config, setting, OF_ACTOR)
        self.judges = Judges(config, self.networks)
        self.state, self.acting, self.exported = self.networks.state, self.networks.acting, self.networks.exported

    def update(self, batch: Batch) -> Update:
        """Take one update; see Learner."""
        networks, share = self.networks, Share.of_replica()
        seeds = tf.random.split(networks.seed(), 2)
        noise = networks.noise(batch.actions[self.judges.rows], share, seeds[0])
        others = self.others(batch, seeds[1], share)
        values = networks.update(lambda: self._judged(batch, noise, others), lambda _: self._acted(batch), share)
        return Update(tf.stack([values[name] for name in self.metrics]), {})

    def others(self, batch: Batch, seed: Any, share: Share) -> Any:
        """Draw actions, one in each equal part of [-1, 1], for the rows that have the conservative term [N, L, B']."""
        count, rows = self.config.samples, batch.actions[self.judges.rows, :: self.config.thinning]
        shape = tf.concat([[count], tf.shape(rows)], axis=0)
        inside = share.part_of(lambda whole: tf.random.stateless_uniform(whole, seed), shape, axis=2)
        return (tf.range(count, dtype=tf.float32)[:, None, None] + inside) * (2 / count) - 1

    def gaps(self, batch: Batch, others: Any) -> list[Any]:
        """Return each critic's conservative term, a scalar, without its weight and less T log 2.

        Args:
            batch: a batch of windows, or a replica's share of it.
            others: actions to be pushed down (`others`).
        """
        judges, warmth = self.judges, self.config.temperature
        thin = Batch(*(x[:, :: self.config.thinning] for x in batch))
        labels = thin.labels[judges.rows]

        def gap(critic: Any) -> Any:
            among = judges.alternatives(critic, thin, others) / warmth
            soft = warmth * (tf.reduce_logsumexp(among, axis=0) - math.log(self.config.samples))
            return tf.reduce_mean(labels * (soft - judges.values(critic, thin, thin.actions[judges.rows])))

        return [gap(critic) for critic in self.networks.critics]

    def _judged(self, batch: Batch, noise: Any, others: Any) -> tuple[Any, tuple[dict[str, Any], None]]:
        """Return the sum of the critics' losses, and the metrics of their update; nothing for the actor's."""
        found, gap = self.judges.losses(batch, noise), tf.add_n(self.gaps(batch, others))
        metrics = found.metrics | {"conservative_gap": gap / CRITICS}
        return tf.add_n(found.losses) + self.config.alpha * gap, (metrics, None)

    def _acted(self, batch: Batch) -> tuple[list[Any], dict[str, Any]]:
        """Return the actor's gradients and the metrics of its update."""

        def compute() -> tuple[Any, tuple[Any, Any]]:
            actions = self.judges.actions(batch)
            loss = -tf.reduce_mean(self.judges.lower(batch, actions))
            return loss, (loss, actions)

        gradients, (loss, actions) = self.networks.actor_gradients(compute)
        return gradients, {"policy_loss": loss, **self.judges.action_metrics(batch, actions)}
