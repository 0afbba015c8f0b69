# SPDX-License-Identifier: Apache-2.0
"""The pool as a Minari dataset: `MINARI_DATASETS_PATH=PATH`, then `minari.load_dataset("sagecc-pool-v1")`.

A Minari step holds the observation after its action, and the pool has none after an episode's last action. So an
episode of n rows becomes n observations and n - 1 steps; the last row's action and reward are in the episode's
metadata, `last_action` and `last_reward`. Networks are in the dataset's metadata by id: an attribute of HDF5 is too
small for a long trace. What is null in the pool is left out of an episode's metadata.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from sagecc.common.optional import import_library
from sagecc.pool.exports.about import AUTHOR, NAME, SUMMARY, conventions
from sagecc.pool.exports.episodes import PoolEpisode, PoolSource
from sagecc.pool.spaces import ENVIRONMENT, observation_space
from sagecc.schemas.pool import MAX_CWND_RATIO, MIN_CWND_RATIO


def write(folder: Path, source: PoolSource, advance: Callable[[int], object]) -> str:
    """Write the dataset.

    Args:
        folder: where to write it.
        source: the episodes.
        advance: called with the number of rows after each episode.

    Returns:
        Code that reads the result, with `{path}` for its folder.
    """
    minari = import_library("minari", "minari")
    storage_of = import_library("minari.dataset.minari_storage", "minari").MinariStorage
    buffer = import_library("minari.data_collector.episode_buffer", "minari").EpisodeBuffer
    version = source.about["pool_version"].split(".")[0]
    name = f"{NAME}-v{version}"
    data = folder.resolve() / name / "data"  # Minari joins a relative one twice
    data.mkdir(parents=True)
    storage = storage_of.new(
        data,
        observation_space=observation_space(),
        action_space=_action_space(source.action),
        env_spec=ENVIRONMENT if source.action == "log2" else None,
        data_format="hdf5",
    )
    episode_metadata: list[dict[str, Any]] = []

    def buffers() -> Iterator[Any]:
        for episode in source.episodes(advance):
            episode_metadata.append(_metadata(episode))
            yield buffer(
                seed=int(episode.about["seed"]),
                observations=episode.observations,
                actions=episode.actions[:-1, None],
                rewards=episode.rewards[:-1],
                terminations=np.zeros(len(episode) - 1, bool),
                truncations=np.arange(1, len(episode)) == len(episode) - 1,
                infos={"is_kicked": episode.is_kicked},
            )

    storage.update_episodes(buffers())
    storage.update_episode_metadata(episode_metadata)
    described = conventions(source)
    storage.update_metadata(
        {
            "dataset_id": name,
            "minari_version": minari.__version__,
            "author": {AUTHOR},
            "algorithm_name": ", ".join(dict.fromkeys(row["scheme"] for row in source.listing)),
            "description": f"{SUMMARY} Observation: {described['observation']}. Action: {described['action']}."
            f" Reward: {described['reward']}. The last row of an episode is its final observation.",
            "environments": {row["environment_id"]: json.loads(row["environment"]) for row in source.listing},
            **described,
        }
    )
    return f"MINARI_DATASETS_PATH={{path}}, then minari.load_dataset('{name}')"


def _metadata(episode: PoolEpisode) -> dict[str, Any]:
    left_out = {"environment", "seed"} | {name for name, value in episode.about.items() if value is None}
    facts = {name: value for name, value in episode.about.items() if name not in left_out}
    facts["perturbed"] = episode.perturbed
    return facts | {"last_action": float(episode.actions[-1]), "last_reward": float(episode.rewards[-1])}


def _action_space(action: str) -> spaces.Box:
    bounds = (MIN_CWND_RATIO, MAX_CWND_RATIO)
    low, high = np.log2(bounds) if action == "log2" else bounds
    return spaces.Box(np.float32(low), np.float32(high), (1,), np.float32)
