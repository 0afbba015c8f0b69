# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from sagecc.common.errors import SageccError
from sagecc.common.tensorflow_runtime import tf
from sagecc.learner.crr import METRICS
from sagecc.learner.journal import TrainingJournal
from tests.conftest import ROOT


class Steps:
    """Stands in for the networks: what is trained is the number of steps."""

    def __init__(self) -> None:
        self.steps = tf.Variable(0, dtype=tf.int64)

    def state(self) -> dict[str, Any]:
        return {"steps": self.steps}


def journal(folder: Path) -> tuple[Steps, TrainingJournal]:
    steps = Steps()
    return steps, TrainingJournal(steps, folder, "this run", every=2)


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
    with pytest.raises(SageccError, match="cannot be continued"):
        journal(tmp_path)[1].restore()


def test_an_evaluations_time_is_not_the_steps(tmp_path: Path) -> None:
    steps, of = journal(tmp_path)
    of.add_scores(0, {"set_I": 0.5}, seconds=-1e6)  # as if the steps had taken so long
    train(steps, of, 2)
    assert lines(tmp_path)[-1]["steps_per_s"] < 1e-5


def test_dvc_draws_every_metric_once() -> None:
    drawn: list[str] = []
    for plot in yaml.safe_load((ROOT / "dvc.yaml").read_text())["plots"]:
        ((title, fields),) = plot.items()
        assert "'" not in title  # DVC puts it into a page's script between such
        columns = fields["y"].get("models/repro/curves.csv", [])
        drawn += [columns] if isinstance(columns, str) else columns
    assert sorted(drawn) == sorted(METRICS)
