# SPDX-License-Identifier: Apache-2.0
"""Environment: a network and the flows in it as a frozen value; equal fields give equal ids."""

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

RewardKind = Literal["power", "friendliness"]
"""Rewards that an environment may name; pool.reward has their formulas."""

Discipline = Literal["tail-drop", "head-drop", "codel", "pie", "bode", "fq-codel"]

MTU_BYTES = 1500
"""Size of a full data packet on the link (IP header included), as in Mahimahi's traces."""

BYTES_S_PER_MBPS = 125_000

TARGET_MS = MappingProxyType({"codel": 5.0, "pie": 15.0, "bode": 20.0, "fq-codel": 5.0})
"""Default delay target (ms): CoDel RFC 8289 section 4.2, PIE RFC 8033 section 4.2; BoDe's is our choice."""

INTERVAL_MS = MappingProxyType({"codel": 100.0, "pie": 15.0, "fq-codel": 100.0})
"""Default interval (ms): CoDel's window (RFC 8289 section 4.3), PIE's update period (RFC 8033 section 4.2)."""

QUANTUM_BYTES = MTU_BYTES
"""Default quantum of FQ-CoDel: a full packet (RFC 8290 section 5.2.4)."""

MARKING = ("codel", "fq-codel")
"""Disciplines that can mark instead of dropping."""

MAX_FLOWS = 1024
MAX_LINKS = 8
"""Capacity of the guest kernel (lab.h), with an access cable for every flow."""

MAX_NAME = 128
"""Longest name of a trace, a set, a tag or its value (characters)."""

MIN_MBPS, MAX_MBPS = 0.001, 10_000
MIN_PARAMETER_MS, MAX_MS = 0.001, 10_000
MAX_JITTER_MS = 1000
MAX_DURATION_S = 86_400
MAX_QUEUE = 2**40
MAX_BURST = 2**30
MIN_QUANTUM, MAX_QUANTUM = 100, 2**20
MIN_WINDOW_BYTES, MAX_WINDOW_BYTES = 2 * MTU_BYTES, 2**29
"""Of what a receiver announces: Linux keeps a window for two packets, the lab's receivers have room for the most."""
MAX_STEPS = 100_000
"""Bounds that keep every number finite, and above 0 in the guest's units of bits/s and ns."""

_STEP_START_S = 17.0
_STEP_PERIOD_S = 7.0
"""Of the rates of Set I, and of every link given by a base rate and a step factor."""


@dataclass(frozen=True)
class RateStep:
    """A change of a link's rate."""

    t_s: float
    """Time from which the rate holds, since the episode began (s)."""

    rate_mbps: float
    """The link's rate (Mbps); 0 for an outage, in which the packet being sent waits."""


@dataclass(frozen=True)
class DelayStep:
    """A change of a link's propagation delay."""

    t_s: float
    """Time from which the delay holds, since the episode began (s)."""

    delay_ms: float
    """One-way propagation delay (ms)."""


@dataclass(frozen=True)
class LossStep:
    """A change of a link's random loss."""

    t_s: float
    """Time from which the probability holds, since the episode began (s)."""

    loss: float
    """Probability that a packet is lost before the queue."""


@dataclass(frozen=True)
class Policer:
    """A token bucket, full at 0 s: a packet that finds fewer tokens than its bytes is dropped at once."""

    rate_mbps: float
    """Rate at which tokens come (Mbps)."""

    burst_bytes: int
    """Most tokens that the bucket holds (IP bytes)."""

    def __post_init__(self) -> None:
        _require(
            MIN_MBPS <= self.rate_mbps <= MAX_MBPS,
            f"a policer's rate must be at least {MIN_MBPS} and at most {MAX_MBPS} Mbps",
        )
        _require(
            MTU_BYTES <= self.burst_bytes <= MAX_BURST,
            f"a policer's burst must be at least one packet of {MTU_BYTES} bytes and at most 2^30, not "
            f"{self.burst_bytes}",
        )


