# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
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

from sagecc.common.errors import SageccError
from sagecc.common.tensorflow_runtime import tf
from sagecc.learner.architectures import SageNetwork
from sagecc.learner.mixture import Mixture, PolicyNetwork
from sagecc.policy import artefact, exact, runtime
from sagecc.policy.artefact import Control, PolicyArtefact
from sagecc.policy.export import export
from sagecc.policy.scaling import Scaling
from sagecc.schemas.pool import FEATURE_NAMES

pytestmark = pytest.mark.tensorflow

SMALL = SageNetwork(width=24, gru=20, min_scale=0.01)
GENERATOR = np.random.default_rng(0)
SCALING = Scaling(
    "symlog", GENERATOR.normal(size=69).astype(np.float32), GENERATOR.uniform(0.5, 2, 69).astype(np.float32), 5.0
)


KINDS: dict[str, dict[str, Any]] = {"whole": {}, "no GRU": {"gru": 0}, "bare": {"second_encoder": False, "mixture": 1}}


def write(folder: Path, policy: Any, exported: bool = False) -> Path:
    weights, sizes = {name: v.numpy() for name, v in policy.weights().items()}, SMALL.sizes(69)
    files = export(sizes, weights) if exported else None
    artefact.write(folder, weights, sizes, SCALING, FEATURE_NAMES, {"metrics": {"step": 1}}, exported=files)
    return folder


def policy_of(configuration: SageNetwork) -> PolicyNetwork:
    tf.random.set_seed(0)
    policy: PolicyNetwork = configuration.policy(69)
    for i, variable in enumerate(policy.weights().values()):
        variable.assign_add(tf.random.stateless_normal(variable.shape, [i, 0], stddev=0.2))
    return policy


@pytest.fixture(scope="module")
def policy() -> PolicyNetwork:
    return policy_of(SMALL)


@pytest.fixture
def folder(policy: PolicyNetwork, tmp_path: Path) -> Path:
    return write(tmp_path / "sage", policy)


