# SPDX-License-Identifier: Apache-2.0
"""What the distance of a trajectory to the pool takes, and what each way of searching misses.

Of three trajectories in the environment of the paper's section 7.1, of the policy that comes with the repository, of
Vegas and of Cubic, every THIN-th transition. The search through the whole pool is the truth; a sample's distances and
the index's can only be larger.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from tqdm import tqdm

from evidence.machine import CpuTime, save
from sagecc.cli import errors_in_one_line
from sagecc.collector.run.grid import set_one
from sagecc.execution.lab.controllers import play_episode
from sagecc.leagues.distance import Query, Search, distances, exact_in_pool, exact_in_sample
from sagecc.leagues.neighbours import in_index, prepare
from sagecc.leagues.scores import find_episodes
from sagecc.leagues.trajectories import STEP_UP, query
from sagecc.leagues.transitions import PoolTransitions, pool_rows

POLICY = "policy:models/sagecc-1"
SCHEMES = ("vegas", "cubic")
THIN = 10
SAMPLES = (10_000, 100_000, 1_000_000)

T = TypeVar("T")


def main() -> None:
    """Measure and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pool", type=Path, default=Path("datasets/full/pool"))
    parser.add_argument("--raw", type=Path, default=Path("datasets/full/raw"))
    parser.add_argument("--cache", type=Path, default=Path(".cache"), help="19 GB for the full pool.")
    parser.add_argument("--kernel", type=Path, default=Path("build/sagecc-linux"))
    parser.add_argument("--thin", type=int, default=THIN)
    options = parser.parse_args()
    pool = PoolTransitions.load(options.pool, options.cache / "pool")
    queries = trajectories(pool, options.raw, options.kernel, options.thin)
    place = options.cache / "bench-distance"
    shutil.rmtree(place, ignore_errors=True)
    try:
        truth, row = measured(pool, queries, exact_in_pool(pool))
        rows = [{"search": "pool", "searched": pool.count, **row}]
        for count in SAMPLES:
            neighbours, row = measured(pool, queries, exact_in_sample(pool, count, seed=0))
            rows.append({"search": "sample", "searched": count, **row, "beyond": beyond(neighbours, truth, queries)})
        folder, building = timed(lambda: prepare(pool, place))
        neighbours, row = measured(pool, queries, in_index(pool, folder))
        rows.append({"search": "index", "searched": pool.count, **row, "beyond": beyond(neighbours, truth, queries)})
        size = sum(path.stat().st_size for path in folder.iterdir())
    finally:
        shutil.rmtree(place, ignore_errors=True)
    save(
        "distance",
        {
            "transitions": pool.count,
            "queries": sum(len(query.vectors) for query in queries),
            "schemes": [query.scheme for query in queries],
            "medians": {query.scheme: part for query, part in zip(queries, medians(truth, queries), strict=True)},
            "thin": options.thin,
            "index": {"bytes": size, **building},
            "rows": rows,
        },
    )


def trajectories(pool: PoolTransitions, raw: Path, kernel: Path, thin: int) -> list[Query]:
    """Run the policy and find the others'."""
    environment = set_one(*STEP_UP)
    run = play_episode(kernel, environment, POLICY).rows
    vectors = pool.space.sequence_vectors(pool_rows(run, pool.windows))[::thin]
    t_s = run["t_s"].to_numpy()[: run.num_rows - 2 : thin]
    episodes = find_episodes([raw], [environment], SCHEMES)
    return [
        Query(environment.set, environment.id, POLICY, t_s, np.ascontiguousarray(vectors)),
        *(query(pool, episodes[environment.id, scheme], thin) for scheme in SCHEMES),
    ]


def measured(pool: PoolTransitions, queries: Sequence[Query], search: Search) -> tuple[np.ndarray, dict[str, float]]:
    """Return the distances of all queries [n] and what they took."""
    table, took = timed(lambda: distances(pool, queries, search))
    tqdm.write(f"{took}")
    return table["distance"].to_numpy(), took


def timed(do: Callable[[], T]) -> tuple[T, dict[str, float]]:
    """Return a call's result, its CPU and its wall time (s)."""
    began, spent = time.perf_counter(), CpuTime.now()
    result = do()
    return result, {"cpu_s": CpuTime.now().since(spent), "wall_s": time.perf_counter() - began}


def beyond(found: np.ndarray, truth: np.ndarray, queries: Sequence[Query]) -> dict[str, dict[str, float]]:
    """Return how far beyond the true distances those found are, by scheme: mean, 95th percentile; and the median."""
    parts = np.split(found, np.cumsum([len(query.vectors) for query in queries])[:-1])
    true = np.split(truth, np.cumsum([len(query.vectors) for query in queries])[:-1])
    return {
        query.scheme: {
            "mean": float((part - own).mean()),
            "p95": float(np.quantile(part - own, 0.95)),
            "median_distance": float(np.median(part)),
        }
        for query, part, own in zip(queries, parts, true, strict=True)
    }


def medians(truth: np.ndarray, queries: Sequence[Query]) -> list[float]:
    """Return the median true distance of each trajectory."""
    return [float(np.median(x)) for x in np.split(truth, np.cumsum([len(q.vectors) for q in queries])[:-1])]


if __name__ == "__main__":
    with errors_in_one_line("evidence.speed.distance"):
        main()
