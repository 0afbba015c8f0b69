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
import pyarrow.parquet as pq

from sagecc.common.arrays import Floats
from sagecc.common.errors import SageccError
from sagecc.common.parts import Runs, whole_runs
from sagecc.common.tables import UNREADABLE, chosen, column_fault, first_line
from sagecc.schemas.partitions import EPISODES_FILE, partition
from sagecc.schemas.pool import (
    ALIGNMENT_KEY,
    FEATURE_NAMES,
    INPUT_KEY,
    POOL_EPISODE_SCHEMA,
    POOL_SCHEMA,
    VERSION_KEY,
    WINDOWS_KEY,
    check_version,
)

ACTIONS = {
    "log2": "log2(cwnd_(t+1) / cwnd_t), as the lab's Gymnasium environment takes it",
    "ratio": "cwnd_(t+1) / cwnd_t, as in the pool",
}
"""What an action can be exported as."""

_READ = ("episode_id", "step", "t_s", *FEATURE_NAMES, "action", "reward")


@dataclass(frozen=True)
class Choice:
    """Which episodes. sets, schemes: empty for all. limit: the first so many of each set and scheme, None for all."""

    sets: tuple[str, ...] = ()
    schemes: tuple[str, ...] = ()
    limit: int | None = None


@dataclass(frozen=True)
class Episode:
    """An episode's n rows, in order, and what episodes.parquet says of it.

    observations: float32 [n, 69]. actions, rewards: float32 [n], each what followed its observation. t_s: float64 [n].
    """

    about: Mapping[str, Any]
    observations: Floats
    actions: Floats
    rewards: Floats
    t_s: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.rewards)


@dataclass(frozen=True)
class Source:
    """The chosen episodes of a pool.

    action: one of ACTIONS. about: pool_version, windows, reward_alignment and input_sha256 as the pool has them.
    listing: the rows of episodes.parquet, in the order in which the episodes come.
    """

    pool: Path
    action: str
    about: Mapping[str, str]
    listing: Sequence[Mapping[str, Any]]

    @cached_property
    def rows(self) -> int:
        """Rows of all episodes."""
        return sum(row["rows"] for row in self.listing)

    @property
    def partitions(self) -> list[tuple[str, str]]:
        """Sets and schemes, in the order in which their episodes come."""
        return list(dict.fromkeys((row["set"], row["scheme"]) for row in self.listing))

    def episodes(self, advance: Callable[[int], object] = lambda rows: None) -> Iterator[Episode]:
        """Yield the episodes, whole. advance: is told the rows of each that has been dealt with.

        Raises SageccError, naming the file, where the pool is not what it says it is.
        """
        for key in self.partitions:
            wanted = [row for row in self.listing if (row["set"], row["scheme"]) == key]
            for episode in self._partition(self.pool / partition(*key), wanted):
                yield episode
                advance(len(episode))

    def _partition(self, folder: Path, wanted: Sequence[Mapping[str, Any]]) -> Iterator[Episode]:
        expected = iter(wanted)
        about = next(expected, None)
        for table in whole_runs(self._groups(folder), "episode_id"):
            for name, rows in Runs(table["episode_id"]).slices(table):
                if about is None:
                    return
                if name < about["episode_id"]:  # not asked for
                    continue
                if name != about["episode_id"] or len(rows) != about["rows"]:
                    raise _rows_missing(folder, about)
                yield self._episode(folder, about, rows)
                about = next(expected, None)
        if about is not None:
            raise _rows_missing(folder, about)

    def _groups(self, folder: Path) -> Iterator[pa.Table]:
        """Yield the row groups of a partition's files."""
        for path in sorted(folder.glob("part-*.parquet")):
            try:
                file = pq.ParquetFile(path, page_checksum_verification=True)
                check_version(path, (file.schema_arrow.metadata or {}).get(VERSION_KEY, b"").decode())
                _refuse_columns(path, file.schema_arrow, chosen(POOL_SCHEMA, _READ))
                for group in range(file.num_row_groups):
                    yield file.read_row_group(group, columns=list(_READ)).replace_schema_metadata(None)
            except UNREADABLE as error:
                raise SageccError(
                    f"{path} cannot be read ({first_line(error)}); look with 'sagecc pool check'"
                ) from error

    def _episode(self, folder: Path, about: Mapping[str, Any], table: pa.Table) -> Episode:
        if not np.array_equal(table["step"].to_numpy(), np.arange(len(table))):
            raise SageccError(f"{folder}: episode {about['episode_id']} has gaps; look with 'sagecc pool check'")
        observations = np.empty((len(table), len(FEATURE_NAMES)), np.float32)
        for index, name in enumerate(FEATURE_NAMES):
            observations[:, index] = table[name].to_numpy()
        actions = table["action"].to_numpy()
        if self.action == "log2":
            actions = log2(actions)
        return Episode(about, observations, actions, table["reward"].to_numpy(), table["t_s"].to_numpy())


