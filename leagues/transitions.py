# SPDX-License-Identifier: Apache-2.0
"""Transitions u = (s_t, a_t, s_(t+1)) as vectors of 139 numbers, of a trajectory and of the pool, on one scale.

A cosine compares directions from the origin, and the pool's columns have units: a window of thousands of packets or an
RTT variance would decide every angle alone. So each column is first brought to mean 0 and deviation 1 over the pool,
after symlog, as the learner's inputs are (policy.scaling); LIMIT bounds what is left of rare spikes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sagecc.common.arrays import Floats, Ints
from sagecc.common.errors import SageccError
from sagecc.common.parquet import parquet_schema
from sagecc.learner.compiled import CompiledPool, compile_pool, pool_files
from sagecc.learner.rows import RowFile
from sagecc.policy.scaling import InputTransform, Scaling, symlog
from sagecc.pool.effective import COLUMNS as EFFECTIVE_COLUMNS
from sagecc.pool.effective import effective_windows
from sagecc.pool.features import RAW_NEEDED, Windows, derive
from sagecc.schemas.pool import ACTION_LOG2_LIMIT, FEATURE_NAMES

STATE = len(FEATURE_NAMES)
SIZE = 2 * STATE + 1
"""Length of a vector: a state, log2 of an action, the state after it."""

LIMIT = 10.0
"""Scaled columns are clipped to plus or minus this many deviations."""

BLOCK_ROWS = 65_536
ACTIONS = 100_000
"""About how many of the pool's rows the actions' mean and deviation are measured on."""


@dataclass(frozen=True)
class Space:
    """The scale on which transitions become vectors."""

    scaling: Scaling
    """Of a row's first 70 columns: the features, and log2 of the action."""

    @property
    def identity(self) -> str:
        """What decides the vectors of given rows."""
        s = self.scaling
        return hashlib.sha256(f"{s.transform} {s.limit}".encode() + s.shift.tobytes() + s.scale.tobytes()).hexdigest()

    def pair_vectors(self, rows: Floats, following: Floats) -> Floats:
        """Return unit vectors [n, 139] of rows [n, 70 or more] and the rows one tick later [n, 69 or more]."""
        u = np.empty((len(rows), SIZE), np.float32)
        u[:, : STATE + 1] = self.scaling(rows[:, : STATE + 1])
        u[:, STATE + 1 :] = self.scaling.select(list(range(STATE)))(following[:, :STATE])
        return unit(u)

    def sequence_vectors(self, rows: Floats) -> Floats:
        """Return unit vectors [n - 1, 139] of consecutive rows [n, 70 or more]."""
        values = self.scaling(np.ascontiguousarray(rows[:, : STATE + 1]))
        return unit(np.concatenate([values[:-1], values[1:, :STATE]], axis=1))


def unit(vectors: Floats) -> Floats:
    """Divide vectors [n, d] by their lengths, in place; one of length 0 stays."""
    lengths = np.sqrt(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64)).astype(np.float32)
    vectors /= np.where(lengths > 0, lengths, 1)[:, None]
    return vectors


