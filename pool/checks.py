# SPDX-License-Identifier: Apache-2.0
# Not followed as an import: for `sagecc pool check` alone, which is no stage.
"""Holds a pool against its contract: every byte, row and episode, in memory that does not grow with it.

Each finding names a file and says what is wrong with it:

- files: missing, not in the manifest, of another size or hash, a page whose checksum does not hold;
- metadata and columns: version, windows, pairing of rewards, kernel; names, types, units, formulas;
- rows: sorted, steps from 0 without a gap, time that moves on, the first and the last marked, each previous action the
  action before;
- values: finite, within the bounds of schemas/pool.py, an average between its minimum and maximum;
- episodes: each once, in its set's and scheme's folder, with the rows and the return that episodes.parquet says;
- the grid: every scheme in every environment of its profile.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from sagecc.collector.run.grid import PROFILES, profile_environments
from sagecc.common.errors import SageccError
from sagecc.common.files import sha256_file
from sagecc.common.manifest import MANIFEST, NOTES, Manifest
from sagecc.common.parts import Runs
from sagecc.common.tables import UNREADABLE, column_fault, first_line
from sagecc.pool.features import Windows
from sagecc.schemas.environment import Environment
from sagecc.schemas.partitions import EPISODES_FILE, PARTS, partition, partition_of
from sagecc.schemas.pool import (
    ALIGNMENT_KEY,
    COLUMNS_FILE,
    EPISODE_COLUMNS,
    KERNEL_KEY,
    POOL_EPISODE_SCHEMA,
    POOL_VERSION,
    REWARD_ALIGNMENTS,
    VERSION_KEY,
    WINDOWS_KEY,
    Column,
    check_version,
    dictionary,
    is_same_major,
    pool_columns,
    pool_schema,
)

GRIDS = PROFILES
"""What a pool can be held against."""

SHOWN = 3
"""Findings of one kind and file that are told one by one; the rest are counted."""

RETURN_TOLERANCE = 1e-6
"""Relative to the sum of the rewards' sizes: the order of adding them may differ."""

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong. path: of the file or folder, within the pool."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True)
class PoolReport:
    """What a check found and what it looked at. profile: the grid that it was held against, None for none."""

    findings: tuple[Finding, ...]
    files: int
    bytes: int
    episodes: int
    rows: int
    profile: str | None


class _Notes:
    """Findings of one file or folder, by kind; of each kind a few are kept and the rest counted."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._kept: dict[str, list[str]] = {}
        self._counts: Counter[str] = Counter()

    def add(self, kind: str, reason: str) -> None:
        """Take one finding; `kind` says what it is in the plural, for those that are only counted."""
        self._counts[kind] += 1
        kept = self._kept.setdefault(kind, [])
        if len(kept) < SHOWN:
            kept.append(reason)

    def findings(self) -> Iterator[Finding]:
        """Yield what was kept, then how much was not."""
        for kind, kept in self._kept.items():
            for reason in kept:
                yield Finding(self.path, reason)
            if more := self._counts[kind] - len(kept):
                yield Finding(self.path, f"{more:,} more {kind}")


def check_pool(pool: Path, profile: str | None = None, jobs: int = 1, progress: bool = True) -> PoolReport:
    """Return everything that is wrong with the pool at `pool`.

    profile: the grid to hold it against; by default the smallest that has all of its environments. jobs: partitions at
    a time. Raises SageccError where there is no pool, it is of another major version, or there is no such profile.
    """
    parts = sorted(pool.glob(PARTS))
    if not parts and not (pool / EPISODES_FILE).exists() and not (pool / MANIFEST).exists():
        raise SageccError(f"no pool at {pool}: make it with 'sagecc pool'")
    _refuse_other_versions(pool)
    wanted = _grid(profile) if profile else ()
    manifest, notes = _manifest(pool)
    frame, more = _frame(pool, manifest)
    listing, listed = _listing(pool, frame)
    folders = sorted({path.parent.relative_to(pool).as_posix() for path in parts} | listing.keys())
    stop = Event()
    with (
        ThreadPoolExecutor(jobs) as executor,
        tqdm(total=_rows(parts), desc="check", unit=" rows", unit_scale=True, disable=not progress) as bar,
    ):
        checks = [_PartitionCheck(pool, folder, listing.get(folder, ()), frame, bar.update, stop) for folder in folders]
        try:
            found = list(executor.map(_PartitionCheck.run, checks))
        except BaseException:
            stop.set()
            executor.shutdown(wait=True, cancel_futures=True)
            raise
    held, grid = _against_grid(listing, profile, wanted)
    everything = [*notes, *more, *listed, *(finding for findings in found for finding in findings), *grid]
    files = _files(pool)
    return PoolReport(
        findings=tuple(everything),
        files=len(files),
        bytes=sum(path.stat().st_size for path in files),
        episodes=sum(check.episodes for check in checks),
        rows=sum(check.rows for check in checks),
        profile=held,
    )


@dataclass(frozen=True)
class _Frame:
    """What all files of a pool must agree on. about: metadata by key. files: the manifest's, none without it."""

    about: Mapping[bytes, bytes]
    windows: Windows
    manifest: Manifest | None


