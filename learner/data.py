# SPDX-License-Identifier: Apache-2.0
"""Random windows of a compiled pool, read from disk by threads, ahead of the step that needs them."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from types import TracebackType
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Floats, Ints
from sagecc.common.errors import SageccError
from sagecc.common.limits import usable_cores
from sagecc.learner.compiled import CompiledPool
from sagecc.learner.core import Batch
from sagecc.learner.rows import RowFile
from sagecc.learner.selection import exploring
from sagecc.policy.scaling import Scaling
from sagecc.schemas.pool import ACTION_LOG2_LIMIT, FEATURE_NAMES

T = TypeVar("T")

THREADS = 4
"""Most threads that copy and scale; the disk is asked for a whole batch before, so more would not read more at once."""

CHUNK_ROWS = 2048
"""Decisions that one thread reads and scales at a time, about."""


ALL = slice(None)
"""Every window of a batch."""

AHEAD = 4
"""Batches that are made or being made at any time."""

MAKERS = 2
"""Batches under way at a time: while one waits for its last windows, the threads read the next one's."""


class WindowSampler:
    """Random windows of consecutive rows, each within one episode; use it as a context manager.

    A window is drawn with a probability in proportion to its episode's weight: with equal weights, every window of
    the pool is equally likely. The batch of a step is a function of the seed and the step alone, whatever the number
    of threads, so a run continues from any step as if it had never stopped.

    Args:
        pool: the pool, or a selection of it.
        scaling: scaling of the observations.
        batch: windows per batch.
        window: decisions per window.
        seed: seed of the windows that are drawn.
        threads: threads that read and scale; by default one for each core, at most THREADS.
        period: rows from one decision to the next.
        start_share: share of windows that begin with their episode.
        action_base: what an action of 1 multiplies the window by; None for actions that are log2 of the ratio.
        explorers: schemes whose actions are no examples (Batch.examples).
        seen: decisions whose observations are wanted of a window all of whose actions are labels, the others' are 0;
            None for all of them.

    Raises:
        SageccError: No episode is as long as a window, or the pool lacks an explorer.
    """

    def __init__(
        self,
        pool: CompiledPool,
        scaling: Scaling,
        batch: int,
        window: int,
        seed: int,
        threads: int | None = None,
        *,
        period: int = 1,
        start_share: float = 0.0,
        action_base: float | None = None,
        explorers: tuple[str, ...] = (),
        seen: tuple[int, ...] | None = None,
    ) -> None:
        rows = window * period
        possible = np.maximum(pool.lengths - rows + 1, 0)
        if not possible.any():
            raise SageccError(
                f"a window of {rows} rows is longer than every episode chosen from the pool (the longest has "
                f"{pool.lengths.max()}): choose a smaller window"
            )
        shares = np.cumsum(pool.drawn(possible))
        self._shares, self._possible, self._starts = shares / shares[-1], possible, pool.starts
        self._schemes, (self._actions, self._rewards) = pool.trajectories.schemes, pool.columns()
        self._kicks, self._recorded = pool.kicks, pool.recorded
        self._explores = exploring(explorers, pool.trajectories)
        self._action_unit = math.log2(action_base) if action_base else 1.0
        self._action_limit = 1.0 if action_base else ACTION_LOG2_LIMIT
        self._scaling, self._seed = scaling, seed
        self._batch, self._window, self._period = batch, window, period
        self._start_share, self._seen = start_share, None if seen is None else np.array(seen, np.int64)
        self._file = RowFile(pool.folder)
        self._chunk = max(1, CHUNK_ROWS // window)
        self._threads = ThreadPoolExecutor(threads or min(THREADS, usable_cores()), "window")

    def __enter__(self) -> WindowSampler:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._threads.shutdown(cancel_futures=True)
        self._file.close()

    def windows(self, step: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the episode of each window of the batch of `step` and its first row, int64 [B] each."""
        generator = np.random.Generator(np.random.Philox(key=self._seed, counter=[0, 0, 0, step]))
        episode_draw, position, start_draw = generator.random((3, self._batch))
        position[start_draw < self._start_share] = 0
        episode = np.searchsorted(self._shares, episode_draw, side="right")
        return episode, self._starts[episode] + (position * self._possible[episode]).astype(np.int64)

    def first_rows(self, step: int) -> npt.NDArray[np.int64]:
        """Return the first row of each window of the batch of `step`, int64 [B]."""
        return self.windows(step)[1]

    def schemes(self, step: int) -> npt.NDArray[np.str_]:
        """Return the scheme of each window of the batch of `step` [B]."""
        return self._schemes[self.windows(step)[0]]

    def undisturbed(self, step: int) -> Ints:
        """Return which windows of the batch of `step` hold no action of the lab's, but perhaps their last [N]."""
        return np.flatnonzero(self._labels(self.windows(step)[1])[:-1].all(axis=0))

    def batch(self, step: int, part: slice | Ints = ALL) -> Batch:
        """Return the batch of a step, of arrays; observations are all 69.

        A period of several rows has the first one's observation and state, the sum of log2 actions (clipped as one
        tick's are, or in units of `action_base` to +-1) and the mean reward.

        Args:
            step: the step.
            part: the windows to read and return, B in number; all by default.

        Raises:
            SageccError: The compiled pool is damaged, or was truncated meanwhile.
        """
        episode, first = (of[part] for of in self.windows(step))
        rows_each = self._window * self._period
        self._file.announce(first, rows_each)
        labels = self._labels(first)
        observation = np.zeros((self._window, len(first), len(FEATURE_NAMES)), np.float32)
        action, reward = (np.empty((self._window, len(first)), np.float32) for _ in range(2))
        whole = np.full(len(first), True) if self._seen is None else np.asarray(~labels.all(axis=0))

        def fill(begin: int) -> None:
            chunk = slice(begin, begin + self._chunk)
            self._observe(observation[:, chunk], first[chunk], whole[chunk])
            rows = first[chunk, None] + np.arange(rows_each)
            actions, rewards = (
                column[rows].reshape(-1, self._window, self._period) for column in (self._actions, self._rewards)
            )
            units = actions.sum(axis=-1) / self._action_unit
            action[:, chunk] = np.clip(units, -self._action_limit, self._action_limit).T
            reward[:, chunk] = rewards.mean(axis=-1).T

        for _ in self._threads.map(fill, range(0, len(first), self._chunk)):
            pass
        examples = labels * ~self._explores[episode]
        return Batch(observation, action, reward, self._states(episode, first), labels, examples)

    def _observe(self, observation: Floats, first: npt.NDArray[np.int64], whole: npt.NDArray[np.bool_]) -> None:
        """Fill in the observations [T, n, 69] of windows from these rows on, all of them or those that are seen."""
        rows = self._file.read(first[whole], self._window * self._period, self._period)
        observation[:, whole] = self._scaling(rows[..., :-2]).swapaxes(0, 1)
        if self._seen is not None:
            wanted = self._period * self._seen[:, None] + first[~whole]
            rows = self._file.read(wanted.ravel(), 1).reshape(*wanted.shape, -1)
            observation[np.ix_(self._seen, ~whole)] = self._scaling(rows[..., :-2])

    def _states(self, episode: npt.NDArray[np.int64], first: npt.NDArray[np.int64]) -> Floats:
        """Return what critics see at each decision of windows of these episodes and first rows [T, B, G]."""
        if self._recorded is None:
            return np.empty((self._window, len(first), 0), np.float32)
        begins = self._period * np.arange(self._window)[:, None]
        return self._recorded.at(episode, first - self._starts[episode] + begins)

    def _labels(self, first: npt.NDArray[np.int64]) -> Floats:
        """Return which decisions of windows from these rows on are labels [T, B]."""
        labels = np.ones((self._window, len(first)), np.float32)
        begin, end = np.searchsorted(self._kicks, (first, first + self._window * self._period))
        for window in np.flatnonzero(end > begin):
            rows = self._kicks[begin[window] : end[window]] - first[window]
            labels[rows // self._period, window] = 0
        return labels


class Prefetch(Generic[T]):
    """Makes the batches of a range of steps ahead of their use, several at a time; use it as a context manager.

    Args:
        make: makes the batch of a step.
        steps: the steps.
        makers: batches being made at a time.
    """

    def __init__(self, make: Callable[[int], T], steps: range, makers: int = MAKERS) -> None:
        self.waited_s = 0.0
        """Time that `next` has waited so far."""
        self._make, self._steps = make, iter(steps)
        self._pending: deque[Future[T]] = deque()
        self._makers = ThreadPoolExecutor(makers, "batch")

    def __enter__(self) -> Prefetch[T]:
        for _ in range(AHEAD):
            self._submit()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._makers.shutdown(cancel_futures=True)

    def next(self) -> T:
        """Return the next step's batch, or raise what making it raised."""
        begun = time.perf_counter()
        batch = self._pending.popleft().result()
        self.waited_s += time.perf_counter() - begun
        self._submit()
        return batch

    def _submit(self) -> None:
        for step in islice(self._steps, 1):
            self._pending.append(self._makers.submit(self._make, step))