@dataclass(frozen=True)
class PoolTransitions:
    """The pool's transitions, each identified by the number of its row in the compiled pool."""

    pool: CompiledPool
    space: Space
    windows: Windows
    """The pool's observation windows."""

    @classmethod
    def load(cls, pool: Path, cache: Path, transform: InputTransform = "symlog") -> PoolTransitions:
        """Compile the pool unless that is done, and measure its scale.

        Args:
            pool: folder of the pool.
            cache: folder of compiled pools.
            transform: what is done to a column before mean and deviation.

        Raises:
            SageccError: the pool cannot be read (learner.compiled).
        """
        rows = compile_pool(pool, cache)
        meta = parquet_schema(pool_files(pool)[0].path).metadata or {}
        windows = meta.get(b"sagecc.windows")
        return cls(rows, Space(_scaling(rows, transform)), Windows.parse(windows.decode()) if windows else Windows())

    @cached_property
    def _last(self) -> npt.NDArray[np.bool_]:
        """Which rows are their episode's last, so that no state follows [rows]."""
        last = np.zeros(int((self.pool.starts + self.pool.lengths).max()), np.bool_)
        last[self.pool.starts + self.pool.lengths - 1] = True
        return last

    @property
    def count(self) -> int:
        """Transitions of the whole pool."""
        return self.pool.rows - len(self.pool.starts)

    def sample(self, count: int, seed: int) -> Ints:
        """Draw transitions without replacement.

        Args:
            count: how many; all, where the pool has fewer.
            seed: of the draw.

        Returns:
            Their rows [n], ascending.
        """
        order = np.argsort(self.pool.starts)
        starts, counts = self.pool.starts[order], self.pool.lengths[order] - 1
        ends = np.cumsum(counts)
        random = np.random.default_rng(seed)
        numbers = (
            np.sort(random.choice(self.count, count, replace=False, shuffle=False))
            if count < self.count
            else np.arange(self.count)
        )
        episode = np.searchsorted(ends, numbers, side="right")
        return np.asarray(starts[episode] + numbers - (ends - counts)[episode], np.int64)

    def blocks(self, first: int = 0, stop: int | None = None) -> Iterator[tuple[Ints, Floats]]:
        """Yield the transitions of the rows from `first` to before `stop`, in blocks: rows [n], vectors [n, 139]."""
        rows = len(self._last)
        end = rows if stop is None else min(stop, rows)
        with closing(RowFile(self.pool.folder)) as file:
            for begin in range(first, end, BLOCK_ROWS):
                count = min(begin + BLOCK_ROWS + 1, end + 1, rows) - begin
                if count < 2:
                    return
                (block,) = file.read(np.array([begin]), count)
                keep = ~self._last[begin : begin + count - 1]
                yield begin + np.flatnonzero(keep), self.space.sequence_vectors(block)[keep]

    def vectors(self, rows: Ints) -> Floats:
        """Return the vectors [n, 139] of these rows [n], in any order and with repetitions."""
        vectors = np.empty((len(rows), SIZE), np.float32)
        with closing(RowFile(self.pool.folder)) as file:
            for begin in range(0, len(rows), BLOCK_ROWS):
                part = rows[begin : begin + BLOCK_ROWS]
                file.announce(part, 2)
                pairs = file.read(part, 2)
                vectors[begin : begin + len(part)] = self.space.pair_vectors(pairs[:, 0], pairs[:, 1])
        return vectors

    def origins(self, rows: Ints) -> tuple[npt.NDArray[np.str_], npt.NDArray[np.str_], Ints]:
        """Return each row's episode id, scheme and step in the episode [n]; "" and -1 of rows below 0."""
        order = np.argsort(self.pool.starts)
        episode = order[np.maximum(np.searchsorted(self.pool.starts[order], rows, side="right") - 1, 0)]
        is_row, trajectories = rows >= 0, self.pool.trajectories
        return (
            np.where(is_row, trajectories.ids[episode], ""),
            np.where(is_row, trajectories.schemes[episode], ""),
            np.where(is_row, rows - self.pool.starts[episode], -1),
        )

    def episode_rows(self, episode: str) -> tuple[int, int] | None:
        """Return the first row of an episode and the row after its last; None if the pool does not hold it."""
        (indices,) = np.nonzero(self.pool.trajectories.ids == episode)
        if not len(indices):
            return None
        start = int(self.pool.starts[indices[0]])
        return start, start + int(self.pool.lengths[indices[0]])


def pool_rows(raw: pa.Table, windows: Windows, paced: bool = False) -> Floats:
    """Return an episode's rows as the compiled pool has them, less the reward.

    Args:
        raw: n rows of schemas.raw.RAW_SCHEMA.
        windows: the pool's observation windows.
        paced: whether the pool has effective windows of the episode's scheme.

    Returns:
        Features and log2 of the action [n - 1, 70].

    Raises:
        SageccError: there are fewer than three raw rows, and so no transition.
    """
    if raw.num_rows < 3:
        raise SageccError(f"a trajectory of {raw.num_rows} rows has no transition, it needs three")
    first = np.zeros(raw.num_rows, np.bool_)
    first[0] = True
    columns = {name: raw[name].to_numpy() for name in ("t_s", *RAW_NEEDED)}
    if paced:
        columns["cwnd_pkts"] = effective_windows({name: raw[name].to_numpy() for name in EFFECTIVE_COLUMNS})
    features, _ = derive(columns, first, windows)
    cwnd = columns["cwnd_pkts"].astype(np.float64)
    ratio = (cwnd[1:] / cwnd[:-1]).astype(np.float32)
    action = np.clip(np.log2(ratio), -ACTION_LOG2_LIMIT, ACTION_LOG2_LIMIT)
    return np.concatenate([features[:, :-1].T, action[:, None]], axis=1)


def _scaling(pool: CompiledPool, transform: InputTransform) -> Scaling:
    """Return the pool's scaling of features and action; the action's is measured on rows spread evenly over it."""
    limit = 0.0 if transform == "none" else LIMIT
    features = pool.moments.scaling(transform, limit)
    spread = np.arange(0, pool.rows, max(1, pool.rows // ACTIONS))
    actions = pool.columns()[0][spread]
    if transform == "symlog":
        actions = symlog(actions)
    shift, scale = float(actions.mean(dtype=np.float64)), float(actions.std(dtype=np.float64))
    if transform == "none" or scale <= 1e-6:
        shift, scale = 0.0, 1.0
    return Scaling(
        transform, np.append(features.shift, np.float32(shift)), np.append(features.scale, np.float32(scale)), limit
    )
