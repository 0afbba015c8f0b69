# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sagecc.common import shipped
from sagecc.common.errors import SageccError
from sagecc.policy import runtime
from sagecc.policy.artefact import PolicyArtefact
from sagecc.policy.folder import CARD, LITERT, ONNX, WEIGHTS, PolicyFolder


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


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def empty(data: bytes) -> bytes:
    return b""


def with_other_outputs(data: bytes) -> bytes:
    """Rename what the exporter called `loc`."""
    assert b"loc" in data
    return data.replace(b"loc", b"col")


@pytest.mark.parametrize("damage", [cut, empty, with_other_outputs])
@pytest.mark.parametrize(("name", "file"), [("litert", LITERT), ("onnx", ONNX)])
def test_a_file_that_a_runtime_cannot_run_is_named(
    name: str, file: str, damage: Callable[[bytes], bytes], copied: Path
) -> None:
    """Its digest is right, so that the library itself meets it."""
    data = damage((copied / file).read_bytes())
    card = json.loads((copied / CARD).read_text())
    card["files"][file] = hashlib.sha256(data).hexdigest()
    (copied / file).write_bytes(data)
    (copied / CARD).write_text(json.dumps(card))
    policy = PolicyArtefact.load(copied)
    with pytest.raises(SageccError, match=f"{copied / file} is no network that {name} can run") as raised:
        runtime.load(policy, name)(np.ones((3, policy.sizes.inputs), np.float32), policy.initial_state(3))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("name", "file"), [("litert", LITERT), ("onnx", ONNX)])
def test_another_policy_s_network_is_refused(name: str, file: str, copied: Path) -> None:
    other = PolicyArtefact.load(shipped.POLICIES / shipped.POOL_POLICY)
    policy = PolicyArtefact.load(copied)
    files = policy.card["files"] | {file: other.card["files"][file]}
    mixed = replace(policy, folder=other.folder, card=policy.card | {"files": files})
    with pytest.raises(SageccError, match=f"{file} is no network that {name} can run"):
        runtime.load(mixed, name)(np.ones((3, policy.sizes.inputs), np.float32), policy.initial_state(3))