def _refuse_other_versions(pool: Path) -> None:
    path = pool / MANIFEST
    try:
        version = str(json.loads(path.read_bytes())["about"]["pool_version"])
    except (OSError, ValueError, KeyError, TypeError):
        path = pool / EPISODES_FILE
        try:
            version = (pq.read_schema(path).metadata or {}).get(VERSION_KEY, b"").decode(errors="replace")
        except UNREADABLE:
            return  # damaged: a finding
    if version:
        check_version(path, version)


def _rows(parts: Sequence[Path]) -> int:
    rows = 0
    for path in parts:
        try:
            rows += pq.read_metadata(path).num_rows
        except UNREADABLE:
            continue  # a finding later
    return rows


def _files(pool: Path) -> list[Path]:
    """Return the pool's files, without the notes on what derived them."""
    return [path for path in pool.rglob("*") if path.is_file() and path.relative_to(pool).parts[0] != NOTES]


def _manifest(pool: Path) -> tuple[Manifest | None, list[Finding]]:
    """Return the manifest, if it can be trusted, and which files there are too few and too many."""
    try:
        manifest = Manifest.read(pool)
    except SageccError as error:
        return None, [Finding(MANIFEST, str(error).removeprefix(f"{pool / MANIFEST} "))]
    there = {path.relative_to(pool).as_posix() for path in _files(pool)} - {MANIFEST}
    missing = [Finding(name, "missing") for name in sorted(manifest.files.keys() - there)]
    return manifest, missing + [Finding(name, f"not in {MANIFEST}") for name in sorted(there - manifest.files.keys())]


def _frame(pool: Path, manifest: Manifest | None) -> tuple[_Frame, list[Finding]]:
    """Return what the files must agree on: what the manifest says, or else the list of episodes."""
    if manifest is not None:
        about = {f"sagecc.{name}".encode(): value.encode() for name, value in manifest.about.items()}
    else:
        try:
            meta = pq.read_schema(pool / EPISODES_FILE).metadata or {}
        except UNREADABLE:
            meta = {}
        about = {key: meta[key] for key in (VERSION_KEY, WINDOWS_KEY, ALIGNMENT_KEY) if key in meta}
    source = MANIFEST if manifest is not None else EPISODES_FILE
    found = []
    if (alignment := about.get(ALIGNMENT_KEY, b"").decode()) not in REWARD_ALIGNMENTS:
        found.append(Finding(source, f"reward alignment '{alignment}' is none of {', '.join(REWARD_ALIGNMENTS)}"))
    try:
        windows = Windows.parse(about.get(WINDOWS_KEY, b"").decode())
    except SageccError as error:
        windows = Windows()
        found.append(Finding(source, str(error)))
    return _Frame(about, windows, manifest), found


def _file_findings(pool: Path, path: Path, frame: _Frame) -> list[Finding]:
    """Hold a file's size and hash against the manifest's."""
    name = path.relative_to(pool).as_posix()
    entry = frame.manifest.files.get(name) if frame.manifest else None
    if entry is None:
        return []
    if (size := path.stat().st_size) != entry.bytes:
        return [Finding(name, f"has {size:,} bytes, {MANIFEST} says {entry.bytes:,}")]
    if sha256_file(path) != entry.sha256:
        return [Finding(name, f"its bytes are not those of {MANIFEST} (SHA-256)")]
    return []


