# SPDX-License-Identifier: Apache-2.0
"""Checks a pool against its contract: every byte, row and episode, in memory that does not grow with it.

Each fault names a file and says what is wrong with it:

- files: missing, not in the manifest, of another size or hash, a page whose checksum does not hold;
- metadata and columns: version, windows, pairing of rewards, kernel; names, types, units, formulas;
- rows: sorted, steps from 0 without a gap, time that moves on, the first and the last marked, each previous action the
  action before;
- values: finite, within the bounds of schemas/pool.py, an average between its minimum and maximum;
- episodes: each once, in its set's and scheme's folder, with the rows and the return that episodes.parquet says;
- the grid: every scheme in every environment of its profile, but for the rounds of a policy in training, which say who
  played them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from tqdm import tqdm

from sagecc.collector.run.grid import PROFILES, profile_set
from sagecc.common.document import DocumentError, read_document
from sagecc.common.errors import SageccError
from sagecc.common.files import sha256_file
from sagecc.common.manifest import MANIFEST, NOTES, Manifest
from sagecc.common.parquet import check_whole, open_parquet, parquet_rows, parquet_schema
from sagecc.common.parts import Runs
from sagecc.common.tables import UNREADABLE, column_fault, first_line, is_damage, reading_error
from sagecc.common.versions import same_major
from sagecc.pool.effective import PACED
from sagecc.pool.features import Windows
from sagecc.pool.readme import README_FILE
from sagecc.schemas.environment import Environment
from sagecc.schemas.environment_set import EnvironmentSet
from sagecc.schemas.partitions import EPISODES_FILE, PARTS, partition, partition_of
from sagecc.schemas.pool import (
    ALIGNMENT_KEY,
    COLUMNS_FILE,
    EFFECTIVE_KEY,
    KERNEL_KEY,
    PLAYER_KEY,
    POOL_EPISODE_SCHEMA,
    POOL_VERSION,
    REWARD_ALIGNMENTS,
    VERSION_KEY,
    WINDOWS_KEY,
    Column,
    check_version,
    dictionary,
    episode_columns,
    episode_schema,
    nullable_columns,
    pool_columns,
    pool_schema,
)
from sagecc.schemas.schemes import is_disturbed, is_grown

GRIDS = PROFILES
"""Names of the grids that a pool can be checked against."""

SHOWN = 3
"""Faults of one kind and file that are listed one by one; the rest are counted."""

RETURN_TOLERANCE = 1e-6
"""Relative to the sum of the rewards' sizes: the order of adding them may differ."""

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with a pool."""

    path: str
    """Path of the file or folder, within the pool."""
    reason: str
    """What is wrong, in one line."""

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True)
class PoolReport:
    """What a check read, and what is wrong with it."""

    faults: tuple[Fault, ...]
    """Everything that is wrong."""
    files: int
    """Number of files."""
    bytes: int
    """Size of all files."""
    episodes: int
    """Number of episodes."""
    rows: int
    """Number of rows (transitions)."""
    grid: EnvironmentSet | None
    """The profile or set that the pool was checked against; None for none."""


class _FaultLog:
    """Faults of one file or folder, by kind; of each kind the first SHOWN are kept and the rest counted."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._kept: dict[str, list[str]] = {}
        self._counts: Counter[str] = Counter()

    def add(self, kind: str, reason: str) -> None:
        """Record one fault; `kind` names it in the plural, for those that are only counted."""
        self._counts[kind] += 1
        faults = self._kept.setdefault(kind, [])
        if len(faults) < SHOWN:
            faults.append(reason)

    def faults(self) -> Iterator[Fault]:
        """Yield, for each kind, the faults that were kept and then the number of the others."""
        for kind, texts in self._kept.items():
            for reason in texts:
                yield Fault(self.path, reason)
            if rest := self._counts[kind] - len(texts):
                yield Fault(self.path, f"{rest:,} more {kind}")


