# SPDX-License-Identifier: Apache-2.0
"""The pool compiled for random reading: one row-major file and an index of its episodes, made once.

Parquet is made for columns and analysts; a training step wants a few dozen consecutive rows from random places. So the
pool is compiled into `rows.f32` (rows x [features, log2 of the action, reward], float32, little-endian), with actions
and rewards once more by themselves, and an index of its episodes. The folder is named after the pool's identity. The
same pool is compiled once, and again by another version (common.versions); another pool never meets the first one's
rows. Compiling takes the memory of one block of rows, whatever the pool's size. One process at a time compiles a pool,
others wait for it; what a killed one left is made again. The index has every other file's hash, but for the rows, whose
blocks have checksums (learner.rows).
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import re
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from sagecc.common import versions
from sagecc.common.arrays import Doubles, Floats
from sagecc.common.document import DocumentError, read_document
from sagecc.common.errors import SageccError
from sagecc.common.files import parquet_digest, sha256_file, sync
from sagecc.common.locks import in_turn
from sagecc.common.manifest import MANIFEST, Manifest, digest
from sagecc.common.marks import Mark, remove_leftover
from sagecc.common.parquet import open_parquet, read_parquet
from sagecc.common.tables import UNREADABLE, column_fault, reading_error, select_columns
from sagecc.learner.privileged import Recorded
from sagecc.learner.rows import (
    ACTIONS_FILE,
    BYTES_EACH,
    CHECKSUMS_FILE,
    COLUMNS,
    REWARDS_FILE,
    ROW_BYTES,
    ROWS_FILE,
    RowWriter,
    columns_of,
)
from sagecc.learner.selection import EVERYTHING, Selection, Trajectories, sources, weights
from sagecc.policy.scaling import Moments, symlog
from sagecc.schemas.partitions import PARTS, partition_of
from sagecc.schemas.pool import (
    ACTION_LOG2_LIMIT,
    EFFECTIVE_KEY,
    FEATURE_NAMES,
    IS_KICKED,
    POOL_SCHEMA,
    VERSION_KEY,
    WINDOWS_KEY,
    check_version,
)

BLOCK_ROWS = 65_536
MOMENTS_EVERY = 8
"""The features' moments are those of every so many rows of an episode, from its first on."""

EPISODES_FILE, SUMS_FILE, INDEX_FILE = "episodes.parquet", "sums.npy", "index.json"
KICKS_FILE = "kicks.npy"
"""Beside the rows; the index is written last."""

LOWEST_RETURNS = 1e-3
"""Share of returns left below the critic's range."""

_FILES = (
    *(ROWS_FILE, CHECKSUMS_FILE, ACTIONS_FILE, REWARDS_FILE),
    *(EPISODES_FILE, SUMS_FILE, KICKS_FILE, INDEX_FILE),
)
_COMPILED_MARK = Mark(
    "a compiled pool",
    "|".join(map(re.escape, _FILES)),
    lambda folder: re.fullmatch(r"[0-9a-f]{16}", folder.name) is not None,
)
_READ = ["episode_id", *FEATURE_NAMES, "action", "reward", "is_first", "is_last"]


@dataclass(frozen=True)
class PoolFile:
    """One Parquet file of the pool, its footer already checked against the schema."""

    path: Path
    """The file."""
    set: str
    """Its partition's set."""
    scheme: str
    """Its partition's scheme."""
    rows: int
    """Number of rows."""
    digest: str
    """SHA-256 over its path in the pool, length and footer."""
    windows: str = ""
    """Observation windows of its features in ticks ("10,200,1000"); empty if its metadata has none."""
    effective: str = ""
    """The schemes whose windows are effective ones (pool.effective)."""


