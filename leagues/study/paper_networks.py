# SPDX-License-Identifier: Apache-2.0
"""Networks of the multi-flow figures of Sage, Orca and Astraea: values that are called as networks.Network.

As in networks.py, propagation lies on the data direction, a queue drops at its tail unless a cell names another
discipline, and repeats other than the first delay each flow's start by a drawn fraction of the base RTT.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from sagecc.common.errors import SageccError
from sagecc.leagues.study.networks import SET, Cell, known
from sagecc.schemas.environment import (
    CrossFlow,
    Discipline,
    Environment,
    Flow,
    Link,
    RateStep,
    Trace,
    queue_bytes,
)
from sagecc.schemas.repeats import delayed

DISCIPLINES: tuple[Discipline, ...] = ("tail-drop", "head-drop", "codel", "pie", "bode")


@dataclass(frozen=True)
class Alone:
    """One flow from 0 on; a cell's case may name a queue discipline or a schedule of rates."""

    duration_s: float
    limit_bytes: int | None = None
    """Of the queue; None for the cell's BDPs, or for no limit where it names none."""
    loss: float = 0.0
    """Probability that a packet is lost before the queue."""
    rates: Mapping[str, tuple[RateStep, ...]] = field(default_factory=dict)
    """Schedules of the rate by case; others have the cell's bandwidth."""
    traces: Mapping[str, Trace] = field(default_factory=dict)
    """Instead of a rate, by case."""

    def __call__(self, cell: Cell, scheme: str, repeat: int) -> Environment:
        """Return the network."""
        rtt_ms = known(cell.rtt_ms)
        trace = self.traces.get(cell.case or "")
        rates = () if trace else self.rates.get(cell.case or "") or (RateStep(0, known(cell.bandwidth_mbps)),)
        named = [each for each in DISCIPLINES if each == cell.case]
        limit = self.limit_bytes
        if limit is None and cell.queue_bdp is not None:
            limit = queue_bytes(known(cell.bandwidth_mbps), rtt_ms, cell.queue_bdp)
        bottleneck = Link(
            rates=rates,
            trace=trace,
            delay_ms=rtt_ms,
            queue_bytes=limit,
            loss=self.loss,
            discipline=named[0] if named else "tail-drop",
        )
        return _dumbbell(bottleneck, self.duration_s, Flow(delayed([0.0], rtt_ms, repeat)[0]))


@dataclass(frozen=True)
class BesideCubics:
    """The tested flow, and from 0 on as many Cubics as the cell says (one, where it does not)."""

    duration_s: float
    limit_bytes: int | None = None
    """Of the queue; None for the cell's BDPs."""
    own_start_s: float = 0.0
    """Of the tested flow."""

    def __call__(self, cell: Cell, scheme: str, repeat: int) -> Environment:
        """Return the network."""
        rtt_ms, bandwidth_mbps = known(cell.rtt_ms), known(cell.bandwidth_mbps)
        limit = self.limit_bytes
        if limit is None:
            limit = queue_bytes(bandwidth_mbps, rtt_ms, known(cell.queue_bdp))
        bottleneck = Link(rates=(RateStep(0, bandwidth_mbps),), delay_ms=rtt_ms, queue_bytes=limit)
        own_s, *others_s = delayed([self.own_start_s, *[0.0] * (cell.cubics or 1)], rtt_ms, repeat)
        cross = tuple(CrossFlow("cubic", Flow(start_s)) for start_s in others_s)
        return _dumbbell(bottleneck, self.duration_s, Flow(own_s), cross)


@dataclass(frozen=True)
class Scenarios:
    """Sage's three: a rate that changes, or a Cubic beside the tested flow; by the cell's case."""

    alone: Alone
    """For the cases of its rates."""
    beside: BesideCubics
    """For any other."""

    def __call__(self, cell: Cell, scheme: str, repeat: int) -> Environment:
        """Return the network."""
        return (self.alone if cell.case in self.alone.rates else self.beside)(cell, scheme, repeat)


@dataclass(frozen=True)
class Joining:
    """Flows of one scheme that start one after another."""

    every_s: float
    """Between two starts."""
    life_s: float | None = None
    """Of each flow; None for until the end, or for `every_s` times the flows where the end is None too."""
    end_s: float | None = None
    """Of the episode; None for when the last flow's life ends."""
    least_flows: int | None = None
    """Where given, a repeat's number draws the flows: from so many to the cell's; else they are the cell's."""

    def __call__(self, cell: Cell, scheme: str, repeat: int) -> Environment:
        """Return the network; it is measured while all flows live."""
        rtt_ms, bandwidth_mbps = known(cell.rtt_ms), known(cell.bandwidth_mbps)
        flows = int(known(cell.flows))
        if self.least_flows is not None:
            flows = random.Random(repeat).randint(self.least_flows, flows)
        life_s = self.life_s if self.life_s is not None or self.end_s is not None else self.every_s * flows
        planned = [number * self.every_s for number in range(flows)]
        stops = [None if life_s is None else start_s + life_s for start_s in planned]
        end_s = planned[-1] + known(life_s) if self.end_s is None else self.end_s
        starts = delayed(planned, rtt_ms, repeat)
        own, *others = (Flow(start_s, stop_s=stop_s) for start_s, stop_s in zip(starts, stops, strict=True))
        limit = queue_bytes(bandwidth_mbps, rtt_ms, known(cell.queue_bdp))
        bottleneck = Link(rates=(RateStep(0, bandwidth_mbps),), delay_ms=rtt_ms, queue_bytes=limit)
        window_s = (planned[-1], end_s if stops[0] is None else stops[0])
        return _dumbbell(bottleneck, end_s, own, tuple(CrossFlow(scheme, flow) for flow in others), window_s)


