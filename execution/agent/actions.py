# SPDX-License-Identifier: Apache-2.0
"""What an answer does to a window: the action maps of policy.artefact.Control, and a slow start before them."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Doubles, Ints
from sagecc.execution.agent.window import CongestionWindows, pacing_rates
from sagecc.policy import exact
from sagecc.policy.artefact import Control

Bools = npt.NDArray[np.bool_]

OWN_WINDOW = "pure"
"""The kernel scheme that adds nothing of its own, so that it must be given a window every time."""

LEAVE = 0
"""For a window and a pacing rate: the underlying scheme keeps the one it has."""


class Action(Protocol):
    """What answers do to the windows of flows, a slot each."""

    def step(self, samples: npt.NDArray[np.void], slots: Ints, due: Bools, exponent: Doubles) -> tuple[Ints, Ints]:
        """Return the windows (packets) and pacing rates (bytes/s) to be given [B], or LEAVE.

        samples [B]: structured, with the counters of schemas.raw by name. due [B]: who has decided at this tick.
        exponent [B]: what each answered last.
        """

    def reset(self, slot: int) -> None:
        """Forget a flow."""


class Multiply:
    """The window is the policy's and keeps its fractions (execution.agent.window); multiplied at once, or in parts."""

    def __init__(self, control: Control, flows: int) -> None:
        self._control, self._own = control, control.underlying_scheme == OWN_WINDOW or control.spread
        self._windows = CongestionWindows(control.cwnd_packets, flows)

    def step(self, samples: npt.NDArray[np.void], slots: Ints, due: Bools, exponent: Doubles) -> tuple[Ints, Ints]:
        """Return the windows and pacing rates to be given."""
        exponent = exponent if self._control.spread else np.where(due, exponent, 0)
        cwnd, pacing = self._windows.multiply(samples, slots, exact.power(self._control.base, exponent))
        return (cwnd, pacing) if self._own else (np.where(due, cwnd, LEAVE), np.where(due, pacing, LEAVE))

    def reset(self, slot: int) -> None:
        """Forget a flow."""
        self._windows.reset(slot)


class MultiplyInHundredths:
    """The scheme's own window, times a ratio cut to hundredths, cut to whole packets; between decisions it is its."""

    def __init__(self, control: Control, flows: int) -> None:
        self._control, self._own = control, control.underlying_scheme == OWN_WINDOW

    def step(self, samples: npt.NDArray[np.void], slots: Ints, due: Bools, exponent: Doubles) -> tuple[Ints, Ints]:
        """Return the windows and pacing rates to be given."""
        kernel = samples["cwnd_pkts"].astype(np.int64)
        hundredths = np.floor(100 * exact.power(self._control.base, exponent)).astype(np.int64)
        cwnd = np.clip(kernel * hundredths // 100, *self._control.cwnd_packets)
        cwnd = np.where(due, cwnd, kernel if self._own else LEAVE)
        return cwnd, pacing_rates(samples, cwnd)

    def reset(self, slot: int) -> None:
        """Nothing is kept."""


def action_of(control: Control, flows: int) -> Action:
    """Return what a policy's answers do to the windows of so many flows."""
    return MultiplyInHundredths(control, flows) if control.hundredths else Multiply(control, flows)


class Starting:
    """The slow starts of flows, a slot each: over for good once a flow's ssthresh is below its window."""

    def __init__(self, factor: float, control: Control, flows: int) -> None:
        self._factor, self._most = factor, control.cwnd_packets[1]
        self._over = np.zeros(flows, np.bool_)

    def going_on(self, samples: npt.NDArray[np.void], slots: Ints) -> Bools:
        """Return which flows are in slow start at this tick [B]."""
        self._over[slots] |= samples["ssthresh_pkts"] < samples["cwnd_pkts"]
        return ~self._over[slots]

    def step(self, samples: npt.NDArray[np.void], acked: Bools) -> tuple[Ints, Ints]:
        """Return the windows of flows in slow start [B] in packets, LEAVE where nothing was acknowledged, and LEAVE.

        They are not paced: Linux's HyStart is twice as patient with flows that are.
        """
        grown = np.floor(samples["cwnd_pkts"] * self._factor).astype(np.int64)
        return np.where(acked, np.minimum(grown, self._most), LEAVE), np.full(len(samples), LEAVE)

    def reset(self, slot: int) -> None:
        """Forget a flow."""
        self._over[slot] = False
