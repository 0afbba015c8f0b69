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
"""One row an environment, a scheme and another. `index`: the mean cosine similarity of the scheme's transitions to the
other's of the same tick, over `ticks` ticks that both have (null where there is none). `nearest`: the mean, over all
its `transitions`, of the largest similarity to any of the other's in that environment, whenever that was. 1 is alike.
"""


def similarities(
    trajectories: Mapping[tuple[str, str], Query], scheme: str, others: Sequence[str], environments: Sequence[str]
) -> pl.DataFrame:
    """Compare a scheme with others in these environments (SIMILARITY_SCHEMA).

    trajectories: by environment id and scheme; where one is missing, so is the row.
    """
    rows = []
    for environment, other in product(environments, others):
        own, its = trajectories.get((environment, scheme)), trajectories.get((environment, other))
        if own is None or its is None:
            continue
        _, mine, theirs = np.intersect1d(_ticks(own), _ticks(its), assume_unique=True, return_indices=True)
        together = np.einsum("nd,nd->n", own.vectors[mine], its.vectors[theirs], dtype=np.float64)
        rows.append(
            {
                "set": own.set,
                "environment_id": environment,
                "scheme": scheme,
                "other": other,
                "index": float(together.mean()) if len(together) else None,
                "nearest": _nearest(own, its),
                "transitions": len(own.vectors),
                "ticks": len(together),
            }
        )
    return pl.DataFrame(rows, schema=SIMILARITY_SCHEMA)


def _ticks(trajectory: Query) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.rint(trajectory.t_s / TICK_S).astype(np.int64)


def _nearest(own: Query, its: Query) -> float:
    """Return the mean over `own` of the largest similarity to any of `its` transitions."""
    best = np.full(len(own.vectors), -np.inf, np.float32)
    for begin in range(0, len(its.vectors), PRODUCT_ROWS):
        np.maximum(best, (own.vectors @ its.vectors[begin : begin + PRODUCT_ROWS].T).max(axis=1), out=best)
    return float(best.mean(dtype=np.float64))
