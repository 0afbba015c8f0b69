# SPDX-License-Identifier: Apache-2.0
"""What Indigo observes, from raw counters.

Its sender (env/sender.py of https://github.com/StanfordSNR/indigo) takes exponentially weighted means over the
acknowledgements of a step, an eighth for the newest, which begin anew with each step. A state has, in this order and in
the units of its code (helpers/helpers.py, normalize):

0. queueing delay, in 200 ms: of the RTTs less the lowest. Here `srtt_us`, which is the kernel's mean of that kind but
   goes on from step to step, less `min_rtt_us`.
1. delivery rate, in 200 Mbps: BBR's. Here the kernel's latest, `delivery_rate_bytes_s`.
2. sending rate, in 200 Mbps: what was sent since the acknowledged packet was, over its RTT. That is what is out, and
   here `unacked_pkts` over `srtt_us`.
3. window, in 5000 packets.
4. to 8.: 1 for the action that was taken last, else 0; at first the last one's, doubling.

A flow decides only after an acknowledgement. Every operation is one that IEEE 754 fixes: the same bits on every machine
and in every batch.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Bools, Doubles, Floats, Ints
from sagecc.common.errors import SageccError
from sagecc.execution.flow.intervals import min_rtts_us, some
from sagecc.policy.steps import ACTIONS, indices

SOURCE = ("indigo.dagger", "1.0")
"""The definition of the observations and its version."""

STATISTICS = ("queueing_delay", "delivery_rate", "send_rate", "cwnd")
"""The state; see above."""

OBSERVATIONS = (*STATISTICS, "halved", "less", "stayed", "more", "doubled")
"""The state, and which action was the last."""

DELAY_UNIT_US = 200e3
RATE_UNIT_BYTES_S = 200e6 / 8
CWND_UNIT_PACKETS = 5000.0


def state(samples: npt.NDArray[np.void]) -> Doubles:
    """Return STATISTICS of flows [B, 4], by the definitions above."""
    srtt, mss, out, rate, cwnd = (
        samples[name].astype(np.float64)
        for name in ("srtt_us", "mss_bytes", "unacked_pkts", "delivery_rate_bytes_s", "cwnd_pkts")
    )
    values = (
        np.where(srtt > 0, srtt - min_rtts_us(samples), 0.0) / DELAY_UNIT_US,
        rate / RATE_UNIT_BYTES_S,
        out * mss / np.where(srtt > 0, srtt, np.inf) * 1e6 / RATE_UNIT_BYTES_S,
        cwnd / CWND_UNIT_PACKETS,
    )
    return np.stack(values, axis=-1)


class IndigoStates:
    """The states of flows and their last actions, one slot per flow; an ObservationSource."""

    def __init__(self, names: tuple[str, ...], flows: int) -> None:
        """Start with no flow known.

        Args:
            names: of the observations asked for.
            flows: number of slots.

        Raises:
            SageccError: the names are others.
        """
        if names != OBSERVATIONS:
            raise SageccError(f"does not observe {', '.join(OBSERVATIONS)}")
        self._delivered = np.zeros(flows, np.int64)  # packets, at the last report
        self._last = np.full(flows, len(ACTIONS) - 1)
        self._samples: npt.NDArray[np.void] = np.zeros(0, [])
        self._slots = np.zeros(0, np.int64)

    def update(self, samples: npt.NDArray[np.void], slots: Ints) -> Bools:
        """Take one row of each flow; return for which something was acknowledged since their last report [B]."""
        self._samples, self._slots = samples, slots
        return np.asarray(samples["delivered_pkts"] != self._delivered[slots])

    def report(self, due: Bools) -> Floats:
        """Return the states of the due flows of the last update, each with its last action."""
        self.skip(due)
        samples, slots = some(due, self._samples, self._slots)
        observations = np.zeros((len(slots), len(OBSERVATIONS)), np.float32)
        observations[:, : len(STATISTICS)] = state(samples)
        observations[np.arange(len(slots)), len(STATISTICS) + self._last[slots]] = 1
        return observations

    def acted(self, slots: Ints, actions: Doubles) -> None:
        """Note what flows did."""
        self._last[slots] = indices(actions)

    def skip(self, skipped: Bools) -> None:
        """Begin a new interval for those flows of the last update, without a report."""
        samples, slots = some(skipped, self._samples, self._slots)
        self._delivered[slots] = samples["delivered_pkts"]

    def reset(self, slot: int) -> None:
        """Forget a flow."""
        self._delivered[slot], self._last[slot] = 0, len(ACTIONS) - 1
