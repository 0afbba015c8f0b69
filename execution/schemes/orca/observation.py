# SPDX-License-Identifier: Apache-2.0
"""What Orca observes, from raw counters.

Its own monitor is a patch of Linux 4.13, net/ipv4/tcp_deepcc.c, read by src/orca-server-mahimahi.cc and put together by
rl-module/envwrapper.py (get_state), all at https://github.com/Soheil-ab/Orca. A report covers the interval since the
last one and has, in this order (`use_normalizer` is false in rl-module/params.json, so there is no other scaling):

0. thr/max: the mean of the delivery rates measured, one per ACK, over the highest such mean of the flow so far.
   Here: the mean of `delivery_rate_bytes_s` at the ticks at which something had been acknowledged.
1. pacing/max: its pacing rate, (MSS + headers) * max(cwnd, packets out) / sRTT, over that maximum; at most 10.
   Here by that formula: `pacing_rate_bytes_s` is the kernel's own rate, which has other factors.
2. 5*loss/max: five times the bytes newly marked lost per second, over that maximum. `lost_total_pkts` counts them.
3. acks/cwnd: how many RTTs were measured, one per ACK, over the window. Here: the packets delivered, halved
   and rounded up while nothing is out of order, for then a receiver acknowledges every second packet, and else as
   they are. (Linux's receivers acknowledge each packet while their window still grows. That is not seen from here.)
4. interval_s: the interval's length.
5. min_rtt/srtt: the flow's lowest RTT over its smoothed one. `min_rtt_us` is the lowest of 300 s.
6. delay_metric: the same times 1.25 (`delay_margin_coef`), at most 1.

Before anything is delivered the maximum is 0, and so are the first three. An observation is the last ten reports, zeros
where there are fewer. Every operation is one that IEEE 754 fixes: the same bits on every machine and in every batch.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Doubles
from sagecc.execution.flow.intervals import Report, min_rtts_us
from sagecc.execution.flow.reports import Reporting

SOURCE = ("orca.tcp", "1.0")
"""The definition of the observations and its version."""

STATISTICS = (
    "thr/max",
    "pacing/max",
    "5*loss/max",
    "acks/cwnd",
    "interval_s",
    "min_rtt/srtt",
    "delay_metric",
)
"""The values of a report (envwrapper.py, get_state), in order; see above."""

HISTORY = 10
"""Reports in an observation, the oldest first (d5.py; `rec_dim` of params.json)."""

DELAY_MARGIN = 1.25
"""Beta of Eq. 2 (params.json, delay_margin_coef): up to so many lowest RTTs a delay costs nothing."""

LOSS_FACTOR = 5.0
"""Zeta of Eq. 1: what a lost byte costs in delivered ones."""

OBSERVATIONS = tuple(f"{name}@-{back}" for back in range(HISTORY - 1, -1, -1) for name in STATISTICS)

HEADER_BYTES = 52
"""Of IP, TCP and its time stamps, beside the MSS."""
MAX_PACING = 10.0


def statistics(report: Report, samples: npt.NDArray[np.void], max_rate: Doubles) -> Doubles:
    """Return Orca's reports, by the formulas above.

    Args:
        report: the flows' intervals [R].
        samples: their rows at the intervals' ends [R].
        max_rate: the highest `rate_bytes_s` of each flow so far, this report included [R].

    Returns:
        STATISTICS of each [R, 7].
    """
    cwnd, srtt, mss, out = (
        samples[name].astype(np.float64) for name in ("cwnd_pkts", "srtt_us", "mss_bytes", "unacked_pkts")
    )
    srtt = np.maximum(srtt, 1.0)  # 0 before the first sample
    pacing = (mss + HEADER_BYTES) * np.maximum(cwnd, out) / srtt * 1e6
    scale = np.where(max_rate > 0, max_rate, np.inf)
    delay = min_rtts_us(samples) / srtt
    values = (
        report.rate_bytes_s / scale,
        np.minimum(pacing / scale, MAX_PACING),
        LOSS_FACTOR * report.lost_bytes_s / scale,
        report.acks / cwnd,
        report.seconds,
        delay,
        np.minimum(DELAY_MARGIN * delay, 1.0),
    )
    return np.stack(values, axis=-1)


REPORTING = Reporting(
    names=STATISTICS,
    history=HISTORY,
    observations=OBSERVATIONS,
    rate=lambda report: report.rate_bytes_s,
    values=statistics,
    after_acks=True,  # orca-server-mahimahi.cc skips a report without an acknowledgement
)