@dataclass(frozen=True)
class Trace:
    """A packet-delivery trace as Mahimahi's, except that fractions of a millisecond are kept."""

    name: str
    """Name of the trace, part of the environment's id."""

    opportunities_ms: tuple[float, ...]
    """Times at which 1500 bytes may leave, since the episode began (ms); the trace repeats after the last one."""

    def __post_init__(self) -> None:
        times_ms = self.opportunities_ms
        _require(
            self.name.isprintable() and len(self.name) <= MAX_NAME,
            f"trace {self.name[:MAX_NAME]!r}: its name must be of {MAX_NAME} printable characters at most",
        )
        _require(
            bool(times_ms) and MIN_PARAMETER_MS <= times_ms[-1] <= MAX_DURATION_S * 1000,
            f"trace {self.name}: it must last longer than 0 ms, and a day at most",
        )
        _require(
            times_ms[0] >= 0 and all(a <= b for a, b in pairwise(times_ms)),
            f"trace {self.name}: its times must not be negative and must not decrease",
        )
        _require(self.mean_mbps <= MAX_MBPS, f"trace {self.name}: its mean rate must be at most {MAX_MBPS} Mbps")

    @cached_property
    def mean_mbps(self) -> float:
        """Mean rate over one period (Mbps)."""
        return len(self.opportunities_ms) * MTU_BYTES * 8 / 1000 / self.opportunities_ms[-1]


