# SPDX-License-Identifier: Apache-2.0
"""What an action does to a congestion window: the action maps of policy.artefact.Control, and a slow start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Protocol

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Doubles, Ints
from sagecc.execution.flow.window import RATE_WINDOWS, UNLIMITED, CongestionWindows, pacing_rates
from sagecc.policy.artefact import (
    ACKED,
    ACTION_MAP,
    CEILED_MAP,
    HUNDREDTHS_MAP,
    LINEAR_MAP,
    RATE_MAP,
    SPREAD_MAP,
    STEPS_MAP,
    Control,
)
from sagecc.policy.ratios import ratios
from sagecc.policy.steps import candidates, indices

Bools = npt.NDArray[np.bool_]

PURE_SCHEME = "pure"
"""The kernel scheme that adds nothing of its own, so that it must be given a window at every tick."""

ACKED_MARGIN = 1.25
"""Lowest RTTs that an sRTT may be before it ends a slow start by acknowledgements; Orca's and Astraea's dead-band."""

LEAVE = 0
"""For a window and a pacing rate: the underlying scheme keeps the one it has."""


class ActionMap(Protocol):
    """Turns the actions of flows into their windows, one slot per flow."""

    def step(self, samples: npt.NDArray[np.void], slots: Ints, due: Bools, actions: Doubles) -> tuple[Ints, Ints]:
        """Return what to set in the kernel at this tick.

        Args:
            samples: structured array [B] with the counters of schemas.raw by name.
            slots: the flows' slots [B].
            due: which flows have decided at this tick [B].
            actions: each flow's latest action [B], its share of a tick where the map spreads it.

        Returns:
            The windows (packets) and the pacing rates (bytes/s) [B], or LEAVE.
        """

    def reset(self, slot: int) -> None:
        """Forget a flow."""


class Multiply:
    """Multiply a window that keeps its fractions (execution.flow.window), at once or spread over the period."""

    def __init__(self, control: Control, flows: int) -> None:
        self._control = control
        self._every_tick = control.underlying_scheme == PURE_SCHEME or control.map == SPREAD_MAP
        self._windows = CongestionWindows(control.cwnd_packets, flows, control.map == CEILED_MAP)

    def step(self, samples: npt.NDArray[np.void], slots: Ints, due: Bools, actions: Doubles) -> tuple[Ints, Ints]:
        """Return the windows and pacing rates to set; see ActionMap."""
        actions = actions if self._control.map == SPREAD_MAP else np.where(due, actions, 0)
        cwnd, pacing = self._windows.multiply(samples, slots, ratios(self._control, actions))
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

    def step(self, samples: npt.NDArray[np.void], slots: Ints, due: Bools, actions: Doubles) -> tuple[Ints, Ints]:
        """Return the windows and pacing rates to set; see ActionMap."""
        kernel = samples["cwnd_pkts"].astype(np.int64)
        hundredths = np.floor(100 * ratios(self._control, actions)).astype(np.int64)
        cwnd = np.clip(kernel * hundredths // 100, *self._control.cwnd_packets)
        cwnd = np.where(due, cwnd, kernel if self._every_tick else LEAVE)
        return cwnd, pacing_rates(samples, cwnd)

    def reset(self, slot: int) -> None:
        """Do nothing: there is no state per flow."""


class MultiplyRates:
    """Multiply a pacing rate, a real number; the window is RATE_WINDOWS times what it sends in an sRTT.

    A rate begins as one window per sRTT. It does so anew when the kernel's window is not the one last set: a slow start
    or a bound on windows has changed it. No rate is so low or so high that its window would be beyond the limits.
    """

    def __init__(self, control: Control, flows: int) -> None:
        self._control = control
        self._rate = np.zeros(flows)  # bytes/s
        self._last_set = np.zeros(flows, np.int64)  # packets

    def step(self, samples: npt.NDArray[np.void], slots: Ints, due: Bools, actions: Doubles) -> tuple[Ints, Ints]:
        """Return the windows and pacing rates to set; see ActionMap. Without an RTT sample the window stays."""
        kernel, mss, srtt = (samples[name].astype(np.float64) for name in ("cwnd_pkts", "mss_bytes", "srtt_us"))
        packet_s = np.where(srtt > 0, mss * 1e6 / np.maximum(srtt, 1), 0.0)  # a packet per sRTT, in bytes/s
        rate = np.where(kernel == self._last_set[slots], self._rate[slots], kernel * packet_s)
        low, high = (limit / RATE_WINDOWS * packet_s for limit in self._control.cwnd_packets)
        rate = np.clip(np.where(due, rate * ratios(self._control, actions), rate), low, high)
        window = np.ceil(RATE_WINDOWS * rate / np.where(packet_s > 0, packet_s, np.inf))
        cwnd = np.where(packet_s > 0, np.clip(window, *self._control.cwnd_packets), kernel).astype(np.int64)
        self._rate[slots], self._last_set[slots] = rate, np.where(packet_s > 0, cwnd, LEAVE)
        return cwnd, np.where(packet_s > 0, np.maximum(np.rint(rate), 1), UNLIMITED).astype(np.int64)

    def reset(self, slot: int) -> None:
        """Forget a flow."""
        self._rate[slot] = self._last_set[slot] = 0


class TakeSteps:
    """Take one of five steps (policy.steps) from the kernel's window, in whole packets."""

    def __init__(self, control: Control, flows: int) -> None:
        self._control, self._every_tick = control, control.underlying_scheme == PURE_SCHEME

    def step(self, samples: npt.NDArray[np.void], slots: Ints, due: Bools, actions: Doubles) -> tuple[Ints, Ints]:
        """Return the windows and pacing rates to set; see ActionMap."""
        kernel = samples["cwnd_pkts"].astype(np.int64)
        windows = candidates(kernel)[np.arange(len(kernel)), indices(actions)]
        cwnd = np.where(due, np.clip(windows, *self._control.cwnd_packets), kernel if self._every_tick else LEAVE)
        return cwnd, pacing_rates(samples, cwnd)

    def reset(self, slot: int) -> None:
        """Do nothing: there is no state per flow."""


