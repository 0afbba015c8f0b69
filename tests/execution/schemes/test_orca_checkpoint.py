# SPDX-License-Identifier: Apache-2.0
"""Orca's actor from a TensorFlow 1 checkpoint: the same answers, and an error where it is none."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import sagecc.cli as entry
from sagecc.common.errors import SageccError
from sagecc.execution.schemes.orca.checkpoint import import_checkpoint
from sagecc.policy import exact, runtime
from sagecc.policy.artefact import HUNDREDTHS_MAP, PolicyArtefact, add_exports
from sagecc.policy.export import export
from sagecc.policy.tensorflow_checkpoint import prefix_of
from tests.helpers.checkpoints import (
    PUBLISHED,
    Values,
    graph_answers,
    meta_graph_answers,
    needs_published,
    observations,
    save_checkpoint,
    synthetic_values,
)

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint(tmp_path_factory.mktemp("synthetic"), synthetic_values())


def answers(policy: PolicyArtefact, name: str) -> np.ndarray:
    seen = observations()
    logits, loc, scale, hidden = runtime.load(policy, name)(seen, policy.initial_state(len(seen)))
    assert not logits.any()
    assert not scale.any()
    assert hidden.shape == (len(seen), 0)
    np.testing.assert_array_equal(exact.mean(logits, loc), loc[:, 0])
    return loc


def test_a_synthetic_actor_answers_as_tensorflow_does(checkpoint: Path, tmp_path: Path) -> None:
    done = import_checkpoint(checkpoint, tmp_path / "orca")
    wanted = graph_answers(synthetic_values(), observations())
    assert wanted.std() > 0.2
    policy = PolicyArtefact.load(done.folder)
    assert (done.step, done.parameters) == (7, 70 * 256 + 256 + 256 * 256 + 256 + 257)
    for name in ("exact", "numpy"):
        np.testing.assert_allclose(answers(policy, name), wanted, atol=1e-5)


def test_every_runtime_answers_alike(checkpoint: Path, tmp_path: Path) -> None:
    policy = PolicyArtefact.load(import_checkpoint(checkpoint, tmp_path / "orca").folder)
    exported = export(policy.sizes, policy.weights, int8=True)
    add_exports(policy, exported)
    policy = PolicyArtefact.load(policy.path)
    wanted = answers(policy, "numpy")
    for name in ("litert", "onnx"):
        np.testing.assert_allclose(answers(policy, name), wanted, atol=1e-5)
    assert 1e-5 < np.abs(answers(policy, "litert-int8") - wanted).max() < 0.5
    assert set(exported.errors) == {"policy.tflite", "policy.onnx", "policy.int8.tflite"}


@needs_published
def test_the_published_actor_answers_as_its_own_graph(tmp_path: Path) -> None:
    done = import_checkpoint(PUBLISHED, tmp_path / "orca")
    (prefix,) = (path.with_suffix("") for path in PUBLISHED.glob("*.index"))
    wanted = meta_graph_answers(prefix, observations())
    assert wanted.std() > 0.2
    policy = PolicyArtefact.load(done.folder)
    assert done.step == 1_283_529
    assert "MIT License" in policy.card["imported"]["notice"]
    for name in ("exact", "numpy"):
        np.testing.assert_allclose(answers(policy, name), wanted, atol=1e-5)


def test_the_card_describes_all_that_a_runtime_must_know(checkpoint: Path, tmp_path: Path) -> None:
    import_checkpoint(checkpoint, tmp_path / "orca")
    card = json.loads((tmp_path / "orca" / "card.json").read_text())
    assert card["format_version"] == "2.3"  # the least that has its fields
    assert (card["inputs"]["source"], card["inputs"]["source_version"]) == ("orca.tcp", "1.0")
    assert card["inputs"]["observations"][:2] == ["thr/max@-9", "pacing/max@-9"]
    assert card["inputs"]["observations"][-1] == "delay_metric@-0"
    assert card["action"] == {
        "map": HUNDREDTHS_MAP,
        "base": 4.0,
        "limits": [-1.0, 1.0],
        "cwnd_packets": [4, 10000],
        "slow_start": 1.1,
    }
    assert (card["period_ms"], card["underlying_scheme"]) == (20.0, "cubic")
    assert card["network"] == {
        "kind": "mlp",
        "inputs": 70,
        "hidden": [256, 256],
        "slope": 0.2,
        "activation": "leaky_relu",
    }
    assert card["imported"]["from"] == "orca"
    assert set(card["imported"]["sha256"]) == {"model.ckpt-7.index", "model.ckpt-7.data-00000-of-00001"}
    assert card["imported"]["licence"] == "MIT"


def test_a_flow_gets_the_same_bits_alone_and_in_a_batch(checkpoint: Path, tmp_path: Path) -> None:
    import_checkpoint(checkpoint, tmp_path / "orca")
    policy = PolicyArtefact.load(tmp_path / "orca")
    step, seen = runtime.load(policy), observations(20)
    together = step(seen, policy.initial_state(20))[1]
    alone = [step(seen[i : i + 1], policy.initial_state())[1] for i in range(20)]
    np.testing.assert_array_equal(np.concatenate(alone), together)


@pytest.mark.parametrize("name", ["", "checkpoint.index", "checkpoint.data-00000-of-00001", "checkpoint"])
def test_a_checkpoint_by_its_folder_its_files_or_their_beginning(checkpoint: Path, tmp_path: Path, name: str) -> None:
    given = checkpoint.parent if not name else checkpoint.with_name(name.replace("checkpoint", checkpoint.name))
    assert import_checkpoint(given, tmp_path / "orca").step == 7


def refused(checkpoint: Path, out: Path, message: str) -> None:
    before = sorted(out.parent.rglob("*"))
    with pytest.raises(SageccError, match=message):
        import_checkpoint(checkpoint, out)
    assert sorted(out.parent.rglob("*")) == before


def test_what_is_no_checkpoint_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    out, bad = tmp_path / "models" / "orca", tmp_path / "bad"
    out.parent.mkdir()
    refused(tmp_path / "none", out, "no TensorFlow checkpoint at .*none")
    bad.mkdir()
    refused(bad, out, r"bad holds no checkpoint \(\*\.index\): name one")
    (bad / "a.index").write_text("text")
    refused(bad, out, r"a\.index is there, its data .* is not")
    (bad / "a.data-00000-of-00001").write_text("text")
    refused(bad, out, "a is truncated, corrupt or no TensorFlow checkpoint")


@pytest.mark.parametrize("part", ["index", "data-00000-of-00001"])
def test_a_truncated_checkpoint_is_refused(checkpoint: Path, tmp_path: Path, part: str) -> None:
    bad, out = tmp_path / "bad", tmp_path / "models" / "orca"
    out.parent.mkdir()
    shutil.copytree(checkpoint.parent, bad)
    file = bad / f"{checkpoint.name}.{part}"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    refused(bad, out, "truncated, corrupt or no TensorFlow checkpoint")


def without(values: Values, name: str) -> Values:
    return {key: value for key, value in values.items() if key != name}


BETA = "actor/batch_normalization_1/beta"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (without(synthetic_values(), BETA), f"has no variable '{BETA}'.*no checkpoint"),
        (synthetic_values() | {BETA: np.zeros(9, np.float32)}, r"\(9,\).*256"),
        (synthetic_values() | {"actor/fc2/kernel": np.zeros((3, 9), np.float32)}, r"shape \(3, 9\), .* 256 x any"),
        (synthetic_values() | {BETA: np.full(256, np.nan, np.float32)}, "beta'.*finite"),
        (synthetic_values(inputs=42), "observes 42 numbers, Orca's has 70"),
    ],
)
def test_another_network_is_refused(values: Values, message: str, tmp_path: Path) -> None:
    out = tmp_path / "models" / "orca"
    out.parent.mkdir()
    refused(save_checkpoint(tmp_path / "other", values), out, message)


def test_a_folder_of_something_else_stays_as_it_is(checkpoint: Path, tmp_path: Path) -> None:
    out = tmp_path / "orca"
    out.mkdir()
    import_checkpoint(checkpoint, out)
    first = (out / "card.json").read_bytes()
    import_checkpoint(checkpoint, out)  # an earlier import may be replaced
    assert (out / "card.json").read_bytes() == first
    card = json.loads(first)
    del card["imported"]
    (out / "card.json").write_text(json.dumps(card))
    refused(checkpoint, out, "exists and is no policy imported from orca: choose another --out, or remove it")


def test_no_tensorflow_is_needed(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    assert import_checkpoint(checkpoint, tmp_path / "orca").step == 7


def test_the_command_says_what_it_made(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as status:
        entry.main(["import", "orca", str(checkpoint), "--out", str(tmp_path / "orca")])
    assert not status.value.code
    assert capsys.readouterr().out == f"policy   {tmp_path}/orca (84,225 parameters, step 7)\n"


@pytest.mark.parametrize("name", ["model[1]", "a*b", "what?"])
def test_a_checkpoints_name_is_no_pattern(tmp_path: Path, name: str) -> None:
    for file in (f"{name}.index", f"{name}.data-00000-of-00001", "axb.data-00000-of-00001"):
        (tmp_path / file).touch()
    assert prefix_of(tmp_path) == tmp_path / name
    (tmp_path / f"{name}.data-00000-of-00001").unlink()
    with pytest.raises(SageccError, match="fetch it again"):
        prefix_of(tmp_path)
