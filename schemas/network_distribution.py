# SPDX-License-Identifier: Apache-2.0
"""Distributions of networks: what an episode's network and its flows are drawn from, as plain data.

`NetworkDistribution.of` reads what a configuration says, `draw` makes an Environment from random numbers: one
bottleneck with a queue that drops at its tail, and flows that come and go.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal, get_args, get_type_hints

import numpy as np

from sagecc.common.errors import SageccError
from sagecc.schemas.environment import (
    MAX_DURATION_S,
    MAX_FLOWS,
    MTU_BYTES,
    CrossFlow,
    Environment,
    Flow,
    Link,
    RateStep,
    RewardKind,
    queue_bytes,
)

Kind = Literal["choice", "uniform", "log_uniform", "exponential"]

DRIVEN_SCHEME = "pure"
"""What an Environment calls the scheme of its flows beside the one under test; whoever drives them sets it aside."""

MAX_COUNT = 10_000
"""As how many networks a distribution may count."""

SHORTEST_S = 1.0
"""Shortest life of a flow that is drawn (s): a later arrival does not come at all."""


@dataclass(frozen=True)
class Quantity:
    """A number that is drawn."""

    kind: Kind
    """`choice`: one of the values, each as likely; `uniform` and `log_uniform`: between two values, the second with a
    uniform logarithm; `exponential`: with one value as its mean, so that gaps of it make Poisson arrivals."""
    values: tuple[float, ...]
    """The values of its kind."""

    def __post_init__(self) -> None:
        count = len(self.values)
        is_right = {"choice": count >= 1, "exponential": count == 1}.get(self.kind, count == 2)
        if self.kind not in get_args(Kind) or not is_right or not all(math.isfinite(v) and v >= 0 for v in self.values):
            raise SageccError(f"networks: {self.plain()} is no quantity to draw")
        if self.kind == "log_uniform" and not min(self.values) > 0:
            raise SageccError(f"networks: {self.plain()}: a log_uniform quantity must be above 0")
        if self.kind in ("uniform", "log_uniform") and not self.values[0] <= self.values[1]:
            raise SageccError(f"networks: {self.plain()}: give the lower value first")

    @classmethod
    def of(cls, plain: object) -> Quantity:
        """Read a number, or one of `{choice: [...]}`, `{uniform: [low, high]}`, `{exponential: mean}` and so on.

        Raises:
            SageccError: it is neither.
        """
        if isinstance(plain, Quantity):
            return plain
        single: dict[Any, Any] = plain if isinstance(plain, dict) and len(plain) == 1 else {"choice": plain}
        kind, values = next(iter(single.items()))
        items: list[Any] = values if isinstance(values, list) else [values]
        numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in items)
        if kind not in get_args(Kind) or not numbers:
            raise SageccError(
                f"networks: {plain!r} is no quantity: give a number, or one of {', '.join(get_args(Kind))} with values"
            )
        return cls(kind, tuple(float(value) for value in items))

    def plain(self) -> Any:
        """Return what `of` reads."""
        if self.kind == "choice" and len(self.values) == 1:
            return self.values[0]
        return {self.kind: self.values[0] if self.kind == "exponential" else list(self.values)}

    def draw(self, random: np.random.Generator) -> float:
        """Draw a number."""
        if self.kind == "choice":
            return self.values[int(random.integers(len(self.values)))]
        if self.kind == "exponential":
            return float(random.exponential(self.values[0]))
        low, high = self.values
        if self.kind == "uniform":
            return float(random.uniform(low, high))
        return min(max(math.exp(random.uniform(math.log(low), math.log(high))), low), high)


def fixed(value: float) -> Quantity:
    """Return a quantity that is always the same."""
    return Quantity("choice", (value,))


@dataclass(frozen=True)
class NetworkDistribution:
    """Networks of one bottleneck, and flows that arrive at it and leave it."""

    rate_mbps: Quantity
    """Rate of the bottleneck (Mbps)."""
    rtt_ms: Quantity
    """Minimum RTT of a flow without an extra one (ms)."""
    queue_bdp: Quantity | None = None
    """Queue limit in BDPs; either this or `queue_bytes`."""
    queue_bytes: Quantity | None = None
    """Queue limit (IP bytes)."""
    duration_s: float = 30.0
    """Length of an episode (s)."""
    flows: Quantity = fixed(1)  # noqa: RUF009 - a frozen value
    """Number of flows; a whole number, or a choice of such."""
    extra_rtt_ms: Quantity = fixed(0)  # noqa: RUF009
    """What each flow's RTT has above the network's (ms)."""
    gap_s: Quantity = fixed(0)  # noqa: RUF009
    """Time from one flow's arrival to the next one's (s), the first at 0; one too late to live 1 s does not come."""
    lifetime_s: Quantity | None = None
    """Time from a flow's arrival to its end (s), at least 1 s; None: to the episode's end."""
    reward: RewardKind = "power"
    """Which of the pool's rewards the networks name."""
    loss: Quantity = fixed(0)  # noqa: RUF009
    """Probability that a packet is lost before the queue."""
    count: int = 1
    """As how many networks it counts where it stands in a list among others: it is drawn that much more often."""

    def __post_init__(self) -> None:
        counts = self.flows.values
        checks = (
            ((self.queue_bdp is None) != (self.queue_bytes is None), "give either queue_bdp or queue_bytes"),
            (
                SHORTEST_S <= self.duration_s <= MAX_DURATION_S,
                f"duration_s must be at least {SHORTEST_S:g}, and a day at most",
            ),
            (
                self.flows.kind == "choice" and all(n == int(n) and 1 <= n <= MAX_FLOWS for n in counts),
                f"flows must be a whole number from 1 to {MAX_FLOWS}, or a choice of such",
            ),
            (
                isinstance(self.count, int) and not isinstance(self.count, bool) and 1 <= self.count <= MAX_COUNT,
                f"count must be a whole number from 1 to {MAX_COUNT:,}",
            ),
            (self.reward in get_args(RewardKind), f"reward must be one of {', '.join(get_args(RewardKind))}"),
        )
        for holds, text in checks:
            if not holds:
                raise SageccError(f"networks: {text}")

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> NetworkDistribution:
        """Read a configuration's fields, of the names above; each quantity as Quantity.of reads it.

        Raises:
            SageccError: a field is unknown, missing or of another form.
        """
        known_fields = {field.name: field for field in fields(cls)}
        missing = [name for name, field in known_fields.items() if field.default is MISSING and name not in plain]
        if unknown := sorted(set(map(str, plain)) - known_fields.keys()):
            raise SageccError(f"networks: unknown field {unknown[0]}; known are {', '.join(known_fields)}")
        if missing:
            raise SageccError(f"networks: field {missing[0]} is missing")
        values: dict[str, Any] = {}
        for name, value in plain.items():
            if "Quantity" in str(get_type_hints(cls)[name]):
                values[name] = None if value is None and known_fields[name].default is None else Quantity.of(value)
            elif name == "duration_s" and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise SageccError(f"networks: duration_s must be a number, not {value!r}")
            else:
                values[name] = value
        return cls(**values)

    def plain(self) -> dict[str, Any]:
        """Return what `of` reads: the fields that differ from their defaults."""
        values = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}
        return {
            name: value.plain() if isinstance(value, Quantity) else value
            for name, (value, default) in values.items()
            if value != default
        }

    @property
    def max_flows(self) -> int:
        """The most flows of a network."""
        return int(max(self.flows.values))

    def draw(self, random: np.random.Generator) -> Environment:
        """Draw a network and its flows.

        Raises:
            SageccError: what was drawn is no network, such as a rate of 0.
        """
        rate_mbps, rtt_ms = (round(quantity.draw(random), 3) for quantity in (self.rate_mbps, self.rtt_ms))
        if self.queue_bdp is not None:
            limit = queue_bytes(rate_mbps, rtt_ms, self.queue_bdp.draw(random))
        else:
            limit = int(self.queue_bytes.draw(random)) if self.queue_bytes else 0
        flows, start_s = [], 0.0
        for number in range(int(self.flows.draw(random))):
            start_s += round(self.gap_s.draw(random), 3) if number else 0.0
            if start_s > self.duration_s - SHORTEST_S:
                break
            stop_s = None
            if self.lifetime_s is not None:
                stop_s = round(start_s + max(self.lifetime_s.draw(random), SHORTEST_S), 3)
            within = stop_s is not None and stop_s < self.duration_s
            flows.append(Flow(round(start_s, 3), stop_s if within else None, round(self.extra_rtt_ms.draw(random), 3)))
        loss = round(self.loss.draw(random), 6)
        link = Link((RateStep(0.0, rate_mbps),), rtt_ms / 2, max(limit, MTU_BYTES), loss=loss)
        return Environment(
            set="custom",
            links=(link,),
            return_links=(Link(delay_ms=rtt_ms / 2),),
            duration_s=self.duration_s,
            windows_s=((0.0, self.duration_s),),
            reward=self.reward,
            cross=tuple(CrossFlow(DRIVEN_SCHEME, flow) for flow in flows[1:]),
            flow=flows[0],
        )
