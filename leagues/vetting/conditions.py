# SPDX-License-Identifier: Apache-2.0
"""The conditions: networks, what is measured in each, and the limit that the worst of them must keep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from sagecc.common import shipped
from sagecc.leagues.vetting.measures import (
    Measure,
    fair_shares,
    goodput_mbps,
    jain_index,
    lost_percent,
    recovery_s,
)
from sagecc.schemas.environment import (
    MTU_BYTES,
    CrossFlow,
    Environment,
    Flow,
    Link,
    RateStep,
    bdp_bytes,
    dumbbell,
    queue_bytes,
)
from sagecc.schemas.environment_file import load_environment
from sagecc.schemas.schemes import is_driven

TESTED = "tested"
"""The scheme of a competitor that stands for the one under test."""

SET = "vetting"
RTT_MS = 40
RATES_MBPS = (12, 48, 192)
QUEUES_BDP = (0.5, 1, 4)
SETTLED_S, DURATION_S = 10.0, 30.0
"""From when on a run is scored, and until when where nothing else is said."""
ACK_BYTES = 52
"""Of an ACK that carries a timestamp, on the link."""
ACKS_QUEUE_PKTS = 100
"""Of a way back that cannot carry all ACKs."""
LEAST_QUEUE_PKTS = 10
"""Of slow links, whose BDP is below a packet."""

Against = Literal["nothing", "undisturbed", "cubic", "bbr", "twice cubic"]
"""Nothing; the scheme's own number without the disturbance, Cubic's or BBR's in the same network, which it is divided
by; or twice Cubic's, which is taken off."""


KEPT = 0.8
"""Share of a goodput that a scheme must keep."""
OF: Mapping[str, str] = MappingProxyType({"undisturbed": "of without", "cubic": "of Cubic's", "bbr": "of BBR's"})
"""Unit of such a share, by what it is against."""


@dataclass(frozen=True)
class VettedNetwork:
    """One network of a condition."""

    label: str
    """What sets it apart from the condition's others."""
    environment: Environment
    latency_ms: float = 0.0
    """From a sample to when a driven flow's action takes effect."""
    undisturbed: Environment | None = None
    """The same network without what the condition is about."""


@dataclass(frozen=True)
class Condition:
    """A property that a scheme must have: its worst network decides."""

    name: str
    says: str
    """The property, in words."""
    unit: str
    networks: tuple[VettedNetwork, ...]
    measure: Measure
    limit: float
    least: bool
    """Whether the limit is the least that is allowed; else the most."""
    against: Against = "nothing"
    """With what the scheme's number is compared."""
    driven: bool = False
    """Whether it concerns only schemes whose windows the host sets."""

    def concerns(self, scheme: str) -> bool:
        """Tell whether a scheme is held against it."""
        return is_driven(scheme) or not self.driven

    def meets(self, value: float) -> bool:
        """Tell whether a value keeps the limit."""
        return value >= self.limit if self.least else value <= self.limit

    def worst(self, values: Mapping[str, float]) -> str:
        """Return the label of the worst of some values."""
        return (min if self.least else max)(values, key=lambda label: values[label])


def _network(
    mbps: float, rtt_ms: float = RTT_MS, queue_bdp: float = 1, duration_s: float = DURATION_S, cross: Sequence[str] = ()
) -> Environment:
    limit = max(queue_bytes(mbps, rtt_ms, queue_bdp), LEAST_QUEUE_PKTS * MTU_BYTES)
    return dumbbell(
        SET,
        Link((RateStep(0, mbps),), rtt_ms / 2, limit),
        return_delay_ms=rtt_ms / 2,
        duration_s=duration_s,
        windows_s=((min(SETTLED_S, duration_s / 3), duration_s),),
        cross=[CrossFlow(scheme) for scheme in cross],
    )


def outage_network(mbps: float, queue_bdp: float, outage_s: float, after_s: float = 8) -> Environment:
    """Return a link that sends nothing for a while, SETTLED_S after the flow's start.

    Args:
        mbps: the link's rate at other times (Mbps).
        queue_bdp: queue limit (BDP).
        outage_s: length of the outage (s).
        after_s: what follows it (s).
    """
    up = _network(mbps, queue_bdp=queue_bdp, duration_s=SETTLED_S + outage_s + after_s)
    rates = (RateStep(0, mbps), RateStep(SETTLED_S, 0), RateStep(SETTLED_S + outage_s, mbps))
    return replace(up, links=(replace(up.links[0], rates=rates),))


