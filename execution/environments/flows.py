# SPDX-License-Identifier: Apache-2.0
"""What environments share: the spaces of a task, and what is known of a flow."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import numpy as np
from gymnasium import spaces

from sagecc.common.arrays import Doubles, all_of
from sagecc.common.errors import SageccError
from sagecc.execution.environments.task import LearningTask
from sagecc.policy.artefact import OBSERVATION_SOURCE
from sagecc.pool.spaces import observation_space as features_space
from sagecc.schemas import wire
from sagecc.schemas.environment import Environment, Flow
from sagecc.schemas.pool import FEATURE_NAMES
from sagecc.schemas.raw import COUNTERS, TICK_S

COUNTER_NAMES = tuple(name for name, *_ in COUNTERS)

_FIELDS = wire.SAMPLE.names or ()
_COUNTERS = itemgetter(*(_FIELDS.index(name) for name in COUNTER_NAMES))
_T_NS = _FIELDS.index("t_ns")
_TICK_NS = round(TICK_S * 1e9)


def action_space(task: LearningTask) -> spaces.Space[Any]:
    """Return the space of a task's action: one number within its limits."""
    low, high = task.control.limits
    return spaces.Box(low, high, (1,), np.float32)


def observation_space(task: LearningTask) -> spaces.Space[Any]:
    """Return the space of a task's observations: the pool's features within their bounds, others without any."""
    if task.source[0] != OBSERVATION_SOURCE:
        return spaces.Box(-np.inf, np.inf, (len(task.observations),), np.float32)
    columns = [FEATURE_NAMES.index(name) for name in task.observations]
    bounds = features_space()
    return spaces.Box(bounds.low[columns], bounds.high[columns], dtype=np.float32)


def checked_actions(action: Any, shape: tuple[int, ...], subject: str = "an action") -> Doubles:
    """Return actions as floats.

    Args:
        action: what the caller gave.
        shape: what it must have.
        subject: what errors call it.

    Raises:
        SageccError: the shape is another, or not all are finite numbers.
    """
    try:
        values = np.asarray(action, np.float64)
    except (TypeError, ValueError):
        raise SageccError(f"{subject} must be an array of numbers of shape {shape}, not {action!r:.60}") from None
    if values.shape != shape:
        raise SageccError(f"{subject} must be of shape {shape}, not {values.shape}")
    if not all_of(np.isfinite(values)):
        raise SageccError(f"{subject} must be finite, not {action!r:.60}")
    return values


def counters(sample: np.void) -> dict[str, Any]:
    """Return a flow's raw counters by the names of schemas.raw, and the sample's time `t_s`."""
    values = sample.item()
    info = dict(zip(COUNTER_NAMES, _COUNTERS(values), strict=True))
    info["t_s"] = values[_T_NS] / 1e9
    info["pacing_rate_bytes_s"] = sample["pacing_rate_bytes_s"]  # all ones, where unlimited, is no int64
    return info


def last_tick_ns(environment: Environment, flow: Flow) -> int:
    """Return when `flow` is sampled for the last time (ns since the episode began)."""
    return round(environment.stop_of(flow) * 1e9) // _TICK_NS * _TICK_NS