@dataclass(frozen=True)
class CompiledPool:
    """A pool, or a selection of it, ready for sampling."""

    folder: Path
    """Holds rows.f32 (float32 [N, 71]: features in schema order, log2(action) clipped, reward) and the rest."""
    starts: npt.NDArray[np.int64]
    """First row of each episode [E]."""
    lengths: npt.NDArray[np.int64]
    """Number of rows of each episode [E]."""
    weights: Doubles
    """How often a window of each episode is drawn, relative to the others'; above 0 [E]."""
    trajectories: Trajectories
    """Ids, sets, schemes and mean rewards of the episodes."""
    sums: Doubles
    """Sums of x, x^2, symlog(x) and symlog(x)^2 of each feature x over every 8th row of each episode [E, 4, 69]."""
    counted: npt.NDArray[np.int64]
    """Number of rows in those sums [E]."""
    kicks: npt.NDArray[np.int64]
    """Rows whose action is the lab's doing (schemas.disturbance), in order; of all episodes, selected or not."""
    identity: str
    """SHA-256 over the pool's files (path, length, Parquet footer) and the selection."""
    windows: str = ""
    """Observation windows of its features in ticks, as its files say; a policy must see the same ones."""
    effective: str = ""
    """The schemes whose windows are effective ones (pool.effective), as its files say."""
    sources: npt.NDArray[np.int64] | None = None
    """Number of each episode's source [E], where sources have shares of the windows drawn."""
    shares: tuple[float, ...] = (1.0,)
    """Share of the windows drawn from each source, by its number."""
    rewards: Floats | None = None
    """Rewards of all of the folder's rows in place of those that it has (learner.relabelled), float32 [N]."""
    recorded: Recorded | None = None
    """What only the recorder knows of the episodes (learner.privileged), where critics are to see it."""

    @property
    def rows(self) -> int:
        """Number of rows of all episodes."""
        return int(self.lengths.sum())

    @property
    def rows_file(self) -> Path:
        """The file from which windows are read."""
        return self.folder / ROWS_FILE

    def columns(self) -> tuple[Floats, Floats]:
        """Return log2 of the actions and the rewards of all of the folder's rows, float32 [N] each."""
        actions, rewards = columns_of(self.folder)
        return actions, rewards if self.rewards is None else self.rewards

    def select(self, selection: Selection) -> CompiledPool:
        """Return the chosen episodes, weighted.

        Raises:
            SageccError: The selection is empty, or names a scheme or set that the pool lacks.
        """
        if selection == EVERYTHING:
            return self
        weight = weights(selection, self.trajectories)
        kept = np.flatnonzero(weight)
        digest = hashlib.sha256(self.identity.encode() + kept.tobytes() + weight[kept].tobytes())
        source, shares = None, self.shares
        if selection.shares:
            source = sources(selection, self.trajectories)[kept]
            shares = (1 - math.fsum(selection.shares.values()), *selection.shares.values())
            digest.update(source.tobytes() + repr(shares).encode())
        return replace(
            self.part(weight > 0), weights=weight[kept], identity=digest.hexdigest(), sources=source, shares=shares
        )

    def part(self, chosen: npt.NDArray[np.bool_]) -> CompiledPool:
        """Return some of the episodes, weighted as they are.

        Args:
            chosen: marks them [E].
        """
        kept = np.flatnonzero(chosen)
        return replace(
            self,
            starts=self.starts[kept],
            lengths=self.lengths[kept],
            weights=self.weights[kept],
            trajectories=self.trajectories.part(kept),
            sums=self.sums[kept],
            counted=self.counted[kept],
            identity=hashlib.sha256(self.identity.encode() + kept.tobytes()).hexdigest(),
            sources=None if self.sources is None else self.sources[kept],
            recorded=self.recorded and self.recorded.part(kept),
        )

    def drawn(self, possible: npt.NDArray[np.int64]) -> Doubles:
        """Return how often a window of each episode is drawn, relative to the others [E].

        Args:
            possible: number of windows in each episode [E].

        Raises:
            SageccError: A source that has a share has no window.
        """
        drawn = possible * self.weights
        if self.sources is None:
            return drawn
        totals = np.bincount(self.sources, drawn, len(self.shares))
        if not totals.all():
            names = np.unique(self.trajectories.schemes[np.isin(self.sources, np.flatnonzero(totals == 0))])
            raise SageccError(
                f"a source of data.shares ({', '.join(names) or 'left out by data.sets'}) has no episode as long as a"
                " window: choose a smaller window, or leave the source out"
            )
        return np.asarray(drawn * (np.array(self.shares) / totals)[self.sources])

    @property
    def moments(self) -> Moments:
        """Mean and deviation of each feature over the episodes' rows, whatever their weights."""
        mean, square, symlog_mean, symlog_square = self.sums.sum(axis=0) / self.counted.sum()
        return Moments(
            mean,
            np.sqrt(np.maximum(square - mean**2, 0)),
            symlog_mean,
            np.sqrt(np.maximum(symlog_square - symlog_mean**2, 0)),
        )

    def value_range(self, discount: float, period: int = 1) -> tuple[float, float]:
        """Return the range of the discounted returns from each row to its episode's end.

        Args:
            discount: discount from one period to the next.
            period: rows per decision; rewards are means over them.

        Returns:
            The return that LOWEST_RETURNS of the rows are below, and the highest.
        """
        _, rewards = self.columns()
        returns = np.concatenate(
            [
                discounted_returns(means[phase::period], discount).astype(np.float32)
                for start, length in zip(self.starts, self.lengths, strict=True)
                if length >= period
                for means in [_means(rewards[start : start + length], period)]
                for phase in range(period)
            ]
        )
        low, high = float(np.quantile(returns, LOWEST_RETURNS)), float(returns.max())
        return (low, high) if high - low > 1e-3 else (low - 1.0, high + 1.0)


