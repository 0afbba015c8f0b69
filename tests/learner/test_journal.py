# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.numpy import save

from sagecc.common.errors import SageccError
from sagecc.common.tensorflow_runtime import tf
from sagecc.learner import offline
from sagecc.learner.algorithms import td3_bc
from sagecc.learner.algorithms.crr import METRICS
from sagecc.learner.continuation import CHECKPOINT, keep_state
from sagecc.learner.core import Batch, Update
from sagecc.learner.journal import TrainingJournal
from sagecc.learner.specification import load
from sagecc.learner.tensors import unpack
from tests.conftest import ROOT
from tests.learner import test_td3
from tests.learner.test_crr import learner as crr

pytestmark = pytest.mark.tensorflow


class Steps:
    """Stands in for the networks: what is trained is the number of steps."""

    def __init__(self) -> None:
        self.steps = tf.Variable(0, dtype=tf.int64)

    def state(self) -> dict[str, Any]:
        return {"steps": self.steps}

    acting = exported = state
    metrics = METRICS

    def update(self, batch: Batch) -> Update:
        raise NotImplementedError


def journal(folder: Path) -> tuple[Steps, TrainingJournal]:
    steps = Steps()
    return steps, TrainingJournal(steps, folder, "this run", every=2, metrics=METRICS)


def train(steps: Steps, to: TrainingJournal, last: int) -> None:
    for step in range(int(steps.steps) + 1, last + 1):
        steps.steps.assign(step)
        to.add(step, np.full(len(METRICS), step), waited_s=0.0)


def lines(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_what_came_after_the_checkpoint_is_cut_even_a_torn_line(tmp_path: Path) -> None:
    steps, first = journal(tmp_path)
    train(steps, first, 4)
    first.add_scores(4, {"set_I": 0.25}, seconds=0.0)
    first.save()
    train(steps, first, 7)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 8, "criti')

    steps, second = journal(tmp_path)
    assert second.restore() == 4
    assert second.scores == {4: {"set_I": 0.25}}
    assert [line["step"] for line in lines(tmp_path)] == [2, 4, 4]
    train(steps, second, 6)
    assert [(line["step"], line[METRICS[0]]) for line in second.curve()] == [(2, 1.5), (4, 3.5), (6, 5.5)]
    assert all(set(line) == {"step", *METRICS} for line in second.curve())


def test_half_an_average_survives(tmp_path: Path) -> None:
    steps, first = journal(tmp_path)
    train(steps, first, 3)
    first.save()
    steps, second = journal(tmp_path)
    second.restore()
    train(steps, second, 4)
    assert second.curve()[-1][METRICS[0]] == 3.5


def test_lines_that_are_lost_from_before_the_checkpoint_are_an_error(tmp_path: Path) -> None:
    steps, first = journal(tmp_path)
    train(steps, first, 4)
    first.save()
    (tmp_path / "metrics.jsonl").write_text('{"ste\n{"step": 4}\n')
    with pytest.raises(SageccError, match="is damaged"):
        journal(tmp_path)[1].restore()


def test_no_flipped_bit_of_a_checkpoint_or_of_the_metrics_before_it_is_gone_on_with(tmp_path: Path) -> None:
    steps, first = journal(tmp_path)
    train(steps, first, 4)
    first.save({"actor/x": np.arange(7)})
    random, refused = np.random.default_rng(0), 0
    for name in ("checkpoint.safetensors", "metrics.jsonl"):
        path = tmp_path / name
        sound = path.read_bytes()
        for _ in range(60):
            data = bytearray(sound)
            data[int(random.integers(len(data)))] ^= 1 << int(random.integers(8))
            path.write_bytes(data)
            _, second = journal(tmp_path)
            with pytest.raises(SageccError, match=r"the run in .* is damaged \(.*\): remove the folder") as caught:
                second.restore()
            assert "\n" not in str(caught.value)
            refused += path.read_bytes() == data  # and it stays
        path.write_bytes(sound)
    assert refused == 120
    assert journal(tmp_path)[1].restore() == 4


def td3() -> Any:
    return test_td3.learner(test_td3.CONFIG)


@pytest.mark.parametrize(("make", "actor"), [(crr, "policy"), (td3, "actor")])
@pytest.mark.parametrize("part", ["{}/", "target_{}/", "{}_adam_m/", "{}_adam_v/"])
def test_what_is_not_finite_is_neither_saved_nor_gone_on_with(
    make: Callable[[], Any], actor: str, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = make()
    state = learner.state().items()
    name, variable = next((name, variable) for name, variable in state if name.startswith(part.format(actor)))
    of = TrainingJournal(learner, tmp_path, "this run", every=2, metrics=learner.metrics)
    of.save()
    sound = (tmp_path / CHECKPOINT).read_bytes()
    variable.assign(np.full(variable.shape, np.nan))
    with pytest.raises(SageccError, match=rf"training diverged .*{name} is not finite"):
        of.save()
    assert (tmp_path / CHECKPOINT).read_bytes() == sound
    with monkeypatch.context() as patch:
        patch.setattr("sagecc.learner.journal.not_finite", lambda tensors: None)
        of.save()
    with pytest.raises(SageccError, match=rf"{name} is not finite\): remove the folder"):
        TrainingJournal(make(), tmp_path, "this run", every=2, metrics=learner.metrics).restore()
    with pytest.raises(SageccError, match=rf"{name} is not finite"):
        keep_state(tmp_path, tmp_path / "state.safetensors")


def test_a_kept_state_is_the_same_bytes_and_one_without_a_digest_is_read(tmp_path: Path) -> None:
    steps, first = journal(tmp_path)
    train(steps, first, 4)
    first.save()
    state = tmp_path / "state.safetensors"
    keep_state(tmp_path, state)
    kept = state.read_bytes()
    keep_state(tmp_path, tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == kept
    tensors, about = unpack(kept)
    assert ({name: int(value) for name, value in tensors.items()}, about) == ({"steps": 4}, {})
    (older,) = unpack(save(tensors))[0].values()
    assert older == 4


def test_an_evaluations_time_is_not_the_steps(tmp_path: Path) -> None:
    steps, of = journal(tmp_path)
    of.add_scores(0, {"set_I": 0.5}, seconds=-1e6)  # as if the steps had taken so long
    train(steps, of, 2)
    assert lines(tmp_path)[-1]["steps_per_s"] < 1e-5


def test_dvc_draws_every_metric_once() -> None:
    config: Any = load(yaml.safe_load((ROOT / "params.yaml").read_text())["train"]["config"]).algorithm
    drawn: list[str] = []
    for plot in yaml.safe_load((ROOT / "dvc.yaml").read_text())["plots"]:
        ((title, fields),) = plot.items()
        assert "'" not in title  # DVC puts it into a page's script between such
        columns = fields["y"].get("models/repro/curves.csv", [])
        drawn += [columns] if isinstance(columns, str) else columns
    assert sorted(drawn) == sorted((*offline.METRICS, *(td3_bc.OF_WEIGHTS if config.beta else ())))
