# SPDX-License-Identifier: Apache-2.0
"""How far a scheme's transitions are from the pool (section 7.1 of the Sage paper).

The Distance of a transition is the smallest cosine distance 1 - u.v / (|u| |v|) to any transition of the pool. Where
the trajectory is itself in the pool, it is compared with the pool without it. Three searches find the nearest: all of
a seeded sample, all of the pool, and a compressed index of the pool (leagues.neighbours). The first may miss the
nearest, so that its distance is too large; the second is exact; the third may miss it too, but the distance that it
reports is that to a transition of the pool, not to a compressed one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import polars as pl
from tqdm import tqdm

from sagecc.common.arrays import Floats, Ints
from sagecc.leagues.transitions import BLOCK_ROWS, PoolTransitions

DISTANCE_SCHEMA = {
    "set": pl.String,
    "environment_id": pl.String,
    "scheme": pl.String,
    "t_s": pl.Float64,
    "distance": pl.Float64,
    "neighbour_scheme": pl.String,
    "neighbour_episode": pl.String,
    "neighbour_step": pl.Int64,
}
"""One row per transition: when it began, its Distance, and the nearest transition of the pool."""

QUANTILES = (0.05, 0.25, 0.5, 0.65, 0.75, 0.95, 1.0)

PRODUCT_ROWS = 4096
"""Rows of the pool multiplied with a trajectory at a time: the products stay in the cache."""

NONE = -1
"""In place of a row: there is no other transition in the pool."""


@dataclass(frozen=True)
class Query:
    """Transitions of one trajectory."""

    set: str
    environment_id: str
    scheme: str
    t_s: npt.NDArray[np.float64]
    """When each began [n]."""
    vectors: Floats
    """Unit vectors [n, 139]."""
    own_rows: tuple[int, int] | None = None
    """The trajectory's own rows in the pool, the first and the one after the last; None where it is not in it."""


class Search(Protocol):
    """Finds the nearest of the pool's transitions."""

    def __call__(self, queries: Sequence[Query]) -> list[Ints]:
        """Return for each query the row of the pool's transition nearest to each of its own [n], or NONE."""


def exact_in_sample(pool: PoolTransitions, count: int, seed: int) -> Search:
    """Return the search through `count` transitions drawn from the pool by a seed."""

    def search(queries: Sequence[Query]) -> list[Ints]:
        rows = pool.sample(count, seed)
        parts = (rows[begin : begin + BLOCK_ROWS] for begin in range(0, len(rows), BLOCK_ROWS))
        return nearest(queries, ((part, pool.vectors(part)) for part in parts), len(rows))

    return search


def exact_in_pool(pool: PoolTransitions) -> Search:
    """Return the search through the whole pool; it holds one block of rows at a time."""

    def search(queries: Sequence[Query]) -> list[Ints]:
        return nearest(queries, pool.blocks(), pool.count)

    return search


def nearest(queries: Sequence[Query], blocks: Iterable[tuple[Ints, Floats]], count: int) -> list[Ints]:
    """Compare every query with the pool's transitions, except its own.

    Args:
        queries: of unit vectors.
        blocks: the pool's transitions as (rows [m], vectors [m, 139]).
        count: their number in all, for the progress bar.

    Returns:
        For each query the row nearest to each of its transitions [n], or NONE.
    """
    similarities = [np.full(len(query.vectors), -np.inf, np.float32) for query in queries]
    nearest_rows = [np.full(len(query.vectors), NONE, np.int64) for query in queries]
    with tqdm(total=count, desc="distance", unit=" transitions", unit_scale=True, disable=None, leave=False) as bar:
        for rows, vectors in blocks:
            for query, similarity, nearest_row in zip(queries, similarities, nearest_rows, strict=True):
                others = np.ones(len(rows), np.bool_)
                if query.own_rows:
                    others = (rows < query.own_rows[0]) | (rows >= query.own_rows[1])
                if not others.any():
                    continue
                other_vectors, other_rows = (vectors, rows) if others.all() else (vectors[others], rows[others])
                for begin in range(0, len(other_vectors), PRODUCT_ROWS):
                    products = query.vectors @ other_vectors[begin : begin + PRODUCT_ROWS].T
                    largest = products.argmax(axis=1)
                    product = products[np.arange(len(largest)), largest]
                    nearer = product > similarity
                    similarity[nearer] = product[nearer]
                    nearest_row[nearer] = other_rows[begin + largest[nearer]]
            bar.update(len(rows))
    return nearest_rows


def distances(pool: PoolTransitions, queries: Sequence[Query], search: Search) -> pl.DataFrame:
    """Return every query's transitions with their Distances, in the order given.

    The distance to the row that the search found is calculated in double precision, so that it does not depend on the
    search.

    Returns:
        A table of DISTANCE_SCHEMA.
    """
    tables = []
    for query, rows in zip(queries, search(queries), strict=True):
        is_row = rows != NONE
        distance = np.full(len(rows), np.inf)
        distance[is_row] = cosine_distance(query.vectors[is_row], pool.vectors(rows[is_row]))
        episodes, schemes, steps = pool.origins(rows)
        tables.append(
            pl.DataFrame(
                {
                    "set": [query.set] * len(rows),
                    "environment_id": [query.environment_id] * len(rows),
                    "scheme": [query.scheme] * len(rows),
                    "t_s": query.t_s,
                    "distance": distance,
                    "neighbour_scheme": schemes,
                    "neighbour_episode": episodes,
                    "neighbour_step": steps,
                },
                schema=DISTANCE_SCHEMA,
            )
        )
    return pl.concat(tables)


def cosine_distance(u: Floats, v: Floats) -> npt.NDArray[np.float64]:
    """Return 1 - u.v / (|u| |v|) of each row of [n, d]; 1 where a vector has length 0, never below 0 by rounding."""
    a, b = u.astype(np.float64), v.astype(np.float64)
    length = np.sqrt(np.einsum("nd,nd->n", a, a) * np.einsum("nd,nd->n", b, b))
    product = np.einsum("nd,nd->n", a, b)
    return np.asarray(np.clip(1 - np.divide(product, length, out=np.zeros(len(a)), where=length > 0), 0, 2))


def summary(table: pl.DataFrame) -> list[Mapping[str, object]]:
    """Return for each trajectory the mean and quantiles of Distance, and its neighbours' shares by scheme."""
    rows: list[Mapping[str, object]] = []
    for (environment, scheme), part in table.group_by("environment_id", "scheme", maintain_order=True):
        shares = (
            part.group_by("neighbour_scheme").agg(count=pl.len()).sort("count", "neighbour_scheme", descending=True)
        )
        rows.append(
            {
                "environment_id": environment,
                "scheme": scheme,
                "transitions": len(part),
                "mean": part["distance"].mean(),
                "quantiles": {f"{q:g}": part["distance"].quantile(q, "linear") for q in QUANTILES},
                "neighbours": {name: count / len(part) for name, count in shares.iter_rows()},
            }
        )
    return rows
