# SPDX-License-Identifier: Apache-2.0
"""A small synthetic pool in which the better action is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sagecc.schemas.pool import FEATURE_NAMES, POOL_SCHEMA, POOL_VERSION, VERSION_KEY, WINDOWS_KEY

GOOD, BAD = 0.5, -0.5
"""log2 of the two actions in the pool where srtt is low; where it is high they change places."""


def better_action(srtt: np.ndarray) -> np.ndarray:
    return np.where(srtt < 1, GOOD, BAD)


def observations(rows: int, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """srtt says which action is better, rttvar and thr say nothing, the rest is constant."""
    columns = {name: np.full(rows, 0.01 * i, np.float32) for i, name in enumerate(FEATURE_NAMES)}
    columns["srtt"] = generator.choice([0.5, 1.5], rows).astype(np.float32)
    for name in ("rttvar", "thr"):
        columns[name] = generator.normal(1, 0.2, rows).astype(np.float32)
    return columns


def episode(identifier: str, rows: int, seed: int) -> pa.Table:
    """Actions are a coin's; the reward after an action is 20 if it was the better one, else 2."""
    generator = np.random.default_rng(seed)
    columns = observations(rows, generator)
    action = generator.choice([GOOD, BAD], rows)
    reward = np.where(action == better_action(columns["srtt"]), 20, 2)
    step = np.arange(rows, dtype=np.int32)
    return pa.table(
        {
            "episode_id": [identifier] * rows,
            "step": step,
            "t_s": step * 0.01,
            **columns,
            "action": np.exp2(action).astype(np.float32),
            "reward": reward.astype(np.float32),
            "is_first": step == 0,
            "is_last": step == rows - 1,
        },
        schema=POOL_SCHEMA,
    )


def write_part(path: Path, tables: list[pa.Table], version: str = POOL_VERSION, windows: str = "10,200,1000") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.concat_tables(tables).replace_schema_metadata({VERSION_KEY: version, WINDOWS_KEY: windows.encode()})
    pq.write_table(table, path, compression="zstd", row_group_size=300)
    return path


def scores(path: Path, wins: list[tuple[str, str, int, int]]) -> Path:
    """(environment, scheme, windows won, windows played), seed 0."""
    rows = [
        {"environment_id": environment, "scheme": scheme, "seed": 0, "window": i, "win": i < won}
        for environment, scheme, won, played in wins
        for i in range(played)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


PoolMaker = Callable[..., Path]


def write_pool(
    folder: Path, lengths: tuple[int, ...] = (200, 120, 350), version: str = POOL_VERSION, name: str = "pool"
) -> Path:
    """Write a pool of two schemes with episodes of the given lengths; return its folder."""
    for s, scheme in enumerate(("cubic", "vegas")):
        tables = [episode(f"I-{scheme}-{i}", rows, 10 * s + i) for i, rows in enumerate(lengths)]
        write_part(folder / name / "set=I" / f"scheme={scheme}" / "part-000.parquet", tables, version)
    return folder / name


@pytest.fixture
def eagerly(request: pytest.FixtureRequest) -> Iterator[None]:
    """Without graphs, which take seconds to build; for hundreds of updates they pay: a test is marked `graph`."""
    from sagecc.common.tensorflow_runtime import tf

    tf.config.run_functions_eagerly(request.node.get_closest_marker("graph") is None)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture
def make_pool(tmp_path: Path) -> PoolMaker:
    return partial(write_pool, tmp_path)
