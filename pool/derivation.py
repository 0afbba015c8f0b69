# SPDX-License-Identifier: Apache-2.0
"""The pool from raw trajectories: features, action and reward per tick, one partition per set and scheme.

A partition is derived in batches of whole episodes, so memory does not grow with the pool, and appears under its name
only when it is complete. Each of its files says what it was derived from, and a note by which version of this: a
partition whose raw files, options and version are unchanged is left as it is. The manifest, with every file's hash,
comes last.
"""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Event
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from sagecc.collector.run.store import KERNEL, PLAYER, read_episodes, read_failed, reading
from sagecc.common import versions
from sagecc.common.errors import SageccError
from sagecc.common.files import remove_stale_temporaries, sha256_file, write_atomically
from sagecc.common.locks import sole_writer
from sagecc.common.manifest import MANIFEST, NOTES, FileEntry, Manifest
from sagecc.common.marks import Mark, carries, remove_leftover
from sagecc.common.parquet import open_parquet, parquet_rows, parquet_schema
from sagecc.common.parts import PartWriter, Runs, whole_runs
from sagecc.common.tables import UNREADABLE, select_columns
from sagecc.pool.effective import COLUMNS as EFFECTIVE_COLUMNS
from sagecc.pool.effective import PACED, effective_windows
from sagecc.pool.features import FEATURES, RAW_NEEDED, Windows, derive
from sagecc.pool.notes import is_noted, write_note
from sagecc.pool.readme import write_readme
from sagecc.pool.reward import Measured, of_networks
from sagecc.schemas.environment import Environment
from sagecc.schemas.partitions import EPISODES_FILE, FAILED_FILE, LISTINGS, PARTITIONS, partition
from sagecc.schemas.pool import (
    ALIGNMENT_KEY,
    COLUMNS_FILE,
    EFFECTIVE_KEY,
    FEATURE_NAMES,
    INPUT_KEY,
    IS_KICKED,
    KERNEL_KEY,
    PLAYER_KEY,
    POOL_SCHEMA,
    POOL_VERSION,
    REWARD_ALIGNMENTS,
    VERSION_KEY,
    WINDOWS_KEY,
    dictionary,
    episode_schema,
    pool_schema,
)
from sagecc.schemas.raw import KICK, raw_schema
from sagecc.schemas.schemes import undisturbed

ROW_GROUP_ROWS = 122_880
FILE_BYTES = 100_000_000
_RAW_COLUMNS = ("episode_id", "step", "t_s", *RAW_NEEDED)
_PARQUET_OPTIONS: Mapping[str, Any] = MappingProxyType(
    {
        "write_page_checksum": True,
        "use_dictionary": ["episode_id"],
        "column_encoding": {
            "step": "DELTA_BINARY_PACKED",
            **{f.name: "BYTE_STREAM_SPLIT" for f in POOL_SCHEMA if pa.types.is_floating(f.type)},
        },
    }
)

_KEPT_OF_RAW = (
    "episode_id",
    "environment_id",
    "set",
    "scheme",
    "seed",
    "environment",
    "goodput_mbps",
    "delay_mean_ms",
    "delay_p95_ms",
    "sent_packets",
    "lost_packets",
    "cwnd_mean",
)

_OF_DELAY = ("delay_mean_ms", "delay_p95_ms")
"""Columns of raw episodes that are 0 where no packet got through, and only there: sending one takes time."""


def _known_files(out: Path) -> Mapping[str, FileEntry]:
    """Return the files of an earlier manifest; none if it is missing or damaged."""
    try:
        return Manifest.read(out).files
    except SageccError:
        return {}


def _is_pool(out: Path) -> bool:
    return bool(_known_files(out)) or (out / NOTES).is_dir() or carries(out, VERSION_KEY)


def _is_partition(folder: Path) -> bool:
    out = folder.parents[1]
    name = folder.relative_to(out)
    if (out / NOTES / name).exists() or carries(folder, VERSION_KEY):
        return True
    return any(Path(file).parent == name for file in _known_files(out))