def _schema_findings(name: str, schema: pa.Schema, expected: pa.Schema, frame: _Frame) -> list[Finding]:
    """Hold a file's metadata and columns against the contract; a newer minor version may have more of both."""
    meta = schema.metadata or {}
    found = []
    for key, value in frame.about.items():
        if meta.get(key) != value:
            told = meta.get(key, b"nothing").decode(errors="replace")
            found.append(Finding(name, f"{key.decode()} is {told}, the pool's is {value.decode()}"))
    version = meta.get(VERSION_KEY, b"").decode(errors="replace")
    for wanted in expected:
        if fault := column_fault(schema, pa.schema([wanted])):
            found.append(Finding(name, fault))
        elif version == POOL_VERSION and schema.field(wanted.name).metadata != wanted.metadata:
            found.append(Finding(name, f"column '{wanted.name}' is described otherwise than in schemas/pool.py"))
    if version == POOL_VERSION:
        extra = [column for column in schema.names if column not in expected.names]
        found += [
            Finding(name, f"has a column '{column}' that version {POOL_VERSION} does not know") for column in extra
        ]
    return found


def _value_findings(notes: _Notes, columns: Sequence[Column], table: pa.Table, where: Callable[[int], str]) -> None:
    """Look for missing values, numbers that are not finite, and numbers out of bounds. where: names a row."""
    for column in columns:
        values = table[column.name]
        if values.null_count:
            row = int(np.argmax(values.is_null().to_numpy()))
            notes.add("missing values", f"'{column.name}' is missing {where(row)}")
            continue
        if not (pa.types.is_floating(column.dtype) or pa.types.is_integer(column.dtype)) or not len(values):
            continue
        numbers = values.to_numpy()
        low, high = numbers.min(), numbers.max()  # NaN if any is
        if not np.isfinite(low) or not np.isfinite(high):
            row = int(np.argmin(np.isfinite(numbers)))
            notes.add("columns with values that are not finite", f"'{column.name}' is {numbers[row]} {where(row)}")
        elif column.low is not None and low < column.low:
            notes.add(
                "columns out of bounds",
                f"'{column.name}' is {low:g} {where(int(numbers.argmin()))}, below {column.low:g}",
            )
        elif column.high is not None and high > column.high:
            notes.add(
                "columns out of bounds",
                f"'{column.name}' is {high:g} {where(int(numbers.argmax()))}, above {column.high:g}",
            )


def _reading_failed(name: str, error: Exception) -> Finding:
    return Finding(name, f"cannot be read ({first_line(error)})")


Listing = dict[str, list[dict[str, Any]]]


def _listing(pool: Path, frame: _Frame) -> tuple[Listing, list[Finding]]:
    """Return the rows of episodes.parquet by their partition's folder, and what is wrong with it and the dictionary."""
    path = pool / EPISODES_FILE
    found = _dictionary_findings(pool, frame)
    if not path.exists():
        reason = [] if frame.manifest and EPISODES_FILE in frame.manifest.files else [Finding(EPISODES_FILE, "missing")]
        return {}, found + reason
    found += _file_findings(pool, path, frame)
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            found += _schema_findings(EPISODES_FILE, file.schema_arrow, POOL_EPISODE_SCHEMA, frame)
            if column_fault(file.schema_arrow, POOL_EPISODE_SCHEMA):
                return {}, found  # said already
            table = file.read(columns=POOL_EPISODE_SCHEMA.names)
    except UNREADABLE as error:
        return {}, [*found, _reading_failed(EPISODES_FILE, error)]
    notes = _Notes(EPISODES_FILE)
    ids = table["episode_id"]
    _value_findings(notes, EPISODE_COLUMNS, table, lambda row: f"in episode {ids[row]}")
    listing: Listing = {}
    seen: set[str] = set()
    environments: dict[str, str] = {}
    for row in table.to_pylist():
        if None in row.values():
            continue  # said already
        _check_episode(notes, row, seen, environments)
        listing.setdefault(partition(str(row["set"]), str(row["scheme"])), []).append(row)
    return listing, [*found, *notes.findings()]


