# SPDX-License-Identifier: Apache-2.0
"""Orca's reward, of the interval since the last decision: as its code has it, and as its paper has it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Doubles
from sagecc.execution.flow.intervals import Report, min_rtts_us
from sagecc.execution.schemes.orca.observation import DELAY_MARGIN, LOSS_FACTOR
from sagecc.pool.reward import Reward


def orca(report: Report, samples: npt.NDArray[np.void], max_rate: Doubles) -> Doubles:
    """Return Orca's reward as its code has it: (thr - 5 loss) / thr_max * min(1, 1.25 minRTT / sRTT).

    rl-module/envwrapper.py of https://github.com/Soheil-ab/Orca. Before anything was delivered it is 0.

    Args:
        report: the flows' intervals [R].
        samples: their rows at the intervals' ends [R].
        max_rate: highest `rate_bytes_s` of each flow so far, this interval's included [R].
    """
    srtt = samples["srtt_us"].astype(np.float64)
    nearness = np.minimum(DELAY_MARGIN * min_rtts_us(samples) / np.where(srtt > 0, srtt, np.inf), 1.0)
    return _net(report, max_rate) * nearness


def orca_paper(report: Report, samples: npt.NDArray[np.void], max_rate: Doubles) -> Doubles:
    """Return Orca's reward by Eq. 1 and 2 of its paper: ((thr - zeta loss) / delay') / (thr_max / d_min).

    delay' is d_min up to beta d_min, and the delay above: at the margin the reward falls by a fifth. zeta and beta are
    the code's, 5 and 1.25. Arguments are those of `orca`; the delay is the smoothed RTT.
    """
    srtt, min_rtt = samples["srtt_us"].astype(np.float64), min_rtts_us(samples)
    delay = np.where(srtt <= DELAY_MARGIN * min_rtt, min_rtt, srtt)
    return _net(report, max_rate) * (min_rtt / np.where(delay > 0, delay, np.inf))


def _net(report: Report, max_rate: Doubles) -> Doubles:
    net = report.rate_bytes_s - LOSS_FACTOR * report.lost_bytes_s
    return np.asarray(net / np.where(max_rate > 0, max_rate, np.inf))


REWARDS = (
    Reward("orca", "(thr - 5 loss) / thr_max min(1, 1.25 minRTT / sRTT)", "Orca's public code", orca, "interval"),
    Reward("orca-paper", "((thr - 5 loss) / delay') / (thr_max / d_min)", "Orca, Eq. 1 and 2", orca_paper, "interval"),
)
