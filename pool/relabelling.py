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
from sagecc.pool.features import BYTES_S, RATE_TICKS
from sagecc.pool.reward import Measured, Reward, Ticks, of_network
from sagecc.schemas.environment import MTU_BYTES, Environment, Link

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