def log2(ratios: Floats) -> Floats:
    """Return log2 of the pool's actions, rounded once."""
    return np.log2(ratios, dtype=np.float64).astype(np.float32)


def open_pool(pool: Path, choice: Choice, action: str = "log2") -> Source:
    """Return the chosen episodes of the pool at `pool`, which is read no further than its lists.

    Raises SageccError where there is no pool of this major version, or it has no such set, scheme or episode.
    """
    listing = pool / EPISODES_FILE
    try:
        table = pq.read_table(listing, page_checksum_verification=True)
        version = (table.schema.metadata or {}).get(VERSION_KEY, b"").decode()
    except FileNotFoundError:
        raise SageccError(f"no pool at {pool}: make it with 'sagecc pool'") from None
    except UNREADABLE as error:
        raise SageccError(f"{listing} cannot be read ({first_line(error)}); look with 'sagecc pool check'") from error
    check_version(listing, version)
    _refuse_columns(listing, table.schema, POOL_EPISODE_SCHEMA)
    meta, rows = table.schema.metadata or {}, table.to_pylist()
    _refuse_unknown("set", choice.sets, rows)
    _refuse_unknown("scheme", choice.schemes, rows)
    chosen = _choose(rows, choice)
    if not chosen:
        raise SageccError(f"{pool} has no episode of the chosen schemes in the chosen sets")
    keys = (VERSION_KEY, WINDOWS_KEY, ALIGNMENT_KEY, INPUT_KEY)
    about = {key.decode().removeprefix("sagecc."): meta.get(key, b"").decode(errors="replace") for key in keys}
    return Source(pool, action, about, chosen)


def _rows_missing(folder: Path, about: Mapping[str, Any]) -> SageccError:
    return SageccError(
        f"{folder}: the {about['rows']} rows of episode {about['episode_id']} are not there as {EPISODES_FILE} says;"
        " look with 'sagecc pool check'"
    )


def _refuse_columns(path: Path, found: pa.Schema, wanted: pa.Schema) -> None:
    if fault := column_fault(found, wanted):
        raise SageccError(f"{path} {fault}; look with 'sagecc pool check'")


def _refuse_unknown(what: str, names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    there = sorted({row[what] for row in rows})
    for name in names:
        if name not in there:
            raise SageccError(f"the pool has no {what} '{name}': it has {', '.join(there)}")


def _choose(rows: Sequence[Mapping[str, Any]], choice: Choice) -> list[Mapping[str, Any]]:
    folders: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["set"] not in (choice.sets or row["set"]) or row["scheme"] not in (choice.schemes or row["scheme"]):
            continue
        folders.setdefault(partition(row["set"], row["scheme"]), []).append(row)
    ordered = (sorted(folders[name], key=lambda row: row["episode_id"])[: choice.limit] for name in sorted(folders))
    return [row for found in ordered for row in found]
