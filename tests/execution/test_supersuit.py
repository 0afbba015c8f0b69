# SPDX-License-Identifier: Apache-2.0
"""SuperSuit's wrappers take the parallel environment: a batch of all flows, as single-agent learners want it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sagecc.execution.environments.parallel import CongestionParallelEnv
from sagecc.schemas.environment import CrossFlow, Flow
from tests.helpers.networks import network

supersuit = pytest.importorskip("supersuit")

LATE_S, DURATION_S, CYCLES = 0.5, 2, 150
FLOWS, NETWORKS, STACKED, FEATURES = 2, 2, 3, 69


def vector(processes: int = 0) -> Any:
    """Two networks of two flows, of which one comes late and goes early; three observations are stacked."""
    late = (CrossFlow("pure", Flow(LATE_S, 1.2)),)
    shared = replace(network(12, 20, duration_s=DURATION_S), cross=late, windows_s=(), reward="friendliness")
    env = supersuit.clip_reward_v0(CongestionParallelEnv(shared, constant_agents=True), 0, 25)
    env = supersuit.frame_stack_v1(env, STACKED)
    return supersuit.concat_vec_envs_v1(supersuit.pettingzoo_env_to_vec_env_v1(env), NETWORKS, num_cpus=processes)


@pytest.mark.parametrize("processes", [0, 2])
def test_episodes_follow_each_other_in_a_batch_of_all_flows(kernel: Path, processes: int) -> None:
    envs = vector(processes)
    observations, _ = envs.reset(seed=5)
    assert observations.shape == (FLOWS * NETWORKS, STACKED * FEATURES)
    earned, ends = np.zeros(FLOWS * NETWORKS), []
    for cycle in range(2 * CYCLES):
        observations, rewards, terminations, truncations, _ = envs.step(np.zeros((FLOWS * NETWORKS, 1), np.float32))
        assert observations.shape == (FLOWS * NETWORKS, STACKED * FEATURES)
        assert np.isfinite(observations).all() and not np.any(terminations)
        assert not rewards[1::FLOWS].any() or cycle > 10 * LATE_S  # of flows that are not up
        earned += rewards
        if np.any(truncations):
            assert np.all(truncations)
            ends.append(cycle)
    assert len(ends) == 1  # the first episodes' end; others run
    assert ends[0] == pytest.approx(100 * DURATION_S, abs=5)
    assert (earned > 0).all()
    envs.close()


def test_networks_side_by_side_have_seeds_of_their_own(kernel: Path) -> None:
    envs = vector()
    _, infos = envs.reset(seed=5)
    assert [info["seed"] for info in infos] == [5, 5, 6, 6]
    assert [info["idle"] for info in infos] == [False, True] * NETWORKS
    _, infos = envs.reset()
    assert len({info["seed"] for info in infos}) == NETWORKS
    envs.close()
