# SPDX-License-Identifier: Apache-2.0
"""The agent in charge of the real kernel's window, in lockstep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sagecc.collector.lab.boot import per_flow
from sagecc.collector.lab.episode import Episode, run_episode
from sagecc.execution.agent.policy_agent import PolicyAgent
from sagecc.execution.agent.sources import PoolFeatures
from sagecc.pool.features import derive
from tests.helpers.networks import network
from tests.helpers.policies import save_policy


class Watched:
    """An agent that keeps the features it saw and the windows it gave."""

    def __init__(self, agent: PolicyAgent) -> None:
        self.agent = agent
        self.features: list[npt.NDArray[np.float32]] = []
        self.given: list[tuple[int, int]] = []
        assert isinstance(agent._decisions.source, PoolFeatures)
        tracker = agent._decisions.source.tracker
        update = tracker.update_flows

        def keep(*args: Any) -> npt.NDArray[np.float32]:
            self.features.append(update(*args))
            return self.features[-1]

        tracker.update_flows = keep  # type: ignore[assignment,method-assign]

    def __call__(self, sample: np.void) -> tuple[int, int]:
        self.given.append(self.agent(sample))
        return self.given[-1]


def run(kernel: Path, policy: Path) -> tuple[Episode, Watched]:
    watched = Watched(PolicyAgent.load(policy))
    return run_episode(kernel, network(duration_s=4), f"policy:{policy}", 0, per_flow(watched)), watched


def test_what_it_saw_is_what_the_pool_derives_and_what_it_gave_is_what_the_kernel_had(
    kernel: Path, tmp_path: Path
) -> None:
    policy = save_policy(tmp_path / "policy", seed=17)
    episode, watched = run(kernel, policy)
    columns = {name: episode.rows[name].to_numpy() for name in episode.rows.column_names if name != "episode_id"}
    rows = episode.rows.num_rows
    assert rows == len(watched.given) > 390
    features, _ = derive(columns, np.arange(rows) == 0)
    np.testing.assert_array_equal(np.concatenate(watched.features).T, features)
    cwnd, pacing = (np.array(values) for values in zip(*watched.given, strict=True))
    np.testing.assert_array_equal(columns["cwnd_pkts"][1:], cwnd[:-1])
    np.testing.assert_array_equal(columns["pacing_rate_bytes_s"][1:], pacing[:-1])
    assert len(set(cwnd)) > 5
    again, _ = run(kernel, policy)
    assert again.sha256 == episode.sha256
