# SPDX-License-Identifier: Apache-2.0
"""The expert that Indigo imitates (Pantheon, USENIX ATC 2018, section 5): it knows the network, so the ideal window.

That is the BDP: of the bottleneck's rate at that time and the flow's minimum RTT, in packets of 1500 bytes. Flows that
share a bottleneck get equal parts of it, which the paper, of one flow, does not speak of.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Doubles, Floats, Ints
from sagecc.execution.schemes.indigo.control import CONTROL
from sagecc.policy.steps import ACTIONS, candidates
from sagecc.schemas.environment import MTU_BYTES, Environment, Flow, bdp_bytes

EXPERT = ("expert_action",)
"""What the expert would do, beside an observation."""


def expert(cwnd: Ints, ideal: Doubles) -> Doubles:
    """Return the action that leads nearest to the ideal window, the first of several (get_best_action).

    Args:
        cwnd: windows [B] (packets).
        ideal: what they should be [B] (packets).
    """
    windows = np.clip(candidates(cwnd), *CONTROL.cwnd_packets)
    nearest: Ints = np.abs(windows - ideal[:, None]).argmin(axis=1)
    return np.array(ACTIONS, np.float64)[nearest]


def ideal_window(environment: Environment, flow: Flow, t_s: float) -> float:
    """Return the window that fills a flow's bottleneck, or its share of it, without a queue (packets).

    Args:
        environment: the network.
        flow: one of its flows.
        t_s: time since the episode began.
    """
    bottleneck = environment.narrowest(flow)
    flows = (other for other in environment.all_flows if bottleneck in environment.path(other))
    sharers = sum(other.start_s <= t_s < environment.stop_of(other) for other in flows)
    rate_mbps = environment.links[bottleneck].rate_mbps_at(t_s)
    return bdp_bytes(rate_mbps, environment.min_rtt_of(flow)) / MTU_BYTES / max(sharers, 1)


class IndigoExpert:
    """What the expert would do in the place of flows, one slot per flow."""

    def __init__(self) -> None:
        """Start with no flow."""
        self._flows: dict[int, tuple[Environment, Flow]] = {}

    def begin(self, slot: int, environment: Environment, flow: Flow) -> None:
        """Put a flow of an environment into a slot."""
        self._flows[slot] = environment, flow

    def actions(self, samples: npt.NDArray[np.void], slots: Ints) -> Floats:
        """Return the expert's actions for flows of one row each [B, 1]."""
        times_s = (samples["t_ns"] / 1e9).tolist()
        ideal = [ideal_window(*self._flows[slot], t_s) for slot, t_s in zip(slots.tolist(), times_s, strict=True)]
        return expert(samples["cwnd_pkts"].astype(np.int64), np.array(ideal))[:, None].astype(np.float32)
