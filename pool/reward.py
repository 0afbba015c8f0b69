# SPDX-License-Identifier: Apache-2.0
"""All rewards that need a flow's ticks alone, in one registry: the pool, labs and training take them from here.

Two of them are the paper's (section 4.1), with the constants and rules of Sage's public code. Rewards that need more
than a pool keeps lie with the scheme that they come from (execution.schemes) and are of the same type.

r, l and BW are averages over the same last second (RATE_TICKS). The bandwidth's average, not its value
at the tick, goes under the rate: both then cover the same second, so r / BW is the utilisation of that second. With
the value at the tick, a link stepping down would make the old rate look like more than the link can carry, and a
link stepping up would fault the flow for a second that had not been offered to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import all_of, any_of
from sagecc.common.errors import SageccError
from sagecc.schemas.environment import RewardKind

Values = npt.NDArray[np.floating[Any]]

RATE_TICKS = 100
"""Rates are taken over 1 s."""
BYTES_S = 1e8 / 8
"""Unit of rates among the features: 100 Mbps in bytes/s."""
SCALE = 25.0
"""Both rewards are at most this."""
LOSS_WEIGHT = 2.0
"""Xi of the paper's equation 1."""
DELAY_DEAD_BAND = 0.8
"""min RTT / sRTT from which on delay costs nothing."""
OVER_CAPACITY = 0.9
"""A rate above the capacity counts as this share of it."""
FAIR_SHARE = 0.95
"""Share of the link that flows can hope for: headers and probing take the rest."""
STEEPNESS = 8.0
"""Of the friendliness reward around the fair share."""
LOSS_PRICE = 5.0
"""A share of packets lost beside others takes this many times itself off `shared`, up to all of it."""


def power(rate: Values, loss: Values, capacity: Values, rtt_rate: Values) -> Values:
    """Return R1: 25 * sign * ((r - 2 l) / BW)^2 * q, negative where r < 2 l.

    q is 1 from 0.8 on and rtt_rate below (Sage's public code; the paper's 1/d would be min(1, rtt_rate / 0.8), without
    the jump). A rate above the capacity counts as 0.9 of it. Where the capacity is 0 the reward is 0.

    Args:
        rate: delivery rate r in bytes/s over 1 s [n].
        loss: loss rate l in bytes/s over 1 s [n].
        capacity: the link's rate BW in bytes/s over 1 s [n].
        rtt_rate: min RTT / sRTT [n].
    """
    bounded = np.where(rate > capacity, OVER_CAPACITY * capacity, rate)
    net = np.divide(bounded - LOSS_WEIGHT * loss, capacity, out=np.zeros(len(capacity)), where=capacity > 0)
    q = np.where(rtt_rate >= DELAY_DEAD_BAND, 1.0, rtt_rate)
    return np.asarray(SCALE * np.sign(net) * net**2 * q)


def friendliness(rate: Values, capacity: Values, flows: Values) -> Values:
    """Return R2: 25 * exp(-8 (x - 1)^2) with x = min(r / (0.95 BW / N), 2); x is 0 where the capacity is 0.

    Args:
        rate: delivery rate r in bytes/s over 1 s [n].
        capacity: the link's rate BW in bytes/s over 1 s [n].
        flows: number N of flows that share the link [n].
    """
    share = FAIR_SHARE * capacity / flows
    x = np.minimum(np.divide(rate, share, out=np.zeros(len(capacity)), where=share > 0), 2.0)
    return np.asarray(SCALE * np.exp(-STEEPNESS * (x - 1.0) ** 2))


def graded(rewards: Values) -> Values:
    """Return rewards R as 25 / (1 - ln(R / 25)), and those not above 0 as they are.

    The paper's rewards are flat where a flow gets little: at a tenth of the link R1 is a hundredth of the most, at a
    tenth of a fair share R2 is a six-hundredth, and a learner sees no way out. The order, the most and the slope there
    stay; R2 = 25 exp(-8 (x - 1)^2) becomes 25 / (1 + 8 (x - 1)^2).

    Args:
        rewards: R1 or R2, at most 25 [n].
    """
    positive = rewards > 0
    share = np.divide(rewards, SCALE, out=np.ones(len(rewards)), where=positive)
    return np.asarray(np.where(positive, SCALE / (1 - np.log(share)), rewards), np.float64)


def shared(rate: Values, loss: Values, capacity: Values, flows: Values) -> Values:
    """Return R2, graded, of a share among the flows that are up now, less what it costs, at most 25.

    R2 knows no loss, so a policy floods a short queue beside others for little. Here R2 counts less by LOSS_PRICE times
    the share of packets lost.

    Args:
        rate: delivery rate in bytes/s over 1 s [n].
        loss: what is lost in bytes/s over 1 s [n].
        capacity: the link's rate in bytes/s over 1 s [n].
        flows: number of flows that share the link now [n].
    """
    sent = rate + loss
    lost = np.divide(loss, sent, out=np.zeros(len(sent)), where=sent > 0)
    return np.asarray(np.maximum(1 - LOSS_PRICE * lost, 0.0) * graded(friendliness(rate, capacity, flows)))