def check_pool(pool: Path, grid: EnvironmentSet | None = None, jobs: int = 1, progress: bool = True) -> PoolReport:
    """Return everything that is wrong with a pool.

    Args:
        pool: the pool's folder.
        grid: the networks to check against; by default the smallest profile that has all of the pool's environments.
        jobs: partitions checked at a time.
        progress: whether to show a progress bar on stderr.

    Raises:
        SageccError: There is no pool, or it is of another major version.
    """
    parts = sorted(pool.glob(PARTS))
    if not parts and not (pool / EPISODES_FILE).exists() and not (pool / MANIFEST).exists():
        raise SageccError(f"no pool at {pool}: make it with 'sagecc pool'")
    _refuse_other_versions(pool)
    manifest, manifest_faults = _manifest(pool)
    contract, contract_faults = _contract(pool, manifest)
    listing, listing_faults = _listing(pool, contract)
    folders = sorted({path.parent.relative_to(pool).as_posix() for path in parts} | listing.keys())
    stop = Event()
    with (
        ThreadPoolExecutor(jobs) as executor,
        tqdm(
            total=_rows(parts), desc="check", unit=" rows", unit_scale=True, disable=None if progress else True
        ) as bar,
    ):
        checks = [
            _PartitionCheck(pool, folder, listing.get(folder, ()), contract, bar.update, stop) for folder in folders
        ]
        try:
            partition_faults = list(executor.map(_PartitionCheck.run, checks))
        except BaseException:
            stop.set()
            executor.shutdown(wait=True, cancel_futures=True)
            raise
    profile, grid_faults = _against_grid(listing, grid)
    faults = [*manifest_faults, *contract_faults, *listing_faults, *chain.from_iterable(partition_faults), *grid_faults]
    files = _files(pool)
    return PoolReport(
        faults=tuple(faults),
        files=len(files),
        bytes=sum(path.stat().st_size for path in files),
        episodes=sum(check.episodes for check in checks),
        rows=sum(check.rows for check in checks),
        grid=profile,
    )


@dataclass(frozen=True)
class _Contract:
    """What all files of a pool must agree on."""

    metadata: Mapping[bytes, bytes]
    """Metadata of each file, by key."""
    windows: Windows
    """Lengths of the observation windows."""
    effective: str
    """The schemes whose windows are effective ones, as the metadata has them."""
    manifest: Manifest | None
    """The manifest; None if it is missing or damaged."""


def _refuse_other_versions(pool: Path) -> None:
    path = pool / MANIFEST
    try:
        version = str(read_document(path)["about"]["pool_version"])
    except (OSError, DocumentError, KeyError, TypeError):
        path = pool / EPISODES_FILE
        try:
            version = (parquet_schema(path).metadata or {}).get(VERSION_KEY, b"").decode(errors="replace")
        except UNREADABLE:
            return  # damaged: reported as a fault later
    if version:
        check_version(path, version)


def _rows(parts: Sequence[Path]) -> int:
    rows = 0
    for path in parts:
        try:
            rows += parquet_rows(path)
        except UNREADABLE:
            continue  # reported as a fault later
    return rows


def _files(pool: Path) -> list[Path]:
    """Return the pool's files, without its description and the notes on what derived them."""
    others = (NOTES, README_FILE)
    return [path for path in pool.rglob("*") if path.is_file() and path.relative_to(pool).parts[0] not in others]


def _manifest(pool: Path) -> tuple[Manifest | None, list[Fault]]:
    """Return the manifest, if it is sound, and which files are missing or not listed."""
    try:
        manifest = Manifest.read(pool)
    except SageccError as error:
        return None, [Fault(MANIFEST, str(error).removeprefix(f"{pool / MANIFEST} "))]
    present = {path.relative_to(pool).as_posix() for path in _files(pool)} - {MANIFEST}
    missing = [Fault(name, "missing") for name in sorted(manifest.files.keys() - present)]
    return manifest, missing + [Fault(name, f"not in {MANIFEST}") for name in sorted(present - manifest.files.keys())]


def _contract(pool: Path, manifest: Manifest | None) -> tuple[_Contract, list[Fault]]:
    """Return what the files must agree on, from the manifest or else from the list of episodes."""
    if manifest is not None:
        about = {f"sagecc.{name}".encode(): value.encode() for name, value in manifest.about.items()}
    else:
        try:
            meta = parquet_schema(pool / EPISODES_FILE).metadata or {}
        except UNREADABLE:
            meta = {}
        about = {key: meta[key] for key in (VERSION_KEY, WINDOWS_KEY, ALIGNMENT_KEY, EFFECTIVE_KEY) if key in meta}
    source = MANIFEST if manifest is not None else EPISODES_FILE
    faults = []
    if (alignment := about.get(ALIGNMENT_KEY, b"").decode()) not in REWARD_ALIGNMENTS:
        faults.append(Fault(source, f"reward alignment '{alignment}' is none of {', '.join(REWARD_ALIGNMENTS)}"))
    if (effective := about.get(EFFECTIVE_KEY, b"").decode()) not in ("", ",".join(PACED)):
        faults.append(Fault(source, f"effective windows of '{effective}': they are of {','.join(PACED)} or of none"))
    try:
        windows = Windows.parse(about.get(WINDOWS_KEY, b"").decode())
    except SageccError as error:
        windows = Windows()
        faults.append(Fault(source, str(error)))
    return _Contract(about, windows, effective, manifest), faults


