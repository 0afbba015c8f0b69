# SPDX-License-Identifier: Apache-2.0
"""How alike two schemes' trajectories are in the same network (section 7.2 of the Sage paper)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
import polars as pl

from sagecc.leagues.distance import PRODUCT_ROWS, Query
from sagecc.schemas.raw import TICK_S

SIMILARITY_SCHEMA = {
    "set": pl.String,
    "environment_id": pl.String,
    "scheme": pl.String,
    "other": pl.String,
    "index": pl.Float64,
    "nearest": pl.Float64,
    "transitions": pl.Int64,
    "ticks": pl.Int64,
}
"""One row per environment, scheme and other scheme. `index`: the mean cosine similarity of the scheme's transitions to
the other's of the same tick, over `ticks` ticks that both have (null where there is none). `nearest`: the mean, over
all its `transitions`, of the largest similarity to any of the other's in that environment, at whatever tick. 1 is
perfect likeness.
"""


def similarities(
    trajectories: Mapping[tuple[str, str], Query], scheme: str, others: Sequence[str], environments: Sequence[str]
) -> pl.DataFrame:
    """Compare a scheme with others.

    Args:
        trajectories: by (environment id, scheme); a pair of which one is missing has no row.
        scheme: whose similarity.
        others: to whom.
        environments: ids.

    Returns:
        A table of SIMILARITY_SCHEMA.
    """
    rows = []
    for environment, other in product(environments, others):
        a, b = trajectories.get((environment, scheme)), trajectories.get((environment, other))
        if a is None or b is None:
            continue
        _, rows_a, rows_b = np.intersect1d(_ticks(a), _ticks(b), assume_unique=True, return_indices=True)
        cosines = np.einsum("nd,nd->n", a.vectors[rows_a], b.vectors[rows_b], dtype=np.float64)
        rows.append(
            {
                "set": a.set,
                "environment_id": environment,
                "scheme": scheme,
                "other": other,
                "index": float(cosines.mean()) if len(cosines) else None,
                "nearest": _nearest(a, b),
                "transitions": len(a.vectors),
                "ticks": len(cosines),
            }
        )
    return pl.DataFrame(rows, schema=SIMILARITY_SCHEMA)


def _ticks(trajectory: Query) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.rint(trajectory.t_s / TICK_S).astype(np.int64)


def _nearest(a: Query, b: Query) -> float:
    """Return the mean over the transitions of `a` of the largest similarity to any of `b`."""
    largest = np.full(len(a.vectors), -np.inf, np.float32)
    for begin in range(0, len(b.vectors), PRODUCT_ROWS):
        np.maximum(largest, (a.vectors @ b.vectors[begin : begin + PRODUCT_ROWS].T).max(axis=1), out=largest)
    return float(largest.mean(dtype=np.float64))
