# SPDX-License-Identifier: Apache-2.0
"""A card from elsewhere makes a policy that works, or one line: it cannot hang, fill the machine or raise else."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sagecc.common.errors import SageccError
from sagecc.policy.artefact import Control, PolicyArtefact, policy_sha256
from sagecc.policy.bounds import MAX_CWND_PACKETS, MAX_LAYERS, MAX_PARAMETERS, MAX_PERIOD_MS, MAX_UNITS
from sagecc.policy.choice import Chooser
from sagecc.policy.folder import CARD, WEIGHTS
from sagecc.policy.mlp import Mlp
from sagecc.policy.recurrent import Recurrent
from sagecc.policy.residual import NetworkSizes
from tests.helpers.policies import save_policy
from tests.helpers.special_files import PUT, put

NASTY: tuple[Any, ...] = (
    *(0, -1, 1, 3, 2**31, 2**62, 10**18, 0.5, -0.0, 5e-324, 1e300, math.nan, math.inf, True, None, "", "x", "1.5"),
    *([], [[]], [[1.0]] * 69, [1] * 69, ["1"] * 69, [1e39] * 69, [0] * 69, [None] * 69, {}, {"x": 1}, "x" * 69),
)


def refusal(folder: Path) -> str:
    with pytest.raises(SageccError) as caught:
        PolicyArtefact.load(folder)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600
    return str(caught.value)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture
def change(folder: Path, tmp_path: Path) -> Callable[..., Path]:
    """Return a function that makes a policy with another value in its card."""
    card = json.loads((folder / CARD).read_text())
    (tmp_path / WEIGHTS).symlink_to(folder / WEIGHTS)

    def changed(value: Any, *keys: str | int) -> Path:
        copy = inner = json.loads(json.dumps(card))
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value
        (tmp_path / CARD).write_text(json.dumps(copy))
        return tmp_path

    return changed


@pytest.mark.parametrize(
    "keys",
    [
        *(("network", name) for name in ("inputs", "width", "gru", "residual_blocks", "mixture", "min_scale", "kind")),
        *(("inputs", name) for name in ("shift", "scale", "limit", "transform", "observations", "source")),
        *(("action", name) for name in ("base", "limits", "cwnd_packets", "map", "slow_start", "window_bound")),
        *(("inputs", "shift", 3), ("inputs", "scale", 3), ("inputs", "observations", 3), ("action", "limits", 0)),
        *(("action", "cwnd_packets", 0), ("action", "cwnd_packets", 1), ("files", WEIGHTS), ("format_version",)),
        *(("network", "second_encoder"), ("period_ms",), ("underlying_scheme",), ("files",), ("inputs",), ("network",)),
    ],
    ids=lambda keys: ".".join(map(str, keys)),
)
def test_any_value_in_a_card_makes_a_policy_or_one_line(
    keys: tuple[str | int, ...], change: Callable[..., Path]
) -> None:
    for value in NASTY:
        folder = change(value, *keys)
        try:
            policy = PolicyArtefact.load(folder)
        except SageccError as error:
            assert "\n" not in str(error)
            assert str(error).startswith(str(folder))
        else:
            observation = np.ones((2, policy.sizes.inputs), np.float32)
            outputs = policy.step(observation, policy.initial_state(2))
            assert all(np.isfinite(output).all() for output in outputs), (keys, value)


@pytest.mark.parametrize(
    ("value", "keys", "words"),
    [
        (10**9, ("network", "residual_blocks"), "no network has the sizes (69, 8, 6, 1000000000, 3)"),
        (10**5, ("network", "width"), "no network has the sizes"),
        (10**400, ("action", "base"), "beyond 2^63"),
        (10**30, ("action", "cwnd_packets", 1), "beyond 2^63"),
        ([2**61, 2**62], ("action", "cwnd_packets"), "no windows are from 2305843009213693952 to"),
        (1e300, ("period_ms",), "no policy decides every 1e+300 ms"),
        ([[0.5]] * 69, ("inputs", "shift"), "shift holds what is no usable number"),
        ([0.5] * 70, ("inputs", "scale"), "scale has 70 numbers, not 69"),
        (["a"] * 68 + ["\x1b"], ("inputs", "observations"), "observations are not the names"),
    ],
)
def test_bounds_are_told(value: Any, keys: tuple[str | int, ...], words: str, change: Callable[..., Path]) -> None:
    assert words in refusal(change(value, *keys))


def test_a_card_nested_too_deep(change: Callable[..., Path]) -> None:
    folder = change("HERE", "action")
    (folder / CARD).write_text((folder / CARD).read_text().replace('"HERE"', "[" * 100_000))
    assert "64 levels deep: train it again" in refusal(folder)


def test_networks_have_bounds_in_all() -> None:
    for build in (
        lambda: NetworkSizes(69, 8, 6, MAX_LAYERS + 1, 3, 0.1),
        lambda: NetworkSizes(69, MAX_UNITS, 6, 2, 3, 0.1),
        lambda: NetworkSizes(69, 8, 6, 1, 3, math.inf),
        lambda: Recurrent(69, 8, MAX_UNITS, 1),
        lambda: Mlp(69, (1,) * (MAX_LAYERS + 1), 0.2),
        lambda: Mlp(69, (MAX_UNITS, MAX_UNITS), 0.2),
        lambda: Chooser(69, MAX_UNITS, (0.0, 1.0)),
        lambda: Chooser(69, 8, (0.0,) * (MAX_UNITS + 1)),
    ):
        with pytest.raises(ValueError, match=r"no network has|parameters is above"):
            build()
    assert Mlp(MAX_UNITS, (2**12,), 0.2).parameters <= MAX_PARAMETERS


def test_the_bounds_themselves_are_allowed() -> None:
    Control(base=1000, limits=(-100, 100), cwnd_packets=(1, MAX_CWND_PACKETS), period_ms=MAX_PERIOD_MS)


@pytest.mark.parametrize("name", [CARD, WEIGHTS])
@pytest.mark.parametrize("kind", PUT)
def test_special_files_in_a_policy(kind: str, name: str, tmp_path: Path) -> None:
    put(kind, save_policy(tmp_path / "policy") / name)
    assert f"{tmp_path / 'policy' / name} {kind}" in refusal(tmp_path / "policy")


def test_a_folder_that_is_no_policy_is_not_hashed(tmp_path: Path) -> None:
    """Such as /usr; nor is one with more files than a policy has, or with a file that has no end."""
    with pytest.raises(SageccError, match=f"policy:{tmp_path}: there is no policy at {tmp_path};"):
        policy_sha256(f"policy:{tmp_path}")
    save_policy(tmp_path)
    assert len(digest := policy_sha256(f"policy:{tmp_path}")) == 64
    (tmp_path / "README.md").write_text("For people.")
    assert policy_sha256(f"policy:{tmp_path}") == digest
    put("has 4,398,046,511,104 bytes", tmp_path / "note")
    with pytest.raises(SageccError, match="note has 4,398,046,511,104 bytes"):
        policy_sha256(f"policy:{tmp_path}")
    for number in range(1000):
        (tmp_path / f"{number}").touch()
    with pytest.raises(SageccError, match="holds more than 1,000 files"):
        policy_sha256(f"policy:{tmp_path}")