def _file_faults(pool: Path, path: Path, contract: _Contract) -> list[Fault]:
    """Check a file's size and hash against the manifest's."""
    name = path.relative_to(pool).as_posix()
    entry = contract.manifest.files.get(name) if contract.manifest else None
    if entry is None:
        return []
    if (size := path.stat().st_size) != entry.bytes:
        return [Fault(name, f"has {size:,} bytes, {MANIFEST} says {entry.bytes:,}")]
    if sha256_file(path) != entry.sha256:
        return [Fault(name, f"its bytes are not those of {MANIFEST} (SHA-256)")]
    return []


def _schema_faults(name: str, schema: pa.Schema, expected: pa.Schema, contract: _Contract) -> list[Fault]:
    """Check a file's metadata and columns against the contract; a newer minor version may have more of both."""
    meta = schema.metadata or {}
    faults = []
    for key, value in contract.metadata.items():
        if meta.get(key) != value:
            actual = meta.get(key, b"nothing").decode(errors="replace")
            faults.append(Fault(name, f"{key.decode()} is {actual}, the pool's is {value.decode()}"))
    if EFFECTIVE_KEY in meta.keys() - contract.metadata.keys():
        faults.append(Fault(name, "has effective windows, the pool has none"))
    version = meta.get(VERSION_KEY, b"").decode(errors="replace")
    for column in expected:
        if fault := column_fault(schema, pa.schema([column])):
            faults.append(Fault(name, fault))
        elif version == POOL_VERSION and schema.field(column.name).metadata != column.metadata:
            faults.append(Fault(name, f"column '{column.name}' is described otherwise than in schemas/pool.py"))
    if version == POOL_VERSION:
        extra = [column for column in schema.names if column not in expected.names]
        faults += [
            Fault(name, f"has a column '{column}' that version {POOL_VERSION} does not know") for column in extra
        ]
    return faults


def _value_faults(log: _FaultLog, columns: Sequence[Column], table: pa.Table, locate: Callable[[int], str]) -> None:
    """Check for missing values, numbers that are not finite, and numbers out of bounds.

    Args:
        log: where faults are recorded.
        columns: the columns to check, with their bounds.
        table: the rows to check.
        locate: says in words where a row of the table is.
    """
    for column in columns:
        values = table[column.name]
        if column.nullable:
            values = values.fill_null(0)  # within the bounds of every such column
        elif values.null_count:
            row = int(np.argmax(values.is_null().to_numpy()))
            log.add("missing values", f"'{column.name}' is missing {locate(row)}")
            continue
        if not (pa.types.is_floating(column.dtype) or pa.types.is_integer(column.dtype)) or not len(values):
            continue
        numbers = values.to_numpy()
        low, high = numbers.min(), numbers.max()  # NaN if any is
        if not np.isfinite(low) or not np.isfinite(high):
            row = int(np.argmin(np.isfinite(numbers)))
            log.add("columns with values that are not finite", f"'{column.name}' is {numbers[row]} {locate(row)}")
        elif column.low is not None and low < column.low:
            log.add(
                "columns out of bounds",
                f"'{column.name}' is {low:g} {locate(int(numbers.argmin()))}, below {column.low:g}",
            )
        elif column.high is not None and high > column.high:
            log.add(
                "columns out of bounds",
                f"'{column.name}' is {high:g} {locate(int(numbers.argmax()))}, above {column.high:g}",
            )


def _reading_failed(name: str, error: Exception) -> Fault:
    if not is_damage(error):
        raise reading_error(name, error, "") from error
    return Fault(name, f"cannot be read ({first_line(error)})")


Listing = dict[str, list[dict[str, Any]]]