def _means(rewards: Floats, period: int) -> Doubles:
    """Return the mean of each row's reward and the period - 1 that follow [n - period + 1]."""
    return np.asarray(np.lib.stride_tricks.sliding_window_view(rewards, period).mean(axis=-1, dtype=np.float64))


def discounted_returns(rewards: Floats | Doubles, discount: float) -> Doubles:
    """Return sum_k discount^k r_(t+k) for each t of one episode [n], in log2(n) passes.

    A sum over 2n rewards is the one over n plus discount^n times the one over n that follows.
    """
    returns = rewards.astype(np.float64)
    span = 1
    while span < len(returns) and discount**span > 1e-12:
        returns[:-span] += discount**span * returns[span:]
        span *= 2
    return returns


def pool_files(pool: Path) -> list[PoolFile]:
    """List and check the pool's Parquet files, in the order of their paths.

    Raises:
        SageccError: The pool is empty, or a file is unreadable, of another schema version, or lacks a column.
    """
    paths = sorted(pool.glob(PARTS))
    if not paths:
        raise SageccError(
            f"no pool at {pool}: expected set=*/scheme=*/part-*.parquet there; make it with 'sagecc pool'"
        )
    return [_check(path, pool) for path in paths]


def _check(path: Path, pool: Path) -> PoolFile:
    try:
        parquet = open_parquet(path)
        digest = parquet_digest(path, path.relative_to(pool).as_posix())
        with parquet:
            schema = parquet.schema_arrow
            rows = parquet.metadata.num_rows
        metadata = schema.metadata or {}
        check_version(path, metadata.get(VERSION_KEY, b"").decode())
        fault = column_fault(schema, select_columns(POOL_SCHEMA, _READ))
        windows, effective = (metadata.get(key, b"").decode() for key in (WINDOWS_KEY, EFFECTIVE_KEY))
    except (*UNREADABLE, struct.error) as error:
        raise _damaged(path, error) from error
    if fault:
        raise SageccError(f"{path} {fault}: not a sagecc pool")
    return PoolFile(path, *partition_of(path), rows, digest, windows, effective)


def _damaged(path: Path, error: Exception) -> SageccError:
    return reading_error(path, error, "derive the pool again with 'sagecc pool'")


