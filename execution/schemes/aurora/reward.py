# SPDX-License-Identifier: Apache-2.0
"""Aurora's reward, of the interval since the last decision."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Doubles
from sagecc.execution.flow.intervals import Report
from sagecc.pool.reward import Reward


def aurora(report: Report, samples: npt.NDArray[np.void], max_rate: Doubles) -> Doubles:
    """Return Aurora's reward, 10 throughput - 1000 latency - 2000 loss, in thousands.

    Packets per second, the mean RTT in seconds and the share of packets lost, all of the interval. The paper's; the
    unit is that of https://github.com/PCCproject/PCC-RL, src/gym/network_sim.py (REWARD_SCALE).

    Args:
        report: the flows' intervals [R].
        samples: their rows at the intervals' ends [R].
        max_rate: not needed.
    """
    packets_s = report.delivered_bytes_s / np.maximum(samples["mss_bytes"].astype(np.float64), 1.0)
    ended = report.delivered_bytes_s + report.lost_bytes_s
    loss = report.lost_bytes_s / np.where(ended > 0, ended, np.inf)
    return np.asarray((10 * packets_s - 1000 * (report.rtt_us / 1e6) - 2000 * loss) / 1000)


REWARDS = (
    Reward("aurora", "(10 throughput - 1000 latency - 2000 loss) / 1000", "Aurora, section 4.1", aurora, "interval"),
)