def _listing(pool: Path, contract: _Contract) -> tuple[Listing, list[Fault]]:
    """Return the rows of episodes.parquet by their partition's folder, and what is wrong with it and the dictionary."""
    path = pool / EPISODES_FILE
    try:
        nullable = nullable_columns(parquet_schema(path))
    except UNREADABLE:
        nullable = frozenset()  # reported below
    faults = _dictionary_faults(pool, contract, nullable)
    if not path.exists():
        reason = (
            [] if contract.manifest and EPISODES_FILE in contract.manifest.files else [Fault(EPISODES_FILE, "missing")]
        )
        return {}, faults + reason
    faults += _file_faults(pool, path, contract)
    try:
        with open_parquet(path) as file:
            faults += _schema_faults(EPISODES_FILE, file.schema_arrow, episode_schema(nullable), contract)
            if column_fault(file.schema_arrow, POOL_EPISODE_SCHEMA):
                return {}, faults  # reported already
            check_whole(path, file)
            table = file.read(columns=POOL_EPISODE_SCHEMA.names)
    except UNREADABLE as error:
        return {}, [*faults, _reading_failed(EPISODES_FILE, error)]
    log = _FaultLog(EPISODES_FILE)
    ids = table["episode_id"]
    columns = episode_columns(nullable)
    _value_faults(log, columns, table, lambda row: f"in episode {ids[row]}")
    names = [column.name for column in columns if not column.nullable]
    listing: Listing = {}
    earlier_ids: set[str] = set()
    environments: dict[str, Environment | None] = {}
    for row in table.to_pylist():
        if None in (row[name] for name in names):
            continue  # reported already
        _check_episode(log, row, earlier_ids, environments)
        listing.setdefault(partition(str(row["set"]), str(row["scheme"])), []).append(row)
    return listing, [*faults, *log.faults()]


def _check_episode(
    log: _FaultLog, row: Mapping[str, Any], seen: set[str], environments: dict[str, Environment | None]
) -> None:
    """Check that one row of episodes.parquet agrees with itself.

    Args:
        log: where faults are recorded.
        row: the row.
        seen: ids of the rows before; this one's is added.
        environments: environments by their JSON, None for what is none, of the rows before; this one's is added.
    """
    name, text = row["episode_id"], row["environment"]
    if name in seen:
        log.add("episodes listed twice", f"episode {name} is listed twice")
    seen.add(name)
    if name != f"{row['environment_id']}.{row['scheme']}.{row['seed']}":
        log.add("episodes whose ids are others", f"episode {name} is not named after its environment, scheme and seed")
    if text not in environments:
        try:
            environments[text] = Environment.from_json(text)
        except SageccError:
            environments[text] = None
    environment = environments[text]
    if environment is None or environment.id != row["environment_id"] or environment.set != row["set"]:
        log.add("episodes of other environments", f"episode {name}: its environment is not {row['environment_id']}")
    elif row["queue_bytes"] != environment.queue_bytes or (row["queue_bdp"] is None) != (row["queue_bytes"] is None):
        log.add("other queue limits", f"episode {name}: its queue limit is not its environment's")
    counted = row["sent_packets"] is not None and row["lost_packets"] is not None
    if counted and row["delay_mean_ms"] is None and row["goodput_mbps"] > 0:
        log.add("goodputs without a delay", f"episode {name}: has a goodput and no delay")
    if counted and row["lost_packets"] > row["sent_packets"]:
        log.add("episodes with more packets lost than sent", f"episode {name} lost more packets than it sent")
    if not np.isclose(row["reward_mean"] * row["rows"], row["return"], rtol=RETURN_TOLERANCE, atol=1e-9):
        log.add("returns that are not rows x mean", f"episode {name}: return is not rows x reward_mean")


def _has_disturbed(pool: Path) -> bool:
    return any(is_disturbed(partition_of(part)[1]) for part in pool.glob(PARTS))