def _check_episode(notes: _Notes, row: Mapping[str, Any], seen: set[str], environments: dict[str, str]) -> None:
    """Hold one row of episodes.parquet against itself; environments: id by JSON, of those read before."""
    name, text = row["episode_id"], row["environment"]
    if name in seen:
        notes.add("episodes listed twice", f"episode {name} is listed twice")
    seen.add(name)
    if name != f"{row['environment_id']}.{row['scheme']}.{row['seed']}":
        notes.add(
            "episodes whose ids are others", f"episode {name} is not named after its environment, scheme and seed"
        )
    if text not in environments:
        try:
            environments[text] = Environment.from_json(text).id
        except SageccError:
            environments[text] = ""
    if environments[text] != row["environment_id"] or not row["environment_id"].startswith(f"{row['set']}-"):
        notes.add("episodes of other environments", f"episode {name}: its environment is not {row['environment_id']}")
    if row["lost_packets"] > row["sent_packets"]:
        notes.add("episodes with more packets lost than sent", f"episode {name} lost more packets than it sent")
    if not np.isclose(row["reward_mean"] * row["rows"], row["return"], rtol=RETURN_TOLERANCE, atol=1e-9):
        notes.add("returns that are not rows x mean", f"episode {name}: return is not rows x reward_mean")


def _dictionary_findings(pool: Path, frame: _Frame) -> list[Finding]:
    path = pool / COLUMNS_FILE
    if not path.exists():
        return [] if frame.manifest and COLUMNS_FILE in frame.manifest.files else [Finding(COLUMNS_FILE, "missing")]
    found = _file_findings(pool, path, frame)
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            table = file.read().replace_schema_metadata(None)
    except UNREADABLE as error:
        return [*found, _reading_failed(COLUMNS_FILE, error)]
    if frame.about.get(VERSION_KEY) == POOL_VERSION.encode() and not table.equals(dictionary(frame.windows.ticks)):
        found.append(Finding(COLUMNS_FILE, "is not the dictionary of schemas/pool.py"))
    return found


@dataclass
class _Last:
    """The row before, which may lie in an earlier row group or file."""

    episode: str = ""
    step: int = -1
    t_s: float = 0.0
    action: float = 1.0
    is_last: bool = True
    rows: int = 0
    total: float = 0.0
    size: float = 0.0