POOL_MARK = Mark("a pool's", "|".join(map(re.escape, (MANIFEST, EPISODES_FILE, COLUMNS_FILE, NOTES))), _is_pool)
_PARTITION_MARK = Mark("a partition of 'sagecc pool'", r"part-\d+\.parquet", _is_partition)


@dataclass(frozen=True)
class PoolOptions:
    """What may differ between pools of the same raw trajectories."""

    windows: Windows = field(default_factory=Windows)
    """Lengths of the observation windows."""
    alignment: str = REWARD_ALIGNMENTS[0]
    """Which reward goes with an action: one of schemas.pool.REWARD_ALIGNMENTS."""
    effective_windows: bool = False
    """Whether the windows of schemes that pace are effective ones (pool.effective)."""

    def __post_init__(self) -> None:
        if self.alignment not in REWARD_ALIGNMENTS:
            raise SageccError(f"reward alignment '{self.alignment}': use {' or '.join(REWARD_ALIGNMENTS)}")

    @classmethod
    def of(cls, about: Mapping[str, str]) -> PoolOptions:
        """Return the options of a pool whose manifest says this about it."""
        return cls(Windows.parse(about["windows"]), about["reward_alignment"], bool(about.get("effective_windows")))

    def metadata(self) -> dict[bytes, bytes]:
        """Return the options as a pool file's metadata."""
        return {
            VERSION_KEY: POOL_VERSION.encode(),
            WINDOWS_KEY: str(self.windows).encode(),
            ALIGNMENT_KEY: self.alignment.encode(),
            **({EFFECTIVE_KEY: self.effective.encode()} if self.effective else {}),
        }

    @property
    def effective(self) -> str:
        """The schemes whose windows are effective ones, as the metadata has them; empty for none."""
        return ",".join(PACED) if self.effective_windows else ""


