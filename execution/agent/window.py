# SPDX-License-Identifier: Apache-2.0
"""Congestion windows that somebody multiplies: the rules for them, whoever decides.

A policy (execution.agent.policy_agent) and an environment for reinforcement learning (execution.environments) share
them, so that the same ratios make the same windows.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Doubles, Ints
from sagecc.common.machine_code import compiled

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
    kernel: Ints, mss: Ints, srtt: Ints, at: Ints, ratio: Doubles, limits: Ints, window: Doubles, given: Ints
) -> tuple[Ints, Ints]:
    cwnd, pacing = np.empty(len(at), np.int64), np.empty(len(at), np.int64)
    for row in range(len(at)):
        slot = at[row]
        real = window[slot] if kernel[row] == given[slot] else float(kernel[row])
        real = min(max(real * ratio[row], float(limits[0])), float(limits[1]))
        window[slot], given[slot] = real, int(np.floor(real))
        cwnd[row] = given[slot]
        pacing[row] = _pacing_rate(cwnd[row], mss[row], srtt[row])
    return cwnd, pacing


class CongestionWindows:
    """The windows of several flows, a slot each.

    A window lives as a real number and the kernel gets it rounded down, so that ratios near 1 add up. When the kernel's
    window is not what the flow was last given (the first tick, or another hand on it), the kernel's counts and the
    real number starts again from there.

    limits: smallest and largest window (packets). flows: number of slots.
    """

    def __init__(self, limits: tuple[int, int], flows: int = 1) -> None:
        self._limits = np.array(limits, np.int64)
        self._window = np.zeros(flows)
        self._given = np.zeros(flows, np.int64)

    def multiply(self, samples: npt.NDArray[np.void], slots: Ints, ratio: Doubles) -> tuple[Ints, Ints]:
        """Multiply the windows of the flows in `slots`; return what the kernel gets: windows and pacing rates [B].

        samples [B]: structured, with the counters of schemas.raw by name. ratio [B]: to multiply by, finite.
        Windows are in packets; the pacing rate is one window an sRTT (bytes/s), 0 (unlimited) before the first RTT.
        """
        kernel, mss, srtt = (samples[name].astype(np.int64) for name in ("cwnd_pkts", "mss_bytes", "srtt_us"))
        cwnd, pacing = _multiply(kernel, mss, srtt, slots, ratio, self._limits, self._window, self._given)
        return cwnd, pacing

    def reset(self, slot: int) -> None:
        """Forget a flow, so that its slot can serve another."""
        self._window[slot] = self._given[slot] = 0


def pacing_rates(samples: npt.NDArray[np.void], cwnd: Ints) -> Ints:
    """Return one window an sRTT [B] (bytes/s), UNLIMITED before the first RTT; cwnd [B] in packets."""
    mss, srtt = (samples[name].astype(np.int64) for name in ("mss_bytes", "srtt_us"))
    return _pacing_rates(cwnd, mss, srtt)