def _dictionary_faults(pool: Path, contract: _Contract, nullable: Collection[str]) -> list[Fault]:
    path = pool / COLUMNS_FILE
    if not path.exists():
        return [] if contract.manifest and COLUMNS_FILE in contract.manifest.files else [Fault(COLUMNS_FILE, "missing")]
    faults = _file_faults(pool, path, contract)
    try:
        with open_parquet(path) as file:
            check_whole(path, file)
            table = file.read().replace_schema_metadata(None)
    except UNREADABLE as error:
        return [*faults, _reading_failed(COLUMNS_FILE, error)]
    if contract.metadata.get(VERSION_KEY) == POOL_VERSION.encode() and not table.equals(
        dictionary(contract.windows.ticks, contract.effective, nullable, _has_disturbed(pool))
    ):
        faults.append(Fault(COLUMNS_FILE, "is not the dictionary of schemas/pool.py"))
    return faults


@dataclass
class _LastRow:
    """The row before, which may be in an earlier row group or file, and the sums over its episode so far."""

    episode: str = ""
    """Its episode's id."""
    step: int = -1
    """Its step."""
    t_s: float = 0.0
    """Its time."""
    action: float = 1.0
    """Its action."""
    is_last: bool = True
    """Whether it is marked as its episode's last."""
    rows: int = 0
    """Rows of its episode so far."""
    total: float = 0.0
    """Sum of its episode's rewards so far."""
    size: float = 0.0
    """Sum of their absolute values."""


