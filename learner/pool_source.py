# SPDX-License-Identifier: Apache-2.0
"""Learning from a pool: windows of its trajectories, an update on each batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Floats
from sagecc.common.errors import SageccError
from sagecc.learner.compiled import CompiledPool, compile_pool
from sagecc.learner.continuation import Continuation
from sagecc.learner.core import Batch
from sagecc.learner.data import ALL, Prefetch, WindowSampler
from sagecc.learner.experience import Experience, Source
from sagecc.learner.privileged import recorded
from sagecc.learner.relabelled import with_reward
from sagecc.learner.specification import Data, RunSpecification
from sagecc.learner.validation import training_part
from sagecc.policy import artefact
from sagecc.policy.artefact import OBSERVATION_SOURCE
from sagecc.policy.scaling import Scaling
from sagecc.schemas.pool import FEATURE_NAMES, POOL_VERSION


class PoolExperience(Experience):
    """What is learned from a pool; see Experience.

    Args:
        specification: the run's.
        pool: the pool's folder.
        cache: folder of the compiled pools.
        seed: the run's.
        start: where another run ended, to train on from there: with its networks, Adam's state, scaling and range of
            returns. By default all of these are new.

    Raises:
        SageccError: The pool is damaged or has nothing that is selected, or the other run does not fit.
    """

    source = (OBSERVATION_SOURCE, POOL_VERSION)

    def __init__(
        self, specification: RunSpecification, pool: Path, cache: Path, seed: int, start: Continuation | None = None
    ) -> None:
        data = specification.data
        if data is None:
            raise SageccError("training configuration: it learns in labs, not from a pool")
        self._specification, self._data, self._seed, self.start = specification, data, seed, start
        compiled = with_reward(compile_pool(pool, cache), pool, data.reward)
        if data.state_names:
            known = recorded(pool, data.states, compiled.trajectories.ids, compiled.lengths)
            compiled = replace(compiled, recorded=known)
        self._pool: CompiledPool = training_part(compiled.select(data.selection), data.validation_share)
        if start:
            start.check(specification)
        network = specification.network
        self._scaling: Scaling = (
            start.scaling if start else self._pool.moments.scaling(network.input_transform, network.input_limit)
        )
        self.observations, self.states = data.observations, len(data.state_names)
        self.scaling = self._scaling.select(_columns(data))
        ticks = data.period_ticks
        self.value_range = (
            start.value_range
            if start
            else specification.algorithm.return_range(partial(self._pool.value_range, period=ticks))
        )
        # Of several ticks each takes its part of an action.
        own = artefact.SPREAD_MAP if ticks > 1 else artefact.ACTION_MAP
        limited: dict[str, Any] = {"base": data.action_base, "limits": (-1.0, 1.0)} if data.action_base else {}
        self.control = artefact.Control(period_ms=float(data.period_ms), map=own, **limited)

    def identity(self) -> list[Any]:
        """Return what decides the data."""
        return [self._pool.identity, *([self.start.identity] if self.start else [])]

    def about(self) -> dict[str, Any]:
        """Return what the run's file says of it."""
        return {"pool": self._pool.identity}

    def provenance(self) -> dict[str, Any]:
        """Return what the policy's card says of it."""
        pool, start = self._pool, self.start
        about: dict[str, Any] = {"identity": pool.identity, "rows": pool.rows, "episodes": len(pool.starts)}
        about |= {"windows": pool.windows} if pool.windows else {}
        about |= {"effective_windows": pool.effective} if pool.effective else {}
        found: dict[str, Any] = {"value_range": list(self.value_range)} if self.value_range else {}
        found |= {"pool": about}
        return {**found, "started_from": {"steps": start.steps, "identity": start.identity}} if start else found

    def open(self, logs: Path, part: slice, begin: int) -> PoolWindows:
        """Return the source; see Experience."""
        specification, data = self._specification, self._data
        seen, skipped = specification.algorithm.seen(specification), int(data.reward_before_action)
        sampler = WindowSampler(
            self._pool,
            self._scaling,
            specification.batch,
            specification.window,
            self._seed,
            period=data.period_ticks,
            start_share=data.start_share,
            action_base=data.action_base,
            explorers=data.explorers,
            seen=seen and tuple(row + skipped for row in seen),
        )
        return PoolWindows(sampler, data, part, range(begin, specification.steps))


class PoolWindows(Source):
    """A pool's windows, a batch for each update, made ahead of it; see Source.

    Args:
        sampler: the windows.
        data: what of them is learned from.
        part: the windows of each batch that this process reads.
        steps: the updates, from 0.
    """

    def __init__(self, sampler: WindowSampler, data: Data, part: slice, steps: range) -> None:
        self._sampler, self._data, self._columns = sampler, data, _columns(data)
        self._batches: Prefetch[Batch] = Prefetch(partial(self.batch, part=part), steps)

    def __enter__(self) -> PoolWindows:
        self._sampler.__enter__()
        self._batches.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._batches.__exit__(kind, error, traceback)
        self._sampler.__exit__(kind, error, traceback)

    def batch(self, step: int, part: slice = ALL) -> Batch:
        """Return a part of the batch of a step, from 0, with the observations and rewards that are chosen."""
        batch = self._sampler.batch(step, part)
        if self._columns != list(range(len(FEATURE_NAMES))):
            batch = batch._replace(observations=np.take(batch.observations, self._columns, axis=-1))
        if self._data.reward_before_action:
            batch = batch.rows(slice(1, None))._replace(rewards=batch.rewards[:-1])
        return batch

    def next(self, acting: Callable[[], dict[str, Floats]]) -> Batch:
        """Return the next update's batch."""
        batch = self._batches.next()
        self.waited_s = self._batches.waited_s
        return batch

    def schemes(self, step: int) -> npt.NDArray[np.str_]:
        """Return the scheme of each window of an update's batch [B]."""
        return self._sampler.schemes(step - 1)

    def example(self, step: int) -> Batch:
        """Return the whole batch of an update."""
        return self.batch(step - 1)


def _columns(data: Data) -> list[int]:
    return [FEATURE_NAMES.index(name) for name in data.observations]
