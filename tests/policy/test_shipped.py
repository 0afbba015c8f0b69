# SPDX-License-Identifier: Apache-2.0
"""The policies that come with the repository."""

from __future__ import annotations

import numpy as np
import pytest

from sagecc.common.shipped import BEST_POLICY
from sagecc.execution.environments.task import LearningTask
from sagecc.learner.specification import load
from sagecc.policy.artefact import PolicyArtefact


@pytest.mark.parametrize("name", ["orca-1", "orcav2-1", "onlinerl-1", "astraea-1", "indigo-1", "aurora-1", BEST_POLICY])
def test_a_policy_is_of_the_configuration_that_is_named_so(name: str) -> None:
    policy, config = PolicyArtefact.load(f"models/{name}"), load(name.removesuffix("-1"))
    task = LearningTask.of(config.task or {})
    assert policy.control == config.control.around(task.control)
    assert (policy.source, policy.observations) == (task.source, task.observations)
    # Their cards were written when a configuration had no sections.
    record = config.record()
    now = {**record, **record["network"], **record["algorithm"], **record["labs"]}
    now |= {"labs": now["count"], "actor_rate": now["policy_rate"], "algorithm": now["name"]}
    trained = {name: value for name, value in policy.card["training"].items() if name in now and name != "task"}
    assert len(trained) > 15
    assert all(np.array_equal(now[name], value) for name, value in trained.items())
    assert len(policy.intact_files()) == 3
