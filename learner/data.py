# SPDX-License-Identifier: Apache-2.0
"""The pool as a learner reads it: compiled once into one row-major file, then random windows of whole episodes.

Parquet is made for columns and analysts; a training step wants a few dozen consecutive rows from random places.
So the pool is compiled into `rows.f32` (rows x [features, log2 of the action, reward], float32, little-endian)
with an index of its episodes beside it, in a folder named after the pool's identity. The same pool is compiled
once; another pool never meets the first one's rows.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import shutil
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from tqdm import tqdm

from learner.scaling import Floats, Moments, Scaling, symlog
from schemas.errors import SageccError
from schemas.pool import ACTION_LOG2_LIMIT, FEATURE_NAMES, POOL_SCHEMA, POOL_VERSION

COMPILED_VERSION = 1
BATCH_ROWS = 65_536
MOMENTS_EVERY = 8
"""Rows between those that count for the features' moments."""

LOWEST_RETURNS = 1e-3
"""Share of returns left below the critic's range."""

COLUMNS = len(FEATURE_NAMES) + 2
_READ = [*FEATURE_NAMES, "action", "reward", "is_first", "is_last"]


@dataclass(frozen=True)
class PoolFile:
    """One Parquet file of the pool, its footer already checked against the schema."""

    path: Path
    rows: int
    digest: str


@dataclass(frozen=True)
class CompiledPool:
    """A pool ready for sampling.

    rows: float32 [N, 71], memory-mapped: the features in schema order, log2(action) clipped, reward.
    starts, lengths: first row and number of rows of each episode, int64 [E].
    identity: SHA-256 over the pool's files (path, length, Parquet footer).
    """

    rows: Floats
    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    moments: Moments
    identity: str

    def value_range(self, discount: float) -> tuple[float, float]:
        """Return the range of the discounted returns from each row to its episode's end.

        The lower bound is the return that LOWEST_RETURNS of the rows lie below, the upper bound the highest.
        """
        returns = np.concatenate(
            [
                discounted_returns(self.rows[start : start + length, -1], discount).astype(np.float32)
                for start, length in zip(self.starts, self.lengths, strict=True)
            ]
        )
        low, high = float(np.quantile(returns, LOWEST_RETURNS)), float(returns.max())
        return (low, high) if high - low > 1e-3 else (low - 1.0, high + 1.0)


def discounted_returns(rewards: Floats, discount: float) -> npt.NDArray[np.float64]:
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

    Raises SageccError where the pool is empty, a file is unreadable, of another schema version, or lacks a column.
    """
    paths = sorted(pool.glob("set=*/scheme=*/part-*.parquet"))
    if not paths:
        raise SageccError(
            f"no pool at {pool}: expected set=*/scheme=*/part-*.parquet there; make it with 'sagecc pool'"
        )
    return [_check(path, pool) for path in paths]


def _check(path: Path, pool: Path) -> PoolFile:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 8))
            (footer_length,) = struct.unpack("<I", file.read(8)[:4])
            file.seek(max(0, size - 8 - footer_length))
            footer = file.read(footer_length)
        parquet = pq.ParquetFile(path)
    except (OSError, struct.error, pa.ArrowException) as error:
        raise _damaged(path, error) from error
    with parquet:
        schema = parquet.schema_arrow
        rows = parquet.metadata.num_rows
    version = (schema.metadata or {}).get(b"sagecc.pool_version", b"").decode()
    if version.split(".")[0] != POOL_VERSION.split(".")[0]:
        raise SageccError(
            f"{path} has pool schema version {version or '(none)'}, this learner reads {POOL_VERSION}: "
            "derive the pool again with 'sagecc pool'"
        )
    for name in _READ:
        if name not in schema.names or schema.field(name).type != POOL_SCHEMA.field(name).type:
            raise SageccError(f"{path} lacks column '{name}' of type {POOL_SCHEMA.field(name).type}: not a sagecc pool")
    text = f"{path.relative_to(pool).as_posix()} {size} ".encode()
    return PoolFile(path, rows, hashlib.sha256(text + footer).hexdigest())


def _damaged(path: Path, error: Exception) -> SageccError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return SageccError(f"{path} is truncated or corrupt ({reason}): derive the pool again with 'sagecc pool'")


def identity(files: list[PoolFile]) -> str:
    """Return the pool's identity: what it holds, whatever folder it lies in and whenever it was copied there."""
    return hashlib.sha256("".join(f.digest for f in files).encode()).hexdigest()