@dataclass(frozen=True)
class PoolResult:
    """What a call of `build_pool` did."""

    derived: int
    """Partitions derived."""
    unchanged: int
    """Partitions left as they were."""
    removed: int
    """Partitions removed because the raw trajectories no longer have them."""
    episodes: int
    """Episodes of the pool."""
    rows: int
    """Rows (transitions) of the pool."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """By id, why episodes failed in their collection, so that the pool has not got them."""


def build_pool(
    raw: Path, out: Path, options: PoolOptions | None = None, jobs: int = 1, progress: bool = True
) -> PoolResult:
    """Derive a pool from raw partitions; the same input and options give the same bytes.

    Partitions that `raw` no longer has are removed.

    Args:
        raw: folder of the raw trajectories.
        out: folder of the pool; made if it does not exist.
        options: what may differ between pools; by default PoolOptions().
        jobs: partitions derived at a time.
        progress: whether to show a progress bar on stderr.

    Raises:
        SageccError: Raw data is missing, damaged, unsorted or of another version; partitions already finished stay. Or
            another process writes the pool.
    """
    failures = read_failed(raw)
    folders = sorted(path.relative_to(raw) for path in raw.glob(PARTITIONS) if path.is_dir() and not _all_failed(path))
    if not folders:
        raise SageccError(
            f"no raw trajectories in {raw}: all {len(failures)} episodes failed, such as {next(iter(failures))}"
            if failures
            else f"no raw trajectories in {raw}: run 'sagecc collect' first"
        )
    settings, derivation = options or PoolOptions(), str(versions.POOL)
    makers = [partial(_RawPartition, raw / folder, out, settings, derivation) for folder in folders]
    return replace(write_pool(makers, out, settings, derivation, jobs, progress), failed=failures)


def write_pool(
    makers: Sequence[Callable[[], PoolPartition]],
    out: Path,
    settings: PoolOptions,
    derivation: str,
    jobs: int = 1,
    progress: bool = True,
) -> PoolResult:
    """Write those partitions of a pool that are not done, remove all others, and write its lists and its manifest.

    Args:
        makers: make the partitions, each of another set or scheme.
        out: the pool's folder; made if it does not exist.
        settings: what may differ between pools.
        derivation: version of what derives (common.versions).
        jobs: partitions written at a time.
        progress: whether to show a progress bar on stderr.

    Raises:
        SageccError: A partition cannot be written; those already finished stay. Or another process writes the pool, or
            the folder holds something else.
    """
    if any(out.glob(LISTINGS)):
        raise SageccError(f"{out} holds raw trajectories, which a pool would overwrite: choose another folder")
    POOL_MARK.check(out)
    with sole_writer(out):
        for folder in out.glob(PARTITIONS):
            _PARTITION_MARK.check_whole(folder)
        return _write_pool(makers, out, settings, derivation, jobs, progress)


def _write_pool(
    makers: Sequence[Callable[[], PoolPartition]],
    out: Path,
    settings: PoolOptions,
    derivation: str,
    jobs: int,
    progress: bool,
) -> PoolResult:
    _clear_leftovers(out)
    stop = Event()
    digests = _known_files(out)
    with ThreadPoolExecutor(jobs) as pool:
        try:
            partitions = list(pool.map(lambda make: make(), makers))
            are_done = list(pool.map(lambda partition: partition.is_done(digests), partitions))
            rest = [partition for partition, is_done in zip(partitions, are_done, strict=True) if not is_done]
            rest.sort(key=lambda partition: -partition.rows)  # the longest first: the cores end together
            with tqdm(
                total=sum(partition.rows for partition in rest),
                desc="pool",
                unit=" rows",
                unit_scale=True,
                disable=None if progress and rest else True,
            ) as bar:
                for task in as_completed([pool.submit(partition.derive, bar.update, stop) for partition in rest]):
                    task.result()
            removals = _remove_vanished(out, {partition.folder for partition in partitions})
            files = _write_episodes(out, partitions, settings, derivation, pool, digests)
            _write_manifest(out, partitions, settings, files)
            write_readme(out)
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    episodes = sum(len(partition.episodes) for partition in partitions)
    rows = sum(partition.rows for partition in partitions) - episodes
    return PoolResult(len(rest), len(partitions) - len(rest), removals, episodes, rows)


class PoolPartition(ABC):
    """One set and scheme of a pool.

    Args:
        out: the pool's folder.
        options: what may differ between pools.
        derivation: version of what derives (common.versions).
        episodes: its episodes in order, as `episodes.parquet` of raw trajectories lists them; None for what nobody
            counted, where schemas.pool.MAY_BE_ABSENT allows it.
        environments: their networks by id.
        listing: path of what lists them, for errors.
    """

    def __init__(
        self,
        out: Path,
        options: PoolOptions,
        derivation: str,
        episodes: Sequence[dict[str, Any]],
        environments: Mapping[str, Environment],
        listing: Path,
    ) -> None:
        self._pool, self._options, self._derivation = out, options, derivation
        self._environments = environments
        self.files: dict[str, FileEntry] = {}
        """The manifest's entries of the files by path in the pool; known once the partition is done or derived."""
        self.episodes = episodes
        """Its episodes, each with its number of `rows`, of which the pool has one fewer."""
        self.folder = out / _folder_of(listing, episodes)
        """The partition's folder in the pool."""
        self.disturbed = bool(undisturbed(episodes[0]["scheme"])[1])
        """Whether something disturbs the scheme (schemas.disturbance)."""
        self.rows = sum(row["rows"] for row in episodes)
        """Raw rows."""
        self.identity = ""
        """SHA-256 over what it is derived from, and the options."""
        self._note = out / NOTES / self.folder.relative_to(out)
        self._fresh = self.folder.with_name(f".tmp-{self.folder.name}")

    @abstractmethod
    def _write(self, advance: Callable[[int], object], stop: Event) -> None:
        """Write its files into `_fresh`; see `derive`."""

    def _identity(self, sources: object) -> str:
        """Return the identity of what is derived from these sources."""
        text = repr((sources, sorted(self._options.metadata().items())))
        return hashlib.sha256(text.encode()).hexdigest()

    def _writer(self, metadata: Mapping[bytes, bytes]) -> PartWriter:
        """Return the writer of its files, whose metadata has this too."""
        own = self._options.metadata() | {INPUT_KEY: self.identity.encode()}
        schema = self._pool_schema.with_metadata({**own, **metadata})
        return PartWriter(self._fresh, schema, ROW_GROUP_ROWS, _PARQUET_OPTIONS, file_bytes=FILE_BYTES)

    @property
    def _pool_schema(self) -> pa.Schema:
        return pool_schema(self._options.windows.ticks, self._options.effective, self.disturbed)

    def is_done(self, known: Mapping[str, FileEntry]) -> bool:
        """Tell whether the partition's files came from these very raw files, options and version, and all exist.

        Args:
            known: files of an earlier manifest. Its hashes are believed even if the bytes have changed since:
                `check_pool` finds that.
        """
        parts = sorted(self.folder.glob("part-*.parquet"))
        try:
            if not parts or any(metadata_of(path).get(INPUT_KEY) != self.identity.encode() for path in parts):
                return False
        except UNREADABLE:
            return False
        if not is_noted(self._note, parts, self._derivation):
            return False
        prefix = f"{self.folder.relative_to(self._pool).as_posix()}/"
        entries = {name: e for name, e in known.items() if name.startswith(prefix) and e.input_sha256 == self.identity}
        if not entries:  # killed before there was a manifest
            self._remember(parts)
            return True
        self.files = entries
        return {name: entry.bytes for name, entry in entries.items()} == {
            path.relative_to(self._pool).as_posix(): path.stat().st_size for path in parts
        }

    def _remember(self, parts: Sequence[Path]) -> None:
        self.files = {
            path.relative_to(self._pool).as_posix(): FileEntry.from_file(path, parquet_rows(path), self.identity)
            for path in parts
        }

    def environment(self, episode: Mapping[str, Any]) -> Environment:
        """Return the network of one row of `episodes`."""
        return self._environments[episode["environment_id"]]

    def derive(self, advance: Callable[[int], object], stop: Event) -> None:
        """Write the partition; it takes its name once all its files are complete.

        Args:
            advance: called with the number of raw rows after each batch of episodes.
            stop: when set, the partition is given up between two batches.

        Raises:
            SageccError: Raw data is missing, damaged, unsorted or of another version.
        """
        remove_leftover(self._fresh)
        self._fresh.mkdir(parents=True)
        try:
            self._write(advance, stop)
            if stop.is_set():
                return
            # before they take their name: a partition that is there has its note, or is derived again
            write_note(self._note, self._fresh.glob("part-*.parquet"), self._derivation)
            _PARTITION_MARK.remove(self.folder)
            self._fresh.rename(self.folder)
            self._remember(sorted(self.folder.glob("part-*.parquet")))
        finally:
            remove_leftover(self._fresh)

    def returns(self) -> dict[str, float]:
        """Return the sum of rewards by episode, read back from the pool's files."""
        sums: dict[str, float] = {}
        for path in sorted(self.folder.glob("part-*.parquet")):
            file = open_parquet(path)
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, columns=["episode_id", "reward"])
                runs = Runs(table["episode_id"])
                totals = np.add.reduceat(table["reward"].to_numpy().astype(np.float64), runs.starts)
                for name, total in zip(runs.values, totals, strict=True):
                    sums[name] = sums.get(name, 0.0) + float(total)
        return sums


