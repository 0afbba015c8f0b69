# SPDX-License-Identifier: Apache-2.0
"""Judges policies on trajectories of environments that they did not learn from; a function of pool, policy and seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sagecc.common import versions
from sagecc.common.arrays import Bools, Doubles, Floats, Ints
from sagecc.common.errors import SageccError
from sagecc.learner.compiled import CompiledPool, compile_pool
from sagecc.learner.evaluation import Evaluation
from sagecc.learner.judging.decisions import RecordedDecisions, decisions
from sagecc.learner.judging.measures import Likeness, likeness
from sagecc.learner.judging.predictions import Predictions, check, predict
from sagecc.learner.relabelled import with_reward
from sagecc.learner.specification import TICK_MS, RunSpecification
from sagecc.learner.validation import validation_part
from sagecc.policy.artefact import PolicyArtefact
from sagecc.pool.reward import reward_of

if TYPE_CHECKING:
    from sagecc.learner.judging.fitted_q import Evaluated

HORIZON_S = 10.0
"""Time over which rewards count: the discount is 1 less a decision's share of it, whatever the policy's period."""

REWARD = "graded"
"""What policies are judged by unless told otherwise: unlike the paper's rewards it tells little from nothing."""

LIMIT = 5.0
"""Q sees the features after symlog, of mean 0 and deviation 1, within this, however the policy sees them."""


@dataclass(frozen=True)
class Measures(Likeness):
    """What is measured of a policy on the trajectories of a set; the rest is of fitted-Q evaluation (fitted_q)."""

    value_start: float
    """The policy's value where trajectories begin: a discounted mean of rewards, in their units."""
    value_mean: float
    """Its value at all decisions."""
    value_scale: float
    """Standard deviation of Q(s, a) of what was done."""
    td_error: float
    """Root mean square of (1 - discount) r + discount Q(s', pi(s')) - Q(s, a)."""
    reward_mean: float
    """Mean reward of what was done, beside which values may be held."""
    environments: int
    """Number of environments; values and rewards are means over these."""
    trajectories: int
    """Number of their trajectories."""
    decisions: int
    """Number of decisions, the lab's own among them."""


@dataclass(frozen=True)
class PoolJudgement:
    """What a pool says of a policy."""

    pool: str
    """Identity of the part of the pool that it was judged on."""
    validation_share: float
    """Share of the pool's environments in it."""
    reward: str
    """By which it was judged."""
    seed: int
    """Of what is drawn."""
    sets: Mapping[str, Measures]
    """By set."""

    def record(self) -> dict[str, Any]:
        """Return it as values of JSON."""
        return asdict(self)

    def scores(self) -> dict[str, float]:
        """Return the measures by `SET/NAME`, without those that there are not."""
        return {
            f"{name}/{measure}": float(value)
            for name, measures in self.sets.items()
            for measure, value in asdict(measures).items()
            if value is not None and measure not in ("environments", "trajectories", "decisions")
        }


