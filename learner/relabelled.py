# SPDX-License-Identifier: Apache-2.0
"""A compiled pool whose rows have another reward, computed from what the pool keeps (pool.relabelling).

It is computed anew for each run, so that no formula of yesterday is taken for that of today. The rewards lie in a file
of the cache that is gone when the program ends; their digest is part of the pool's identity.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from sagecc.common.arrays import Floats
from sagecc.common.errors import SageccError
from sagecc.common.parquet import open_parquet, read_parquet
from sagecc.common.parts import Runs, whole_runs
from sagecc.common.tables import UNREADABLE, reading_error
from sagecc.learner.compiled import CompiledPool
from sagecc.pool.relabelling import COLUMNS, rewards_of
from sagecc.pool.reward import REWARDS, Reward, reward_of
from sagecc.schemas.environment import Environment
from sagecc.schemas.partitions import EPISODES_FILE, PARTS
from sagecc.schemas.pool import ALIGNMENT_KEY, REWARD_ALIGNMENTS

AGAIN = "derive the pool again with 'sagecc pool'"


def with_reward(compiled: CompiledPool, pool: Path, name: str) -> CompiledPool:
    """Return a compiled pool, whole, whose rows have the reward of a name.

    Args:
        compiled: the pool, without a selection.
        pool: its folder.
        name: a reward of pool.reward; `pool` for the rewards that it has.

    Raises:
        SageccError: There is no such reward, or a file of the pool cannot be read or has changed meanwhile.
    """
    reward = reward_of(name)
    if reward is REWARDS["pool"]:
        return compiled
    digest = hashlib.sha256(compiled.identity.encode())
    with tempfile.TemporaryFile(dir=compiled.folder.parent) as file:
        for rewards in _rewards(pool, reward):
            file.write(rewards.tobytes())
            digest.update(rewards.tobytes())
        if file.tell() != 4 * compiled.rows:
            raise SageccError(f"the pool at {pool} changed while its rewards were computed: start again")
        file.flush()
        rewards = np.asarray(np.memmap(file, dtype="<f4", mode="r"))
    means = np.add.reduceat(rewards, compiled.starts, dtype=np.float64) / compiled.lengths
    trajectories = replace(compiled.trajectories, mean_rewards=means)
    return replace(compiled, rewards=rewards, trajectories=trajectories, identity=digest.hexdigest())


def _rewards(pool: Path, reward: Reward) -> Iterator[Floats]:
    """Yield the rewards of each episode [n], in the order of the compiled rows."""
    path = pool / EPISODES_FILE
    try:
        listing = read_parquet(path, columns=["episode_id", "environment"])
    except UNREADABLE as error:
        raise reading_error(path, error, AGAIN) from error
    environments = dict(zip(listing["episode_id"].to_pylist(), listing["environment"].to_pylist(), strict=True))
    for table in whole_runs(_parts(pool), "episode_id"):  # a large partition's files end within episodes
        alignment = (table.schema.metadata or {}).get(ALIGNMENT_KEY, REWARD_ALIGNMENTS[0].encode()).decode()
        for name, rows in Runs(table["episode_id"]).slices(table):
            if name not in environments:
                raise reading_error(path, KeyError(name), AGAIN)
            columns = {each: rows[each].to_numpy() for each in COLUMNS}
            yield rewards_of(reward, columns, Environment.from_json(environments[name]), alignment)


def _parts(pool: Path) -> Iterator[pa.Table]:
    """Yield what rewards need of each file of rows; its only metadata is how rewards are aligned."""
    for path in sorted(pool.glob(PARTS)):
        try:
            with open_parquet(path) as file:
                metadata = file.schema_arrow.metadata or {}
                kept = {key: metadata[key] for key in (ALIGNMENT_KEY,) if key in metadata}
                yield file.read(columns=["episode_id", *COLUMNS]).replace_schema_metadata(kept)
        except UNREADABLE as error:
            raise reading_error(path, error, AGAIN) from error