class _PartitionCheck:
    """One set and scheme: its files in order, a row group at a time.

    folder: within the pool. listed: its rows of episodes.parquet. advance: told how many rows have been read. episodes
    and rows: how many there were.
    """

    def __init__(
        self,
        pool: Path,
        folder: str,
        listed: Sequence[Mapping[str, Any]],
        frame: _Frame,
        advance: Callable[[int], object],
        stop: Event,
    ) -> None:
        self.episodes = self.rows = 0
        self._pool, self._folder, self._frame = pool, folder, frame
        self._advance, self._stop = advance, stop
        self._columns, self._schema = pool_columns(frame.windows.ticks), pool_schema(frame.windows.ticks)
        self._set, self._scheme = partition_of(Path(folder) / "part")
        self._expected = {row["episode_id"]: row for row in listed}
        self._seen: dict[str, str] = {}
        self._cut: set[str] = set()
        self._lost = False
        self._last = _Last()
        self._kernel: bytes | None = None

    def run(self) -> list[Finding]:
        """Return what is wrong with the partition."""
        found: list[Finding] = []
        unread = 0
        for name in self._names():
            if self._stop.is_set():
                return found
            path, notes = self._pool / name, _Notes(name)
            readable = False
            if path.exists():
                found += _file_findings(self._pool, path, self._frame)
                try:
                    readable = self._check_file(path, name, notes, found)
                except UNREADABLE as error:
                    found.append(_reading_failed(name, error))
            if not readable:
                self._lose()
                unread += 1
            found += notes.findings()
        notes = _Notes(self._folder)
        self._end_episode(notes)
        if not self._last.is_last and not self._lost:
            notes.add("", f"episode {self._last.episode} ends on a row that is not marked as its last")
        lacking = sorted(self._expected.keys() - self._seen.keys())
        if unread and lacking:
            notes.add("", f"{len(lacking):,} episodes have no rows that could be read, such as {lacking[0]}")
        else:
            for episode in lacking:
                notes.add("episodes without rows", f"episode {episode} of {EPISODES_FILE} has no rows here")
        return found + list(notes.findings())

    def _names(self) -> list[str]:
        """The partition's files, those included that only the manifest has."""
        there = {path.relative_to(self._pool).as_posix() for path in (self._pool / self._folder).glob("part-*.parquet")}
        listed = self._frame.manifest.files if self._frame.manifest else ()
        return sorted(there | {name for name in listed if name.startswith(f"{self._folder}/")})

    def _lose(self) -> None:
        """Rows are missing from here on: what was being read, and what comes next, may be cut."""
        self._cut.add(self._last.episode)
        self._lost = True

    def _check_file(self, path: Path, name: str, notes: _Notes, found: list[Finding]) -> bool:
        """Check one file; return whether its rows could be looked at."""
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            schema = file.schema_arrow
            version = (schema.metadata or {}).get(VERSION_KEY, b"").decode(errors="replace")
            wrong = _schema_findings(name, schema, self._schema, self._frame)
            kernel = (schema.metadata or {}).get(KERNEL_KEY, b"")
            if self._kernel is not None and kernel != self._kernel:
                wrong.append(Finding(name, "comes from another kernel than the files before it"))
            self._kernel = kernel
            found += wrong
            names = [column.name for column in self._columns]
            if not is_same_major(version) or column_fault(schema, self._schema):
                return False
            for group in range(file.num_row_groups):
                if self._stop.is_set():
                    return False
                table = file.read_row_group(group, columns=names, use_threads=False)
                self._check_rows(table, notes)
                self._advance(table.num_rows)
        return True

    def _check_rows(self, table: pa.Table, notes: _Notes) -> None:
        if not table.num_rows:
            return
        runs = Runs(table["episode_id"])
        ids, starts, ends = runs.values, runs.starts, runs.starts + runs.lengths
        step = table["step"].to_numpy()

        def where(row: int) -> str:
            return f"in episode {ids[int(np.searchsorted(ends, row, side='right'))]}, step {step[row]}"

        self.rows += table.num_rows
        if self._lost and step[0] > 0:
            self._last = _Last(ids[0], int(step[0]) - 1, -np.inf, table["pre_act"][0].as_py(), is_last=False)
            self._cut.add(ids[0])
            self._seen.setdefault(ids[0], notes.path)
        elif self._lost:
            self._last = _Last(self._last.episode)
        self._lost = False
        _value_findings(notes, self._columns, table, where)
        self._check_windows(table, notes, where)
        self._check_order(table, ids, starts, notes, where)
        self._check_episodes(table, ids, starts, ends, notes)

    def _check_windows(self, table: pa.Table, notes: _Notes, where: Callable[[int], str]) -> None:
        for column in self._columns:
            if not column.name.endswith(".avg"):
                continue
            stem = column.name.removesuffix(".avg")
            mean, low, high = (table[f"{stem}.{which}"].to_numpy() for which in ("avg", "min", "max"))
            wrong = (mean < low) | (mean > high)
            if wrong.any():
                row = int(np.argmax(wrong))
                notes.add(
                    "windows that contradict themselves", f"'{column.name}' is not between min and max {where(row)}"
                )

    def _check_order(
        self, table: pa.Table, ids: Sequence[str], starts: Array, notes: _Notes, where: Callable[[int], str]
    ) -> None:
        """Steps without a gap, time that moves on, first and last marked, each previous action the one before."""
        names = ("step", "t_s", "action", "pre_act", "is_first", "is_last")
        step, t_s, action, pre_act, first, last = (table[name].to_numpy() for name in names)
        goes_on = ids[0] == self._last.episode
        before = self._last if goes_on else _Last()
        new = np.zeros(len(step), np.bool_)
        new[starts] = True
        new[0] = not goes_on
        origin = np.repeat(starts, np.diff(np.append(starts, len(step))))
        origin[: starts[1] if len(starts) > 1 else len(step)] -= before.step + 1
        faults = {
            "steps out of order": step != np.arange(len(step)) - origin,
            "times out of order": ~new & (t_s <= np.concatenate([[before.t_s], t_s[:-1]])),
            "previous actions that are not": ~new & (pre_act != np.concatenate([[before.action], action[:-1]])),
            "wrong marks of a first row": first != new,
            "wrong marks of a last row": np.concatenate([[self._last.is_last], last[:-1]]) != new,
        }
        told = {
            "steps out of order": "the step does not follow the one before",
            "times out of order": "the time is not after the one before",
            "previous actions that are not": "'pre_act' is not the action before",
            "wrong marks of a first row": "'is_first' is wrong",
            "wrong marks of a last row": "'is_last' of the row before is wrong",
        }
        for kind, wrong in faults.items():
            if wrong.any():
                notes.add(kind, f"{told[kind]} {where(int(np.argmax(wrong)))}")

    def _check_episodes(self, table: pa.Table, ids: Sequence[str], starts: Array, ends: Array, notes: _Notes) -> None:
        """Each episode once, in order, in its place; adds up rows and rewards."""
        reward = table["reward"].to_numpy().astype(np.float64)
        totals, sizes = np.add.reduceat(reward, starts), np.add.reduceat(np.abs(reward), starts)
        for episode, start, end, total, size in zip(ids, starts, ends, totals, sizes, strict=True):
            if episode != self._last.episode:
                self._end_episode(notes)
                self._begin_episode(episode, notes)
            self._last.rows += int(end - start)
            self._last.total += float(total)
            self._last.size += float(size)
        for name in ("step", "t_s", "action", "is_last"):
            setattr(self._last, name, table[name][-1].as_py())

    def _begin_episode(self, episode: str, notes: _Notes) -> None:
        if episode in self._seen:
            notes.add(
                "episodes that were there before", f"episode {episode} is there twice, first in {self._seen[episode]}"
            )
        elif self._last.episode > episode:
            notes.add("episodes out of order", f"episode {episode} comes after {self._last.episode}")
        if self._expected and episode not in self._expected:
            notes.add(
                "episodes that are not listed",
                f"episode {episode} is not of {self._set}, {self._scheme} in {EPISODES_FILE}",
            )
        self._last = _Last(episode)
        self.episodes += 1
        self._seen.setdefault(episode, notes.path)

    def _end_episode(self, notes: _Notes) -> None:
        """Hold an episode's rows and return against episodes.parquet."""
        last, listed = self._last, self._expected.get(self._last.episode)
        if listed is None or last.episode in self._cut:
            return
        if last.rows != listed["rows"]:
            notes.add(
                "episodes of other lengths",
                f"episode {last.episode} has {last.rows:,} rows, {EPISODES_FILE} says {listed['rows']:,}",
            )
        elif abs(last.total - listed["return"]) > RETURN_TOLERANCE * (last.size + 1e-9):
            notes.add(
                "other returns",
                f"episode {last.episode}: rewards add up to {last.total:g}, {EPISODES_FILE} says {listed['return']:g}",
            )


