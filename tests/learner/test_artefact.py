# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from learner import artefact, config, networks
from learner.artefact import NetworkSizes, PolicyArtefact
from learner.scaling import Scaling
from learner.tensorflow_runtime import tf
from schemas.errors import SageccError
from schemas.pool import FEATURE_NAMES

SMALL = config.Config(
    width=24, gru=20, batch=3, window=6, steps=1, policy_rate=1e-3, critic_rate=1e-3, residual_blocks=2, min_scale=0.01
)
GENERATOR = np.random.default_rng(0)
SCALING = Scaling(
    "symlog", GENERATOR.normal(size=69).astype(np.float32), GENERATOR.uniform(0.5, 2, 69).astype(np.float32), 5.0
)


def write(folder: Path, policy: Any, scaling: Scaling = SCALING) -> Path:
    weights = {name: v.numpy() for name, v in policy.weights().items()}
    artefact.write(folder, weights, NetworkSizes.of(SMALL, 69), scaling, FEATURE_NAMES, {"metrics": {"step": 1}})
    return folder


@pytest.fixture(scope="module")
def policy() -> networks.Policy:
    tf.random.set_seed(0)
    policy = networks.Policy(69, SMALL)
    for i, variable in enumerate(policy.weights().values()):
        variable.assign_add(tf.random.stateless_normal(variable.shape, [i, 0], stddev=0.2))
    return policy


@pytest.fixture
def folder(policy: networks.Policy, tmp_path: Path) -> Path:
    return write(tmp_path / "sage", policy)


def test_numpy_and_tensorflow_agree(policy: networks.Policy, folder: Path) -> None:
    loaded = PolicyArtefact.load(folder)
    observation = np.random.default_rng(1).lognormal(0, 2, (40, 3, 69)).astype(np.float32)
    mixture, states = policy.unroll(tf.constant(SCALING(observation)), tf.zeros([3, 20]))
    hidden = loaded.initial_state(3)
    for t, seen in enumerate(observation):
        logits, loc, scale, hidden = loaded.step(seen, hidden)
        for ours, theirs in ((logits, mixture.logits), (loc, mixture.loc), (scale, mixture.scale), (hidden, states)):
            np.testing.assert_allclose(ours, theirs[t], atol=1e-5, rtol=1e-5)
            assert ours.dtype == np.float32
    wanted = np.clip(networks.Mixture(*(tf.constant(x) for x in (logits, loc, scale))).mean(), -2, 2)
    np.testing.assert_allclose(loaded.mean_action(logits, loc), wanted, atol=1e-6)


def test_flows_of_a_batch_do_not_meet(folder: Path) -> None:
    loaded = PolicyArtefact.load(folder)
    observation = np.random.default_rng(2).normal(size=(4, 69)).astype(np.float32)
    together = loaded.step(observation, loaded.initial_state(4))
    alone = loaded.step(observation[2:3], loaded.initial_state())
    for many, one in zip(together, alone, strict=True):
        np.testing.assert_allclose(many[2:3], one, atol=1e-6)


def test_mean_action_by_hand_and_clipped(folder: Path) -> None:
    loaded = PolicyArtefact.load(folder)
    logits = np.log(np.array([[0.25, 0.75], [0.5, 0.5]], np.float32))
    loc = np.array([[1.0, -1.0], [9.0, 9.0]], np.float32)
    np.testing.assert_allclose(loaded.mean_action(logits, loc), [-0.5, 2.0], atol=1e-6)


def test_the_same_policy_is_the_same_bytes(policy: networks.Policy, folder: Path, tmp_path: Path) -> None:
    again = write(tmp_path / "again", policy)
    assert {p.name for p in again.iterdir()} == {"card.json", "policy.safetensors"}
    for path in again.iterdir():
        assert path.read_bytes() == (folder / path.name).read_bytes()


