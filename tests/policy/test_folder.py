# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from sagecc.common import shipped
from sagecc.common.errors import SageccError
from sagecc.policy import runtime
from sagecc.policy.artefact import PolicyArtefact
from sagecc.policy.folder import CARD, LITERT, WEIGHTS, PolicyFolder


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return Path(shutil.copytree(shipped.policy(shipped.BEST_POLICY), tmp_path / "copied"))


def test_what_is_held_makes_the_same_policy_without_its_folder(copied: Path) -> None:
    wanted = PolicyArtefact.load(copied)
    held = PolicyFolder.find(copied).hold((CARD, WEIGHTS, LITERT))
    shutil.rmtree(copied)
    policy = PolicyArtefact.load(held)
    assert policy.card == wanted.card and policy.path == wanted.path
    observation, hidden = np.ones((3, policy.sizes.inputs), np.float32), policy.initial_state(3)
    for name in ("exact", "litert"):
        step = runtime.load(policy, name)
        np.testing.assert_allclose(step(observation, hidden)[1], wanted.step(observation, hidden)[1], atol=1e-5)


@pytest.mark.parametrize("name", [CARD, WEIGHTS])
def test_what_was_missing_when_it_was_held_is_named(name: str, copied: Path) -> None:
    whole = PolicyFolder.find(copied)
    (copied / name).rename(copied / "aside")
    held = whole.hold((CARD, WEIGHTS))
    (copied / "aside").rename(copied / name)
    with pytest.raises(SageccError, match=f"{copied / name} is missing"):
        PolicyArtefact.load(held)
    PolicyArtefact.load(whole)