def identity(files: list[PoolFile]) -> str:
    """Return the pool's identity: a digest of its content that does not depend on its folder or on times."""
    return hashlib.sha256("".join(f.digest for f in files).encode()).hexdigest()


def compile_pool(pool: Path, cache: Path) -> CompiledPool:
    """Return the compiled form of a pool; compile it if that has not been done (shows progress on stderr).

    Args:
        pool: the pool's folder.
        cache: folder of the compiled pools.

    Raises:
        SageccError: The pool is empty, damaged, of another version, changes meanwhile or holds values that are not
            finite; the compiled form is damaged; or the disk is full.
    """
    files = pool_files(pool)
    windows = sorted({file.windows for file in files})
    if len(windows) > 1:
        raise SageccError(
            f"the pool at {pool} has features of several observation windows ({'; '.join(windows)}): "
            "derive it again with 'sagecc pool'"
        )
    effective = {file.effective for file in files}
    if len(effective) > 1:
        raise SageccError(
            f"the pool at {pool} has effective windows in some of its files only: derive it again with 'sagecc pool'"
        )
    key = identity(files)
    folder = cache / key[:16]
    if not _is_compiled(folder):
        cache.mkdir(parents=True, exist_ok=True)
        with in_turn(cache / f".lock-{folder.name}", "another process compiles this pool: waiting for it"):
            if not _is_compiled(folder):
                _make(pool, files, key, folder)
    return replace(_open(folder, key), windows=windows[0], effective=effective.pop())


def _is_compiled(folder: Path) -> bool:
    """Tell whether this version compiled what is in `folder`; damage is reported when it is opened."""
    try:
        index = read_document(folder / INDEX_FILE)
    except FileNotFoundError:
        return False
    except (OSError, SageccError):
        return True
    return not isinstance(index, dict) or index.get("version") == versions.COMPILED


def _make(pool: Path, files: list[PoolFile], key: str, folder: Path) -> None:
    beside = folder.with_name(f".tmp-{folder.name}")
    remove_leftover(beside)
    needed, free = sum(f.rows for f in files) * BYTES_EACH, shutil.disk_usage(folder.parent).free
    if needed > free:
        raise SageccError(
            f"{folder.parent} has {free / 1e9:.1f} GB left, the compiled pool takes {needed / 1e9:.1f} GB: make room "
            "or choose another place with --cache"
        )
    _check_manifest(pool, files)
    beside.mkdir()
    try:
        _compile(files, key, beside)
        if identity(pool_files(pool)) != key:
            raise SageccError(f"the pool at {pool} changed while it was compiled: start again")
        _COMPILED_MARK.remove(folder)
        beside.replace(folder)
        sync(folder.parent)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise SageccError(
                f"no space left at {folder.parent}: the compiled pool takes {needed / 1e9:.1f} GB"
            ) from error
        raise
    finally:
        remove_leftover(beside)


def _check_manifest(pool: Path, files: list[PoolFile]) -> None:
    """Raise SageccError if a pool's files are not those of its manifest; a part that DVC pulled has no manifest."""
    if not (pool / MANIFEST).exists():
        return
    listed = {name: entry.sha256 for name, entry in Manifest.read(pool).files.items() if "/" in name}
    present = {file.path.relative_to(pool).as_posix(): file.path for file in files}
    for name in sorted(listed.keys() | present.keys()):
        if name not in present:
            raise SageccError(
                f"{pool / name} is missing: derive the pool again with 'sagecc pool', or remove {pool / MANIFEST} to "
                "learn from a part of it"
            )
        if listed.get(name) != sha256_file(present[name]):
            raise SageccError(
                f"{present[name]} is not the file that {MANIFEST} describes: derive the pool again with 'sagecc pool'"
            )


