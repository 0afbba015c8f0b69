# SPDX-License-Identifier: Apache-2.0
"""The policies that come with the repository."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest

from sagecc.common.shipped import BEST_POLICY
from sagecc.execution.environments.task import LearningTask
from sagecc.learner.online.config import load
from sagecc.policy.artefact import PolicyArtefact


@pytest.mark.parametrize("name", ["orca-1", "orcav2-1", "onlinerl-1", "astraea-1", "indigo-1", "aurora-1", BEST_POLICY])
def test_a_policy_is_of_the_configuration_that_is_named_so(name: str) -> None:
    policy, config = PolicyArtefact.load(f"models/{name}"), load(name.removesuffix("-1"))
    task = LearningTask.of(config.task)
    bound = config.final_window_bound or task.control.window_bound
    assert policy.control == replace(task.control, window_bound=bound)
    assert (policy.source, policy.observations) == (task.source, task.observations)
    trained, now = policy.card["training"], asdict(config)
    assert all(np.array_equal(now[name], value) for name, value in trained.items() if name != "task")
    assert len(policy.intact_files()) == 3