class _PartitionCheck:
    """The check of one set and scheme: its files in order, one row group at a time.

    Args:
        pool: the pool's folder.
        folder: the partition's folder, within the pool.
        listed: the partition's rows of episodes.parquet.
        contract: what all files of the pool must agree on.
        advance: called with the number of rows after each row group.
        stop: when set, the check is given up between two row groups.
    """

    def __init__(
        self,
        pool: Path,
        folder: str,
        listed: Sequence[Mapping[str, Any]],
        contract: _Contract,
        advance: Callable[[int], object],
        stop: Event,
    ) -> None:
        self.episodes = 0
        """Episodes read."""
        self.rows = 0
        """Rows read."""
        self._pool, self._folder, self._contract = pool, folder, contract
        self._advance, self._stop = advance, stop
        self._set, self._scheme = partition_of(Path(folder) / "part")
        formulas = contract.windows.ticks, contract.effective, is_disturbed(self._scheme)
        self._columns, self._schema = pool_columns(*formulas), pool_schema(*formulas)
        self._expected = {row["episode_id"]: row for row in listed}
        self._seen: dict[str, str] = {}
        self._incomplete: set[str] = set()
        self._gap = False
        self._last = _LastRow()
        self._kernel: bytes | None = None

    def run(self) -> list[Fault]:
        """Return what is wrong with the partition."""
        faults: list[Fault] = []
        unread = 0
        for name in self._names():
            if self._stop.is_set():
                return faults
            path, log = self._pool / name, _FaultLog(name)
            readable = False
            if path.exists():
                faults += _file_faults(self._pool, path, self._contract)
                try:
                    readable = self._check_file(path, name, log, faults)
                except UNREADABLE as error:
                    faults.append(_reading_failed(name, error))
            if not readable:
                self._mark_gap()
                unread += 1
            faults += log.faults()
        log = _FaultLog(self._folder)
        self._end_episode(log)
        if not self._last.is_last and not self._gap:
            log.add("", f"episode {self._last.episode} ends on a row that is not marked as its last")
        absentees = sorted(self._expected.keys() - self._seen.keys())
        if unread and absentees:
            log.add("", f"{len(absentees):,} episodes have no rows that could be read, such as {absentees[0]}")
        else:
            for episode in absentees:
                log.add("episodes without rows", f"episode {episode} of {EPISODES_FILE} has no rows here")
        return faults + list(log.faults())

    def _names(self) -> list[str]:
        """Return the names of the partition's files, those included that only the manifest has."""
        present = {
            path.relative_to(self._pool).as_posix() for path in (self._pool / self._folder).glob("part-*.parquet")
        }
        files = self._contract.manifest.files if self._contract.manifest else ()
        return sorted(present | {name for name in files if name.startswith(f"{self._folder}/")})

    def _mark_gap(self) -> None:
        """Note that rows are missing from here on: the current episode and the next one may be incomplete."""
        self._incomplete.add(self._last.episode)
        self._gap = True

    def _check_file(self, path: Path, name: str, log: _FaultLog, faults: list[Fault]) -> bool:
        """Check one file; return whether its rows could be read."""
        with open_parquet(path) as file:
            schema = file.schema_arrow
            version = (schema.metadata or {}).get(VERSION_KEY, b"").decode(errors="replace")
            wrong = _schema_faults(name, schema, self._schema, self._contract)
            kernel = (schema.metadata or {}).get(KERNEL_KEY, b"")
            if self._kernel is not None and kernel != self._kernel:
                wrong.append(Fault(name, "comes from another kernel than the files before it"))
            self._kernel = kernel
            if is_grown(partition_of(path)[1]) and PLAYER_KEY not in (schema.metadata or {}):
                wrong.append(Fault(name, "does not say which policy played it, and how it explored"))
            faults += wrong
            names = [column.name for column in self._columns]
            if not same_major(version, POOL_VERSION) or column_fault(schema, self._schema):
                return False
            for group in range(file.num_row_groups):
                if self._stop.is_set():
                    return False
                table = file.read_row_group(group, columns=names, use_threads=False)
                self._check_rows(table, log)
                self._advance(table.num_rows)
        return True

    def _check_rows(self, table: pa.Table, log: _FaultLog) -> None:
        if not table.num_rows:
            return
        runs = Runs(table["episode_id"])
        ids, starts, ends = runs.values, runs.starts, runs.starts + runs.lengths
        step = table["step"].to_numpy()

        def locate(row: int) -> str:
            return f"in episode {ids[int(np.searchsorted(ends, row, side='right'))]}, step {step[row]}"

        self.rows += table.num_rows
        if self._gap and step[0] > 0:
            self._last = _LastRow(ids[0], int(step[0]) - 1, -np.inf, table["pre_act"][0].as_py(), is_last=False)
            self._incomplete.add(ids[0])
            self._seen.setdefault(ids[0], log.path)
        elif self._gap:
            self._last = _LastRow(self._last.episode)
        self._gap = False
        _value_faults(log, self._columns, table, locate)
        self._check_windows(table, log, locate)
        self._check_order(table, ids, starts, log, locate)
        self._check_episodes(table, ids, starts, ends, log)

    def _check_windows(self, table: pa.Table, log: _FaultLog, locate: Callable[[int], str]) -> None:
        for column in self._columns:
            if not column.name.endswith(".avg"):
                continue
            stem = column.name.removesuffix(".avg")
            mean, low, high = (table[f"{stem}.{which}"].to_numpy() for which in ("avg", "min", "max"))
            wrong = (mean < low) | (mean > high)
            if wrong.any():
                row = int(np.argmax(wrong))
                log.add(
                    "windows that contradict themselves", f"'{column.name}' is not between min and max {locate(row)}"
                )

    def _check_order(
        self, table: pa.Table, ids: Sequence[str], starts: Array, log: _FaultLog, locate: Callable[[int], str]
    ) -> None:
        """Check that steps have no gap, time increases, first and last are marked, `pre_act` is the last action."""
        names = ("step", "t_s", "action", "pre_act", "is_first", "is_last")
        step, t_s, action, pre_act, first, last = (table[name].to_numpy() for name in names)
        continues = ids[0] == self._last.episode
        before = self._last if continues else _LastRow()
        starts_episode = np.zeros(len(step), np.bool_)
        starts_episode[starts] = True
        starts_episode[0] = not continues
        origin = np.repeat(starts, np.diff(np.append(starts, len(step))))
        origin[: starts[1] if len(starts) > 1 else len(step)] -= before.step + 1
        wrong_rows = {
            "steps out of order": step != np.arange(len(step)) - origin,
            "times out of order": ~starts_episode & (t_s <= np.concatenate([[before.t_s], t_s[:-1]])),
            "previous actions that are not": ~starts_episode
            & (pre_act != np.concatenate([[before.action], action[:-1]])),
            "wrong marks of a first row": first != starts_episode,
            "wrong marks of a last row": np.concatenate([[self._last.is_last], last[:-1]]) != starts_episode,
        }
        reasons = {
            "steps out of order": "the step does not follow the one before",
            "times out of order": "the time is not after the one before",
            "previous actions that are not": "'pre_act' is not the action before",
            "wrong marks of a first row": "'is_first' is wrong",
            "wrong marks of a last row": "'is_last' of the row before is wrong",
        }
        for kind, wrong in wrong_rows.items():
            if wrong.any():
                log.add(kind, f"{reasons[kind]} {locate(int(np.argmax(wrong)))}")

    def _check_episodes(self, table: pa.Table, ids: Sequence[str], starts: Array, ends: Array, log: _FaultLog) -> None:
        """Check that each episode comes once, in order and in its partition; sum its rows and rewards."""
        reward = table["reward"].to_numpy().astype(np.float64)
        totals, sizes = np.add.reduceat(reward, starts), np.add.reduceat(np.abs(reward), starts)
        for episode, start, end, total, size in zip(ids, starts, ends, totals, sizes, strict=True):
            if episode != self._last.episode:
                self._end_episode(log)
                self._begin_episode(episode, log)
            self._last.rows += int(end - start)
            self._last.total += float(total)
            self._last.size += float(size)
        for name in ("step", "t_s", "action", "is_last"):
            setattr(self._last, name, table[name][-1].as_py())

    def _begin_episode(self, episode: str, log: _FaultLog) -> None:
        if episode in self._seen:
            log.add(
                "episodes that were there before", f"episode {episode} is there twice, first in {self._seen[episode]}"
            )
        elif self._last.episode > episode:
            log.add("episodes out of order", f"episode {episode} comes after {self._last.episode}")
        if self._expected and episode not in self._expected:
            log.add(
                "episodes that are not listed",
                f"episode {episode} is not of {self._set}, {self._scheme} in {EPISODES_FILE}",
            )
        self._last = _LastRow(episode)
        self.episodes += 1
        self._seen.setdefault(episode, log.path)

    def _end_episode(self, log: _FaultLog) -> None:
        """Check an episode's rows and return against episodes.parquet."""
        last, listing = self._last, self._expected.get(self._last.episode)
        if listing is None or last.episode in self._incomplete:
            return
        if last.rows != listing["rows"]:
            log.add(
                "episodes of other lengths",
                f"episode {last.episode} has {last.rows:,} rows, {EPISODES_FILE} says {listing['rows']:,}",
            )
        elif abs(last.total - listing["return"]) > RETURN_TOLERANCE * (last.size + 1e-9):
            log.add(
                "other returns",
                f"episode {last.episode}: rewards add up to {last.total:g}, {EPISODES_FILE} says {listing['return']:g}",
            )