def _open(folder: Path, key: str) -> CompiledPool:
    try:
        index = read_document(folder / INDEX_FILE)
        if index.pop("sha256") != digest(index):
            raise ValueError(f"{INDEX_FILE}: its own hash does not hold")
        if index["identity"] != key or (folder / ROWS_FILE).stat().st_size != index["rows"] * ROW_BYTES:
            raise ValueError(f"{ROWS_FILE} does not fit its pool")
        for name, sha256 in index["files"].items():
            if sha256_file(folder / name) != sha256:
                raise ValueError(f"{name} is not the file that {INDEX_FILE} describes")
        episodes = read_parquet(folder / EPISODES_FILE)
        sums = np.load(folder / SUMS_FILE)
        kicks = np.load(folder / KICKS_FILE) if KICKS_FILE in index["files"] else np.empty(0, np.int64)
        starts, lengths, counted, mean_rewards = (
            episodes[name].to_numpy() for name in ("start", "rows", "counted", "reward_mean")
        )
        ids, sets, schemes = (np.array(episodes[name].to_pylist()) for name in ("episode_id", "set", "scheme"))
    except FileNotFoundError as error:
        raise SageccError(f"{error.filename} is missing: remove {folder}, it is made again from the pool") from None
    except (DocumentError, OSError, ValueError, KeyError, TypeError, AttributeError, pa.ArrowException) as error:
        raise reading_error(folder, error, "remove it, it is made again from the pool") from error
    trajectories = Trajectories(ids, sets, schemes, mean_rewards)
    return CompiledPool(
        folder=folder,
        starts=starts,
        lengths=lengths,
        weights=np.ones(len(starts)),
        trajectories=trajectories,
        sums=sums,
        counted=counted,
        kicks=kicks,
        identity=key,
    )


def _compile(files: list[PoolFile], key: str, folder: Path) -> None:
    """Write the rows with their checksums, the rewards, the episodes and their sums and, last, the index."""
    episodes, kicked = _Episodes(), list[npt.NDArray[np.int64]]()
    with (
        RowWriter(folder) as rows_out,
        tqdm(total=sum(f.rows for f in files), unit="row", unit_scale=True, desc="compile pool", disable=None) as bar,
    ):
        for file in files:
            for rows, ids, is_first, is_last, is_kicked in _blocks(file):
                kicked.append(episodes.rows + np.flatnonzero(is_kicked))
                episodes.add(file, rows, ids, is_first, is_last)
                rows_out.write(rows)
                bar.update(len(rows))
    if not episodes.rows:
        raise SageccError(f"the pool's {len(files)} files hold no rows: collect and derive it again")
    episodes.write(folder)
    if any(len(rows) for rows in kicked):
        np.save(folder / KICKS_FILE, np.concatenate(kicked))
    index = {
        "version": versions.COMPILED,
        "identity": key,
        "rows": episodes.rows,
        "episodes": len(episodes.entries),
        "columns": [*FEATURE_NAMES, "log2_action", "reward"],
        "files": {path.name: sha256_file(path) for path in sorted(folder.iterdir()) if path.name != ROWS_FILE},
    }
    (folder / INDEX_FILE).write_text(json.dumps(index | {"sha256": digest(index)}))
    for path in folder.iterdir():
        sync(path)


