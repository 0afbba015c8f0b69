# SPDX-License-Identifier: Apache-2.0
"""Recorded trajectories as a policy's decisions: what it would have seen, what was done instead, what that earned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sagecc.common.arrays import Bools, Doubles, Floats, Ints
from sagecc.common.errors import SageccError
from sagecc.learner.compiled import CompiledPool
from sagecc.learner.rows import RowFile
from sagecc.schemas.pool import ACTION_LOG2_LIMIT, FEATURE_NAMES

MOST_DECISIONS = 250_000
"""Judged at most; of a larger pool trajectories are drawn, the same number from each environment."""


@dataclass(frozen=True)
class RecordedDecisions:
    """RecordedDecisions of trajectories, one trajectory behind another: N in all, of E trajectories."""

    features: Floats
    """All features of the pool at each decision, unscaled [N, 69]."""
    actions: Doubles
    """log2 of what the recorder multiplied its window by until the next decision, as training has it [N]."""
    rewards: Doubles
    """Mean reward until the next decision [N]."""
    labels: Bools
    """Whether the action is the recorder's own, and not in part the lab's [N]."""
    starts: Ints
    """First decision of each trajectory [E]."""
    lengths: Ints
    """Number of decisions of each trajectory [E]."""
    environments: Ints
    """Number of each trajectory's environment [E]."""
    sets: tuple[str, ...]
    """Set of each trajectory [E]."""
    period_ms: float
    """Time from one decision to the next."""

    def of_trajectories(self, values: Ints) -> Ints:
        """Return a number of each trajectory [E] for each of its decisions [N]."""
        return np.repeat(values, self.lengths)

    def last(self) -> Bools:
        """Mark the last decision of each trajectory [N]."""
        marks = np.zeros(len(self.actions), np.bool_)
        marks[self.starts + self.lengths - 1] = True
        return marks


def decisions(
    pool: CompiledPool, period_ticks: int, tick_ms: float, seed: int, most: int = MOST_DECISIONS
) -> RecordedDecisions:
    """Read a pool's trajectories, or some of them.

    Args:
        pool: the pool, or a part of it.
        period_ticks: rows of the pool from one decision to the next.
        tick_ms: time between rows.
        seed: draws the trajectories, where the pool has more decisions.
        most: of decisions; each environment has a trajectory in turn, until one more would be beyond it.

    Raises:
        SageccError: No trajectory has two decisions, or the compiled pool is damaged.
    """
    lengths = pool.lengths // period_ticks
    environment = np.unique(pool.trajectories.environments(), return_inverse=True)[1]
    chosen = _drawn(lengths, environment, seed, most)
    if not len(chosen):
        raise SageccError(f"no trajectory to judge on is as long as two decisions, {2 * period_ticks * tick_ms:g} ms")
    lengths = lengths[chosen]
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    count = int(lengths.sum())
    features = np.empty((count, len(FEATURE_NAMES)), np.float32)
    actions, rewards = np.empty(count), np.empty(count)
    file = RowFile(pool.folder)
    try:
        for episode, start, length in zip(chosen.tolist(), starts.tolist(), lengths.tolist(), strict=True):
            first, now = pool.starts[episode : episode + 1], slice(start, start + length)
            rows = file.read(first, length * period_ticks)[0]
            if pool.rewards is not None:
                rows[:, -1] = pool.rewards[first[0] : first[0] + len(rows)]
            features[now] = rows[::period_ticks, :-2]
            actions[now], rewards[now] = rows[:, -2:].reshape(length, period_ticks, 2).sum(axis=1, dtype=np.float64).T
    finally:
        file.close()
    return RecordedDecisions(
        features=features,
        actions=np.clip(actions, -ACTION_LOG2_LIMIT, ACTION_LOG2_LIMIT),
        rewards=rewards / period_ticks,
        labels=_labels(pool, chosen, starts, lengths, period_ticks),
        starts=starts,
        lengths=lengths,
        environments=np.unique(environment[chosen], return_inverse=True)[1],
        sets=tuple(pool.trajectories.sets[chosen].tolist()),
        period_ms=period_ticks * tick_ms,
    )


def _drawn(lengths: Ints, environments: Ints, seed: int, most: int) -> Ints:
    """Return the numbers of the trajectories that are read, in order."""
    draws = np.random.Generator(np.random.Philox(key=seed)).random(len(lengths))
    by_environment = np.lexsort((draws, environments))
    firsts = np.flatnonzero(np.diff(environments[by_environment], prepend=-1))
    turn = np.empty(len(lengths), np.int64)
    turn[by_environment] = np.arange(len(lengths)) - np.repeat(firsts, np.diff(firsts, append=len(lengths)))
    order = np.lexsort((draws, turn))
    order = order[lengths[order] >= 2]
    within = np.cumsum(lengths[order]) <= most
    within[:1] = True
    return np.sort(order[within])


def _labels(pool: CompiledPool, chosen: Ints, starts: Ints, lengths: Ints, period_ticks: int) -> Bools:
    labels = np.ones(int(lengths.sum()), np.bool_)
    firsts = pool.starts[chosen]
    begin, end = np.searchsorted(pool.kicks, (firsts, firsts + lengths * period_ticks))
    for number in np.flatnonzero(end > begin):
        rows = pool.kicks[begin[number] : end[number]] - firsts[number]
        labels[starts[number] + rows // period_ticks] = False
    return labels