_profile = cache(profile_set)


def _against_grid(listing: Listing, wanted: EnvironmentSet | None) -> tuple[EnvironmentSet | None, list[Fault]]:
    """Check that the schemes were in all environments of a grid.

    Args:
        listing: rows of episodes.parquet by their partition's folder.
        wanted: the networks that were asked for, with every scheme in each of their sets. None: the smallest profile
            that has all of the pool's, of which a scheme that is in a set must be in all environments of that set.

    Returns:
        What the pool was checked against, and which environments each scheme lacks or has too many; a policy in
        training plays where it is to learn, so that its rounds are left out.
    """
    listing = {folder: rows for folder, rows in listing.items() if not is_grown(rows[0]["scheme"])}
    sets = {environment.set for environment in wanted.environments} if wanted else set()
    present = {folder: {row["environment_id"] for row in rows} for folder, rows in listing.items()}
    environment_ids = set().union(*present.values())
    if wanted is None and environment_ids:
        profiles = [_profile(name) for name in PROFILES]
        profiles = [each for each in profiles if environment_ids <= {network.id for network in each.environments}]
        wanted = min(profiles, key=lambda each: len(each.environments), default=None)
    grid = [(environment.set, environment.id) for environment in (wanted.environments if wanted else ())] or [
        (row["set"], row["environment_id"]) for rows in listing.values() for row in rows
    ]
    grid_name = wanted.title if wanted else "the other schemes"
    faults: list[Fault] = []
    for scheme in sorted({row["scheme"] for rows in listing.values() for row in rows}):
        for set_name in sorted(sets | {row["set"] for rows in listing.values() for row in rows}):
            folder = partition(set_name, scheme)
            if folder not in present and set_name not in sets:
                continue
            log = _FaultLog(folder)
            ids = {environment_id for name, environment_id in grid if name == set_name}
            for absentee in sorted(ids - present.get(folder, set())):
                log.add(f"environments of {grid_name} lacking", f"has no episode in {absentee} of {grid_name}")
            for extra in sorted(present.get(folder, set()) - ids):
                log.add(f"environments outside {grid_name}", f"has an episode in {extra}, which is not of {grid_name}")
            faults += log.faults()
    return wanted, faults
