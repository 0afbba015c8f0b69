# SPDX-License-Identifier: Apache-2.0
"""Any reward of pool.reward for the rows that a pool has, computed when they are read.

A pool keeps what such a reward needs. Its features `dr`, `loss_db` and `rtt_rate` are the delivery rate, the loss rate
and min RTT / sRTT of a row. The link's rate and the flows that share it follow from the episode's environment and the
row's time. What the pool's rewards were made of is so known to float32's precision.

Row t's reward is measured at tick t+1 (or at t: schemas.pool.REWARD_ALIGNMENTS). An episode's last row has no tick
after it in the pool, so its reward is that of its own tick, unless the pool's own reward is all that it is made of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Doubles, Floats, Ints
from sagecc.pool.reward import BYTES_S, RATE_TICKS, Measured, Reward, Ticks, of_network
from sagecc.schemas.capacity import capacity_bytes
from sagecc.schemas.environment import Environment

COLUMNS = ("t_s", "dr", "loss_db", "rtt_rate", "reward")
"""The pool's columns that rewards come from."""


def rewards_of(
    reward: Reward, columns: Mapping[str, npt.NDArray[Any]], environment: Environment, alignment: str = "after"
) -> Floats:
    """Return a reward of the rows of one whole episode, float32 [n].

    Args:
        reward: the reward, of ticks.
        columns: COLUMNS by name, each [n], in the episode's order.
        environment: the episode's network.
        alignment: of the pool's rewards, one of schemas.pool.REWARD_ALIGNMENTS.
    """
    stored = np.asarray(columns["reward"], np.float32)
    if reward.function is of_network or reward.name == environment.reward:
        return stored
    t_ns = np.rint(np.asarray(columns["t_s"], np.float64) * 1e9).astype(np.int64)
    rate, loss = (np.asarray(columns[name], np.float64) * BYTES_S for name in ("dr", "loss_db"))
    rtt_rate = np.asarray(columns["rtt_rate"], np.float64)
    everybody = np.full(len(t_ns), float(environment.competitors))
    measured = Measured(rate, loss, capacities(environment, t_ns), rtt_rate, everybody)
    up = flows_up(environment, t_ns)
    if alignment == "after":
        measured, up = Measured(*map(_a_tick_later, measured)), _a_tick_later(up)
    return np.asarray(reward.function(Ticks(measured, up, stored.astype(np.float64))), np.float32)


def _a_tick_later(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return each tick's successor's values, and the last ones again [n]."""
    return np.append(values[1:], values[-1:])


def capacities(environment: Environment, t_ns: Ints) -> Doubles:
    """Return the rate of a flow's bottleneck over the last second at an episode's ticks, 0 at the first (bytes/s).

    Args:
        environment: the network.
        t_ns: times of the ticks since the episode began [n].
    """
    total = capacity_bytes(environment.bottleneck, t_ns)
    earlier = np.maximum(np.arange(len(t_ns)) - RATE_TICKS, 0)
    past_ns = t_ns - t_ns[earlier]
    per_second = np.divide(1e9, past_ns, out=np.zeros(len(t_ns)), where=past_ns > 0)
    return np.asarray((total - total[earlier]) * per_second)


def flows_up(environment: Environment, t_ns: Ints) -> Doubles:
    """Return how many flows are up at the bottleneck of the flow under test, itself among them [n].

    Args:
        environment: the network.
        t_ns: times since the episode began [n].
    """
    bottleneck = environment.narrowest(environment.flow)
    sharers = [flow for flow in environment.all_flows if bottleneck in environment.path(flow)]
    up = [(flow.start_s * 1e9 <= t_ns) & (t_ns < environment.stop_of(flow) * 1e9) for flow in sharers]
    return np.maximum(np.sum(up, axis=0, dtype=np.float64), 1.0)