_grid = cache(profile_environments)


def _against_grid(
    listing: Listing, profile: str | None, wanted: Sequence[Environment]
) -> tuple[str | None, list[Finding]]:
    """Return the profile that the pool was held against, and which environments each scheme lacks or has too many.

    A profile that was asked for (`wanted`) wants every scheme in each of its sets; otherwise a scheme that is in a set
    must be in all of its environments.
    """
    sets = {environment.set for environment in wanted}
    found = {folder: {row["environment_id"] for row in rows} for folder, rows in listing.items()}
    everything = set().union(*found.values())
    if profile is None:
        fitting = [name for name in PROFILES if everything <= {environment.id for environment in _grid(name)}]
        profile = min(fitting, key=lambda name: len(_grid(name)), default=None) if everything else None
        wanted = _grid(profile) if profile else ()
    grid = [(environment.set, environment.id) for environment in wanted] or [
        (row["set"], row["environment_id"]) for rows in listing.values() for row in rows
    ]
    whose = f"profile {profile}" if profile else "the other schemes"
    findings: list[Finding] = []
    for scheme in sorted({row["scheme"] for rows in listing.values() for row in rows}):
        for set_name in sorted(sets | {row["set"] for rows in listing.values() for row in rows}):
            folder = partition(set_name, scheme)
            if folder not in found and set_name not in sets:
                continue
            notes = _Notes(folder)
            ids = {environment_id for of, environment_id in grid if of == set_name}
            for lacking in sorted(ids - found.get(folder, set())):
                notes.add(f"environments of {whose} lacking", f"has no episode in {lacking} of {whose}")
            for extra in sorted(found.get(folder, set()) - ids):
                notes.add(f"environments outside {whose}", f"has an episode in {extra}, which is not of {whose}")
            findings += notes.findings()
    return profile, findings
