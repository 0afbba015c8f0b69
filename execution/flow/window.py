# SPDX-License-Identifier: Apache-2.0
"""Congestion windows that are multiplied: one rule for all who decide.

A policy (execution.agent.policy_agent) and an environment for reinforcement learning (execution.environments) share
it, so that the same ratios make the same windows.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Doubles, Ints
from sagecc.common.machine_code import compiled

RATE_WINDOWS = 2
"""Windows per sRTT that a rate which is set is below: sRTT lags behind an RTT that grows, for half an RTT or so, and
acknowledgements come late and in heaps. Less would hold the rate back; without any window nobody would stop it where
no acknowledgement comes back."""

UNLIMITED = 0
"""Pacing rate of a flow that has no RTT sample yet."""


@compiled
def _pacing_rate(cwnd: int, mss: int, srtt: int) -> int:
    return cwnd * mss * 1_000_000 // srtt if srtt > 0 else UNLIMITED


@compiled
def _pacing_rates(cwnd: Ints, mss: Ints, srtt: Ints) -> Ints:
    rates = np.empty(len(cwnd), np.int64)
    for row in range(len(cwnd)):
        rates[row] = _pacing_rate(cwnd[row], mss[row], srtt[row])
    return rates


@compiled
def _multiply(
    kernel: Ints,
    mss: Ints,
    srtt: Ints,
    slots: Ints,
    ratio: Doubles,
    limits: Ints,
    up: bool,
    window: Doubles,
    last_set: Ints,
) -> tuple[Ints, Ints]:
    cwnd, pacing = np.empty(len(slots), np.int64), np.empty(len(slots), np.int64)
    for row in range(len(slots)):
        slot = slots[row]
        real = window[slot] if kernel[row] == last_set[slot] else float(kernel[row])
        real *= ratio[row]
        if not up or np.ceil(real) < limits[0] or np.ceil(real) > limits[1]:
            real = min(max(real, float(limits[0])), float(limits[1]))
        window[slot], last_set[slot] = real, int(np.ceil(real) if up else np.floor(real))
        cwnd[row] = last_set[slot]
        pacing[row] = _pacing_rate(cwnd[row], mss[row], srtt[row])
    return cwnd, pacing


class CongestionWindows:
    """The windows of several flows, one slot per flow.

    A window is kept as a real number and set in the kernel rounded, so that ratios near 1 add up. When the kernel's
    window is not the one last set (the first tick, or somebody else changed it), the kernel's counts and the real
    number starts again from there.
    """

    def __init__(self, limits: tuple[int, int], flows: int = 1, up: bool = False) -> None:
        """Start with no window known.

        Args:
            limits: smallest and largest window in the kernel (packets).
            flows: number of slots.
            up: whether windows are rounded up; else down.
        """
        self._up = up
        self._limits = np.array(limits, np.int64)
        self._window = np.zeros(flows)
        self._last_set = np.zeros(flows, np.int64)

    def multiply(self, samples: npt.NDArray[np.void], slots: Ints, ratio: Doubles) -> tuple[Ints, Ints]:
        """Multiply the windows of some flows.

        Args:
            samples: structured array [B] with the counters of schemas.raw by name.
            slots: the flows' slots [B].
            ratio: what to multiply by [B], finite.

        Returns:
            What to set in the kernel [B]: windows in packets, and pacing rates of one window per sRTT (bytes/s),
            UNLIMITED before the first RTT sample.
        """
        kernel, mss, srtt = (samples[name].astype(np.int64) for name in ("cwnd_pkts", "mss_bytes", "srtt_us"))
        cwnd, pacing = _multiply(kernel, mss, srtt, slots, ratio, self._limits, self._up, self._window, self._last_set)
        return cwnd, pacing

    def reset(self, slot: int) -> None:
        """Forget a flow, so that its slot can serve another."""
        self._window[slot] = self._last_set[slot] = 0


def pacing_rates(samples: npt.NDArray[np.void], cwnd: Ints) -> Ints:
    """Return pacing rates of one window per sRTT.

    Args:
        samples: structured array [B] with the counters of schemas.raw by name.
        cwnd: windows [B] (packets).

    Returns:
        Rates [B] (bytes/s), UNLIMITED before the first RTT sample.
    """
    mss, srtt = (samples[name].astype(np.int64) for name in ("mss_bytes", "srtt_us"))
    return _pacing_rates(cwnd, mss, srtt)


def with_windows(
    samples: npt.NDArray[np.void], cwnd: Ints, pacing: Ints, which: npt.NDArray[np.bool_], windows: Ints
) -> tuple[Ints, Ints]:
    """Return what is to be set in the kernel, with other windows for some flows and their rates of one per sRTT.

    Args:
        samples: structured array [B] with the counters of schemas.raw by name.
        cwnd: windows to set [B] (packets).
        pacing: pacing rates to set [B] (bytes/s); UNLIMITED ones stay so.
        which: which flows have another window [B].
        windows: these windows [B] (packets).
    """
    cwnd = np.where(which, windows, cwnd)
    return cwnd, np.where(which & (pacing != UNLIMITED), pacing_rates(samples, cwnd), pacing)


def one_window_bytes_s(samples: npt.NDArray[np.void]) -> Doubles:
    """Return the rate of one window per sRTT [B] (bytes/s), 0 before the first RTT sample."""
    cwnd, mss, srtt = (samples[name].astype(np.float64) for name in ("cwnd_pkts", "mss_bytes", "srtt_us"))
    return np.asarray(cwnd * mss / np.where(srtt > 0, srtt, np.inf) * 1e6)