def _outage(mbps: float, queue_bdp: float, outage_s: float) -> VettedNetwork:
    return VettedNetwork(f"{outage_s:g} s, {mbps:g} Mbps, {queue_bdp:g} BDP", outage_network(mbps, queue_bdp, outage_s))


def _company(flows: int, mbps: float, queue_bdp: float) -> VettedNetwork:
    label = f"{flows} flows, {mbps:g} Mbps, {queue_bdp:g} BDP"
    return VettedNetwork(label, _network(mbps, queue_bdp=queue_bdp, duration_s=40, cross=(TESTED,) * (flows - 1)))


def _beside(scheme: str, flows: int, queue_bdp: float) -> VettedNetwork:
    label = f"{flows} of {scheme}, {queue_bdp:g} BDP"
    return VettedNetwork(label, _network(48, queue_bdp=queue_bdp, duration_s=60, cross=(scheme,) * flows))


def _late(latency_ms: float, mbps: float) -> VettedNetwork:
    return VettedNetwork(f"{latency_ms:g} ms, {mbps:g} Mbps", _network(mbps), latency_ms, _network(mbps))


def _disturbed(label: str, mbps: float, link: Mapping[str, object], back: Mapping[str, object]) -> VettedNetwork:
    plain = _network(mbps)
    changed = replace(
        plain,
        links=(replace(plain.links[0], **link),),  # type: ignore[arg-type]
        return_links=(replace(plain.return_links[0], **back),),  # type: ignore[arg-type]
    )
    return VettedNetwork(f"{label}, {mbps:g} Mbps", changed, undisturbed=plain)


def _narrow(mbps: float, acks: int, filters: bool) -> VettedNetwork:
    """Return a way back that carries one of so many ACKs, where a receiver sends one for two packets."""
    back = {
        "rates": (RateStep(0, mbps * ACK_BYTES / (2 * MTU_BYTES) / acks),),
        "queue_packets": ACKS_QUEUE_PKTS,
        "ack_filter": filters,
    }
    return _disturbed(f"1 of {acks}", mbps, {}, back)


def _flow(label: str, mbps: float, flow: Flow) -> VettedNetwork:
    return VettedNetwork(f"{label}, {mbps:g} Mbps", replace(_network(mbps), flow=flow))


def _small_window(mbps: float) -> VettedNetwork:
    return _flow("half a BDP", mbps, Flow(receive_window_bytes=round(bdp_bytes(mbps, RTT_MS) / 2)))


def _pausing(mbps: float, pause_s: float, period_s: float) -> VettedNetwork:
    """Return an application that pauses from SETTLED_S on."""
    begins_s = (SETTLED_S + period_s * number for number in range(round((DURATION_S - SETTLED_S) / period_s)))
    pauses_s = tuple((begin_s, round(begin_s + pause_s, 3)) for begin_s in begins_s)
    return _flow(f"{pause_s:g} of {period_s:g} s", mbps, Flow(pauses_s=pauses_s))


def _cellular() -> VettedNetwork:
    path = shipped.ENVIRONMENTS / "cellular.yaml"
    return VettedNetwork("cellular", replace(load_environment(path), set=SET, windows_s=((SETTLED_S, 30.0),)))


def _satellite() -> VettedNetwork:
    plain = _network(42, rtt_ms=800, duration_s=60)
    return VettedNetwork("satellite", replace(plain, links=(replace(plain.links[0], loss=0.0074),)))


def _keeps_goodput(
    name: str, says: str, against: Against, networks: Iterable[VettedNetwork], unit: str = "", driven: bool = False
) -> Condition:
    """Return the condition of at least KEPT of the goodput that it is held against; its unit tells what that is."""
    unit = unit or OF[against]
    return Condition(name, says, unit, tuple(networks), goodput_mbps, KEPT, least=True, against=against, driven=driven)


