# SPDX-License-Identifier: Apache-2.0
"""Environment: one network as a frozen value. Same fields, same id."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

from schemas.errors import SageccError

Reward = Literal["power", "friendliness"]

MTU_BYTES = 1500
"""Size of a full data packet on the link (IP header included), as in Mahimahi's traces."""


@dataclass(frozen=True)
class RateStep:
    """From `t_s` on the link sends `rate_mbps`."""

    t_s: float
    rate_mbps: float


@dataclass(frozen=True)
class Link:
    """The bottleneck: a rate schedule, then a propagation delay, behind a tail-drop queue.

    `rates` starts at t_s = 0 and is strictly increasing in time; `queue_bytes` counts IP bytes,
    the packet being sent included.
    """

    rates: tuple[RateStep, ...]
    delay_ms: float
    queue_bytes: int

    def rate_mbps_at(self, t_s: float) -> float:
        """Return the rate (Mbps) in force at `t_s` seconds."""
        return next(step.rate_mbps for step in reversed(self.rates) if step.t_s <= t_s)


@dataclass(frozen=True)
class CrossFlow:
    """A competing flow of a kernel scheme, from `start_s` to the episode's end."""

    scheme: str
    start_s: float = 0.0


@dataclass(frozen=True)
class Environment:
    """One dumbbell network and what is measured on it.

    set: `I` (single flow), `II` (against Cubic) or `custom`.
    bottleneck: the data direction; the way back has no limit and `return_delay_ms` of propagation.
    cross: the competing flows. start_s: when the scheme under test starts.
    duration_s: the episode's virtual length. windows_s: scoring windows (start, end) in seconds.
    reward: which reward the pool derives (design: `power` for Set I, `friendliness` for Set II).
    """

    set: str
    bottleneck: Link
    return_delay_ms: float
    duration_s: float
    windows_s: tuple[tuple[float, float], ...]
    reward: Reward = "power"
    cross: tuple[CrossFlow, ...] = ()
    start_s: float = 0.0

    def __post_init__(self) -> None:
        rates = self.bottleneck.rates
        checks = (
            (bool(rates) and rates[0].t_s == 0, "the rate schedule must start at 0 s"),
            (all(a.t_s < b.t_s for a, b in pairwise(rates)), "rate steps must increase in time"),
            (all(0 < r.rate_mbps <= 10_000 for r in rates), "bandwidth must be above 0 and at most 10000 Mbps"),
            (self.bottleneck.delay_ms >= 0 and self.return_delay_ms >= 0, "a delay cannot be negative"),
            (0 < self.min_rtt_ms <= 10_000, "minimum RTT must be above 0 and at most 10000 ms"),
            (
                self.bottleneck.queue_bytes >= MTU_BYTES,
                f"the queue must hold at least one packet of {MTU_BYTES} bytes, not {self.bottleneck.queue_bytes}",
            ),
            (0 <= self.start_s < self.duration_s <= 86_400, "0 <= start < duration <= 86400 s must hold"),
            (all(0 <= c.start_s < self.duration_s for c in self.cross), "a cross flow must start within the episode"),
        )
        for holds, text in checks:
            if not holds:
                raise SageccError(f"environment: {text}")

    @property
    def min_rtt_ms(self) -> float:
        """Propagation there and back (ms)."""
        return self.bottleneck.delay_ms + self.return_delay_ms

    @property
    def bandwidth_mbps(self) -> float:
        """Base rate of the bottleneck (Mbps)."""
        return self.bottleneck.rates[0].rate_mbps

    @property
    def step(self) -> float:
        """Second rate over the first; 1 for a flat link."""
        rates = self.bottleneck.rates
        return rates[1].rate_mbps / rates[0].rate_mbps if len(rates) > 1 else 1.0

    @property
    def bdp_bytes(self) -> float:
        """Bandwidth-delay product at the base rate (bytes)."""
        return bdp_bytes(self.bandwidth_mbps, self.min_rtt_ms)

    @property
    def queue_bdp(self) -> float:
        """Queue limit in units of the BDP."""
        return self.bottleneck.queue_bytes / self.bdp_bytes

    @property
    def flows(self) -> int:
        """Flows that share the bottleneck, the one under test included."""
        return 1 + len(self.cross)

    @cached_property
    def id(self) -> str:
        """Readable and unique: set, base rate, step, RTT, queue, and six hex digits over every field."""
        text = json.dumps(asdict(self), sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:6]
        shape = "" if self.step == 1 else f"x{self.step:g}"
        queue = round(self.queue_bdp, 2)
        return f"{self.set}-{self.bandwidth_mbps:g}mbps{shape}-{self.min_rtt_ms:g}ms-{queue:g}bdp-{digest}"

    def to_json(self) -> str:
        """Canonical JSON of every field; `from_json` reads it back."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Environment:
        """Rebuild an Environment from `to_json` text."""
        raw: dict[str, Any] = json.loads(text)
        link = raw.pop("bottleneck")
        rates = tuple(RateStep(**r) for r in link.pop("rates"))
        cross = tuple(CrossFlow(**c) for c in raw.pop("cross"))
        windows = tuple((float(a), float(b)) for a, b in raw.pop("windows_s"))
        return cls(bottleneck=Link(rates=rates, **link), cross=cross, windows_s=windows, **raw)


def bdp_bytes(bandwidth_mbps: float, rtt_ms: float) -> float:
    """Bandwidth-delay product (bytes): Mbps x ms = kbit, and 125 bytes a kbit."""
    return bandwidth_mbps * rtt_ms * 125