class _RawPartition(PoolPartition):
    """A partition from raw trajectories.

    Args:
        raw: the partition's folder of raw trajectories.
        out: the pool's folder.
        options: what may differ between pools.
        derivation: version of what derives (common.versions).

    Raises:
        SageccError: The partition's list of episodes is missing or damaged.
    """

    def __init__(self, raw: Path, out: Path, options: PoolOptions, derivation: str) -> None:
        self._raw = self._reading = raw
        self._parts = sorted(raw.glob("part-*.parquet"))
        listing = raw / EPISODES_FILE
        if not listing.exists():
            raise SageccError(
                f"{raw} has no {EPISODES_FILE}: its collection is not finished; run 'sagecc collect' again"
            )
        episodes = sorted(
            read_episodes(listing, (*_KEPT_OF_RAW, "rows")).to_pylist(), key=lambda row: row["episode_id"]
        )
        environments = {row["environment_id"]: _environment(listing, row) for row in episodes}
        super().__init__(out, options, derivation, episodes, environments, listing)
        self._paced = options.effective_windows and undisturbed(episodes[0]["scheme"])[0] in PACED
        self._columns = tuple(dict.fromkeys((*_RAW_COLUMNS, *EFFECTIVE_COLUMNS))) if self._paced else _RAW_COLUMNS
        self._columns += (KICK.name,) if self.disturbed else ()
        self._schema = select_columns(raw_schema(self.disturbed), self._columns)
        self._environment_of = {row["episode_id"]: row["environment_id"] for row in episodes}
        for path in self._parts:
            with reading(path):  # what is no such file is not hashed: it may be a terabyte of nothing
                pass
        self.identity = self._identity([(path.name, sha256_file(path)) for path in (listing, *self._parts)])

    def _write(self, advance: Callable[[int], object], stop: Event) -> None:
        features = np.empty((FEATURES, 0), np.float32)
        parts = [metadata_of(path) for path in self._checked_parts()]
        kernels, players = ({meta[key] for meta in parts if key in meta} for key in (KERNEL, PLAYER))
        if len(kernels) > 1:
            raise SageccError(f"{self._raw}: its files come from different kernels; collect it again")
        makers = {KERNEL_KEY: next(iter(kernels), b"")}
        makers |= dict.fromkeys([PLAYER_KEY] if players else [], next(iter(players), b""))
        listing = iter(self.episodes)
        with self._writer(makers) as writer:
            for table in whole_runs(self._groups(), "episode_id"):
                if stop.is_set():
                    return
                runs = Runs(table["episode_id"])
                self._check(self._reading, table, runs, listing)
                if table.num_rows > features.shape[1]:
                    features = np.empty((FEATURES, table.num_rows), np.float32)
                writer.write(self._transitions(table, runs, features))
                advance(table.num_rows)
        missing = next(listing, None)
        if missing is not None:
            raise SageccError(f"{self._raw}: the rows of episode {missing['episode_id']} are missing; collect it again")

    def _checked_parts(self) -> Sequence[Path]:
        """Return the raw files after checking their versions and columns."""
        for path in self._parts:
            with reading(path, self._schema):
                pass
        return self._parts

    def _groups(self) -> Iterator[pa.Table]:
        """Yield the raw files' row groups; `_reading` is the file of the last one."""
        for path in self._parts:
            self._reading = path
            with reading(path, self._schema) as file:
                for group in range(file.num_row_groups):
                    yield file.read_row_group(group, columns=list(self._columns)).replace_schema_metadata(None)

    def _check(self, path: Path, table: pa.Table, runs: Runs, expected: Iterator[dict[str, Any]]) -> None:
        """Check that these are the expected episodes, whole and in order."""
        for name in self._columns:
            if table[name].null_count:
                raise SageccError(f"{path}: column '{name}' has missing values; collect it again")
        step, time, cwnd = (table[name].to_numpy() for name in ("step", "t_s", "cwnd_pkts"))
        good = (step == np.arange(len(step)) - np.repeat(runs.starts, runs.lengths)) & (cwnd > 0)
        good[1:] &= (np.diff(time) > 0) | (step[1:] == 0)
        for name, start, length in zip(runs.values, runs.starts, runs.lengths, strict=True):
            entry = next(expected, {"episode_id": "nothing", "rows": 0})
            if name != entry["episode_id"]:
                raise SageccError(
                    f"{path}: episode {name} where {EPISODES_FILE} has {entry['episode_id']} (by name);"
                    " collect it again"
                )
            if length != entry["rows"] or length < 2:
                raise SageccError(
                    f"{path}: episode {name} has {length} rows, {EPISODES_FILE} says {entry['rows']}"
                    " (two at least make a transition); collect it again"
                )
            if not good[start : start + length].all():
                row = int(np.argmin(good[start : start + length]))
                raise SageccError(
                    f"{path}: episode {name}, row {row}: rows out of order or a window of 0; collect it again"
                )

    def _transitions(self, table: pa.Table, runs: Runs, out: npt.NDArray[np.float32]) -> pa.Table:
        """Return the pool's rows of whole episodes: each raw row but the last of its episode.

        Args:
            table: raw rows [n] of whole episodes.
            runs: the runs of their episode_id.
            out: room for the features, float32 [69, n or more].
        """
        rows = table.num_rows
        first = np.zeros(rows, np.bool_)
        first[runs.starts] = True
        columns = {name: table[name].to_numpy() for name in self._columns[1:]}
        if self._paced:
            columns["cwnd_pkts"] = effective_windows(columns)
        features, measured = derive(columns, first, self._options.windows, out)
        has_next = np.ones(rows, np.bool_)
        has_next[runs.starts[1:] - 1] = has_next[-1] = False
        reward_values = self._rewards(runs, measured)
        cwnd = columns["cwnd_pkts"].astype(np.float64)
        follows = np.flatnonzero(has_next) + 1
        transitions: dict[str, Any] = {"episode_id": table["episode_id"].filter(pa.array(has_next))}
        transitions |= {name: columns[name][has_next] for name in ("step", "t_s")}
        transitions |= {name: features[index][has_next] for index, name in enumerate(FEATURE_NAMES)}
        transitions["action"] = (cwnd[follows] / cwnd[follows - 1]).astype(np.float32)
        transitions["reward"] = reward_values[follows - (self._options.alignment == "public")].astype(np.float32)
        transitions["is_first"] = first[has_next]
        transitions["is_last"] = ~has_next[follows]
        if self.disturbed:
            transitions[IS_KICKED.name] = (columns[KICK.name] != 1)[has_next]
        return pa.table(transitions, schema=self._pool_schema)

    def _rewards(self, runs: Runs, measured: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the reward measured at each row [n]."""
        environments = [self._environments[self._environment_of[name]] for name in runs.values]
        kinds = list(dict.fromkeys(environment.reward for environment in environments))
        which = np.repeat([kinds.index(environment.reward) for environment in environments], runs.lengths)
        flows = np.repeat([float(environment.competitors) for environment in environments], runs.lengths)
        rate, loss, capacity, rtt_rate = measured
        return np.asarray(of_networks(kinds, which, Measured(rate, loss, capacity, rtt_rate, flows)), np.float64)


def _all_failed(folder: Path) -> bool:
    """Tell whether a raw partition has no episode, for all that were run failed."""
    return (folder / FAILED_FILE).exists() and not any(folder.glob("*.parquet"))


def metadata_of(path: Path) -> dict[bytes, bytes]:
    """Return a Parquet file's metadata."""
    return dict(parquet_schema(path).metadata or {})


def _environment(listing: Path, row: Mapping[str, Any]) -> Environment:
    try:
        return Environment.from_json(row["environment"])
    except SageccError as error:
        raise SageccError(
            f"{listing}: the environment of episode {row['episode_id']} cannot be read; collect it again"
        ) from error


def _clear_leftovers(out: Path) -> None:
    """Remove what a killed run was writing."""
    for path in out.glob("set=*/.tmp-scheme=*"):
        remove_leftover(path)
    for name in (EPISODES_FILE, COLUMNS_FILE, MANIFEST):
        remove_stale_temporaries(out / name)


def _remove_vanished(out: Path, keep: set[Path]) -> int:
    """Remove all partitions but those in `keep`; return how many were removed."""
    remains = [path for path in out.glob(PARTITIONS) if path not in keep]
    for path in remains:
        _PARTITION_MARK.remove(path)
        (out / NOTES / path.relative_to(out)).unlink(missing_ok=True)
    for parent in out.glob("set=*"):
        if not any(parent.iterdir()):
            parent.rmdir()
    return len(remains)


def _folder_of(listing: Path, episodes: Sequence[Mapping[str, Any]]) -> str:
    """Return a partition's folder in the pool: a policy's folder of raw data does not have its whole name."""
    pairs = {(row["set"], row["scheme"]) for row in episodes}
    if len(pairs) != 1:
        raise SageccError(f"{listing} lists {len(pairs)} sets and schemes, not one; collect it again")
    return partition(*pairs.pop())


def _write_episodes(
    out: Path,
    partitions: Sequence[PoolPartition],
    options: PoolOptions,
    derivation: str,
    pool: ThreadPoolExecutor,
    known: Mapping[str, FileEntry],
) -> dict[str, FileEntry]:
    """Write the list of episodes and the data dictionary unless the manifest has them already.

    Args:
        out: the pool's folder.
        partitions: all of the pool's partitions, done or derived.
        options: what may differ between pools.
        derivation: version of what derives (common.versions).
        pool: threads for reading the returns.
        known: files of an earlier manifest.

    Returns:
        Both files' entries for the manifest, by name.
    """
    identity = hashlib.sha256("".join(partition.identity for partition in partitions).encode()).hexdigest()
    listing, columns, note = out / EPISODES_FILE, out / COLUMNS_FILE, out / NOTES / "episodes"
    is_current = all(_is_kept(path, known.get(path.name), identity) for path in (listing, columns))
    if is_current and is_noted(note, (listing, columns), derivation):
        return {path.name: known[path.name] for path in (listing, columns)}
    returns = pool.map(PoolPartition.returns, partitions)
    rows = [
        _episode_row(row, partition.environment(row), sums[row["episode_id"]])
        for partition, sums in zip(partitions, returns, strict=True)
        for row in partition.episodes
    ]
    meta = options.metadata() | {INPUT_KEY: identity.encode()}
    disturbed = any(partition.disturbed for partition in partitions)
    nullable = {name for row in rows for name, value in row.items() if value is None}
    tables = {
        columns: dictionary(options.windows.ticks, options.effective, nullable, disturbed).replace_schema_metadata(
            meta
        ),
        listing: pa.Table.from_pylist(rows, schema=episode_schema(nullable).with_metadata(meta)),
    }
    for path, table in tables.items():
        with write_atomically(path) as temporary:
            pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)
    write_note(note, tables, derivation)
    return {path.name: FileEntry.from_file(path, table.num_rows, identity) for path, table in tables.items()}


