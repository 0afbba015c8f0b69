# SPDX-License-Identifier: Apache-2.0
"""Sage's model from a TensorFlow 2 checkpoint: the same answers, and an error where it is none."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sagecc.cli as entry
from sagecc.common.errors import SageccError
from sagecc.execution.schemes.sage.checkpoint import END, NAMES, POLICY, SIZES, import_checkpoint, rules
from sagecc.execution.schemes.sage.observation import OBSERVATIONS
from sagecc.policy import exact, runtime
from sagecc.policy.artefact import ACTION_MAP, CEILED_MAP, PolicyArtefact
from sagecc.policy.tensor_bundle import read_index
from tests.helpers.sage_model import PUBLISHED, Values, acme_network, save_model, synthetic_values
from tests.helpers.tensor_bundle import save_bundle

pytestmark = pytest.mark.tensorflow

ONE = f"{POLICY}{NAMES['gru.w_i']}{END}"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("synthetic"))


@pytest.fixture(scope="module")
def policy(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> PolicyArtefact:
    return PolicyArtefact.load(import_checkpoint(checkpoint, tmp_path_factory.mktemp("models") / "sage").folder)


def part(model: Any, path: str) -> Any:
    """Return what a model has at a path of attributes and list places, as checkpoints name it."""
    for step in path.split("/"):
        model = model[int(step)] if step.isdigit() else getattr(model, step)
    return model


def test_it_answers_as_the_network_of_acmes_and_sonnets_layers(policy: PolicyArtefact, tmp_path: Path) -> None:
    """200 ticks of two flows; TensorFlow writes the checkpoint, with the names of Acme's and Sonnet's modules."""
    from sagecc.common.tensorflow_runtime import quietly, tf
    from sagecc.learner.acme_compat import networks, utils

    model = acme_network()
    with quietly():
        utils.create_variables(model, [tf.TensorSpec((len(OBSERVATIONS),), tf.float32)])
        for name, value in synthetic_values().items():
            if name.startswith(POLICY):
                part(model, name.removeprefix("policy/").removesuffix(END)).assign(value)
        saver = tf.train.Checkpoint(policy=model, signature=tf.Variable(20230806, dtype=tf.int32))
        written = Path(saver.save(str(tmp_path / "theirs" / "ckpt")))
    own = PolicyArtefact.load(import_checkpoint(written, tmp_path / "sage").folder)
    for name, weight in policy.weights.items():
        np.testing.assert_array_equal(own.weights[name], weight)

    random, state = np.random.default_rng(1), model.initial_state(2)
    steps = {name: runtime.load(own, name) for name in ("exact", "numpy")}
    hidden = {name: own.initial_state(2) for name in steps}
    mean, actions = networks.StochasticMeanHead(), []
    for _ in range(200):
        seen = random.lognormal(-1, 1, (2, len(OBSERVATIONS))).astype(np.float32)
        mixture, state = model(tf.constant(seen), state)
        wanted = np.asarray(mean(mixture))[:, 0]
        parts = mixture.components_distribution
        actions.append(wanted)
        for name, step in steps.items():
            logits, loc, scale, hidden[name] = step(seen, hidden[name])
            np.testing.assert_allclose(exact.mean(logits, loc), wanted, atol=1e-5)
            np.testing.assert_allclose(loc, np.asarray(parts.loc)[..., 0], atol=1e-5)
            np.testing.assert_allclose(scale, np.asarray(parts.stddev())[..., 0], atol=1e-5)
            np.testing.assert_allclose(hidden[name], np.asarray(state[0]), atol=1e-5)
    assert np.std(actions) > 0.05


@pytest.mark.skipif(not list(PUBLISHED.glob("*.index")), reason=f"no index at {PUBLISHED} (SAGECC_SAGE names it)")
def test_the_published_index_names_this_network() -> None:
    (path,) = PUBLISHED.glob("*.index")
    entries = read_index(path.read_bytes()).entries
    theirs = {name: entry for name, entry in entries.items() if name.startswith("policy/")}
    shapes = {f"{POLICY}{NAMES[ours]}{END}": shape for ours, shape in SIZES.shapes().items()}
    assert {name: entry.shape for name, entry in theirs.items()} == shapes
    assert {entry.dtype for entry in theirs.values()} == {1}
    assert SIZES.parameters == 4_550_415


@pytest.mark.skipif(not list(PUBLISHED.glob("*.data-*")), reason=f"no model at {PUBLISHED} (SAGECC_SAGE names it)")
def test_the_published_model_is_imported(tmp_path: Path) -> None:
    card = PolicyArtefact.load(import_checkpoint(PUBLISHED, tmp_path / "sage").folder).card
    assert card["imported"]["signature"] == 20230806
    assert "MIT License" in card["imported"]["notice"]


def test_the_card_describes_all_that_a_runtime_must_know(policy: PolicyArtefact) -> None:
    card = policy.card
    assert (card["inputs"]["source"], card["inputs"]["source_version"]) == ("sage.public", "1.0")
    assert card["inputs"]["observations"][-3:] == ["dr_max_ratio", "dr_max", "pre_act"]
    assert "without" not in card["inputs"]
    assert card["action"] == {
        "map": CEILED_MAP,
        "base": 2.0,
        "limits": [-2.0, 2.0],
        "cwnd_packets": [4, 20_000],
        "decimals": 3,
    }
    assert (card["period_ms"], card["underlying_scheme"]) == (10.0, "pure")
    assert card["network"] == {
        "kind": "sage",
        "inputs": 69,
        "width": 256,
        "gru": 1024,
        "residual_blocks": 2,
        "mixture": 5,
        "min_scale": 1e-4,
        "second_encoder": True,
    }
    assert (card["imported"]["from"], card["imported"]["signature"]) == ("sage", 20230806)
    assert set(card["imported"]["sha256"]) == {"ckpt-1.index", "ckpt-1.data-00000-of-00001"}
    assert card["imported"]["licence"] == "MIT"


def test_each_rule_can_be_left_out(checkpoint: Path, tmp_path: Path) -> None:
    done = import_checkpoint(checkpoint, tmp_path / "sage", tuple(rules()))
    policy = PolicyArtefact.load(done.folder)
    assert policy.without == ("acknowledged", "held-lost", "report-rates", "mean-unacked", "requested", "decimals")
    assert (policy.control.map, policy.control.decimals, policy.control.paced) == (ACTION_MAP, None, False)
    with pytest.raises(SageccError, match="--without speed: no such rule; there are acknowledged, "):
        import_checkpoint(checkpoint, tmp_path / "other", ("speed",))


def test_help_names_each_rule(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        entry.main(["import", "sage", "--help"])
    text = "".join(capsys.readouterr().out.split())  # lines may break within a name
    assert f"{','.join(rules())}." in text


def refused(checkpoint: Path, out: Path, message: str) -> None:
    before = sorted(out.parent.rglob("*"))
    with pytest.raises(SageccError, match=message) as found:
        import_checkpoint(checkpoint, out)
    assert "\n" not in str(found.value)
    assert sorted(out.parent.rglob("*")) == before


def without(values: Values, name: str) -> Values:
    return {key: value for key, value in values.items() if key != name}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"actor/fc1/kernel": np.zeros((70, 256), np.float32)},
            "has no variable 'policy/.*it is no checkpoint of Sage's",
        ),
        (without(synthetic_values(), ONE), "has no variable 'policy/_layers/1/_w_i/"),
        (synthetic_values() | {ONE: np.zeros((256, 768), np.float32)}, r"shape \(256, 768\), Sage's policy 256 x 3072"),
        (synthetic_values() | {ONE: np.full((256, 3072), np.nan, np.float32)}, "_w_i/.*finite"),
        (
            synthetic_values() | {f"{POLICY}3/_module/_layers/3/_layer_norm/scale{END}": np.ones(256, np.float32)},
            "has a variable 'policy/_layers/3/_module/_layers/3/.*which Sage's policy has not",
        ),
    ],
)
def test_another_network_is_refused(values: Values, message: str, tmp_path: Path) -> None:
    out = tmp_path / "models" / "sage"
    out.parent.mkdir()
    refused(save_bundle(tmp_path / "other" / "ckpt-1", values), out, message)


@pytest.mark.parametrize("part", ["index", "data-00000-of-00001"])
def test_half_a_checkpoint_is_refused(checkpoint: Path, tmp_path: Path, part: str) -> None:
    bad, out = tmp_path / "bad", tmp_path / "models" / "sage"
    out.parent.mkdir()
    shutil.copytree(checkpoint.parent, bad)
    file = bad / f"{checkpoint.name}.{part}"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    refused(bad, out, "truncated, corrupt or no TensorFlow checkpoint")
    file.unlink()
    refused(bad, out, "no checkpoint|its data .* is not: fetch it again")


def test_another_models_index_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    bad, out = tmp_path / "bad", tmp_path / "models" / "sage"
    out.parent.mkdir()
    other = save_model(bad, synthetic_values(seed=1))
    shutil.copy(checkpoint.with_name(f"{checkpoint.name}.index"), other.with_name(f"{other.name}.index"))
    refused(bad, out, r"has other bytes than were written \(CRC-32C differs\)")


def test_a_folder_of_something_else_stays_as_it_is(checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "sage"
    import_checkpoint(checkpoint, out)
    first = (out / "card.json").read_bytes()
    import_checkpoint(checkpoint, out)  # an earlier import may be replaced
    assert (out / "card.json").read_bytes() == first
    card = json.loads(first)
    card["imported"]["from"] = "orca"
    (out / "card.json").write_text(json.dumps(card))
    refused(checkpoint, out, "exists and is no policy imported from sage: choose another --out, or remove it")


def test_the_command_needs_no_tensorflow(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    out = tmp_path / "sage"
    with pytest.raises(SystemExit) as status:
        entry.main(["import", "sage", str(checkpoint), "--out", str(out), "--without", "requested"])
    assert not status.value.code
    assert capsys.readouterr().out == f"policy   {out} (4,550,415 parameters)\n"
    assert PolicyArtefact.load(out).without == ("requested",)
