# SPDX-License-Identifier: Apache-2.0
"""What Aurora observes, from raw counters.

A report covers one monitor interval, the time since the last decision, and has, in this order:

0. latency gradient: the mean RTT of the interval's later half less that of its earlier half, over its length
   (`sent latency inflation` of PCC-RL's src/common/sender_obs.py, which has the other two as well). Its samples are
   those of each acknowledgement; here `srtt_us` at the ticks with one, so that an interval of one tick has none.
1. latency ratio: the mean RTT over the lowest such mean of the flow so far.
2. sending ratio: what was sent over what was acknowledged, in bytes; 1 without any acknowledgement, or from 1000 on.

An observation is the last ten reports, zeros where there are fewer. Every operation is one that IEEE 754 fixes: the
same bits on every machine and in every batch.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Doubles
from sagecc.execution.flow.intervals import Report
from sagecc.execution.flow.reports import Reporting

SOURCE = ("aurora.pcc", "1.0")
"""The definition of the observations and its version."""

STATISTICS = ("latency_gradient", "latency_ratio", "sending_ratio")
"""The values of a monitor interval; see above."""

HISTORY = 10
"""Monitor intervals in an observation, the oldest first (the paper's k; network_sim.py, `--history-len`)."""

OBSERVATIONS = tuple(f"{name}@-{back}" for back in range(HISTORY - 1, -1, -1) for name in STATISTICS)

MAX_SENDING_RATIO = 1000.0


def statistics(report: Report, samples: npt.NDArray[np.void], max_per_rtt: Doubles) -> Doubles:
    """Return Aurora's reports, by the definitions above.

    Args:
        report: the flows' monitor intervals [R].
        samples: their rows at the intervals' ends [R].
        max_per_rtt: the highest `per_rtt` of each flow so far, this report included [R].

    Returns:
        STATISTICS of each [R, 3].
    """
    delivered, past_us = report.delivered_bytes_s, 1e6 * report.seconds
    ratio = report.sent_bytes_s / np.where(delivered > 0, delivered, np.inf)
    values = (
        report.rtt_rise_us / np.where(past_us > 0, past_us, np.inf),
        report.rtt_us * max_per_rtt,
        np.where((delivered > 0) & (ratio < MAX_SENDING_RATIO), ratio, 1.0),
    )
    return np.stack(values, axis=-1)


def per_rtt(report: Report) -> Doubles:
    """Return the inverse of the intervals' mean RTTs [R] (1/us), 0 before the first RTT sample."""
    return 1 / np.where(report.rtt_us > 0, report.rtt_us, np.inf)


REPORTING = Reporting(
    names=STATISTICS,
    history=HISTORY,
    observations=OBSERVATIONS,
    rate=per_rtt,
    values=statistics,
    after_acks=False,
    rises=True,
)
