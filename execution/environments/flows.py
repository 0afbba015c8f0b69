# SPDX-License-Identifier: Apache-2.0
"""Flows under an agent: what it observes of them, what they earn it, and which windows its actions give them."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import numpy as np
from gymnasium import spaces

from sagecc.common.arrays import Doubles, Floats, Ints
from sagecc.common.errors import SageccError
from sagecc.execution.agent.window import CongestionWindows
from sagecc.execution.environments.lab import Samples
from sagecc.policy import exact
from sagecc.policy.artefact import Control
from sagecc.pool.features import FeatureTracker
from sagecc.pool.reward import friendliness, power
from sagecc.schemas import wire
from sagecc.schemas.environment import Environment, Flow
from sagecc.schemas.raw import COUNTERS, TICK_S

COUNTER_NAMES = tuple(name for name, *_ in COUNTERS)

_FIELDS = wire.SAMPLE.names or ()
_COUNTERS = itemgetter(*(_FIELDS.index(name) for name in COUNTER_NAMES))
_T_NS = _FIELDS.index("t_ns")
_CONTROL = Control()
_TICK_NS = round(TICK_S * 1e9)


def action_space() -> spaces.Space[Any]:
    """Return the space of an action: log2 of what the window is multiplied by."""
    low, high = _CONTROL.limits
    return spaces.Box(low, high, (1,), np.float32)


def checked(action: Any, shape: tuple[int, ...], whose: str = "an action") -> Doubles:
    """Return actions of shape `shape` as floats. Raises SageccError where they are of another or not numbers."""
    try:
        values = np.asarray(action, np.float64)
    except (TypeError, ValueError):
        raise SageccError(f"{whose} must be an array of numbers of shape {shape}, not {action!r:.60}") from None
    if values.shape != shape:
        raise SageccError(f"{whose} must be of shape {shape}, not {values.shape}")
    if not np.isfinite(values).all():
        raise SageccError(f"{whose} must be finite, not {action!r:.60}")
    return values


def counters(sample: np.void) -> dict[str, Any]:
    """Return a flow's raw counters by the names of schemas.raw, with the moment they are of, `t_s`."""
    values = sample.item()
    found = dict(zip(COUNTER_NAMES, _COUNTERS(values), strict=True))
    found["t_s"] = values[_T_NS] / 1e9
    found["pacing_rate_bytes_s"] = sample["pacing_rate_bytes_s"]  # all ones, where unlimited, is no int64
    return found


def last_tick_ns(environment: Environment, flow: Flow) -> int:
    """Return when `flow` is sampled for the last time (ns since the episode began)."""
    return round(environment.stop_of(flow) * 1e9) // _TICK_NS * _TICK_NS


class Flows:
    """Flows that an agent drives, a slot each."""

    def __init__(self, slots: int) -> None:
        self._tracker = FeatureTracker(flows=slots)
        self._windows = CongestionWindows(_CONTROL.cwnd_packets, slots)
        self._power = np.ones(slots, bool)
        self._competitors = np.ones(slots)
        self._all_alone = True

    def begin(self, slot: int, environment: Environment, flow: Flow) -> None:
        """Have `flow` of `environment` in a slot from now on."""
        self._tracker.reset(slot)
        self._windows.reset(slot)
        bottleneck = environment.narrowest(flow)
        self._power[slot] = environment.reward == "power"
        self._all_alone = bool(self._power.all())
        self._competitors[slot] = sum(bottleneck in environment.path(other) for other in environment.everyone)

    def observe(self, samples: Samples, slots: Ints) -> tuple[Floats, Doubles]:
        """Take the next sample of each of the flows in `slots`; return features [B, 69] and rewards [B].

        A reward is measured at the sample and so belongs to what was done before it, as in the pool.
        """
        features = self._tracker.update_flows(samples, slots)
        rate, loss, capacity, rtt_rate = self._tracker.measured.T
        if self._all_alone:
            return features, np.asarray(power(rate, loss, capacity, rtt_rate), np.float64)
        friendly = friendliness(rate, capacity, self._competitors[slots])
        return features, np.where(self._power[slots], power(rate, loss, capacity, rtt_rate), friendly)

    def windows(self, samples: Samples, slots: Ints, actions: Doubles) -> tuple[list[int], list[int]]:
        """Return what the flows get for actions [B], each cut to its limits: windows and pacing rates."""
        low, high = _CONTROL.limits
        ratio = exact.power(_CONTROL.base, np.minimum(np.maximum(actions, low), high))
        cwnd, pacing = self._windows.multiply(samples, slots, ratio)
        return cwnd.tolist(), pacing.tolist()
