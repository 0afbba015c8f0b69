# SPDX-License-Identifier: Apache-2.0
"""Flows under an agent: their observations, their rewards, and the windows that its actions give them."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import numpy as np
from gymnasium import spaces

from sagecc.common.arrays import Doubles, Floats, Ints
from sagecc.common.errors import SageccError
from sagecc.execution.agent.bound import WindowBound
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
    if not np.isfinite(values).all():
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


class Flows:
    """Flows that an agent drives, one slot per flow."""

    def __init__(self, slots: int, window_bound: float | None = None) -> None:
        """Start with no flow.

        Args:
            slots: number of slots.
            window_bound: factor of the bound on windows (policy.artefact.Control), or None.

        Raises:
            SageccError: there is no such bound.
        """
        self._tracker = FeatureTracker(flows=slots)
        self._windows = CongestionWindows(_CONTROL.cwnd_packets, slots)
        self._bound = WindowBound(_checked_bound(window_bound), slots) if window_bound is not None else None
        self._power = np.ones(slots, bool)
        self._competitors = np.ones(slots)
        self._all_power = True

    def begin(self, slot: int, environment: Environment, flow: Flow) -> None:
        """Put a flow of an environment into a slot."""
        self._tracker.reset(slot)
        self._windows.reset(slot)
        if self._bound:
            self._bound.reset(slot)
        bottleneck = environment.narrowest(flow)
        self._power[slot] = environment.reward == "power"
        self._all_power = bool(self._power.all())
        self._competitors[slot] = sum(bottleneck in environment.path(other) for other in environment.all_flows)

    def observe(self, samples: Samples, slots: Ints) -> tuple[Floats, Doubles]:
        """Take the next sample of some flows.

        Args:
            samples: structured array [B] of wire.SAMPLE.
            slots: the flows' slots [B].

        Returns:
            Features [B, 69] and rewards [B]. A reward is measured at the sample and so belongs to the action before
            it, as in the pool.
        """
        features = self._tracker.update_flows(samples, slots)
        rate, loss, capacity, rtt_rate = self._tracker.measured.T
        if self._all_power:
            return features, np.asarray(power(rate, loss, capacity, rtt_rate), np.float64)
        friendly = friendliness(rate, capacity, self._competitors[slots])
        return features, np.where(self._power[slots], power(rate, loss, capacity, rtt_rate), friendly)

    def windows(self, samples: Samples, slots: Ints, actions: Doubles) -> tuple[list[int], list[int]]:
        """Return the windows that actions give.

        Args:
            samples: the flows' latest samples [B].
            slots: the flows' slots [B]; each of their ticks must be given once.
            actions: log2 of what the windows are multiplied by [B], each clipped to the action space.

        Returns:
            Windows (packets) and pacing rates (bytes/s).
        """
        low, high = _CONTROL.limits
        ratio = exact.power(_CONTROL.base, np.minimum(np.maximum(actions, low), high))
        cwnd, pacing = self._windows.multiply(samples, slots, ratio)
        if self._bound:
            cwnd, pacing = self._bound.apply(samples, slots, cwnd, pacing)
        return cwnd.tolist(), pacing.tolist()


def _checked_bound(factor: float) -> float:
    try:
        Control(window_bound=factor)
    except ValueError as error:
        raise SageccError(f"window_bound: {error}") from None
    return factor
