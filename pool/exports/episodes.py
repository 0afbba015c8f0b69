# SPDX-License-Identifier: Apache-2.0
"""The pool one episode at a time, in memory that does not grow with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sagecc.common.arrays import Floats
from sagecc.common.errors import SageccError
from sagecc.common.parquet import open_parquet, read_parquet
from sagecc.common.parts import Runs, whole_runs
from sagecc.common.tables import UNREADABLE, column_fault, reading_error, select_columns
from sagecc.schemas.partitions import EPISODES_FILE, partition
from sagecc.schemas.pool import (
    ALIGNMENT_KEY,
    EFFECTIVE_KEY,
    FEATURE_NAMES,
    INPUT_KEY,
    IS_KICKED,
    POOL_EPISODE_SCHEMA,
    POOL_SCHEMA,
    VERSION_KEY,
    WINDOWS_KEY,
    check_version,
)
from sagecc.schemas.schemes import is_disturbed

ACTIONS = {
    "log2": "log2(cwnd_(t+1) / cwnd_t), as the lab's Gymnasium environment takes it",
    "ratio": "cwnd_(t+1) / cwnd_t, as in the pool",
}
"""Forms in which an action can be exported, and what each is."""

_READ = ("episode_id", "step", "t_s", *FEATURE_NAMES, "action", "reward")


@dataclass(frozen=True)
class Choice:
    """Which episodes of a pool to export."""

    sets: tuple[str, ...] = ()
    """Only these sets; empty for all."""
    schemes: tuple[str, ...] = ()
    """Only these schemes; empty for all."""
    limit: int | None = None
    """At most this many episodes per set and scheme, the first by id; None for all."""


@dataclass(frozen=True)
class PoolEpisode:
    """An episode's n rows, in order, and its row of episodes.parquet."""

    about: Mapping[str, Any]
    """The episode's row of episodes.parquet."""
    observations: Floats
    """Features, float32 [n, 69]."""
    actions: Floats
    """The action that followed each observation, float32 [n]."""
    rewards: Floats
    """The reward that followed each observation, float32 [n]."""
    t_s: npt.NDArray[np.float64]
    """Time of each observation since the episode's start, float64 [n]."""
    is_kicked: npt.NDArray[np.bool_]
    """Where the lab multiplied the window, so that the action is no scheme's, bool [n]."""

    @property
    def perturbed(self) -> bool:
        """Whether something disturbed the scheme (schemas.disturbance)."""
        return is_disturbed(self.about["scheme"])

    def __len__(self) -> int:
        return len(self.rewards)


@dataclass(frozen=True)
class PoolSource:
    """The chosen episodes of a pool."""

    pool: Path
    """The pool's folder."""
    action: str
    """Form of the actions: one of ACTIONS."""
    about: Mapping[str, str]
    """The pool's pool_version, windows, reward_alignment and input_sha256, and effective_windows where it has some."""
    listing: Sequence[Mapping[str, Any]]
    """Rows of episodes.parquet, in the order in which the episodes come."""

    @cached_property
    def rows(self) -> int:
        """Rows of all episodes."""
        return sum(row["rows"] for row in self.listing)

    @property
    def partitions(self) -> list[tuple[str, str]]:
        """Sets and schemes, in the order in which their episodes come."""
        return list(dict.fromkeys((row["set"], row["scheme"]) for row in self.listing))

    def episodes(self, advance: Callable[[int], object] = lambda rows: None) -> Iterator[PoolEpisode]:
        """Yield the episodes, whole.

        Args:
            advance: called with an episode's number of rows once the next one is asked for.

        Raises:
            SageccError: A file of the pool is missing, damaged or does not agree with episodes.parquet.
        """
        for key in self.partitions:
            entries = [row for row in self.listing if (row["set"], row["scheme"]) == key]
            for episode in self._partition(self.pool / partition(*key), entries):
                yield episode
                advance(len(episode))

    def _partition(self, folder: Path, listed: Sequence[Mapping[str, Any]]) -> Iterator[PoolEpisode]:
        listing = iter(listed)
        about = next(listing, None)
        for table in whole_runs(self._groups(folder), "episode_id"):
            for name, rows in Runs(table["episode_id"]).slices(table):
                if about is None:
                    return
                if name < about["episode_id"]:  # not asked for
                    continue
                if name != about["episode_id"] or len(rows) != about["rows"]:
                    raise _rows_missing(folder, about)
                yield self._episode(folder, about, rows)
                about = next(listing, None)
        if about is not None:
            raise _rows_missing(folder, about)

    def _groups(self, folder: Path) -> Iterator[pa.Table]:
        """Yield the row groups of a partition's files."""
        for path in sorted(folder.glob("part-*.parquet")):
            try:
                file = open_parquet(path)
                check_version(path, (file.schema_arrow.metadata or {}).get(VERSION_KEY, b"").decode())
                _refuse_columns(path, file.schema_arrow, select_columns(POOL_SCHEMA, _READ))
                columns = [name for name in (*_READ, IS_KICKED.name) if name in file.schema_arrow.names]
                for group in range(file.num_row_groups):
                    yield file.read_row_group(group, columns=columns).replace_schema_metadata(None)
            except UNREADABLE as error:
                raise reading_error(path, error, "look with 'sagecc pool check'") from error

    def _episode(self, folder: Path, about: Mapping[str, Any], table: pa.Table) -> PoolEpisode:
        if not np.array_equal(table["step"].to_numpy(), np.arange(len(table))):
            raise SageccError(f"{folder}: episode {about['episode_id']} has gaps; look with 'sagecc pool check'")
        observations = np.empty((len(table), len(FEATURE_NAMES)), np.float32)
        for index, name in enumerate(FEATURE_NAMES):
            observations[:, index] = table[name].to_numpy()
        actions = table["action"].to_numpy()
        if self.action == "log2":
            actions = log2(actions)
        is_kicked = np.zeros(len(table), np.bool_)
        if IS_KICKED.name in table.column_names:
            is_kicked = table[IS_KICKED.name].to_numpy()
        return PoolEpisode(about, observations, actions, table["reward"].to_numpy(), table["t_s"].to_numpy(), is_kicked)