@dataclass(frozen=True)
class UnlikeRtts:
    """Flows of one scheme, each with a base RTT of its own, all from 0 on; the queue in BDPs of the longest."""

    rtts_ms: tuple[float, ...]
    duration_s: float
    window_s: tuple[float, float]

    def __call__(self, cell: Cell, scheme: str, repeat: int) -> Environment:
        """Return the network."""
        bandwidth_mbps, shortest_ms = known(cell.bandwidth_mbps), min(self.rtts_ms)
        limit = queue_bytes(bandwidth_mbps, max(self.rtts_ms), known(cell.queue_bdp))
        bottleneck = Link(rates=(RateStep(0, bandwidth_mbps),), delay_ms=shortest_ms, queue_bytes=limit)
        starts = delayed([0.0] * len(self.rtts_ms), shortest_ms, repeat)
        own, *others = (
            Flow(start_s, extra_rtt_ms=rtt_ms - shortest_ms)
            for start_s, rtt_ms in zip(starts, self.rtts_ms, strict=True)
        )
        cross = tuple(CrossFlow(scheme, flow) for flow in others)
        return _dumbbell(bottleneck, self.duration_s, own, cross, self.window_s)


@dataclass(frozen=True)
class Crowd:
    """Many flows of one scheme; each starts within the first moments, when the repeat's number draws it."""

    duration_s: float
    within_s: float

    def __call__(self, cell: Cell, scheme: str, repeat: int) -> Environment:
        """Return the network."""
        rtt_ms, bandwidth_mbps = known(cell.rtt_ms), known(cell.bandwidth_mbps)
        draws = random.Random(repeat)
        own, *others = (Flow(round(draws.random() * self.within_s, 6)) for _ in range(int(known(cell.flows))))
        limit = queue_bytes(bandwidth_mbps, rtt_ms, known(cell.queue_bdp))
        bottleneck = Link(rates=(RateStep(0, bandwidth_mbps),), delay_ms=rtt_ms, queue_bytes=limit)
        cross = tuple(CrossFlow(scheme, flow) for flow in others)
        return _dumbbell(bottleneck, self.duration_s, own, cross, (self.within_s, self.duration_s))


@dataclass(frozen=True)
class TwoBottlenecks:
    """Astraea's two sets of flows: the cell's flows over link 1, and `long_flows` over link 1 and the narrower link 2.

    The tested flow is one of the long ones. Every flow's base RTT is the cell's, on its way to the links.
    """

    narrow_mbps: float
    long_flows: int
    limit_bytes: int
    """Of either queue."""
    duration_s: float
    window_s: tuple[float, float]

    def __call__(self, cell: Cell, scheme: str, repeat: int) -> Environment:
        """Return the network."""
        rtt_ms, short_flows = known(cell.rtt_ms), int(known(cell.flows))
        links = tuple(
            Link(rates=(RateStep(0, rate_mbps),), queue_bytes=self.limit_bytes)
            for rate_mbps in (known(cell.bandwidth_mbps), self.narrow_mbps)
        )
        paths = [None] * self.long_flows + [(0, 0)] * short_flows
        starts = delayed([0.0] * len(paths), rtt_ms, repeat)
        own, *others = (
            Flow(start_s, extra_rtt_ms=rtt_ms, links=path) for start_s, path in zip(starts, paths, strict=True)
        )
        return Environment(
            set=SET,
            links=links,
            return_links=(Link(),) * len(links),
            duration_s=self.duration_s,
            windows_s=(self.window_s,),
            flow=own,
            cross=tuple(CrossFlow(scheme, flow) for flow in others),
        )


def no_traces(cell: Cell, scheme: str, repeat: int) -> Environment:
    """Stand for the network of an experiment whose traces were not given."""
    raise SageccError("study: this experiment replays traces; name their folder by --traces")


def _dumbbell(
    bottleneck: Link,
    duration_s: float,
    flow: Flow,
    cross: tuple[CrossFlow, ...] = (),
    window_s: tuple[float, float] | None = None,
) -> Environment:
    """Return one link with these flows; measured over all of it, unless a window is given."""
    return Environment(
        set=SET,
        links=(bottleneck,),
        return_links=(Link(),),
        duration_s=duration_s,
        windows_s=(window_s or (0.0, duration_s),),
        flow=flow,
        cross=cross,
    )
