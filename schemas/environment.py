# SPDX-License-Identifier: Apache-2.0
"""Environment: one network as a frozen value. Same fields, same id."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Literal, get_args

from sagecc.common.errors import SageccError

Reward = Literal["power", "friendliness"]
Discipline = Literal["tail-drop", "head-drop", "codel", "pie", "bode"]

MTU_BYTES = 1500
"""Size of a full data packet on the link (IP header included), as in Mahimahi's traces."""

TARGET_MS = MappingProxyType({"codel": 5.0, "pie": 15.0, "bode": 20.0})
"""Default delay target (ms): CoDel RFC 8289 section 4.2, PIE RFC 8033 section 4.2; BoDe's bound is ours."""

INTERVAL_MS = MappingProxyType({"codel": 100.0, "pie": 15.0})
"""Default interval (ms): CoDel's sliding minimum (RFC 8289 section 4.3), PIE's update period (RFC 8033 section 4.2)."""

MAX_FLOWS = 64
MAX_LINKS = 8
"""What the guest kernel has room for (lab.h), with an access cable for every flow."""

MIN_MBPS, MAX_MBPS = 0.001, 10_000
MIN_PARAMETER_MS, MAX_MS = 0.001, 10_000
MAX_JITTER_MS = 1000
MAX_DURATION_S = 86_400
MAX_QUEUE = 2**40
"""Bounds that keep every number finite, and above 0 where the guest counts in bits/s and ns."""


@dataclass(frozen=True)
class RateStep:
    """From `t_s` on the link sends `rate_mbps`."""

    t_s: float
    rate_mbps: float


@dataclass(frozen=True)
class DelayStep:
    """From `t_s` on the propagation takes `delay_ms`."""

    t_s: float
    delay_ms: float


@dataclass(frozen=True)
class LossStep:
    """From `t_s` on a packet is lost with probability `loss`."""

    t_s: float
    loss: float


@dataclass(frozen=True)
class Trace:
    """Moments (ms since the episode began) at which 1500 bytes may leave; repeated from the last one on.

    Mahimahi's packet-delivery trace, but fractions of a millisecond are kept.
    """

    name: str
    opportunities_ms: tuple[float, ...]

    def __post_init__(self) -> None:
        moments = self.opportunities_ms
        _require(
            bool(moments) and MIN_PARAMETER_MS <= moments[-1] <= MAX_DURATION_S * 1000,
            f"trace {self.name}: it must last longer than 0 ms, and a day at most",
        )
        _require(
            moments[0] >= 0 and all(a <= b for a, b in pairwise(moments)),
            f"trace {self.name}: its times must not be negative and must not decrease",
        )
        _require(self.mean_mbps <= MAX_MBPS, f"trace {self.name}: its mean rate must be at most {MAX_MBPS} Mbps")

    @cached_property
    def mean_mbps(self) -> float:
        """Mean rate over one period (Mbps)."""
        return len(self.opportunities_ms) * MTU_BYTES * 8 / 1000 / self.opportunities_ms[-1]


