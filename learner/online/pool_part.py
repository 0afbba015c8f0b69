# SPDX-License-Identifier: Apache-2.0
"""A pool's windows in the replay of labs: a share of each batch, which falls.

A window of the pool takes the place of one of the replay. It has the same observations, scaled alike, actions in the
same units and the reward of the same name. One that holds a kick is left out: no scheme did what comes of it.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sagecc.common.errors import SageccError
from sagecc.learner.compiled import CompiledPool, compile_pool
from sagecc.learner.continuation import of_all_features
from sagecc.learner.core import Batch
from sagecc.learner.data import WindowSampler
from sagecc.learner.online.labs import OnlineTask
from sagecc.learner.reader import WHERE, require
from sagecc.learner.relabelled import with_reward
from sagecc.learner.specification import TICK_MS, PoolShare, RunSpecification
from sagecc.policy.artefact import ACTION_MAP, OBSERVATION_SOURCE, SPREAD_MAP
from sagecc.policy.scaling import Scaling
from sagecc.schemas.pool import FEATURE_NAMES, POOL_VERSION, WINDOWS_TICKS

WINDOWS = ",".join(map(str, WINDOWS_TICKS.values()))
"""The observation windows of labs, in ticks."""

DRAWN = 2
"""Windows drawn for each of a batch, so that enough hold no kick."""


class PoolPart:
    """The pool of a run in labs.

    Args:
        specification: the run's, with a section `pool`.
        task: what is learned.
        scaling: of the task's observations.
        pool: the pool's folder.
        cache: folder of the compiled pools.
        seed: the run's.

    Raises:
        SageccError: The pool is missing or damaged, or its rows are not those of the task.
    """

    def __init__(
        self,
        specification: RunSpecification,
        task: OnlineTask,
        scaling: Scaling,
        pool: Path,
        cache: Path,
        seed: int,
    ) -> None:
        if specification.pool is None:
            raise SageccError(f"{WHERE}: it has no section pool")
        _check(task)
        reward = (specification.task or {}).get("reward", "pool")
        self._pool: CompiledPool = with_reward(compile_pool(pool, cache), pool, reward)
        if self._pool.windows not in ("", WINDOWS):
            raise SageccError(
                f"the pool at {pool} has observation windows of {self._pool.windows} ticks, labs {WINDOWS}: choose "
                "another pool"
            )
        self._specification, self._share, self._control = specification, specification.pool, task.control
        self._columns = [FEATURE_NAMES.index(name) for name in task.observations]
        self._scaling, self._seed = of_all_features(scaling, task.observations), seed

    @property
    def identity(self) -> str:
        """What tells its rows and rewards from others'."""
        return self._pool.identity

    def provenance(self) -> dict[str, Any]:
        """Return what the policy's card says of it."""
        return {"identity": self.identity, "rows": self._pool.rows, "episodes": len(self._pool.starts)}

    def open(self) -> PoolWindowsBeside:
        """Return its windows."""
        sampler = WindowSampler(
            self._pool,
            self._scaling,
            DRAWN * self._specification.batch,
            self._specification.window,
            self._seed,
            period=round(self._control.period_ms) // TICK_MS,
            action_base=self._control.base,
        )
        return PoolWindowsBeside(sampler, self._columns, self._share)


class PoolWindowsBeside:
    """Puts a pool's windows into the batches of a replay; a context manager.

    Which ones follows from the seed and the update alone.

    Args:
        sampler: draws them.
        columns: the features that are observed.
        share: how many of them there are.
    """

    def __init__(self, sampler: WindowSampler, columns: list[int], share: PoolShare) -> None:
        self._sampler, self._columns, self._share = sampler, columns, share
        self.share = 0.0
        """Share of the windows of the last `mix` that were the pool's."""

    def __enter__(self) -> Self:
        self._sampler.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._sampler.__exit__(kind, error, traceback)

    def mix(self, batches: Batch, begin: int) -> None:
        """Put the pool's windows in place of the first of each batch.

        Args:
            batches: of consecutive updates [K, T, B, ...], written to.
            begin: the first of these updates, from 0.
        """
        updates, _, size = batches.actions.shape
        mixed = 0
        for number in range(updates):
            chosen = self._sampler.undisturbed(begin + number)[: self._share.windows(begin + number, size)]
            if len(chosen):
                windows = self._sampler.batch(begin + number, chosen)
                here = number, slice(None), slice(len(chosen))
                batches.observations[here] = windows.observations[..., self._columns]
                batches.actions[here], batches.rewards[here] = windows.actions, windows.rewards
                mixed += len(chosen)
        self.share = mixed / (updates * size)


def _check(task: OnlineTask) -> None:
    """Raise SageccError where a pool's rows are not what a task observes and does."""
    control = task.control
    require(
        (
            task.source == (OBSERVATION_SOURCE, POOL_VERSION),
            f"pool: the task observes {task.source[0]}, a pool has {OBSERVATION_SOURCE} {POOL_VERSION}: leave pool out",
        ),
        (not task.states, "pool: a pool has no global_state: leave one of them out"),
        (
            control.map in (ACTION_MAP, SPREAD_MAP) and control.underlying_scheme == "pure",
            "pool: a pool's action multiplies the window: the task's control needs the map power or spread, on pure",
        ),
        (
            not control.period_min_rtts and control.period_ms % TICK_MS == 0,
            f"pool: a decision takes whole ticks of {TICK_MS} ms: give the task's control such a period_ms",
        ),
    )