def compile_pool(pool: Path, cache: Path) -> CompiledPool:
    """Return the compiled form of the pool, from `cache/<identity>/` or made there (shows progress on stderr).

    Raises SageccError for a pool that is empty, damaged, of another version, or holds what is not a number.
    """
    files = pool_files(pool)
    key = identity(files)
    folder = cache / key[:16]
    if not (folder / "index.json").exists():
        cache.mkdir(parents=True, exist_ok=True)
        beside = cache / f".tmp-{os.getpid()}-{key[:16]}"
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir()
        try:
            _compile(files, key, beside)
            shutil.rmtree(folder, ignore_errors=True)
            beside.replace(folder)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    return _open(folder, key)


def _open(folder: Path, key: str) -> CompiledPool:
    try:
        index = json.loads((folder / "index.json").read_text())
        starts, lengths = (np.load(folder / f"{name}.npy") for name in ("starts", "lengths"))
        rows = np.memmap(folder / "rows.f32", dtype="<f4", mode="r").reshape(-1, COLUMNS)
        moments = Moments(**{name: np.array(values) for name, values in index["moments"].items()})
        whole = index["identity"] == key and index["version"] == COMPILED_VERSION and len(rows) == index["rows"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SageccError(f"{folder} is damaged ({error}): remove it, it is made again from the pool") from error
    if not whole:
        raise SageccError(f"{folder} does not fit its pool: remove it, it is made again")
    return CompiledPool(rows, starts, lengths, moments, key)


def _compile(files: list[PoolFile], key: str, folder: Path) -> None:
    """Write rows.f32, the episode index and, last, index.json."""
    total = sum(f.rows for f in files)
    sums = np.zeros((4, len(FEATURE_NAMES)))
    firsts: list[npt.NDArray[np.int64]] = []
    lasts: list[npt.NDArray[np.int64]] = []
    done = counted = 0
    with (
        (folder / "rows.f32").open("wb") as out,
        tqdm(total=total, unit="row", unit_scale=True, desc="compile pool", disable=None) as bar,
    ):
        for file in files:
            for rows, is_first, is_last in _batches(file):
                features = rows[::MOMENTS_EVERY, : len(FEATURE_NAMES)]
                counted += len(features)
                for i, x in enumerate((features, symlog(features))):
                    sums[2 * i] += x.sum(axis=0, dtype=np.float64)
                    sums[2 * i + 1] += np.square(x, dtype=np.float64).sum(axis=0)
                firsts.append(done + np.flatnonzero(is_first))
                lasts.append(done + np.flatnonzero(is_last))
                out.write(rows.tobytes())
                done += len(rows)
                bar.update(len(rows))
        out.flush()
        os.fsync(out.fileno())
    if done == 0:
        raise SageccError(f"the pool's {len(files)} files hold no rows: collect and derive it again")
    starts, ends = np.concatenate(firsts), np.concatenate(lasts) + 1
    if len(starts) != len(ends) or starts[0] != 0 or ends[-1] != done or (starts[1:] != ends[:-1]).any():
        raise SageccError(
            "the pool's is_first and is_last do not frame whole episodes: derive it again with 'sagecc pool'"
        )
    mean, square, symlog_mean, symlog_square = sums / counted
    moments = {
        "mean": mean,
        "deviation": np.sqrt(np.maximum(square - mean**2, 0)),
        "symlog_mean": symlog_mean,
        "symlog_deviation": np.sqrt(np.maximum(symlog_square - symlog_mean**2, 0)),
    }
    np.save(folder / "starts.npy", starts)
    np.save(folder / "lengths.npy", ends - starts)
    index = {
        "version": COMPILED_VERSION,
        "identity": key,
        "rows": done,
        "columns": [*FEATURE_NAMES, "log2_action", "reward"],
        "moments": {name: values.tolist() for name, values in moments.items()},
    }
    (folder / "index.json").write_text(json.dumps(index))


def _batches(file: PoolFile) -> Iterator[tuple[Floats, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]]:
    """Read one Parquet file in blocks of rows [n, 71], with their first and last flags."""
    try:
        with pq.ParquetFile(file.path) as parquet:
            for batch in parquet.iter_batches(BATCH_ROWS, columns=_READ):
                rows = np.empty((batch.num_rows, COLUMNS), np.float32)
                for i, name in enumerate((*FEATURE_NAMES, "action", "reward")):
                    rows[:, i] = batch.column(name).to_numpy(zero_copy_only=False)
                bad = ~np.isfinite(rows).all(axis=0)
                if bad.any() or (rows[:, -2] <= 0).any():
                    name = _READ[int(bad.argmax())] if bad.any() else "action"
                    raise SageccError(
                        f"{file.path}: column '{name}' holds values that are not finite or an action that is not "
                        "above 0: derive the pool again with 'sagecc pool'"
                    )
                rows[:, -2] = np.clip(np.log2(rows[:, -2]), -ACTION_LOG2_LIMIT, ACTION_LOG2_LIMIT)
                is_first, is_last = (
                    batch.column(name).to_numpy(zero_copy_only=False) for name in ("is_first", "is_last")
                )
                yield rows, is_first, is_last
    except (OSError, pa.ArrowException) as error:
        raise _damaged(file.path, error) from error


class WindowSampler:
    """Random windows of consecutive rows, each within one episode; every window of the pool is equally likely.

    The batch of a step is a function of the seed and the step alone, so a run continues from any step as if it
    had never stopped.
    """

    def __init__(self, pool: CompiledPool, scaling: Scaling, batch: int, window: int, seed: int) -> None:
        """Raises SageccError if no episode is as long as `window` rows."""
        possible = np.maximum(pool.lengths - window + 1, 0)
        if not possible.any():
            raise SageccError(
                f"a window of {window} rows is longer than every episode of the pool (the longest has "
                f"{pool.lengths.max()}): choose a smaller window"
            )
        self._pool, self._scaling, self._seed = pool, scaling, seed
        self._batch, self._window = batch, window
        self._ends = np.cumsum(possible)
        self._first_row = pool.starts - (self._ends - possible)

    def batch(self, step: int) -> tuple[Floats, Floats, Floats]:
        """Return the batch of `step`: scaled observations [T, B, 69], log2 actions [T, B], rewards [T, B]."""
        generator = np.random.Generator(np.random.Philox(key=self._seed, counter=[0, 0, 0, step]))
        chosen = generator.integers(self._ends[-1], size=self._batch)
        first = chosen + self._first_row[np.searchsorted(self._ends, chosen, side="right")]
        rows = self._pool.rows[np.arange(self._window)[:, None] + first]
        return self._scaling(rows[..., :-2]), np.ascontiguousarray(rows[..., -2]), np.ascontiguousarray(rows[..., -1])


class Prefetch:
    """Makes the batches of a run of steps ahead of their use, in a thread; use it as a context manager."""

    def __init__(self, make: Callable[[int], tuple[Floats, ...]], steps: range, ahead: int = 4) -> None:
        self.waited_s = 0.0
        self._items: queue.Queue[tuple[Floats, ...] | Exception] = queue.Queue(ahead)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, args=(make, steps), daemon=True)

    def __enter__(self) -> Prefetch:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stopped.set()
        self._thread.join()

    def next(self) -> tuple[Floats, ...]:
        """Return the next step's batch, or raise what making it raised."""
        begun = time.perf_counter()
        item = self._items.get()
        self.waited_s += time.perf_counter() - begun
        if isinstance(item, Exception):
            raise item
        return item

    def _work(self, make: Callable[[int], tuple[Floats, ...]], steps: range) -> None:
        for step in steps:
            try:
                item: tuple[Floats, ...] | Exception = make(step)
            except Exception as error:
                item = error
            while not self._stopped.is_set():
                try:
                    self._items.put(item, timeout=0.1)
                    break
                except queue.Full:
                    continue
            if self._stopped.is_set() or isinstance(item, Exception):
                return
