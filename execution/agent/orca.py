# SPDX-License-Identifier: Apache-2.0
"""What Orca observes, from raw counters.

Its own monitor is a patch of Linux 4.13, net/ipv4/tcp_deepcc.c, read by src/orca-server-mahimahi.cc and put together by
rl-module/envwrapper.py (get_state), all at https://github.com/Soheil-ab/Orca. A report covers what came since the last
one, and has, in this order (`use_normalizer` is false in rl-module/params.json, so there is no other scaling):

0. thr/max: the mean of the delivery rates measured since, one an ACK, over the highest such mean of the flow so far.
   Here: the mean of `delivery_rate_bytes_s` at the ticks at which something had been acknowledged.
1. pacing/max: its pacing rate, (MSS + headers) * max(cwnd, packets out) / sRTT, over that maximum; at most 10.
   Here by that formula: `pacing_rate_bytes_s` is the kernel's own rate, which has other factors.
2. 5*loss/max: five times the bytes newly marked lost a second, over that maximum. `lost_total_pkts` counts them.
3. acks/cwnd: how many RTTs were measured since, one an ACK, over the window. Here: the packets delivered, halved
   and rounded up while nothing is out of order, for then a receiver acknowledges every second packet, and else as
   they are. (Linux's receivers acknowledge each packet while their window still grows. That is not seen from here.)
4. interval_s: the seconds since.
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
ACKED_TOGETHER = 2
"""Packets that a receiver acknowledges at once (RFC 5681, section 4.2)."""
LOSS_FACTOR = 5.0
MOST_PACING = 10.0
DELAY_MARGIN = 1.25

_WRAP = 0xFFFFFFFF
"""Counters of 32 bits may wrap."""


class OrcaReports:
    """Orca's reports of flows, a slot each, and the last ten of each flow."""

    def __init__(self, policy: PolicyArtefact, flows: int) -> None:
        """Raises SageccError where the policy's observations are not Orca's."""
        if policy.observations != OBSERVATIONS:
            raise SageccError(f"policy {policy.path} does not observe {HISTORY} reports of {', '.join(STATISTICS)}")
        self._seen = np.zeros(flows, np.bool_)
        self._delivered = np.zeros(flows, np.int64)  # at the last tick
        self._began_s = np.zeros(flows)  # of what is counted since
        self._lost = np.zeros(flows, np.int64)
        self._acks = np.zeros(flows, np.int64)
        self._rates = np.zeros(flows)
        self._rated = np.zeros(flows, np.int64)
        self._best = np.zeros(flows)
        self._history = np.zeros((flows, HISTORY, len(STATISTICS)))
        self._samples: npt.NDArray[np.void] = np.zeros(0, [])
        self._slots = np.zeros(0, np.int64)

    def update(self, samples: npt.NDArray[np.void], slots: Ints) -> Bools:
        """Take one row of each flow; return which have got acknowledgements since their last report."""
        self._samples, self._slots = samples, slots
        delivered = samples["delivered_pkts"].astype(np.int64)
        if not self._seen[slots].all():
            new = ~self._seen[slots]
            self._delivered[slots[new]] = delivered[new]
            self._begin(new)
            self._seen[slots] = True
        came = (delivered - self._delivered[slots]) & _WRAP
        self._delivered[slots] = delivered
        self._acks[slots] += np.where(samples["ca_state"] == 0, -(-came // ACKED_TOGETHER), came)
        self._rates[slots] += np.where(came > 0, samples["delivery_rate_bytes_s"].astype(np.float64), 0.0)
        self._rated[slots] += came > 0
        return np.asarray(self._acks[slots] > 0)

    def report(self, due: Bools) -> Floats:
        """Add a report of each due flow to its history; return their histories, the oldest report first."""
        samples, slots = self._samples[due], self._slots[due]
        cwnd, srtt, least, mss, out, lost = (
            samples[name].astype(np.float64)
            for name in ("cwnd_pkts", "srtt_us", "min_rtt_us", "mss_bytes", "unacked_pkts", "lost_total_pkts")
        )
        seconds = _time_s(samples) - self._began_s[slots]
        rate = self._rates[slots] / self._rated[slots]
        best = self._best[slots] = np.maximum(self._best[slots], rate)
        lost = ((lost.astype(np.int64) - self._lost[slots]) & _WRAP) * mss / seconds
        pacing = (mss + HEADER_BYTES) * np.maximum(cwnd, out) / srtt * 1e6
        known = np.where(best > 0, best, np.inf)
        delay = least / srtt
        now = (
            rate / known,
            np.minimum(pacing / known, MOST_PACING),
            LOSS_FACTOR * lost / known,
            self._acks[slots] / cwnd,
            seconds,
            delay,
            np.minimum(DELAY_MARGIN * delay, 1.0),
        )
        self._history[slots] = np.concatenate([self._history[slots, 1:], np.stack(now, axis=-1)[:, None]], axis=1)
        self._begin(due)
        return self._history[slots].reshape(len(slots), -1).astype(np.float32)

    def skip(self, passed: Bools) -> None:
        """Begin to count anew."""
        self._begin(passed)

    def reset(self, slot: int) -> None:
        """Forget a flow."""
        self._seen[slot] = False
        self._best[slot] = self._history[slot] = 0

    def _begin(self, which: Bools) -> None:
        """Let what is counted of those flows of the last update begin now."""
        samples, slots = self._samples[which], self._slots[which]
        self._began_s[slots] = _time_s(samples)
        self._lost[slots] = samples["lost_total_pkts"]
        self._acks[slots] = self._rates[slots] = self._rated[slots] = 0


def _time_s(samples: npt.NDArray[np.void]) -> Doubles:
    """Return the rows' times; they have `t_s` or, as the lab's, `t_ns`."""
    names = samples.dtype.names or ()
    return np.asarray(samples["t_s"] if "t_s" in names else samples["t_ns"] / 1e9, np.float64)
