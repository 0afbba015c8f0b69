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

from sagecc.common.arrays import Doubles, Floats, Ints
from sagecc.common.errors import SageccError
from sagecc.policy.artefact import PolicyArtefact
from sagecc.policy.orca import HISTORY, OBSERVATIONS, STATISTICS

Bools = npt.NDArray[np.bool_]

HEADER_BYTES = 52
"""Of IP, TCP and its time stamps, beside the MSS."""
PACKETS_PER_ACK = 2
"""Packets that a receiver acknowledges at once (RFC 5681, section 4.2)."""
LOSS_FACTOR = 5.0
MAX_PACING = 10.0
DELAY_MARGIN = 1.25

_WRAP = 0xFFFFFFFF
"""Counters of 32 bits may wrap."""


class OrcaReports:
    """Orca's reports of flows, one slot per flow, and the last ten of each flow; an ObservationSource."""

    def __init__(self, policy: PolicyArtefact, flows: int) -> None:
        """Start with no flow known.

        Args:
            policy: whose observations these are.
            flows: number of slots.

        Raises:
            SageccError: the policy's observations are not Orca's.
        """
        if policy.observations != OBSERVATIONS:
            raise SageccError(f"policy {policy.path} does not observe {HISTORY} reports of {', '.join(STATISTICS)}")
        self._seen = np.zeros(flows, np.bool_)
        self._delivered = np.zeros(flows, np.int64)  # at the last tick
        self._began_s = np.zeros(flows)  # of the interval
        self._lost = np.zeros(flows, np.int64)
        self._acks = np.zeros(flows, np.int64)
        self._rate_sum = np.zeros(flows)
        self._rate_count = np.zeros(flows, np.int64)
        self._max_rate = np.zeros(flows)
        self._history = np.zeros((flows, HISTORY, len(STATISTICS)))
        self._samples: npt.NDArray[np.void] = np.zeros(0, [])
        self._slots = np.zeros(0, np.int64)

    def update(self, samples: npt.NDArray[np.void], slots: Ints) -> Bools:
        """Take one row of each flow; return which have got acknowledgements since their last report [B]."""
        self._samples, self._slots = samples, slots
        delivered = samples["delivered_pkts"].astype(np.int64)
        if not self._seen[slots].all():
            new = ~self._seen[slots]
            self._delivered[slots[new]] = delivered[new]
            self._begin_interval(new)
            self._seen[slots] = True
        newly_delivered = (delivered - self._delivered[slots]) & _WRAP
        acked = newly_delivered > 0
        self._delivered[slots] = delivered
        in_order = samples["ca_state"] == 0
        self._acks[slots] += np.where(in_order, -(-newly_delivered // PACKETS_PER_ACK), newly_delivered)
        self._rate_sum[slots] += np.where(acked, samples["delivery_rate_bytes_s"].astype(np.float64), 0.0)
        self._rate_count[slots] += acked
        return np.asarray(self._acks[slots] > 0)

    def report(self, due: Bools) -> Floats:
        """Add a report of each due flow to its history; return their histories, the oldest report first.

        Args:
            due: which flows of the last update decide now [B].

        Returns:
            One row of HISTORY x STATISTICS numbers per due flow.
        """
        samples, slots = self._samples[due], self._slots[due]
        cwnd, srtt, min_rtt, mss, out, lost = (
            samples[name].astype(np.float64)
            for name in ("cwnd_pkts", "srtt_us", "min_rtt_us", "mss_bytes", "unacked_pkts", "lost_total_pkts")
        )
        seconds = _time_s(samples) - self._began_s[slots]
        rate = self._rate_sum[slots] / self._rate_count[slots]
        max_rate = self._max_rate[slots] = np.maximum(self._max_rate[slots], rate)
        lost = ((lost.astype(np.int64) - self._lost[slots]) & _WRAP) * mss / seconds
        pacing = (mss + HEADER_BYTES) * np.maximum(cwnd, out) / srtt * 1e6
        scale = np.where(max_rate > 0, max_rate, np.inf)
        delay = min_rtt / srtt
        statistics = (
            rate / scale,
            np.minimum(pacing / scale, MAX_PACING),
            LOSS_FACTOR * lost / scale,
            self._acks[slots] / cwnd,
            seconds,
            delay,
            np.minimum(DELAY_MARGIN * delay, 1.0),
        )
        report = np.stack(statistics, axis=-1)[:, None]
        self._history[slots] = np.concatenate([self._history[slots, 1:], report], axis=1)
        self._begin_interval(due)
        return self._history[slots].reshape(len(slots), -1).astype(np.float32)

    def skip(self, skipped: Bools) -> None:
        """Begin a new interval for those flows of the last update, without a report."""
        self._begin_interval(skipped)

    def reset(self, slot: int) -> None:
        """Forget a flow."""
        self._seen[slot] = False
        self._max_rate[slot] = self._history[slot] = 0

    def _begin_interval(self, chosen: Bools) -> None:
        """Begin to count anew for the chosen flows of the last update [B]."""
        samples, slots = self._samples[chosen], self._slots[chosen]
        self._began_s[slots] = _time_s(samples)
        self._lost[slots] = samples["lost_total_pkts"]
        self._acks[slots] = self._rate_sum[slots] = self._rate_count[slots] = 0


def _time_s(samples: npt.NDArray[np.void]) -> Doubles:
    """Return the rows' times; they have `t_s` or, as the lab's, `t_ns`."""
    names = samples.dtype.names or ()
    return np.asarray(samples["t_s"] if "t_s" in names else samples["t_ns"] / 1e9, np.float64)