class _Episodes:
    """The index of a compiled pool's episodes, gathered from blocks of rows in their order."""

    def __init__(self) -> None:
        self.rows = 0
        """Rows added so far."""
        self.entries: list[dict[str, object]] = []
        """Row of the index of each whole episode so far."""
        self._sums: list[Doubles] = []
        self._start = 0
        self._current: dict[str, object] | None = None
        self._total = np.zeros((4, len(FEATURE_NAMES)))
        self._counted, self._reward = 0, 0.0

    def add(
        self,
        file: PoolFile,
        rows: Floats,
        ids: pa.Array,
        is_first: npt.NDArray[np.bool_],
        is_last: npt.NDArray[np.bool_],
    ) -> None:
        """Add a block of rows.

        Args:
            file: the file that the block is from.
            rows: the block [n, 71].
            ids: episode of each row [n].
            is_first: marks episodes' first rows [n].
            is_last: marks episodes' last rows [n].

        Raises:
            SageccError: First and last rows do not alternate.
        """
        cuts = np.unique([0, *np.flatnonzero(is_first), *(np.flatnonzero(is_last) + 1), len(rows)])
        for begin, end in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
            if is_first[begin] != (self._current is None):
                raise _unframed()
            if self._current is None:
                self._start = self.rows + begin
                self._current = {"episode_id": ids[begin].as_py(), "set": file.set, "scheme": file.scheme}
            offset = (self._start - self.rows - begin) % MOMENTS_EVERY
            x = rows[begin + offset : end : MOMENTS_EVERY, : len(FEATURE_NAMES)]
            for i, values in enumerate((x, symlog(x))):
                self._total[2 * i] += values.sum(axis=0, dtype=np.float64)
                self._total[2 * i + 1] += np.square(values, dtype=np.float64).sum(axis=0)
            self._counted += len(x)
            self._reward += float(rows[begin:end, -1].sum(dtype=np.float64))
            if is_last[end - 1]:
                self._finish(self.rows + end - self._start)
        self.rows += len(rows)

    def _finish(self, length: int) -> None:
        totals = {"start": self._start, "rows": length, "counted": self._counted, "reward_mean": self._reward / length}
        self.entries.append({**(self._current or {}), **totals})
        self._sums.append(self._total.copy())
        self._total[:] = 0
        self._counted, self._reward, self._current = 0, 0.0, None

    def write(self, folder: Path) -> None:
        """Write the index of the episodes, and their sums.

        Raises:
            SageccError: The last episode has no end.
        """
        if self._current is not None:
            raise _unframed()
        np.save(folder / SUMS_FILE, np.stack(self._sums))
        pq.write_table(pa.Table.from_pylist(self.entries), folder / EPISODES_FILE)


def _unframed() -> SageccError:
    return SageccError(
        "the pool's is_first and is_last do not frame whole episodes: derive it again with 'sagecc pool'"
    )


_Flags = npt.NDArray[np.bool_]


def _blocks(file: PoolFile) -> Iterator[tuple[Floats, pa.Array, _Flags, _Flags, _Flags]]:
    """Read one Parquet file in blocks of rows [n, 71], with their episodes' ids, first, last and kicked flags."""
    try:
        with open_parquet(file.path, read_dictionary=["episode_id"]) as parquet:
            disturbed = IS_KICKED.name in parquet.schema_arrow.names
            for batch in parquet.iter_batches(BLOCK_ROWS, columns=[*_READ, *([IS_KICKED.name] if disturbed else [])]):
                rows = np.empty((batch.num_rows, COLUMNS), np.float32)
                for i, name in enumerate((*FEATURE_NAMES, "action", "reward")):
                    rows[:, i] = batch.column(name).to_numpy(zero_copy_only=False)
                bad = ~np.isfinite(rows).all(axis=0)
                if bad.any() or (rows[:, -2] <= 0).any():
                    name = (*FEATURE_NAMES, "action", "reward")[int(bad.argmax())] if bad.any() else "action"
                    raise SageccError(
                        f"{file.path}: column '{name}' holds values that are not finite or an action that is not "
                        "above 0: derive the pool again with 'sagecc pool'"
                    )
                rows[:, -2] = np.clip(np.log2(rows[:, -2]), -ACTION_LOG2_LIMIT, ACTION_LOG2_LIMIT)
                is_first, is_last = (
                    batch.column(name).to_numpy(zero_copy_only=False) for name in ("is_first", "is_last")
                )
                is_kicked = (
                    batch.column(IS_KICKED.name).to_numpy(zero_copy_only=False)
                    if disturbed
                    else np.zeros(len(rows), np.bool_)
                )
                yield rows, batch.column("episode_id"), is_first, is_last, is_kicked
    except UNREADABLE as error:
        raise _damaged(file.path, error) from error