_OUTAGES = tuple(_outage(mbps, queue, s) for mbps in RATES_MBPS for queue in QUEUES_BDP for s in (1, 3, 10, 30))
_COMPANY = tuple(_company(flows, mbps, queue) for flows in (2, 4, 8) for mbps in RATES_MBPS for queue in QUEUES_BDP)
_CUBICS = tuple(_beside("cubic", flows, queue) for flows in (1, 3, 7, 20) for queue in (1, 4))
_BBRS = tuple(_beside("bbr", flows, queue) for flows in (1, 3) for queue in (1, 4))
_SLOW = tuple(
    VettedNetwork(f"{mbps:g} Mbps", _network(mbps, duration_s=duration_s))
    for mbps, duration_s in ((0.02, 180), (0.1, 60), (1, 30), (10, 30), (100, 30), (1000, 12))
)
_RTTS = tuple(
    VettedNetwork(f"{rtt_ms:g} ms", _network(48, rtt_ms=rtt_ms, duration_s=duration_s))
    for rtt_ms, duration_s in ((1, 20), (10, 20), (100, 30), (300, 60), (1000, 120))
)
_ALONE = tuple(
    VettedNetwork(f"{mbps:g} Mbps, {queue:g} BDP", _network(mbps, queue_bdp=queue))
    for mbps in RATES_MBPS
    for queue in QUEUES_BDP
)

CONDITIONS: Mapping[str, Condition] = MappingProxyType(
    {
        condition.name: condition
        for condition in (
            Condition("outage", "recovers after an outage of 1 to 30 s", "s", _OUTAGES, recovery_s, 3, least=False),
            Condition("own-kind", "shares with 1 to 7 of its own", "Jain", _COMPANY, jain_index, 0.95, least=True),
            Condition(
                "cubics-least", "gets its share of 1 to 20 Cubics", "fair shares", _CUBICS, fair_shares, 0.5, least=True
            ),
            Condition(
                "cubics-most", "leaves 1 to 20 Cubics theirs", "fair shares", _CUBICS, fair_shares, 2, least=False
            ),
            Condition(
                "bbrs-least", "gets its share of 1 to 3 BBRs", "fair shares", _BBRS, fair_shares, 0.5, least=True
            ),
            Condition("bbrs-most", "leaves 1 to 3 BBRs theirs", "fair shares", _BBRS, fair_shares, 2, least=False),
            _keeps_goodput(
                "late",
                "decides 5 to 50 ms late",
                "undisturbed",
                (_late(ms, mbps) for ms in (5, 20, 50) for mbps in (12, 48)),
                unit="of in time",
                driven=True,
            ),
            _keeps_goodput(
                "random-loss",
                "loses 1 % at random",
                "bbr",
                (_disturbed("1 %", mbps, {"loss": 0.01}, {}) for mbps in (12, 24, 48)),
            ),
            _keeps_goodput(
                "jitter",
                "has jitter of 1 or 15 ms in its ACKs",
                "undisturbed",
                (_disturbed(f"{ms} ms", mbps, {}, {"jitter_ms": ms}) for ms in (1, 15) for mbps in (12, 48)),
            ),
            _keeps_goodput(
                "ack-loss",
                "loses 10 % of its ACKs",
                "undisturbed",
                (_disturbed("10 %", mbps, {}, {"loss": 0.1}) for mbps in (12, 48)),
            ),
            _keeps_goodput(
                "ack-thinning",
                "gets 1 of 8 ACKs",
                "undisturbed",
                (_narrow(mbps, 8, filters=True) for mbps in (12, 48)),
            ),
            _keeps_goodput(
                "ack-queue", "has a full way back", "cubic", (_narrow(mbps, 8, filters=False) for mbps in (12, 48))
            ),
            _keeps_goodput(
                "receive-window",
                "has a receiver that takes half a BDP",
                "cubic",
                (_small_window(mbps) for mbps in (12, 48)),
            ),
            _keeps_goodput(
                "pauses",
                "has an application that pauses",
                "cubic",
                (_pausing(mbps, *each) for each in ((0.2, 1), (1, 5)) for mbps in (12, 48)),
            ),
            _keeps_goodput("rate", "has 0.02 Mbps to 1 Gbps", "cubic", _SLOW),
            _keeps_goodput("rtt", "has 1 ms to 1 s", "cubic", _RTTS),
            _keeps_goodput("wireless", "has a cellular or a satellite link", "cubic", (_cellular(), _satellite())),
            Condition(
                "loss",
                "loses little alone",
                "% beyond twice Cubic's",
                (*_ALONE, *_SLOW),
                lost_percent,
                1,
                least=False,
                against="twice cubic",
            ),
        )
    }
)
"""By name."""
