# SPDX-License-Identifier: Apache-2.0
"""The policies that come with the repository."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from sagecc.common.shipped import BEST_POLICY, SAFEST_POLICY, SHIPPED
from sagecc.execution.environments.task import LearningTask
from sagecc.learner.specification import load
from sagecc.policy.artefact import PolicyArtefact, policy_sha256
from sagecc.policy.folder import LITERT, ONNX, WEIGHTS

RIVALS = ("orca-1", "orcav2-1", "onlinerl-1", "astraea-1", "indigo-1", "aurora-1")


@pytest.mark.parametrize("name", [*RIVALS, BEST_POLICY])
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


def test_the_policy_of_a_pool_is_of_its_configuration() -> None:
    policy, config = PolicyArtefact.load(f"models/{SAFEST_POLICY}"), load(SAFEST_POLICY)
    assert policy.card["training"] == json.loads(json.dumps(config.record()))
    assert policy.control == config.control.around(policy.control)
    assert policy.card["seed"] == 0


def test_an_export_that_is_not_there_changes_no_identity(tmp_path: Path) -> None:
    """Else what it played would be played again after `sagecc export`, or after a checkout without the file."""
    whole = shutil.copytree(f"models/{BEST_POLICY}", tmp_path / "whole")
    before = policy_sha256(f"policy:{whole}")
    (whole / LITERT).unlink()
    (whole / ONNX).unlink()
    assert policy_sha256(f"policy:{whole}") == before
    (whole / WEIGHTS).unlink()
    assert policy_sha256(f"policy:{whole}") != before


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", [*RIVALS, *SHIPPED])
def test_its_weights_are_whole_and_its_exports_can_be_made_again(name: str) -> None:
    """Of rivals the repository has the weights alone: `sagecc export` writes the files that their cards name."""
    from sagecc.policy.export import export

    policy = PolicyArtefact.load(f"models/{name}")
    assert policy.intact_files() >= ({WEIGHTS} if name in RIVALS else {WEIGHTS, LITERT, ONNX})
    made = export(policy.sizes, policy.weights)
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in made.files.items()}
    assert digests == {name: policy.card["files"][name] for name in (LITERT, ONNX)}
    assert made.errors.keys() == policy.card["export_errors"].keys()