@dataclass(frozen=True)
class Link:
    """One direction of a link: random loss, then a policer, a queue, a transmitter and the propagation."""

    rates: tuple[RateStep, ...] = ()
    """Schedule of the rate, from 0 s on; empty for no limit."""

    delay_ms: float = 0.0
    """One-way propagation delay at 0 s (ms)."""

    queue_bytes: int | None = None
    """Limit of the queue (IP bytes, the packet being sent included); None for no limit."""

    queue_packets: int | None = None
    """Limit of the queue (packets, the one being sent included); None for no limit."""

    discipline: Discipline = "tail-drop"
    """Queue discipline: which packets the queue drops, and when."""

    target_ms: float | None = None
    """Delay target of CoDel and PIE, delay bound of BoDe (ms); None for TARGET_MS."""

    interval_ms: float | None = None
    """Interval of CoDel and PIE (ms); None for INTERVAL_MS."""

    trace: Trace | None = None
    """Delivery opportunities, instead of rates."""

    delays: tuple[DelayStep, ...] = ()
    """Later changes of the propagation delay."""

    loss: float = 0.0
    """Probability that a packet is lost before the queue."""

    jitter_ms: float = 0.0
    """Half-width of the uniform distribution around the delay from which each packet's delay is drawn (ms)."""

    jitter_reorders: bool = False
    """Whether jitter may change the order of packets."""

    grain_ms: float = 0.0
    """Packets leave only at multiples of this time (ms), as from an emulator that wakes so often; 0 for any time."""

    losses: tuple[LossStep, ...] = ()
    """Later changes of the probability of loss."""

    delay_reorders: bool = False
    """Whether packets overtake those before them where the delay falls, as netem's do."""

    policer: Policer | None = None
    """What drops packets before the queue, or None."""

    ecn: bool = False
    """Whether CoDel marks the packets of flows that speak ECN instead of dropping them."""

    mark_packets: int | None = None
    """Packets in the queue, the one being sent included, above which a coming one is marked (as for DCTCP); or None."""

    quantum_bytes: int | None = None
    """Quantum of FQ-CoDel (IP bytes); None for QUANTUM_BYTES."""

    ack_filter: bool = False
    """Whether an ACK that enters the queue takes an older one of its connection out (RFC 3449 section 5.2.2)."""

    def __post_init__(self) -> None:
        rates, delays = self.rates, self.delays
        _require(not rates or rates[0].t_s == 0, "the rate schedule must start at 0 s")
        _check_times(tuple(step.t_s for step in rates), "rate steps")
        _require(
            all(r.rate_mbps == 0 or MIN_MBPS <= r.rate_mbps <= MAX_MBPS for r in rates),
            f"bandwidth must be at least {MIN_MBPS} and at most {MAX_MBPS} Mbps, or 0 for an outage",
        )
        _require(not rates or any(r.rate_mbps for r in rates), "bandwidth must be above 0 at some time")
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
        for name, value, defaults in (
            ("target_ms", self.target_ms, TARGET_MS),
            ("interval_ms", self.interval_ms, INTERVAL_MS),
        ):
            _require(
                value is None or self.discipline in defaults,
                f"{name} belongs to {', '.join(defaults)}, not to {self.discipline}",
            )
            _require(
                value is None or MIN_PARAMETER_MS <= value <= MAX_MS,
                f"{name} must be at least {MIN_PARAMETER_MS} and at most {MAX_MS} ms",
            )
        self._check_marking()
        _require(not self.jitter_reorders or self.jitter_ms > 0, "jitter_reorders needs jitter_ms above 0")
        _require(not self.delay_reorders or bool(delays), "delay_reorders needs delays that change")
        _require(
            not (self.delay_reorders and self.jitter_ms) or self.jitter_reorders,
            "delay_reorders and jitter_ms need jitter_reorders too: both make packets overtake, or neither",
        )
        losses = (self.loss, *(step.loss for step in self.losses))
        _require(
            all(0 <= loss <= 1 for loss in losses) and min(losses) < 1,
            "the loss probability must be at least 0 and at most 1, and below 1 at some time",
        )
        _require(
            all(step.t_s > 0 for step in self.losses[:1]), "a change of loss must come after 0 s: loss is the first"
        )
        _check_times(tuple(step.t_s for step in self.losses), "changes of loss")
        _require(
            max(len(rates), len(delays), len(self.losses)) <= MAX_STEPS,
            f"a schedule has at most {MAX_STEPS} steps",
        )

    def _check_marking(self) -> None:
        _require(
            not self.ecn or self.discipline in MARKING, f"ecn belongs to {', '.join(MARKING)}, not to {self.discipline}"
        )
        _require(
            self.mark_packets is None or (self.limited and 1 <= self.mark_packets <= MAX_QUEUE),
            "mark_packets must be at least 1 and at most 2^40, on a link with a rate or a trace",
        )
        _require(
            not self.ack_filter or self.limited, "ack_filter needs a link with a rate or a trace: else no ACK waits"
        )
        _require(
            self.quantum_bytes is None or self.discipline == "fq-codel",
            f"quantum_bytes belongs to fq-codel, not to {self.discipline}",
        )
        _require(
            self.quantum_bytes is None or MIN_QUANTUM <= self.quantum_bytes <= MAX_QUANTUM,
            f"quantum_bytes must be at least {MIN_QUANTUM} and at most {MAX_QUANTUM}",
        )
        _require(not self.grain_ms or self.discipline != "fq-codel", "fq-codel and grain_ms do not go together")

    @property
    def marks(self) -> bool:
        """Whether the link marks packets of flows that speak ECN."""
        return self.ecn or self.mark_packets is not None

    def rate_mbps_at(self, t_s: float) -> float:
        """Return the rate at time `t_s` (Mbps), a trace's mean rate, or infinity without a limit."""
        if not self.rates:
            return self.base_mbps
        return next(step.rate_mbps for step in reversed(self.rates) if step.t_s <= t_s)

    @property
    def base_mbps(self) -> float:
        """First rate that is no outage (Mbps), a trace's mean rate, or infinity without a limit."""
        if self.trace:
            return self.trace.mean_mbps
        return next((step.rate_mbps for step in self.rates if step.rate_mbps), float("inf"))

    @property
    def peak_mbps(self) -> float:
        """Highest rate (Mbps), a trace's over its busiest second, or infinity without a limit."""
        if self.trace:
            return _busiest_second_mbps(self.trace)
        return max((step.rate_mbps for step in self.rates), default=float("inf"))

    @property
    def peak_delay_ms(self) -> float:
        """Longest propagation delay (ms), jitter included."""
        return max(self.delay_ms, *(step.delay_ms for step in self.delays), 0) + self.jitter_ms

    @property
    def limited(self) -> bool:
        """Whether the link has a rate or a trace, so that packets can queue."""
        return bool(self.rates or self.trace)

    @property
    def limit_bytes(self) -> int | None:
        """Queue limit (bytes, with full packets where the limit counts packets), or None."""
        limits = [self.queue_bytes, self.queue_packets and self.queue_packets * MTU_BYTES]
        return min((limit for limit in limits if limit is not None), default=None)


@dataclass(frozen=True)
class Flow:
    """Lifetime and path of a flow."""

    start_s: float = 0.0
    """When it starts (s)."""

    stop_s: float | None = None
    """When it stops (s); None for the episode's end."""

    extra_rtt_ms: float = 0.0
    """RTT in addition to the links' delays (ms), half in each direction, before the first link."""

    links: tuple[int, int] | None = None
    """Indices of the first and last link that it crosses, both included; None for all links."""

    size_bytes: int | None = None
    """Payload that it transfers (bytes): it ends when all is acknowledged; None for as much as it can send."""

    ecn: bool = False
    """Whether it negotiates ECN."""

    receive_window_bytes: int | None = None
    """Most payload that its receiver lets be in flight (bytes); None for a window that never binds."""

    pauses_s: tuple[tuple[float, float], ...] = ()
    """From when until when its application has nothing to send (s)."""