def test_numpy_and_tensorflow_agree(policy: PolicyNetwork, folder: Path) -> None:
    loaded = PolicyArtefact.load(folder)
    observation = np.random.default_rng(1).lognormal(0, 2, (40, 3, 69)).astype(np.float32)
    mixture, states = policy.unroll(tf.constant(SCALING(observation)), tf.zeros([3, 20]))
    hidden = loaded.initial_state(3)
    for t, seen in enumerate(observation):
        logits, loc, scale, hidden = loaded.step(seen, hidden)
        for ours, theirs in ((logits, mixture.logits), (loc, mixture.loc), (scale, mixture.scale), (hidden, states)):
            np.testing.assert_allclose(ours, theirs[t], atol=1e-5, rtol=1e-5)
            assert ours.dtype == np.float32
    wanted = Mixture(*(tf.constant(x) for x in (logits, loc, scale))).mean()
    np.testing.assert_allclose(exact.mean(logits, loc), wanted, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_every_runtime_and_tensorflow_agree(kind: str, tmp_path: Path) -> None:
    configuration = dataclasses.replace(SMALL, **KINDS[kind])
    policy, sizes = policy_of(configuration), configuration.sizes(69)
    weights = {name: v.numpy() for name, v in policy.weights().items()}
    exported = export(sizes, weights)
    artefact.write(tmp_path, weights, sizes, SCALING, FEATURE_NAMES, {}, exported=exported)
    loaded = PolicyArtefact.load(tmp_path)
    observation = np.random.default_rng(1).lognormal(0, 2, (30, 3, 69)).astype(np.float32)
    mixture, states = policy.unroll(tf.constant(SCALING(observation)), tf.zeros([3, sizes.state]))
    for name in ("exact", "numpy", "litert", "onnx"):
        step, hidden = runtime.load(loaded, name), loaded.initial_state(3)
        for t, seen in enumerate(observation):
            *head, hidden = step(seen, hidden)
            for ours, theirs in zip((*head, hidden), (*mixture, states), strict=True):
                np.testing.assert_allclose(ours, theirs[t], atol=1e-5, rtol=1e-5, err_msg=name)
                assert ours.dtype == np.float32
        alone, _ = step(observation[0, :1], loaded.initial_state())[0], None
        np.testing.assert_allclose(alone, mixture.logits[0, :1], atol=1e-5, rtol=1e-5, err_msg=name)
    assert loaded.card["export_errors"] == exported.errors
    assert all(error in (0, 1e-5) for of in exported.errors.values() for error in of.values())


def test_int8_is_an_option_and_its_error_is_in_the_card(policy: PolicyNetwork, tmp_path: Path) -> None:
    folder = write(tmp_path / "sage", policy)
    loaded = PolicyArtefact.load(folder)
    with pytest.raises(SageccError, match=r"policy\.int8\.tflite.*'sagecc export .* --int8'"):
        runtime.load(loaded, "litert-int8")
    artefact.add_exports(loaded, export(loaded.sizes, loaded.weights, int8=True))
    loaded = PolicyArtefact.load(folder)
    assert loaded.intact_files() == {"policy.safetensors", "policy.tflite", "policy.onnx", "policy.int8.tflite"}
    step = runtime.load(loaded, "litert-int8")
    observation = np.random.default_rng(3).normal(size=(2, 69)).astype(np.float32)
    ours, wanted = step(observation, loaded.initial_state(2)), loaded.step(observation, loaded.initial_state(2))
    error = max(float(np.abs(a - b).max()) for a, b in zip(ours, wanted, strict=True))
    stated = max(loaded.card["export_errors"]["policy.int8.tflite"].values())
    assert 1e-5 < error < 3 * stated < 1


def test_the_same_network_exports_the_same_bytes(policy: PolicyNetwork) -> None:
    sizes, weights = SMALL.sizes(69), {name: v.numpy() for name, v in policy.weights().items()}
    assert export(sizes, weights, int8=True) == export(sizes, weights, int8=True)


@pytest.mark.parametrize("name", ["policy.tflite", "policy.onnx"])
def test_a_damaged_export_is_one_clear_line(policy: PolicyNetwork, tmp_path: Path, name: str) -> None:
    folder = write(tmp_path / "sage", policy, exported=True)
    loaded, path = PolicyArtefact.load(folder), folder / name
    kind = "onnx" if name.endswith("onnx") else "litert"
    runtime.load(loaded, kind)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(SageccError, match=rf"{name} is truncated, or not the file .*'sagecc export"):
        runtime.load(loaded, kind)
    assert name not in loaded.intact_files()
    path.unlink()
    with pytest.raises(SageccError, match=rf"{name} cannot be read \(No such file"):
        runtime.load(loaded, kind)
    with pytest.raises(SageccError, match=r"no runtime 'torch'.*exact, numpy"):
        runtime.load(loaded, "torch")


def test_the_same_policy_is_the_same_bytes(policy: PolicyNetwork, folder: Path, tmp_path: Path) -> None:
    again = write(tmp_path / "again", policy)
    assert {p.name for p in again.iterdir()} == {"card.json", "policy.safetensors"}
    for path in again.iterdir():
        assert path.read_bytes() == (folder / path.name).read_bytes()


def test_the_card_says_what_a_runtime_needs(folder: Path) -> None:
    card = json.loads((folder / "card.json").read_text())
    assert card["inputs"]["observations"] == list(FEATURE_NAMES)
    assert (card["inputs"]["source"], card["network"]["kind"]) == ("sagecc.pool", "sage")
    action = {"map": "cwnd *= base**a", "base": 2.0, "limits": [-2.0, 2.0], "cwnd_packets": [4, 20_000]}
    assert card["action"] == action
    assert (card["period_ms"], card["underlying_scheme"]) == (10, "pure")
    loaded = PolicyArtefact.load(folder)
    np.testing.assert_array_equal(loaded.scaling.shift, SCALING.shift)
    assert loaded.card == card


def test_another_policys_card_comes_back(policy: PolicyNetwork, tmp_path: Path) -> None:
    """Orca's, say: other observations, 4**a on top of Cubic every 20 ms."""
    weights, sizes = {name: v.numpy() for name, v in policy.weights().items()}, SMALL.sizes(69)
    control = Control(4.0, (-1.0, 1.0), (4, 10_000), 20.0, "cubic")
    names = tuple(f"orca.{i}" for i in range(69))
    artefact.write(tmp_path, weights, sizes, SCALING, names, {}, control=control, source=("orca", "1"))
    loaded = PolicyArtefact.load(tmp_path)
    assert (loaded.control, loaded.observations, loaded.source) == (control, names, ("orca", "1"))
    choices: dict[str, Any] = {"map": artefact.LINEAR_MAP, "period_min_rtts": 0.5, "slow_start": 1.1}
    choices |= {"window_bound": 2, "window_bound_loss": 0.01, "window_bound_drains": True}
    choices |= {"window_bound_slow_mbps": 1.2, "recovery_floor": 0.5}
    control = dataclasses.replace(control, **choices)
    artefact.write(tmp_path, weights, sizes, SCALING, names, {}, control=control, source=("orca", "1"))
    careful = PolicyArtefact.load(tmp_path)
    assert (careful.control, careful.card["format_version"]) == (control, artefact.FORMAT_VERSION)
    assert loaded.card["format_version"] == "2.3"
    with pytest.raises(ValueError, match="action map 'cwnd \\+= a' is not known"):
        Control(map="cwnd += a")
    with pytest.raises(ValueError, match=r"every -1\.0 minimum RTTs"):
        Control(period_min_rtts=-1.0)
    assert Control.of(dataclasses.replace(control, slow_start=artefact.ACKED).card()).slow_start == artefact.ACKED
    for factor in (0.5, 101, float("nan")):
        with pytest.raises(ValueError, match=r"bound|numbers"):
            Control(window_bound=factor)
    for floor in (0, 1.1, float("nan")):
        with pytest.raises(ValueError, match=r"in an RTT|numbers"):
            Control(recovery_floor=floor)
    with pytest.raises(ValueError, match=r"slower than 1\.2 Mbps"):
        Control(window_bound_slow_mbps=1.2)
    bad: tuple[tuple[float | None, float], ...] = ((None, 0.01), (2, 0), (2, 1), (2, float("nan")))
    for bound, loss in bad:
        with pytest.raises(ValueError, match=r"tightens at a loss|numbers"):
            Control(window_bound=bound, window_bound_loss=loss)


def test_running_a_policy_needs_no_tensorflow(policy: PolicyNetwork, tmp_path: Path) -> None:
    folder = write(tmp_path / "sage", policy, exported=True)
    code = (
        "import sys; from sagecc.policy.artefact import PolicyArtefact; from sagecc.policy import runtime; "
        f"policy = PolicyArtefact.load({str(folder)!r}); "
        "import numpy as np; x = np.zeros((1, 69), np.float32); "
        "[runtime.load(policy, name)(x, policy.initial_state()) for name in ('exact', 'numpy', 'litert', 'onnx')]; "
        "assert not {'tensorflow', 'sonnet', 'onnx'} & sys.modules.keys()"
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
        (lambda f: (f / "card.json").write_text("{"), r"card\.json, line 1: no JSON: .*'sagecc train'"),
        (lambda f: (f / "card.json").write_text("[]"), r"card\.json is not a policy's card"),
        (_edit_card(lambda c: c.update(format_version="1.0")), r"1\.0.*2\."),
        (_edit_card(lambda c: c.pop("network")), r"card\.json is incomplete"),
        (_edit_card(lambda c: c["network"].update(depth=3)), r"card\.json is incomplete"),
        (_edit_card(lambda c: c["network"].update(gru="big")), r"card\.json is incomplete"),
        (_edit_card(lambda c: c["network"].update(gru=21)), r"weight 'gru\.w_i' is float32 \(24, 60\), the card asks"),
        (_edit_card(lambda c: c["inputs"]["observations"].pop()), "not the names of the network's 69 inputs"),
        (_edit_card(lambda c: c["network"].update(kind="transformer")), "'transformer'"),
        (_edit_card(lambda c: c["files"].pop("policy.safetensors")), r"card\.json is incomplete"),
        (_edit_card(lambda c: c.update(underlying_scheme=None)), "underlying_scheme is no name"),
        (_edit_card(lambda c: c.update(period_ms=0)), "no policy decides every 0 ms"),
        (_edit_card(lambda c: c["action"].update(base="two")), "must be numbers"),
        (_edit_card(lambda c: c["action"].update(cwnd_packets=[4, 1])), "no windows are from 4 to 1 packets"),
        (_edit_card(lambda c: c["inputs"]["scale"].__setitem__(0, 0.0)), "scale must be above 0"),
        (_edit_card(lambda c: c["inputs"].update(transform="sqrt")), "not known here"),
        (_edit_card(lambda c: c["action"].update(map="cwnd += a")), "not known here"),
        (_edit_card(lambda c: c["action"].update(slow_start=9)), "slow start.*9"),
        (_edit_card(lambda c: c["action"].update(slow_start="fast")), "must be numbers"),
        (
            _edit_card(lambda c: c.update(network={"kind": "mlp", "inputs": 69, "hidden": 8, "slope": 0.2})),
            r"card\.json is incomplete",
        ),
        (
            _edit_card(lambda c: c.update(network={"kind": "mlp", "inputs": 69, "hidden": [0], "slope": 0.2})),
            r"sizes \(69, 0\)",
        ),
        (_rewrite(lambda t: t.pop("fc.w")), r"lacks weight 'fc\.w'"),
        (_rewrite(lambda t: t["fc.b"].fill(np.nan)), r"'fc\.b'.*finite"),
        (_rewrite(lambda t: t.update({"fc.b": t["fc.b"].astype(np.float64)})), r"weight 'fc\.b' is float64"),
        (_flip, "SHA-256 differs"),
        (_cut(0.0), r"policy\.safetensors is damaged"),
        (_cut(0.01), r"policy\.safetensors is damaged"),
        (_cut(0.9), r"policy\.safetensors is damaged"),
    ],
)
def test_a_damaged_artefact_is_one_clear_line(folder: Path, damage: Callable[[Path], None], message: str) -> None:
    damage(folder)
    with pytest.raises(SageccError, match=message) as caught:
        PolicyArtefact.load(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_not_written(folder: Path, tmp_path: Path, value: float) -> None:
    policy = PolicyArtefact.load(folder)
    weights = {name: array.copy() for name, array in policy.weights.items()}
    weights["fc.b"][0] = value
    with pytest.raises(SageccError, match=r"new is not written: its weight 'fc\.b' holds values that are not finite"):
        artefact.write(tmp_path / "new", weights, policy.sizes, policy.scaling, policy.observations, {})
    assert not (tmp_path / "new").exists()


def test_no_artefact_at_all(tmp_path: Path) -> None:
    with pytest.raises(SageccError, match=r"no policy at .*nowhere.*'sagecc train'"):
        PolicyArtefact.load(tmp_path / "nowhere")