@dataclass(frozen=True)
class Link:
    """One direction of a link: random loss, a queue, a transmitter, then the propagation.

    rates: its schedule, from t_s = 0; empty for no limit. trace: delivery opportunities instead of rates.
    delay_ms: propagation; delays: its later changes.
    queue_bytes, queue_packets: limits of the queue (IP bytes, the packet being sent included); None: no limit.
    discipline: what is dropped; target_ms and interval_ms are the parameters of CoDel, PIE and BoDe (its bound).
    loss: probability that a packet is lost before the queue; losses: its later changes.
    jitter_ms: each packet's propagation differs by up to +- this, uniformly; packets stay in order unless
    `jitter_reorders`. delay_reorders: packets overtake others where the delay falls, as netem's do.
    grain_ms: packets leave only at multiples of it, as from an emulator that wakes so often.
    """

    rates: tuple[RateStep, ...] = ()
    delay_ms: float = 0.0
    queue_bytes: int | None = None
    queue_packets: int | None = None
    discipline: Discipline = "tail-drop"
    target_ms: float | None = None
    interval_ms: float | None = None
    trace: Trace | None = None
    delays: tuple[DelayStep, ...] = ()
    loss: float = 0.0
    jitter_ms: float = 0.0
    jitter_reorders: bool = False
    grain_ms: float = 0.0
    losses: tuple[LossStep, ...] = ()
    delay_reorders: bool = False

    def __post_init__(self) -> None:
        rates, delays = self.rates, self.delays
        _require(not rates or rates[0].t_s == 0, "the rate schedule must start at 0 s")
        _check_times(tuple(step.t_s for step in rates), "rate steps")
        _require(
            all(MIN_MBPS <= r.rate_mbps <= MAX_MBPS for r in rates),
            f"bandwidth must be at least {MIN_MBPS} and at most {MAX_MBPS} Mbps",
        )
        _require(not (rates and self.trace), "a link has either a rate or a trace, not both")
        _require(
            all(0 <= delay_ms <= MAX_MS for delay_ms in (self.delay_ms, *(d.delay_ms for d in delays))),
            f"a delay must be at least 0 and at most {MAX_MS} ms",
        )
        _require(
            0 <= self.jitter_ms <= MAX_JITTER_MS and 0 <= self.grain_ms <= MAX_JITTER_MS,
            f"jitter and grain must be at least 0 and at most {MAX_JITTER_MS} ms",
        )
        _require(all(d.t_s > 0 for d in delays[:1]), "a change of delay must come after 0 s: delay_ms is the first")
        _check_times(tuple(step.t_s for step in delays), "changes of delay")
        _require(
            self.queue_bytes is None or MTU_BYTES <= self.queue_bytes <= MAX_QUEUE,
            f"the queue must hold at least one packet of {MTU_BYTES} bytes and at most 2^40, not {self.queue_bytes}",
        )
        _require(
            self.queue_packets is None or 1 <= self.queue_packets <= MAX_QUEUE,
            f"the queue must hold at least one packet and at most 2^40, not {self.queue_packets}",
        )
        _require(self.discipline in get_args(Discipline), f"unknown discipline '{self.discipline}'")
        for name, value, own in (
            ("target_ms", self.target_ms, TARGET_MS),
            ("interval_ms", self.interval_ms, INTERVAL_MS),
        ):
            _require(
                value is None or self.discipline in own, f"{name} belongs to {', '.join(own)}, not to {self.discipline}"
            )
            _require(
                value is None or MIN_PARAMETER_MS <= value <= MAX_MS,
                f"{name} must be at least {MIN_PARAMETER_MS} and at most {MAX_MS} ms",
            )
        _require(not self.jitter_reorders or self.jitter_ms > 0, "jitter_reorders needs jitter_ms above 0")
        _require(not self.delay_reorders or bool(delays), "delay_reorders needs delays that change")
        _require(
            not (self.delay_reorders and self.jitter_ms) or self.jitter_reorders,
            "delay_reorders and jitter_ms need jitter_reorders too: both make packets overtake, or neither",
        )
        _require(
            all(0 <= loss < 1 for loss in (self.loss, *(step.loss for step in self.losses))),
            "the loss probability must be at least 0 and below 1",
        )
        _require(
            all(step.t_s > 0 for step in self.losses[:1]), "a change of loss must come after 0 s: loss is the first"
        )
        _check_times(tuple(step.t_s for step in self.losses), "changes of loss")

    def rate_mbps_at(self, t_s: float) -> float:
        """Return the rate (Mbps) in force at `t_s` seconds; a trace's mean; infinity without a limit."""
        if not self.rates:
            return self.base_mbps
        return next(step.rate_mbps for step in reversed(self.rates) if step.t_s <= t_s)

    @property
    def base_mbps(self) -> float:
        """First rate (Mbps), a trace's mean, or infinity without a limit."""
        if self.trace:
            return self.trace.mean_mbps
        return self.rates[0].rate_mbps if self.rates else float("inf")

    @property
    def peak_mbps(self) -> float:
        """Highest rate of the schedule (Mbps); a trace's busiest second."""
        if self.trace:
            return _busiest_second_mbps(self.trace)
        return max((step.rate_mbps for step in self.rates), default=float("inf"))

    @property
    def peak_delay_ms(self) -> float:
        """Longest propagation (ms), jitter included."""
        return max(self.delay_ms, *(step.delay_ms for step in self.delays), 0) + self.jitter_ms

    @property
    def limited(self) -> bool:
        """Whether it has a rate or a trace, so that packets can wait."""
        return bool(self.rates or self.trace)

    @property
    def limit_bytes(self) -> int | None:
        """Queue limit (bytes; full packets where it counts packets); None without one."""
        limits = [self.queue_bytes, self.queue_packets and self.queue_packets * MTU_BYTES]
        return min((limit for limit in limits if limit is not None), default=None)


@dataclass(frozen=True)
class Flow:
    """A flow's life and path: when it starts and ends, which links it crosses, how much longer its RTT is.

    stop_s: None for the episode's end. links: (first, last) of the chain, both included; None for all.
    extra_rtt_ms: on top of the links' own delays, half in each direction, before the first link.
    """

    start_s: float = 0.0
    stop_s: float | None = None
    extra_rtt_ms: float = 0.0
    links: tuple[int, int] | None = None


@dataclass(frozen=True)
class CrossFlow:
    """A competing flow of a kernel scheme."""

    scheme: str
    flow: Flow = Flow()


