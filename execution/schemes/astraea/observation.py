# SPDX-License-Identifier: Apache-2.0
"""What Astraea observes (section 3.3 of its paper), from raw counters.

A report covers one monitoring time period (MTP), the interval since the last decision, and has, in this order:

0. thr/thr_max: the throughput, bytes delivered per second, over the highest such value of the flow so far.
1. thr_max: that maximum, in 100 Mbps. The paper names no unit for this and for lat_min; these are the pool's.
2. lat/lat_min: the mean RTT over the lowest. Here: the mean of `srtt_us` at the ticks with an acknowledgement.
3. lat_min: the lowest RTT, in 100 ms. `min_rtt_us` is the lowest of 300 s.
4. cwnd/(thr_max*lat_min): the window in bytes over that product.
5. loss/thr_max: bytes newly marked lost per second, over the maximum.
6. inflight/cwnd: packets in flight (Linux's: out, less those SACKed or lost, and those sent again) over the window.
7. pacing/thr_max: the rate of one window per sRTT, which is what the policy paces at, over the maximum.
8. srtt/min_rtt: the smoothed RTT over the lowest (the public code's, not in the paper, as is the next).
9. retrans/cwnd: retransmissions in flight over the window.

A ratio whose denominator is 0 is 0. An observation is the last five reports, zeros where there are fewer. Every
operation is one that IEEE 754 fixes: the same bits on every machine and in every batch.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Doubles
from sagecc.execution.flow.competition import LATENCY_UNIT_US, THROUGHPUT_UNIT_BYTES_S
from sagecc.execution.flow.intervals import Report, min_rtts_us
from sagecc.execution.flow.reports import Reporting
from sagecc.execution.flow.window import one_window_bytes_s

SOURCE = ("astraea.tcp", "1.0")
"""The definition of the observations and its version."""

STATISTICS = (
    "thr/thr_max",
    "thr_max",
    "lat/lat_min",
    "lat_min",
    "cwnd/(thr_max*lat_min)",
    "loss/thr_max",
    "inflight/cwnd",
    "pacing/thr_max",
    "srtt/min_rtt",
    "retrans/cwnd",
)
"""The values of an MTP (section 3.3; the last two are the public code's); see above."""

HISTORY = 5
"""MTPs in an observation, the oldest first (Table 4: w)."""

OBSERVATIONS = tuple(f"{name}@-{back}" for back in range(HISTORY - 1, -1, -1) for name in STATISTICS)


def statistics(report: Report, samples: npt.NDArray[np.void], max_throughput: Doubles) -> Doubles:
    """Return Astraea's reports, by the definitions above.

    Args:
        report: the flows' MTPs [R].
        samples: their rows at the MTPs' ends [R].
        max_throughput: the highest `delivered_bytes_s` of each flow so far, this report included [R].

    Returns:
        STATISTICS of each [R, 10].
    """
    srtt, mss, out, sacked, lost, retrans = (
        samples[name].astype(np.float64)
        for name in ("srtt_us", "mss_bytes", "unacked_pkts", "sacked_pkts", "lost_pkts", "retrans_pkts")
    )
    cwnd, min_rtt = np.maximum(samples["cwnd_pkts"].astype(np.float64), 1.0), min_rtts_us(samples)
    highest, lowest = np.where(max_throughput > 0, max_throughput, np.inf), np.where(min_rtt > 0, min_rtt, np.inf)
    pacing = one_window_bytes_s(samples)
    values = (
        report.delivered_bytes_s / highest,
        max_throughput / THROUGHPUT_UNIT_BYTES_S,
        report.rtt_us / lowest,
        min_rtt / LATENCY_UNIT_US,
        cwnd * mss / (highest * (lowest / 1e6)),
        report.lost_bytes_s / highest,
        (out - sacked - lost + retrans) / cwnd,
        pacing / highest,
        srtt / lowest,
        retrans / cwnd,
    )
    return np.stack(values, axis=-1)


REPORTING = Reporting(
    names=STATISTICS,
    history=HISTORY,
    observations=OBSERVATIONS,
    rate=lambda report: report.delivered_bytes_s,
    values=statistics,
    after_acks=False,
)
