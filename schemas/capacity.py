# SPDX-License-Identifier: Apache-2.0
"""What a link could have sent over time, as the lab counts it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Ints
from sagecc.schemas.environment import MTU_BYTES, Link


def capacity_bytes(link: Link, t_ns: Ints) -> Ints:
    """Return what a link could have sent by some times, as the lab counts it (`link_capacity_bytes`) [n].

    Args:
        link: the link; one with neither rates nor a trace has no capacity and counts 0.
        t_ns: times since the episode began [n].
    """
    if link.trace:
        times_ns = np.array([round(time_ms * 1e6) for time_ms in link.trace.opportunities_ms], np.int64)
        periods, rest_ns = np.divmod(t_ns, times_ns[-1])
        opportunities = periods * len(times_ns) + np.searchsorted(times_ns, rest_ns, side="right")
        return np.asarray(opportunities * MTU_BYTES)
    begins_ns = np.array([round(step.t_s * 1e9) for step in link.rates], np.int64)
    total = np.zeros(len(t_ns), np.int64)
    for step, begin_ns, end_ns in zip(link.rates, begins_ns, [*begins_ns[1:], np.iinfo(np.int64).max], strict=True):
        within_ns = (np.clip(t_ns, begin_ns, end_ns) - begin_ns).astype(np.uint64)
        total += _sent_bytes(within_ns, round(step.rate_mbps * 1e6))
    return total


def _sent_bytes(past_ns: npt.NDArray[np.uint64], bits_s: int) -> Ints:
    """Return whole bytes sent at a rate within some times [n]; 64 bits hold no product of the two, so in parts."""
    second_ns, rate = np.uint64(10**9), np.uint64(bits_s)
    whole, rest_ns = np.divmod(past_ns, second_ns)
    whole_bytes, rest_bits = np.divmod(whole * rate, np.uint64(8))
    rest_bytes = (rest_bits * second_ns + rest_ns * rate) // (np.uint64(8) * second_ns)
    return np.asarray((whole_bytes + rest_bytes).astype(np.int64))