class Measured(NamedTuple):
    """What the paper's rewards are made of, each [n]: averages over the last second, and who shares the link."""

    rate: Values
    """Delivery rate (bytes/s)."""
    loss: Values
    """Loss rate (bytes/s)."""
    capacity: Values
    """The link's rate (bytes/s)."""
    rtt_rate: Values
    """min RTT / sRTT."""
    flows: Values
    """Number of flows that share the link in the episode."""


class Ticks(NamedTuple):
    """What a reward of ticks is made of, each [n]."""

    measured: Measured
    """What was measured."""
    flows_up: Values
    """Number of flows that share the link now."""
    of_network: Values
    """The paper's reward, of the kind that the tick's network names."""


def power_of(ticks: Ticks) -> Values:
    """Return R1; see `power`."""
    return power(*ticks.measured[:4])


def friendliness_of(ticks: Ticks) -> Values:
    """Return R2; see `friendliness`."""
    return friendliness(ticks.measured.rate, ticks.measured.capacity, ticks.measured.flows)


def of_network(ticks: Ticks) -> Values:
    """Return the reward that the network names, as the pool has it: R1 where a flow is alone, R2 beside others."""
    return ticks.of_network


def graded_of(ticks: Ticks) -> Values:
    """Return the pool's reward, graded; see `graded`."""
    return graded(ticks.of_network)


def fair_of(ticks: Ticks) -> Values:
    """Return R1, graded, while a flow is alone, and else what is `shared`."""
    rate, loss, capacity, rtt_rate, _ = ticks.measured
    alone = graded(power(rate, loss, capacity, rtt_rate))
    return np.where(ticks.flows_up == 1, alone, shared(rate, loss, capacity, ticks.flows_up))


@dataclass(frozen=True)
class Reward:
    """A reward; its function's docstring says what it is."""

    name: str
    """By which configurations and SQL name it."""
    formula: str
    """In one line."""
    source: str
    """Where it comes from."""
    function: Callable[..., Values]
    """What it is of: of `ticks` Ticks; else as execution.environments.earnings calls it."""
    of: Literal["ticks", "interval", "network"] = "ticks"
    """What it covers: each tick, whose mean over a decision counts; the time since the last decision; all flows of a
    network. A pool keeps what the first needs."""
    weights: Any = None
    """Its weights as a frozen dataclass, where it has some that a configuration may change."""


SAGE = "Sage (SIGCOMM 2023), section 4.1, with the rules of its public code"

REWARDS: dict[str, Reward] = {
    reward.name: reward
    for reward in (
        Reward("power", "R1 = 25 sign ((r - 2 l) / BW)^2 q(min RTT / sRTT)", SAGE, power_of),
        Reward("friendliness", "R2 = 25 exp(-8 (r / (0.95 BW / N) - 1)^2)", SAGE, friendliness_of),
        Reward("pool", "R1 or R2, as the network names", SAGE, of_network),
        Reward("graded", "25 / (1 - ln(R / 25)) of the pool's R, where it is above 0", "sagecc", graded_of),
        Reward("fair", "graded R1 alone; else graded R2 of the flows up, times 1 - 5 x share lost", "sagecc", fair_of),
    )
}
"""By name. A reward of one's own is a function of Ticks and an entry here."""

OLDER_NAMES: Mapping[str, str] = MappingProxyType({"pool-log": "graded", "pool-fair": "fair"})
"""Names in configurations of earlier versions."""


def reward_of(name: str, rewards: Mapping[str, Reward] = REWARDS) -> Reward:
    """Return the reward of a name.

    Args:
        name: the name.
        rewards: those to choose from.

    Raises:
        SageccError: There is none.
    """
    if (current_name := OLDER_NAMES.get(name, name)) not in rewards:
        raise SageccError(f"there is no reward '{name}': it must be one of {', '.join(rewards)}")
    return rewards[current_name]


def of_networks(kinds: Sequence[RewardKind], which: npt.NDArray[np.int64], measured: Measured) -> Values:
    """Return each row's reward, of the kind that its network names.

    Args:
        kinds: of rewards.
        which: each row's kind, as a position in `kinds` [n].
        measured: what the rewards are made of.
    """
    ticks = Ticks(measured, measured.flows, measured.flows)
    values: Values = np.zeros(len(which))
    for position, kind in enumerate(kinds):
        if all_of(rows := which == position):
            return REWARDS[kind].function(ticks)
        if any_of(rows):
            values = np.where(rows, REWARDS[kind].function(ticks), values)
    return values