@dataclass(frozen=True)
class Environment:
    """One network and what is measured on it: a chain of links, one for a dumbbell, three for a parking lot.

    set: `I` (single flow), `II` (against Cubic) or `custom`.
    links: the data direction, in order; return_links: the way back, one for each (acknowledgements cross them
    in reverse order). flow: the one under test. cross: its competitors.
    duration_s: the episode's virtual length. windows_s: scoring windows (start, end) in seconds.
    reward: which reward the pool derives (design: `power` for Set I, `friendliness` for Set II).
    """

    set: str
    links: tuple[Link, ...]
    return_links: tuple[Link, ...]
    duration_s: float
    windows_s: tuple[tuple[float, float], ...]
    reward: Reward = "power"
    cross: tuple[CrossFlow, ...] = ()
    flow: Flow = Flow()

    def __post_init__(self) -> None:
        _require(0 < self.duration_s <= MAX_DURATION_S, f"0 < duration <= {MAX_DURATION_S} s must hold")
        _require(
            1 <= len(self.links) == len(self.return_links) <= MAX_LINKS,
            f"there must be 1 to {MAX_LINKS} links, each with its return link",
        )
        _require(self.flows <= MAX_FLOWS, f"at most {MAX_FLOWS} flows, not {self.flows}")
        for name, flow in (("the flow", self.flow), *(("a cross flow", c.flow) for c in self.cross)):
            self._check_flow(name, flow)
        _require(0 < self.min_rtt_ms <= MAX_MS, f"minimum RTT must be above 0 and at most {MAX_MS} ms")
        _require(
            all(0 <= a < b <= self.duration_s for a, b in self.windows_s), "scoring windows must lie in the episode"
        )
        _require(self.reward in get_args(Reward), f"unknown reward '{self.reward}'")

    def _check_flow(self, name: str, flow: Flow) -> None:
        _require(
            0 <= flow.start_s < self.stop_of(flow) <= self.duration_s, f"{name} must start and stop within the episode"
        )
        _require(0 <= flow.extra_rtt_ms <= MAX_MS, f"{name}: extra_rtt_ms must be at least 0 and at most {MAX_MS}")
        path = self.path(flow)
        _require(0 <= path.start < path.stop <= len(self.links), f"{name} crosses links that are not there")
        _require(
            any(self.links[index].limited for index in path),
            f"{name} must cross a link with a rate or a trace: nothing else would hold it back",
        )

    @property
    def everyone(self) -> tuple[Flow, ...]:
        """Life and path of every flow, the one under test first."""
        return (self.flow, *(cross.flow for cross in self.cross))

    def path(self, flow: Flow) -> range:
        """Return the indices of the links that `flow` crosses."""
        first, last = flow.links or (0, len(self.links) - 1)
        return range(first, last + 1)

    def stop_of(self, flow: Flow) -> float:
        """Return when `flow` stops (s)."""
        return self.duration_s if flow.stop_s is None else flow.stop_s

    def narrowest(self, flow: Flow) -> int:
        """Return the index of the flow's bottleneck: the link of its path with the lowest base rate."""
        return min(self.path(flow), key=lambda index: self.links[index].base_mbps)

    @property
    def bottleneck(self) -> Link:
        """The narrowest link of the flow under test."""
        return self.links[self.narrowest(self.flow)]

    @property
    def start_s(self) -> float:
        """When the scheme under test starts (s)."""
        return self.flow.start_s

    @property
    def stop_s(self) -> float:
        """When the scheme under test stops (s)."""
        return self.stop_of(self.flow)

    @property
    def return_delay_ms(self) -> float:
        """Propagation that a data packet's one-way delay at the links does not hold (ms)."""
        return sum(self.return_links[index].delay_ms for index in self.path(self.flow)) + self.flow.extra_rtt_ms

    @property
    def min_rtt_ms(self) -> float:
        """Propagation there and back of the flow under test (ms)."""
        return sum(self.links[index].delay_ms for index in self.path(self.flow)) + self.return_delay_ms

    @property
    def bandwidth_mbps(self) -> float:
        """Base rate of the bottleneck (Mbps)."""
        return self.bottleneck.base_mbps

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
    def queue_bytes(self) -> int | None:
        """Queue limit of the bottleneck (bytes; full packets where it counts packets); None without one."""
        return self.bottleneck.limit_bytes

    @property
    def queue_bdp(self) -> float:
        """Queue limit in units of the BDP; infinity without one."""
        return float("inf") if self.queue_bytes is None else self.queue_bytes / self.bdp_bytes

    @property
    def flows(self) -> int:
        """Flows in the network, the one under test included."""
        return 1 + len(self.cross)

    @property
    def competitors(self) -> int:
        """Flows that cross the bottleneck of the one under test, itself included."""
        bottleneck = self.narrowest(self.flow)
        return 1 + sum(bottleneck in self.path(cross.flow) for cross in self.cross)

    @cached_property
    def id(self) -> str:
        """Readable and unique: set, base rate, step, RTT, queue, and six hex digits over every field."""
        digest = hashlib.sha256(self.to_json().encode()).hexdigest()[:6]
        link = self.bottleneck
        rate = link.trace.name if link.trace else f"{self.bandwidth_mbps:g}mbps"
        shape = "" if self.step == 1 else f"x{self.step:g}"
        kind = "" if link.discipline == "tail-drop" else f"-{link.discipline}"
        chain = "" if len(self.links) == 1 else f"-{len(self.links)}links"
        queue = f"{round(self.queue_bdp, 2):g}bdp"
        return f"{self.set}-{rate}{shape}-{self.min_rtt_ms:g}ms-{queue}{kind}{chain}-{digest}"

    def to_json(self) -> str:
        """Canonical JSON of every field that differs from its default; `from_json` reads it back."""
        return json.dumps(_plain(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Environment:
        """Rebuild an Environment from `to_json` text. Raises SageccError for any other."""
        try:
            raw: dict[str, Any] = json.loads(text)
            return cls(
                links=tuple(_link(link) for link in raw.pop("links")),
                return_links=tuple(_link(link) for link in raw.pop("return_links")),
                windows_s=tuple((float(a), float(b)) for a, b in raw.pop("windows_s")),
                cross=tuple(CrossFlow(c["scheme"], _flow(c.get("flow", {}))) for c in raw.pop("cross", ())),
                flow=_flow(raw.pop("flow", {})),
                **raw,
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SageccError(f"environment: not its JSON ({type(error).__name__}: {error})") from error


def dumbbell(
    set_name: str,
    bottleneck: Link,
    return_delay_ms: float,
    duration_s: float,
    windows_s: tuple[tuple[float, float], ...],
    reward: Reward = "power",
    cross: Iterable[CrossFlow] = (),
    start_s: float = 0.0,
) -> Environment:
    """Return the environment of one bottleneck whose way back only takes time."""
    return Environment(
        set=set_name,
        links=(bottleneck,),
        return_links=(Link(delay_ms=return_delay_ms),),
        duration_s=duration_s,
        windows_s=windows_s,
        reward=reward,
        cross=tuple(cross),
        flow=Flow(start_s=start_s),
    )


def bdp_bytes(bandwidth_mbps: float, rtt_ms: float) -> float:
    """Bandwidth-delay product (bytes): Mbps x ms = kbit, and 125 bytes a kbit."""
    return bandwidth_mbps * rtt_ms * 125


def queue_bytes(bandwidth_mbps: float, rtt_ms: float, bdps: float) -> int:
    """Return a queue limit given in BDPs (bytes); what is too much for any queue stays too much."""
    return int(min(bdp_bytes(bandwidth_mbps, rtt_ms) * bdps, MAX_QUEUE + 1))


def episode_id(environment_id: str, scheme: str, seed: int) -> str:
    """Name of an episode: environment, scheme and seed."""
    return f"{environment_id}.{scheme}.{seed}"


def _require(holds: bool, text: str) -> None:
    if not holds:
        raise SageccError(f"environment: {text}")


def _check_times(times_s: tuple[float, ...], name: str) -> None:
    _require(all(a < b for a, b in pairwise(times_s)), f"{name} must increase in time")
    _require(all(t_s <= MAX_DURATION_S for t_s in times_s[-1:]), f"{name} must come within a day")


def _busiest_second_mbps(trace: Trace) -> float:
    moments, first, most = trace.opportunities_ms, 0, 0
    for last, moment in enumerate(moments):
        while moments[first] < moment - 1000:
            first += 1
        most = max(most, last - first + 1)
    return max(most * MTU_BYTES * 8 / 1e6, trace.mean_mbps)


def _plain(value: Any) -> Any:
    """Nested dicts and lists without the fields that have their default: a new field changes no old id."""
    if is_dataclass(value):
        own = ((f, getattr(value, f.name)) for f in fields(value))
        return {f.name: _plain(v) for f, v in own if f.default is MISSING or v != f.default}
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)  # 30 and 30.0 are one value and must have one text
    return value


def _link(raw: dict[str, Any]) -> Link:
    own = dict(raw)
    trace = own.pop("trace", None)
    return Link(
        rates=tuple(RateStep(**r) for r in own.pop("rates", ())),
        delays=tuple(DelayStep(**d) for d in own.pop("delays", ())),
        losses=tuple(LossStep(**step) for step in own.pop("losses", ())),
        trace=Trace(trace["name"], tuple(trace["opportunities_ms"])) if trace else None,
        **own,
    )


def _flow(raw: dict[str, Any]) -> Flow:
    own = dict(raw)
    links = own.pop("links", None)
    return Flow(links=tuple(links) if links else None, **own)