def _is_kept(path: Path, entry: FileEntry | None, identity: str) -> bool:
    return bool(
        entry
        and entry.input_sha256 == identity
        and path.exists()
        and FileEntry.from_file(path, entry.rows, identity) == entry
    )


def _write_manifest(
    out: Path, partitions: Sequence[PoolPartition], options: PoolOptions, files: dict[str, FileEntry]
) -> None:
    """List every file of the pool in the manifest, unless it says just that already."""
    about = {name.decode().removeprefix("sagecc."): value.decode() for name, value in options.metadata().items()}
    manifest = Manifest(about, files | {name: entry for part in partitions for name, entry in part.files.items()})
    with suppress(SageccError):
        if Manifest.read(out) == manifest:
            return
    manifest.write(out)


def _episode_row(raw: Mapping[str, Any], environment: Environment, total: float) -> dict[str, Any]:
    rows = raw["rows"] - 1
    return {name: (raw[name] or None) if name in _OF_DELAY else raw[name] for name in _KEPT_OF_RAW} | {
        "bandwidth_mbps": environment.bandwidth_mbps,
        "step": environment.step,
        "rtt_ms": environment.min_rtt_ms,
        "queue_bdp": None if environment.queue_bytes is None else environment.queue_bdp,
        "queue_bytes": environment.queue_bytes,
        "flows": environment.competitors,
        "start_s": environment.start_s,
        "duration_s": environment.duration_s,
        "reward_kind": environment.reward,
        "rows": rows,
        "return": total,
        "reward_mean": total / rows,
    }
