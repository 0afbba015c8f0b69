# SPDX-License-Identifier: Apache-2.0
"""A configuration from elsewhere is one that a machine can hold, or one line."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sagecc.common.errors import SageccError
from sagecc.execution.environments.task import LearningTask
from sagecc.learner.specification import from_dict, load
from sagecc.schemas.network_distribution import NetworkDistribution
from tests.helpers.messages import facts
from tests.helpers.specifications import SMALLEST, placed

NASTY: tuple[Any, ...] = (
    *(0, -1, 1, 2**31, 2**62, 2**63 - 1, 0.5, 5e-324, 1e300, math.nan, math.inf, -math.inf, True, None, "", "x"),
    *("1e-4", "1_000", [], [[]], [1], [1, "x"], [10**9], [1] * 1000, {}, {"x": 1}, {"like": []}, {"map": [1]}),
)
ONLINE = load("orca").record()
TASK: dict[str, Any] = ONLINE["task"]
CONTROL: dict[str, Any] = {"like": "pool", "base": 2, "limits": [-1, 1], "map": "spread", "period_ms": 50}


def builds_or_says(build: Callable[[dict[str, Any]], object], values: dict[str, Any], name: str) -> None:
    for value in NASTY:
        try:
            build({**values, name: value})
        except SageccError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize("values", [load("small").record(), ONLINE], ids=["pool", "labs"])
def test_any_value_of_any_field(values: dict[str, Any]) -> None:
    for section in values:
        builds_or_says(from_dict, values, section)
    for section in {"data", "network", "algorithm", "labs", "control"} & values.keys():
        for name in values[section]:
            builds_or_says(partial(_with_section, values, section), values[section], name)


def _with_section(values: dict[str, Any], section: str, changed: dict[str, Any]) -> object:
    return from_dict({**values, section: changed})


@pytest.mark.parametrize(
    "name", ["observation", "control", "reward", "reward_weights", "global_state", "expert", "networks"]
)
def test_any_value_of_a_task(name: str) -> None:
    builds_or_says(LearningTask.of, TASK, name)


@pytest.mark.parametrize("name", [*CONTROL, "cwnd_packets", "slow_start", "window_bound", "underlying_scheme"])
def test_any_value_of_a_control(name: str) -> None:
    builds_or_says(lambda control: LearningTask.of({**TASK, "control": control}), CONTROL, name)


@pytest.mark.parametrize("name", [field.name for field in fields(NetworkDistribution)])
def test_any_value_of_a_distribution(name: str) -> None:
    builds_or_says(NetworkDistribution.of, TASK["networks"], name)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"residual_blocks": 10**9}, "residual_blocks must be at most 256"),
        ({"width": 10**5}, "width must be at least 1 and at most 16,384"),
        ({"width": 16_384, "residual_blocks": 256}, "parameters…134,217,728"),
        ({"batch": 10**5, "window": 1000}, "batch times window must be at most 16,777,216 rows"),
        ({"steps": 10**18}, "steps must be a number up to 1,000,000,000, not 1000000000000000000"),
        ({"beta": math.inf}, "beta must be a number up to 1,000,000,000, not inf"),
        ({"period_ms": 10**6}, "period_ms…10 ms, and at most 60,000 ms"),
        ({"policy_rate": "1e-4"}, "policy_rate must be of type float, not '1e-4'"),
    ],
)
def test_bounds_are_told(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SageccError, match=facts(words)):
        from_dict(placed(SMALLEST, changes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"count": 5000}, "labs.count must be at most 4,096"),
        ({"replay": 10**9}, "replay times window must be at most 1,000,000,000 rows"),
        ({"batch": 10**5, "round_steps": 100}, "round_steps times batch times window must be at most 16,777,216 rows"),
        ({"hidden": [1] * 257}, "no network has the sizes"),
        ({"hidden": [16_384, 16_384]}, "parameters"),
    ],
)
def test_bounds_of_online_training_are_told(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SageccError, match=words):
        from_dict(placed(ONLINE, changes))


def test_a_distribution_does_not_count_as_a_thousand_million_networks() -> None:
    with pytest.raises(SageccError, match="count must be a whole number from 1 to 10,000"):
        NetworkDistribution.of({**TASK["networks"], "count": 10**9})


def test_a_configuration_that_is_a_special_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.touch()
    os.truncate(path, 2**40)
    with pytest.raises(SageccError, match=r"mine\.yaml has 1,099,511,627,776 bytes"):
        load(str(path))
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(SageccError, match=r"no training configuration '.*mine\.yaml'"):
        load(str(path))