@dataclass(frozen=True)
class CrossFlow:
    """A competing flow."""

    scheme: str
    """Name of its scheme."""

    flow: Flow = Flow()
    """Its lifetime and path."""


@dataclass(frozen=True)
class Environment:
    """A network and its flows: a chain of links, one for a dumbbell, three for a parking lot."""

    set: str
    """Set of environments: `I` (single flow), `II` (against Cubic) or `custom`."""

    links: tuple[Link, ...]
    """Links in the data direction, in order."""

    return_links: tuple[Link, ...]
    """Links for acknowledgements: one for each of `links`, crossed in reverse order."""

    duration_s: float
    """Virtual length of the episode (s)."""

    windows_s: tuple[tuple[float, float], ...]
    """Scoring windows, start and end (s)."""

    reward: RewardKind = "power"
    """Reward that the pool derives: `power` for Set I, `friendliness` for Set II."""

    cross: tuple[CrossFlow, ...] = ()
    """Competitors of the flow under test."""

    flow: Flow = Flow()
    """Lifetime and path of the flow under test."""

    def __post_init__(self) -> None:
        _require(0 < self.duration_s <= MAX_DURATION_S, f"0 < duration <= {MAX_DURATION_S} s must hold")
        _require(
            1 <= len(self.links) == len(self.return_links) <= MAX_LINKS,
            f"there must be 1 to {MAX_LINKS} links, each with its return link",
        )
        _require(self.flow_count <= MAX_FLOWS, f"at most {MAX_FLOWS} flows, not {self.flow_count}")
        for name, flow in (("the flow", self.flow), *(("a cross flow", c.flow) for c in self.cross)):
            self._check_flow(name, flow)
        _require(0 < self.min_rtt_ms <= MAX_MS, f"minimum RTT must be above 0 and at most {MAX_MS} ms")
        _require(
            all(0 <= a < b <= self.duration_s for a, b in self.windows_s), "scoring windows must lie in the episode"
        )
        _require(self.reward in get_args(RewardKind), f"unknown reward '{self.reward}'")

    def _check_flow(self, name: str, flow: Flow) -> None:
        _require(
            0 <= flow.start_s < self.stop_of(flow) <= self.duration_s, f"{name} must start and stop within the episode"
        )
        _require(0 <= flow.extra_rtt_ms <= MAX_MS, f"{name}: extra_rtt_ms must be at least 0 and at most {MAX_MS}")
        _require(
            flow.size_bytes is None or 1 <= flow.size_bytes <= MAX_QUEUE,
            f"{name}: size_bytes must be at least 1 and at most 2^40",
        )
        _require(
            flow.receive_window_bytes is None or MIN_WINDOW_BYTES <= flow.receive_window_bytes <= MAX_WINDOW_BYTES,
            f"{name}: receive_window_bytes must be at least {MIN_WINDOW_BYTES} and at most 2^29",
        )
        self._check_application(name, flow)
        path = self.path(flow)
        _require(0 <= path.start < path.stop <= len(self.links), f"{name} crosses links that are not there")
        _require(
            any(self.links[index].limited for index in path),
            f"{name} must cross a link with a rate or a trace: nothing else would hold it back",
        )

    def _check_application(self, name: str, flow: Flow) -> None:
        moments_s = [moment_s for pause in flow.pauses_s for moment_s in pause]
        _require(all(a < b for a, b in pairwise(moments_s)), f"{name}: pauses_s must increase in time")
        _require(
            all(0 <= moment_s <= self.duration_s for moment_s in moments_s),
            f"{name}: pauses_s must lie within the episode",
        )
        _require(len(flow.pauses_s) <= MAX_STEPS, f"{name}: pauses_s has at most {MAX_STEPS} pauses")

    @property
    def all_flows(self) -> tuple[Flow, ...]:
        """Lifetime and path of every flow, the one under test first."""
        return (self.flow, *(cross.flow for cross in self.cross))

    def path(self, flow: Flow) -> range:
        """Return the indices of the links that `flow` crosses."""
        first, last = flow.links or (0, len(self.links) - 1)
        return range(first, last + 1)

    def stop_of(self, flow: Flow) -> float:
        """Return when `flow` stops (s)."""
        return self.duration_s if flow.stop_s is None else flow.stop_s

    def narrowest(self, flow: Flow) -> int:
        """Return the index of a flow's bottleneck: the link of its path with the lowest base rate."""
        return min(self.path(flow), key=lambda index: self.links[index].base_mbps)

    @property
    def bottleneck(self) -> Link:
        """The bottleneck of the flow under test."""
        return self.links[self.narrowest(self.flow)]

    @property
    def start_s(self) -> float:
        """When the scheme under test starts (s)."""
        return self.flow.start_s

    @property
    def stop_s(self) -> float:
        """When the scheme under test stops (s)."""
        return self.stop_of(self.flow)

    def min_rtt_of(self, flow: Flow) -> float:
        """Return a flow's minimum RTT (ms): propagation in both directions."""
        return sum(self.links[index].delay_ms for index in self.path(flow)) + self._return_delay_of(flow)

    def _return_delay_of(self, flow: Flow) -> float:
        return sum(self.return_links[index].delay_ms for index in self.path(flow)) + flow.extra_rtt_ms

    @property
    def return_delay_ms(self) -> float:
        """Minimum RTT less the links' propagation delays (ms): the return links' delays and the flow's extra RTT."""
        return self._return_delay_of(self.flow)

    @property
    def min_rtt_ms(self) -> float:
        """Minimum RTT of the flow under test (ms): propagation in both directions."""
        return self.min_rtt_of(self.flow)

    @property
    def bandwidth_mbps(self) -> float:
        """Base rate of the bottleneck (Mbps)."""
        return self.bottleneck.base_mbps

    @property
    def step(self) -> float:
        """Ratio of the second rate to the base rate; 1 for a constant rate."""
        rates = self.bottleneck.rates
        return rates[1].rate_mbps / self.bandwidth_mbps if len(rates) > 1 else 1.0

    @property
    def bdp_bytes(self) -> float:
        """Bandwidth-delay product at the base rate (bytes)."""
        return bdp_bytes(self.bandwidth_mbps, self.min_rtt_ms)

    @property
    def queue_bytes(self) -> int | None:
        """Queue limit of the bottleneck (bytes, with full packets where the limit counts packets), or None."""
        return self.bottleneck.limit_bytes

    @property
    def queue_bdp(self) -> float:
        """Queue limit in units of the BDP; infinity without one."""
        return float("inf") if self.queue_bytes is None else self.queue_bytes / self.bdp_bytes

    @property
    def queue_text(self) -> str:
        """Queue limit in words: `queue 2 BDP`, or `no queue limit`."""
        return "no queue limit" if self.queue_bytes is None else f"queue {round(self.queue_bdp, 2):g} BDP"

    @property
    def flow_count(self) -> int:
        """Number of flows in the network, the one under test included."""
        return 1 + len(self.cross)

    @property
    def competitors(self) -> int:
        """Number of flows that cross the bottleneck of the one under test, itself included."""
        bottleneck = self.narrowest(self.flow)
        return 1 + sum(bottleneck in self.path(cross.flow) for cross in self.cross)

    @cached_property
    def id(self) -> str:
        """Readable identifier: set, base rate, step, RTT, queue, and six hex digits of a hash over all fields."""
        digest = hashlib.sha256(self.to_json().encode()).hexdigest()[:6]
        link = self.bottleneck
        rate = link.trace.name if link.trace else f"{self.bandwidth_mbps:g}mbps"
        shape = "" if self.step == 1 else f"x{self.step:g}"
        discipline = "" if link.discipline == "tail-drop" else f"-{link.discipline}"
        chain = "" if len(self.links) == 1 else f"-{len(self.links)}links"
        queue = f"{round(self.queue_bdp, 2):g}bdp"
        return f"{self.set}-{rate}{shape}-{self.min_rtt_ms:g}ms-{queue}{discipline}{chain}-{digest}"

    def to_json(self) -> str:
        """Return canonical JSON of the fields that differ from their defaults; `from_json` reads it back."""
        return json.dumps(_plain(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Environment:
        """Return the environment that `to_json` wrote.

        Raises:
            SageccError: the text is not of that form.
        """
        try:
            raw: dict[str, Any] = json.loads(text)
            return cls(
                links=tuple(_link(link) for link in raw.pop("links")),
                return_links=tuple(_link(link) for link in raw.pop("return_links")),
                windows_s=tuple((float(a), float(b)) for a, b in raw.pop("windows_s")),
                cross=tuple(_cross(cross) for cross in raw.pop("cross", ())),
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
    *,
    reward: RewardKind = "power",
    cross: Iterable[CrossFlow] = (),
    start_s: float = 0.0,
) -> Environment:
    """Return an environment of one bottleneck, whose return link only delays.

    Args:
        set_name: the environment's set.
        bottleneck: the link in the data direction.
        return_delay_ms: propagation delay of the return link (ms).
        duration_s: virtual length of the episode (s).
        windows_s: scoring windows, start and end (s).
        reward: the reward that the pool derives.
        cross: competitors of the flow under test.
        start_s: when the flow under test starts (s).
    """
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


def step_rates(bandwidth_mbps: float, step: float, duration_s: float) -> tuple[RateStep, ...]:
    """Return a rate that alternates every 7 s between the base rate and `step` times it, from 17 s to `duration_s`."""
    rates = [RateStep(0.0, bandwidth_mbps)]
    t_s, high = _STEP_START_S, True
    while step != 1 and t_s < duration_s:
        rates.append(RateStep(t_s, bandwidth_mbps * (step if high else 1)))
        t_s, high = t_s + _STEP_PERIOD_S, not high
    return tuple(rates)


def bdp_bytes(bandwidth_mbps: float, rtt_ms: float) -> float:
    """Return the bandwidth-delay product (bytes): Mbps x ms = kbit, at 125 bytes per kbit."""
    return bandwidth_mbps * rtt_ms * 125


def queue_bytes(bandwidth_mbps: float, rtt_ms: float, bdps: float) -> int:
    """Return a queue limit of `bdps` bandwidth-delay products (bytes); above MAX_QUEUE, a value that a link refuses."""
    return int(min(bdp_bytes(bandwidth_mbps, rtt_ms) * bdps, MAX_QUEUE + 1))


def episode_id(environment_id: str, scheme: str, seed: int) -> str:
    """Return an episode's identifier: environment, scheme and seed."""
    return f"{environment_id}.{scheme}.{seed}"


def _require(holds: bool, text: str) -> None:
    if not holds:
        raise SageccError(f"environment: {text}")


def _check_times(times_s: tuple[float, ...], name: str) -> None:
    _require(all(a < b for a, b in pairwise(times_s)), f"{name} must increase in time")
    _require(all(t_s <= MAX_DURATION_S for t_s in times_s[-1:]), f"{name} must come within a day")


def _busiest_second_mbps(trace: Trace) -> float:
    times_ms, first, busiest = trace.opportunities_ms, 0, 0
    for last, time_ms in enumerate(times_ms):
        while times_ms[first] < time_ms - 1000:
            first += 1
        busiest = max(busiest, last - first + 1)
    return max(busiest * MTU_BYTES * 8 / 1e6, trace.mean_mbps)


def _plain(value: Any) -> Any:
    """Return nested dicts and lists without fields at their defaults, so that a new field changes no existing id."""
    if is_dataclass(value):
        values = ((f, getattr(value, f.name)) for f in fields(value))
        return {f.name: _plain(v) for f, v in values if f.default is MISSING or v != f.default}
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)  # 30 and 30.0 are equal and must have the same text
    return value


def _link(raw: dict[str, Any]) -> Link:
    rest = dict(raw)
    trace, policer = rest.pop("trace", None), rest.pop("policer", None)
    return Link(
        policer=Policer(**policer) if policer else None,
        rates=tuple(RateStep(**r) for r in rest.pop("rates", ())),
        delays=tuple(DelayStep(**d) for d in rest.pop("delays", ())),
        losses=tuple(LossStep(**step) for step in rest.pop("losses", ())),
        trace=Trace(**{**trace, "opportunities_ms": tuple(trace["opportunities_ms"])}) if trace else None,
        **rest,
    )


def _cross(raw: dict[str, Any]) -> CrossFlow:
    return CrossFlow(**{**raw, "flow": _flow(raw.get("flow", {}))})


def _flow(raw: dict[str, Any]) -> Flow:
    rest = dict(raw)
    links = rest.pop("links", None)
    pauses_s = tuple((float(a), float(b)) for a, b in rest.pop("pauses_s", ()))
    return Flow(links=tuple(links) if links else None, pauses_s=pauses_s, **rest)
