# SPDX-License-Identifier: Apache-2.0
"""What Astraea's critics see beside an observation: the state of all flows of a network (Table 2 of its paper)."""

from __future__ import annotations

import numpy as np

from sagecc.common.arrays import Doubles, Floats
from sagecc.execution.flow.competition import LATENCY_UNIT_US, THROUGHPUT_UNIT_BYTES_S, Flows, shares
from sagecc.schemas.environment import MTU_BYTES

WINDOW_UNIT_PACKETS = 1000.0
"""Unit of windows and of the buffer in the global state."""

GLOBAL_STATE = (
    "ovr_thr",
    "min_thr",
    "max_thr",
    "avg_lat",
    "min_cwnd",
    "max_cwnd",
    "avg_cwnd",
    "loss_ratio",
    "num_flow",
    "d0",
    "buf",
    "c",
)
"""What the critic sees beside (Table 2), in order; `global_state` says what each is."""


def global_state(flows: Flows, base_rtt: Doubles, buffer: Doubles, capacity: Doubles) -> Floats:
    """Return the global states of networks [L, 12], in the order of GLOBAL_STATE (Table 2).

    Sum, minimum and maximum of the throughputs; mean latency; minimum, maximum and mean window; mean loss ratio;
    number of flows; base RTT; buffer; capacity. Units, which the paper does not name: 100 Mbps, 100 ms, 1000 packets.

    Args:
        flows: the networks' flows.
        base_rtt: mean of the minimum RTTs of all flows of a network, those that are not up too [L] (us).
        buffer: queue limits of the bottlenecks [L] (bytes).
        capacity: their rates [L] (bytes/s).
    """
    some = flows.up.any(axis=-1)

    def least(values: Doubles) -> Doubles:
        return np.where(some, np.where(flows.up, values, np.inf).min(axis=-1), 0.0)

    def most(values: Doubles) -> Doubles:
        return np.where(some, np.where(flows.up, values, -np.inf).max(axis=-1), 0.0)

    throughput, cwnd = flows.now / THROUGHPUT_UNIT_BYTES_S, flows.cwnd / WINDOW_UNIT_PACKETS
    values = (
        flows.sum(throughput),
        least(throughput),
        most(throughput),
        flows.mean(flows.latency) / LATENCY_UNIT_US,
        least(cwnd),
        most(cwnd),
        flows.mean(cwnd),
        flows.mean(np.minimum(shares(flows.lost, flows.now), 1.0)),  # an outage would make it any number
        flows.up.sum(axis=-1),
        base_rtt / LATENCY_UNIT_US,
        buffer / MTU_BYTES / WINDOW_UNIT_PACKETS,
        capacity / THROUGHPUT_UNIT_BYTES_S,
    )
    return np.stack(values, axis=-1).astype(np.float32)