def log2(ratios: Floats) -> Floats:
    """Return log2 of the pool's actions, rounded once."""
    return np.log2(ratios, dtype=np.float64).astype(np.float32)


def open_pool(pool: Path, choice: Choice, action: str = "log2") -> PoolSource:
    """Choose episodes of a pool; of its files only the list of episodes is read.

    Args:
        pool: the pool's folder.
        choice: which episodes.
        action: form of the actions: one of ACTIONS.

    Raises:
        SageccError: There is no pool of this major version, or it has no such set, scheme or episode, or there is no
            such form.
    """
    if action not in ACTIONS:
        raise SageccError(f"an action is exported as {' or '.join(ACTIONS)}, not as '{action}'")
    listing = pool / EPISODES_FILE
    try:
        table = read_parquet(listing)
        version = (table.schema.metadata or {}).get(VERSION_KEY, b"").decode()
    except FileNotFoundError:
        raise SageccError(f"no pool at {pool}: make it with 'sagecc pool'") from None
    except UNREADABLE as error:
        raise reading_error(listing, error, "look with 'sagecc pool check'") from error
    check_version(listing, version)
    _refuse_columns(listing, table.schema, POOL_EPISODE_SCHEMA)
    meta, rows = table.schema.metadata or {}, table.to_pylist()
    _refuse_unknown("set", choice.sets, rows)
    _refuse_unknown("scheme", choice.schemes, rows)
    choice_rows = _choose(rows, choice)
    if not choice_rows:
        raise SageccError(f"{pool} has no episode of the chosen schemes in the chosen sets")
    keys = (VERSION_KEY, WINDOWS_KEY, ALIGNMENT_KEY, INPUT_KEY)
    about = {key.decode().removeprefix("sagecc."): meta.get(key, b"").decode(errors="replace") for key in keys}
    if EFFECTIVE_KEY in meta:
        about["effective_windows"] = meta[EFFECTIVE_KEY].decode(errors="replace")
    return PoolSource(pool, action, about, choice_rows)


def _rows_missing(folder: Path, about: Mapping[str, Any]) -> SageccError:
    return SageccError(
        f"{folder}: the {about['rows']} rows of episode {about['episode_id']} are not there as {EPISODES_FILE} says;"
        " look with 'sagecc pool check'"
    )


def _refuse_columns(path: Path, schema: pa.Schema, expected: pa.Schema) -> None:
    if fault := column_fault(schema, expected):
        raise SageccError(f"{path} {fault}; look with 'sagecc pool check'")


def _refuse_unknown(what: str, names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    choices = sorted({row[what] for row in rows})
    for name in names:
        if name not in choices:
            raise SageccError(f"the pool has no {what} '{name}': it has {', '.join(choices)}")


def _choose(rows: Sequence[Mapping[str, Any]], choice: Choice) -> list[Mapping[str, Any]]:
    folders: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["set"] not in (choice.sets or row["set"]) or row["scheme"] not in (choice.schemes or row["scheme"]):
            continue
        folders.setdefault(partition(row["set"], row["scheme"]), []).append(row)
    groups = (sorted(folders[name], key=lambda row: row["episode_id"])[: choice.limit] for name in sorted(folders))
    return [row for rows in groups for row in rows]
