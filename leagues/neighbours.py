# SPDX-License-Identifier: Apache-2.0
"""A compressed index of the whole pool, for distances of many transitions.

68 million vectors of 139 floats are 38 GB, and graphs over them (HNSW) more than that. But a state resembles the one
after it, and a window's average its minimum: DIMENSIONS principal components hold nearly all of a vector. So the index
is faiss's IVF over these with 4-bit quantisation: a vector is 32 bytes and an id, and a query reads only the lists
near it. It is split into shards of a few million rows, built and searched one after another, so that memory does not
grow with the pool and a killed build resumes at its shard. Candidates are compared again, with the pool's own rows.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from sagecc.common import versions
from sagecc.common.arrays import Floats, Ints
from sagecc.common.errors import SageccError
from sagecc.common.files import write_atomically
from sagecc.common.locks import in_turn
from sagecc.common.optional import requires_extra
from sagecc.leagues.distance import NONE, Query, Search, cosine_distance
from sagecc.leagues.transitions import SIZE, PoolTransitions

with requires_extra("analysis"):
    import faiss

SHARD_ROWS = 1 << 22
DIMENSIONS = 64
"""Principal components, rotated at random so that they weigh alike; each is quantised to 4 bits."""
TRAINED_ON = 1 << 17
READ_BYTES = 1 << 20
CANDIDATES = 128
"""Transitions compared again for each query."""
PROBED = 16
"""One in so many lists is searched, but MIN_PROBED at least."""
MIN_PROBED = 16


def prepare(pool: PoolTransitions, cache: Path, seed: int = 0) -> Path:
    """Build the missing parts of the pool's index.

    Args:
        pool: the transitions to index.
        cache: the index lies in a folder of it, named after what decides it.
        seed: of the sample that the index is trained on.

    Returns:
        The index's folder.
    """
    text = f"{versions.DISTANCE} {pool.pool.identity} {pool.space.identity} {seed} {SHARD_ROWS}"
    folder = cache / hashlib.sha256(text.encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    with in_turn(folder, "another process builds this index: waiting for it"):
        _build(pool, folder, seed)
    return folder


def _build(pool: PoolTransitions, folder: Path, seed: int) -> None:
    empty_index = folder / "trained.faiss"
    if not empty_index.exists():
        _write(empty_index, _train(pool, seed))
    rows = pool.pool.rows
    with tqdm(total=rows, desc="index", unit=" rows", unit_scale=True, disable=None, leave=False) as bar:
        for number, begin in enumerate(range(0, rows, SHARD_ROWS)):
            end = min(begin + SHARD_ROWS, rows)
            path = folder / f"shard-{number:03}.faiss"
            if path.exists():
                bar.update(end - begin)
                continue
            index = _read(empty_index)
            for ids, vectors in pool.blocks(begin, end):
                index.add_with_ids(vectors, ids)
                bar.update(len(vectors))
            bar.update(end - begin - index.ntotal)
            _write(path, index)


def in_index(pool: PoolTransitions, folder: Path) -> Search:
    """Return the search through the index that `prepare` built in `folder`."""

    def search(queries: Sequence[Query]) -> list[Ints]:
        candidates = [np.full((len(query.vectors), CANDIDATES), NONE, np.int64) for query in queries]
        distances = [np.full((len(query.vectors), CANDIDATES), np.inf, np.float32) for query in queries]
        for path in tqdm(sorted(folder.glob("shard-*.faiss")), desc="search", unit="shard", disable=None, leave=False):
            index = _read(path)
            for query, rows, squares in zip(queries, candidates, distances, strict=True):
                shard_squared, shard_rows = index.search(query.vectors, CANDIDATES, params=_parameters(index, query))
                shard_squared[shard_rows == NONE] = np.inf
                all_squared = np.concatenate([squares, shard_squared], axis=1)
                all_rows = np.concatenate([rows, shard_rows], axis=1)
                order = np.argsort(all_squared, axis=1, kind="stable")[:, :CANDIDATES]
                squares[:], rows[:] = np.take_along_axis(all_squared, order, 1), np.take_along_axis(all_rows, order, 1)
        return [_nearest(pool, query, rows) for query, rows in zip(queries, candidates, strict=True)]

    return search


def _train(pool: PoolTransitions, seed: int) -> Any:
    lists = 1 << max(0, int(math.log2(math.sqrt(pool.count))) - 3)
    vectors = pool.vectors(pool.sample(TRAINED_ON, seed))
    index = faiss.index_factory(SIZE, f"PCAR{DIMENSIONS},IVF{lists},PQ{DIMENSIONS}x4fs")
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)  # many short loops: threads would mostly wait for each other, and add in any order
    try:
        index.train(vectors)
    finally:
        faiss.omp_set_num_threads(threads)
    return index


def _parameters(index: Any, query: Query) -> Any:
    """Return a query's search parameters: how many lists, and the trajectory's own rows left out."""
    lists = faiss.extract_index_ivf(index).nlist
    options: dict[str, Any] = {"nprobe": min(lists, max(MIN_PROBED, lists // PROBED))}
    if query.own_rows:
        options["sel"] = faiss.IDSelectorNot(faiss.IDSelectorRange(*query.own_rows))
    return faiss.SearchParametersPreTransform(  # type: ignore[call-arg]
        index_params=faiss.SearchParametersIVF(**options)
    )


def _nearest(pool: PoolTransitions, query: Query, candidates: Ints) -> Ints:
    """Return the nearest [n] of a query's candidates [n, k] by the pool's own rows."""
    rows, row_index = np.unique(candidates[candidates != NONE], return_inverse=True)
    vectors: Floats = pool.vectors(rows)
    distance = np.full(candidates.shape, np.inf)
    is_row = candidates != NONE
    query_index = np.broadcast_to(np.arange(len(candidates))[:, None], candidates.shape)[is_row]
    distance[is_row] = cosine_distance(query.vectors[query_index], vectors[row_index])
    return np.take_along_axis(candidates, distance.argmin(axis=1)[:, None], 1)[:, 0]


def _write(path: Path, index: Any) -> None:
    """Write an index, and behind it the SHA-256 of its bytes: faiss has no checksum, and reads no further."""
    with write_atomically(path) as temporary:
        faiss.write_index(index, str(temporary))
        with temporary.open("r+b") as file:
            file.write(hashlib.file_digest(file, "sha256").digest())


def _check(path: Path) -> None:
    """Raise SageccError unless an index is as `_write` left it."""
    digest, left_bytes = hashlib.sha256(), path.stat().st_size - hashlib.sha256().digest_size
    with path.open("rb") as file:
        while left_bytes > 0 and (data := file.read(min(left_bytes, READ_BYTES))):
            digest.update(data)
            left_bytes -= len(data)
        if left_bytes or file.read() != digest.digest():
            raise SageccError(f"{path} is damaged: remove it, it is built again")


def _read(path: Path) -> Any:
    _check(path)
    try:
        return faiss.read_index(str(path))
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise SageccError(f"{path} cannot be read ({reason}): remove it, it is built again") from error