def test_the_card_says_what_a_runtime_needs(folder: Path) -> None:
    card = json.loads((folder / "card.json").read_text())
    assert card["inputs"]["observations"] == list(FEATURE_NAMES)
    assert (card["action_map"], card["action_limits"]) == ("cwnd *= 2**a", [-2.0, 2.0])
    assert (card["period_ms"], card["underlying_scheme"]) == (10, "pure")
    loaded = PolicyArtefact.load(folder)
    np.testing.assert_array_equal(loaded.scaling.shift, SCALING.shift)
    assert loaded.card == card


def test_running_a_policy_needs_no_tensorflow(folder: Path) -> None:
    code = (
        "import sys; from learner.artefact import PolicyArtefact; "
        f"PolicyArtefact.load({str(folder)!r}); assert 'tensorflow' not in sys.modules and 'sonnet' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def _edit_card(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        card = json.loads((folder / "card.json").read_text())
        change(card)
        (folder / "card.json").write_text(json.dumps(card))

    return edit


def _rewrite(change: Callable[[dict[str, np.ndarray]], object]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / "policy.safetensors"
        tensors = load_tensors(path.read_bytes())
        change(tensors)
        path.write_bytes(save_tensors(tensors))

    return edit


def _cut(share: float) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / "policy.safetensors"
        path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])

    return edit


def _flip(folder: Path) -> None:
    path = folder / "policy.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "card.json").unlink(), r"card\.json is missing"),
        (lambda f: (f / "policy.safetensors").unlink(), r"policy\.safetensors is missing"),
        (lambda f: (f / "card.json").write_text("{"), r"card\.json is not a policy's card"),
        (lambda f: (f / "card.json").write_text("[]"), r"card\.json is not a policy's card"),
        (_edit_card(lambda c: c.update(format_version="2.0")), r"format version 2\.0, this program reads 1\."),
        (_edit_card(lambda c: c.pop("network")), r"card\.json is incomplete"),
        (_edit_card(lambda c: c["network"].update(depth=3)), r"card\.json is incomplete"),
        (_edit_card(lambda c: c["network"].update(gru="big")), r"card\.json is incomplete"),
        (_edit_card(lambda c: c["network"].update(gru=21)), r"weight 'gru\.w_i' is float32 \(24, 60\), the card asks"),
        (_edit_card(lambda c: c["inputs"]["observations"].pop()), "differ in number"),
        (_edit_card(lambda c: c["inputs"]["observations"].__setitem__(0, "sRTT")), "unknown observation 'sRTT'"),
        (_edit_card(lambda c: c["inputs"]["scale"].__setitem__(0, 0.0)), "not a usable number"),
        (_edit_card(lambda c: c["inputs"].update(transform="sqrt")), "not known here"),
        (_edit_card(lambda c: c.update(action_map="cwnd += a")), "not known here"),
        (_rewrite(lambda t: t.pop("fc.w")), r"lacks weight 'fc\.w'"),
        (_rewrite(lambda t: t["fc.b"].fill(np.nan)), r"weight 'fc\.b' holds values that are not finite"),
        (_rewrite(lambda t: t.update({"fc.b": t["fc.b"].astype(np.float64)})), r"weight 'fc\.b' is float64"),
        (_flip, "SHA-256 differs"),
        (_cut(0.0), r"policy\.safetensors is truncated or corrupt"),
        (_cut(0.01), r"policy\.safetensors is truncated or corrupt"),
        (_cut(0.9), r"policy\.safetensors is truncated or corrupt"),
    ],
)
def test_a_damaged_artefact_is_one_clear_line(folder: Path, damage: Callable[[Path], None], message: str) -> None:
    damage(folder)
    with pytest.raises(SageccError, match=message) as caught:
        PolicyArtefact.load(folder)
    assert "\n" not in str(caught.value)


def test_no_artefact_at_all(tmp_path: Path) -> None:
    with pytest.raises(SageccError, match=r"no policy at .*nowhere.*'sagecc train'"):
        PolicyArtefact.load(tmp_path / "nowhere")