def action_map(control: Control, flows: int) -> ActionMap:
    """Return the action map that a policy's card names, for so many flows."""
    return ACTION_MAPS[control.map](control, flows)


ACTION_MAPS: Mapping[str, Callable[[Control, int], ActionMap]] = MappingProxyType(
    {
        ACTION_MAP: Multiply,
        CEILED_MAP: Multiply,
        SPREAD_MAP: Multiply,
        LINEAR_MAP: Multiply,
        HUNDREDTHS_MAP: MultiplyInHundredths,
        RATE_MAP: MultiplyRates,
        STEPS_MAP: TakeSteps,
    }
)
"""By what a policy's card says that an action does (policy.artefact.MAPS)."""


class SlowStart(Protocol):
    """The slow starts of flows, one slot per flow: once over, over for good."""

    def active(self, samples: npt.NDArray[np.void], slots: Ints) -> Bools:
        """Return which flows are in slow start at this tick [B]; called once a tick.

        Args:
            samples: structured array [B] with the counters of schemas.raw by name.
            slots: the flows' slots [B].
        """

    def step(self, samples: npt.NDArray[np.void], slots: Ints, acked: Bools) -> tuple[Ints, Ints]:
        """Return what to set for flows in slow start.

        Args:
            samples: structured array [B] with the counters of schemas.raw by name.
            slots: the flows' slots [B].
            acked: for which flows something was acknowledged [B].

        Returns:
            The windows (packets) and the pacing rates (bytes/s) [B], or LEAVE.
        """

    def reset(self, slot: int) -> None:
        """Forget a flow."""


class MultiplyingStart:
    """Multiply a window at each tick with an acknowledgement, until a flow's ssthresh is below it."""

    def __init__(self, factor: float, control: Control, flows: int) -> None:
        self._factor, self._max_cwnd = factor, control.cwnd_packets[1]
        self._over = np.zeros(flows, np.bool_)

    def active(self, samples: npt.NDArray[np.void], slots: Ints) -> Bools:
        """Return which flows are in slow start; see SlowStart."""
        self._over[slots] |= samples["ssthresh_pkts"] < samples["cwnd_pkts"]
        return ~self._over[slots]

    def step(self, samples: npt.NDArray[np.void], slots: Ints, acked: Bools) -> tuple[Ints, Ints]:
        """Return windows, LEAVE where nothing was acknowledged, and no pacing rates; see SlowStart.

        Flows are not paced: Linux's HyStart is twice as patient with flows that are.
        """
        windows = np.floor(samples["cwnd_pkts"] * self._factor).astype(np.int64)
        return np.where(acked, np.minimum(windows, self._max_cwnd), LEAVE), np.full(len(samples), LEAVE)

    def reset(self, slot: int) -> None:
        """Forget a flow."""
        self._over[slot] = False


class AckedStart:
    """Grow a window by what was acknowledged (RFC 5681, section 3.1), until a loss or a delay or an ssthresh ends it.

    A loss or a delay halves the window: it was the window of an RTT ago, half of this one, that caused it. Flows are
    paced at two windows per sRTT, as Linux paces its slow start (tcp_update_pacing_rate).
    """

    def __init__(self, control: Control, flows: int) -> None:
        self._cwnd_packets = control.cwnd_packets
        self._over = np.zeros(flows, np.bool_)
        self._delivered = np.zeros(flows, np.int64)  # at the last tick
        self._grown = np.zeros(flows, np.int64)  # packets, at this tick
        self._halved = np.zeros(flows, np.bool_)  # at this tick

    def active(self, samples: npt.NDArray[np.void], slots: Ints) -> Bools:
        """Return which flows are in slow start; see SlowStart."""
        delayed = samples["srtt_us"] > ACKED_MARGIN * samples["min_rtt_us"]
        passed = self._over[slots] | (samples["ssthresh_pkts"] < samples["cwnd_pkts"])
        halved = (delayed | (samples["lost_total_pkts"] > 0)) & ~passed
        self._over[slots], self._halved[slots] = passed | halved, halved
        delivered = samples["delivered_pkts"].astype(np.int64)
        self._grown[slots], self._delivered[slots] = delivered - self._delivered[slots], delivered
        return ~self._over[slots] | halved

    def step(self, samples: npt.NDArray[np.void], slots: Ints, acked: Bools) -> tuple[Ints, Ints]:
        """Return windows and pacing rates; see SlowStart."""
        kernel = samples["cwnd_pkts"].astype(np.int64)
        cwnd = np.where(self._halved[slots], kernel // 2, kernel + self._grown[slots])
        cwnd = np.clip(cwnd, *self._cwnd_packets)
        return cwnd, pacing_rates(samples, 2 * cwnd)

    def reset(self, slot: int) -> None:
        """Forget a flow."""
        self._over[slot] = False
        self._delivered[slot] = 0


def slow_start(control: Control, flows: int) -> SlowStart | None:
    """Return the slow start that a policy's card names, for so many flows, or None where the policy decides at once."""
    if control.slow_start is None:
        return None
    if control.slow_start == ACKED:
        return AckedStart(control, flows)
    return MultiplyingStart(control.slow_start, control, flows)