class PoolJudge:
    """Judges policies on a pool's environments for validation; as a function it is a learner.evaluation.Score.

    Args:
        pool: the pool's folder.
        cache: folder of the compiled pools.
        share: share of the pool's environments, which are those for validation (learner.validation).
        reward: by which, a name of pool.reward.
        seed: of what is drawn.

    Raises:
        SageccError: There is no such pool, reward, or part.
    """

    def __init__(self, pool: Path, cache: Path, share: float, reward: str = REWARD, seed: int = 0) -> None:
        self._folder, self._whole = pool, compile_pool(pool, cache)
        self._part_identity = validation_part(self._whole, share).identity
        self._share, self._reward, self._seed = share, reward_of(reward).name, seed
        self._read: dict[int, tuple[RecordedDecisions, Floats]] = {}

    @cached_property
    def _pool(self) -> CompiledPool:
        """The part to judge on, with the reward to judge by."""
        return validation_part(with_reward(self._whole, self._folder, self._reward), self._share)

    @property
    def identity(self) -> str:
        """What decides a policy's scores beside it."""
        return f"{versions.JUDGING} {self._part_identity} {self._reward} {self._seed}"

    def __call__(self, policy: Path, step: int) -> dict[str, float]:
        """Return a policy's scores (PoolJudgement.scores)."""
        return self.judge(PolicyArtefact.load(policy)).scores()

    def judge(self, policy: PolicyArtefact) -> PoolJudgement:
        """Judge a policy.

        Raises:
            SageccError: It is none that a pool can tell of.
        """
        from sagecc.learner.judging import fitted_q  # TensorFlow takes seconds to load

        recorded, scaled = self._decisions(check(policy, self._pool, TICK_MS))
        predictions = predict(policy, recorded)
        counting = np.flatnonzero(recorded.labels & ~recorded.last())
        if not len(counting):
            raise SageccError("no trajectory to judge on has an action of its recorder's own: choose another pool")
        transitions = fitted_q.Transitions(
            observations=scaled,
            environments=recorded.of_trajectories(recorded.environments),
            done=recorded.actions,
            policy=predictions.actions,
            rewards=recorded.rewards,
            counting=counting,
        )
        discount = 1 - min(1.0, recorded.period_ms / 1000 / HORIZON_S)
        values = fitted_q.evaluate(transitions, discount, self._seed, fitted_q.FITTING)
        names, number = np.unique(recorded.sets, return_inverse=True)
        of_counting = recorded.of_trajectories(number)[counting]
        return PoolJudgement(
            pool=self._part_identity,
            validation_share=self._share,
            reward=self._reward,
            seed=self._seed,
            sets={
                str(name): _measures(recorded, predictions, values, number == i, values.errors[of_counting == i])
                for i, name in enumerate(names)
                if (of_counting == i).any()
            },
        )

    def _decisions(self, period_ticks: int) -> tuple[RecordedDecisions, Floats]:
        """Return the decisions of a period, and their features as Q sees them; those of the last period are kept."""
        if period_ticks not in self._read:
            read = decisions(self._pool, period_ticks, TICK_MS, self._seed)
            self._read = {period_ticks: (read, self._pool.moments.scaling("symlog", LIMIT)(read.features))}
        return self._read[period_ticks]


def _measures(
    recorded: RecordedDecisions, predictions: Predictions, values: Evaluated, which: Bools, errors: Doubles
) -> Measures:
    """Return the measures of the trajectories that `which` marks [E]; `errors` are those of their decisions."""
    chosen = np.repeat(which, recorded.lengths)
    environments = recorded.of_trajectories(recorded.environments)[chosen]
    starts = recorded.starts[which]
    return Measures(
        **asdict(likeness(recorded, predictions, which)),
        value_start=_over_environments(values.policy[starts], recorded.environments[which]),
        value_mean=_over_environments(values.policy[chosen], environments),
        value_scale=float(values.done[chosen].std()),
        td_error=float(np.sqrt(np.square(errors).mean())),
        reward_mean=_over_environments(recorded.rewards[chosen], environments),
        environments=len(np.unique(environments)),
        trajectories=len(starts),
        decisions=int(chosen.sum()),
    )


def _over_environments(values: Doubles, environments: Ints) -> float:
    """Return the mean over environments of their mean values."""
    counts = np.bincount(environments)
    return float((np.bincount(environments, values)[counts > 0] / counts[counts > 0]).mean())


def learned_share(policy: PolicyArtefact) -> float | None:
    """Return the validation share of the pool that a policy learned from, by its card; None where it names no pool."""
    training = policy.card.get("training")
    if "pool" not in policy.card or not isinstance(training, dict):
        return None
    data = training.get("data")
    share = data.get("validation_share", 0.0) if isinstance(data, dict) else 0.0
    return float(share) if isinstance(share, int | float) and 0 <= share < 1 else 0.0


def evaluation_of(
    specification: RunSpecification, pool: Path, cache: Path, league: Evaluation | None = None
) -> Evaluation | None:
    """Return how a training is evaluated: it is judged at its end, where it leaves environments out for that.

    Args:
        specification: the training's.
        pool: the pool's folder.
        cache: folder of the compiled pools.
        league: what evaluates it anyway; it is judged whenever that does.
    """
    data = specification.data
    if data is None or not data.validation_share:
        return league
    judge = PoolJudge(pool, cache, data.validation_share)
    if league is None:
        return Evaluation(judge, specification.steps, judge.identity)
    return replace(
        league,
        score=lambda policy, step: {**league.score(policy, step), **judge(policy, step)},
        identity=f"{league.identity} {judge.identity}",
    )
