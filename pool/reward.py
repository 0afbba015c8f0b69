# SPDX-License-Identifier: Apache-2.0
"""The two rewards of the paper's section 4.1, with the constants and rules of Sage's public code.

r, l and BW are averages over the same last second (features.RATE_TICKS). The bandwidth's average, not its value
at the tick, goes under the rate: both then cover the same second, so r / BW is the utilisation of that second. With
the value at the tick, a link stepping down would make the old rate look like more than the link can carry, and a
link stepping up would fault the flow for a second that had not been offered to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sagecc.common.errors import SageccError

Values = npt.NDArray[np.floating[Any]]

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


def power(rate: Values, loss: Values, capacity: Values, rtt_rate: Values) -> Values:
    """Return R1: 25 * sign * ((r - 2 l) / BW)^2 * q, negative where r < 2 l.

    q is 1 from 0.8 on and rtt_rate below (Sage's public code; the paper's 1/d would be min(1, rtt_rate / 0.8), without
    the jump). A rate above the capacity counts as 0.9 of it. Where the capacity is 0 the reward is 0.

    Args:
        rate: Delivery rate r in bytes/s over 1 s [n].
        loss: Loss rate l in bytes/s over 1 s [n].
        capacity: The link's rate BW in bytes/s over 1 s [n].
        rtt_rate: min RTT / sRTT [n].
    """
    capped = np.where(rate > capacity, OVER_CAPACITY * capacity, rate)
    net = np.divide(capped - LOSS_WEIGHT * loss, capacity, out=np.zeros(len(capacity)), where=capacity > 0)
    q = np.where(rtt_rate >= DELAY_DEAD_BAND, 1.0, rtt_rate)
    return np.asarray(SCALE * np.sign(net) * net**2 * q)


def friendliness(rate: Values, capacity: Values, flows: Values) -> Values:
    """Return R2: 25 * exp(-8 (x - 1)^2) with x = min(r / (0.95 BW / N), 2); x is 0 where the capacity is 0.

    Args:
        rate: Delivery rate r in bytes/s over 1 s [n].
        capacity: The link's rate BW in bytes/s over 1 s [n].
        flows: Number N of flows that share the link [n].
    """
    share = FAIR_SHARE * capacity / flows
    x = np.minimum(np.divide(rate, share, out=np.zeros(len(capacity)), where=share > 0), 2.0)
    return np.asarray(SCALE * np.exp(-STEEPNESS * (x - 1.0) ** 2))


class Measured(NamedTuple):
    """What rewards are made of, each [n]: averages over the last second, and who shares the link."""

    rate: Values
    """Delivery rate (bytes/s)."""
    loss: Values
    """Loss rate (bytes/s)."""
    capacity: Values
    """The link's rate (bytes/s)."""
    rtt_rate: Values
    """min RTT / sRTT."""
    flows: Values
    """Number of flows that share the link."""


REWARDS: Mapping[str, Callable[[Measured], Values]] = MappingProxyType(
    {
        "power": lambda m: power(m.rate, m.loss, m.capacity, m.rtt_rate),
        "friendliness": lambda m: friendliness(m.rate, m.capacity, m.flows),
    }
)
"""By the name that an environment has for it (schemas.environment.Reward)."""


def check_reward(name: str) -> str:
    """Return a name if there is a reward of it; raises SageccError where there is none."""
    if name not in REWARDS:
        raise SageccError(f"there is no reward '{name}': it must be one of {', '.join(REWARDS)}")
    return name


def rewards(names: Sequence[str], which: npt.NDArray[np.int64], measured: Measured) -> Values:
    """Return each row's reward.

    Args:
        names: Of rewards.
        which: Each row's reward, as a position in `names` [n].
        measured: What the rewards are made of.

    Raises:
        SageccError: There is no reward of a name.
    """
    formulas = [REWARDS[check_reward(name)] for name in names]
    found = formulas[0](measured)
    for position, formula in enumerate(formulas[1:], 1):
        found = np.where(which == position, formula(measured), found)
    return found
