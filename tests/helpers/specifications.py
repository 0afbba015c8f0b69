# SPDX-License-Identifier: Apache-2.0
"""Small specifications, other values for their fields wherever these belong, and learners made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from sagecc.learner.architectures import KINDS
from sagecc.learner.core import Batch, Setting
from sagecc.learner.reader import merged
from sagecc.learner.specification import (
    ControlSettings,
    Data,
    LabSettings,
    RunSpecification,
    algorithm_of,
    from_dict,
)

SMALLEST: dict[str, Any] = {
    "steps": 1,
    "batch": 2,
    "window": 4,
    "data": {},
    "network": {"kind": "sage", "width": 8, "gru": 8},
    "algorithm": {"name": "crr", "policy_rate": 1e-3, "critic_rate": 1e-3},
}
"""What learns from a pool, with hardly a field that has a default."""

IN_LABS: dict[str, Any] = {
    "steps": 10,
    "batch": 6,
    "task": {},
    "network": {"kind": "mlp", "hidden": [12, 8], "action_layer": 2},
    "algorithm": {"name": "td3", "policy_rate": 1e-3, "critic_rate": 3e-3, "discount": 0.9},
    "labs": {"count": 1, "replay": 100, "warm_up": 0, "round_steps": 5, "round_decisions": 10},
}


def placed(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a specification's values with other ones for some fields, each in the section that has it, if one does."""
    kinds: dict[str, Any] = {
        "network": KINDS[values["network"]["kind"]],
        "algorithm": algorithm_of(values["algorithm"]["name"]),
        "data": Data,
        "labs": LabSettings,
        "control": ControlSettings,
    }
    sections = {
        field.name: name for name, kind in kinds.items() if name in {"control", *values} for field in fields(kind)
    }
    result = dict(values)
    for name, value in changes.items():
        result = merged(result, {sections[name]: {name: value}} if name in sections else {name: value})
    return result


def spec(values: Mapping[str, Any], **changes: Any) -> RunSpecification:
    """Return the specification of such values."""
    return from_dict(placed(values, changes))


def varied(specification: RunSpecification, **changes: Any) -> RunSpecification:
    """Return a specification with other values for some fields, of whatever section."""
    return spec(specification.record(), **changes)


def setting(
    specification: RunSpecification,
    observations: int,
    states: int = 0,
    seed: int = 0,
    value_range: tuple[float, float] | None = None,
    weights: Mapping[str, Any] | None = None,
) -> Setting:
    return Setting(
        specification.network,
        observations,
        states,
        specification.burn_in,
        specification.window,
        specification.steps,
        seed,
        value_range,
        weights,
    )


def learner(specification: RunSpecification, observations: int, **of: Any) -> Any:
    """Return a learner (core.Learner), with all that its class has beside."""
    return specification.algorithm.learner(setting(specification, observations, **of))


def pool_batch(observations: Any, actions: Any, rewards: Any) -> Batch:
    from sagecc.common.tensorflow_runtime import tf

    return Batch(observations, actions, rewards, tf.zeros([*actions.shape, 0]), *(tf.ones(actions.shape),) * 2)
