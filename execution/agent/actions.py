# SPDX-License-Identifier: Apache-2.0
"""What an action does to a congestion window: the action maps of policy.artefact.Control, and a slow start."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Doubles, Ints
from sagecc.execution.agent.window import CongestionWindows, pacing_rates
from sagecc.policy import exact
from sagecc.policy.artefact import Control

Bools = npt.NDArray[np.bool_]

PURE_SCHEME = "pure"
"""The kernel scheme that adds nothing of its own, so that it must be given a window at every tick."""

LEAVE = 0
"""For a window and a pacing rate: the underlying scheme keeps the one it has."""


class ActionMap(Protocol):
    """Turns the actions of flows into their windows, one slot per flow."""

    def step(self, samples: npt.NDArray[np.void], slots: Ints, due: Bools, exponent: Doubles) -> tuple[Ints, Ints]:
        """Return what to set in the kernel at this tick.

        Args:
            samples: structured array [B] with the counters of schemas.raw by name.
            slots: the flows' slots [B].
            due: which flows have decided at this tick [B].
            exponent: each flow's latest action [B].

        Returns:
            The windows (packets) and the pacing rates (bytes/s) [B], or LEAVE.
        """

    def reset(self, slot: int) -> None:
        """Forget a flow."""


class Multiply:
    """Multiply a window that keeps its fractions (execution.agent.window), at once or spread over the period."""

    def __init__(self, control: Control, flows: int) -> None:
        self._control = control
        self._every_tick = control.underlying_scheme == PURE_SCHEME or control.spread
        self._windows = CongestionWindows(control.cwnd_packets, flows)

    def step(self, samples: npt.NDArray[np.void], slots: Ints, due: Bools, exponent: Doubles) -> tuple[Ints, Ints]:
        """Return the windows and pacing rates to set; see ActionMap."""
        exponent = exponent if self._control.spread else np.where(due, exponent, 0)
        cwnd, pacing = self._windows.multiply(samples, slots, exact.power(self._control.base, exponent))
        return (cwnd, pacing) if self._every_tick else (np.where(due, cwnd, LEAVE), np.where(due, pacing, LEAVE))

    def reset(self, slot: int) -> None:
        """Forget a flow."""
        self._windows.reset(slot)


class MultiplyInHundredths:
    """Multiply the kernel's window by a ratio rounded down to hundredths, and round down to whole packets.

    Between decisions the window is the underlying scheme's.
    """

    def __init__(self, control: Control, flows: int) -> None:
        self._control, self._every_tick = control, control.underlying_scheme == PURE_SCHEME

    def step(self, samples: npt.NDArray[np.void], slots: Ints, due: Bools, exponent: Doubles) -> tuple[Ints, Ints]:
        """Return the windows and pacing rates to set; see ActionMap."""
        kernel = samples["cwnd_pkts"].astype(np.int64)
        hundredths = np.floor(100 * exact.power(self._control.base, exponent)).astype(np.int64)
        cwnd = np.clip(kernel * hundredths // 100, *self._control.cwnd_packets)
        cwnd = np.where(due, cwnd, kernel if self._every_tick else LEAVE)
        return cwnd, pacing_rates(samples, cwnd)

    def reset(self, slot: int) -> None:
        """Do nothing: there is no state per flow."""


def action_map(control: Control, flows: int) -> ActionMap:
    """Return the action map that a policy's card names, for so many flows."""
    return MultiplyInHundredths(control, flows) if control.hundredths else Multiply(control, flows)


class SlowStart:
    """The slow starts of flows, one slot per flow: over for good once a flow's ssthresh is below its window."""

    def __init__(self, factor: float, control: Control, flows: int) -> None:
        self._factor, self._max_cwnd = factor, control.cwnd_packets[1]
        self._over = np.zeros(flows, np.bool_)

    def active(self, samples: npt.NDArray[np.void], slots: Ints) -> Bools:
        """Return which flows are in slow start at this tick [B]."""
        self._over[slots] |= samples["ssthresh_pkts"] < samples["cwnd_pkts"]
        return ~self._over[slots]

    def step(self, samples: npt.NDArray[np.void], acked: Bools) -> tuple[Ints, Ints]:
        """Return what to set for flows in slow start.

        They are not paced: Linux's HyStart is twice as patient with flows that are.

        Args:
            samples: structured array [B] with the counters of schemas.raw by name.
            acked: for which flows something was acknowledged [B].

        Returns:
            The windows (packets) [B], LEAVE where nothing was acknowledged, and LEAVE for every pacing rate [B].
        """
        grown = np.floor(samples["cwnd_pkts"] * self._factor).astype(np.int64)
        return np.where(acked, np.minimum(grown, self._max_cwnd), LEAVE), np.full(len(samples), LEAVE)

    def reset(self, slot: int) -> None:
        """Forget a flow."""
        self._over[slot] = False
