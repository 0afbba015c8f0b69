# SPDX-License-Identifier: Apache-2.0
"""The study's networks: from a cell of a grid, the schemes and a repeat's number to an Environment.

The late flow of two is the tested one (flow 0), so that Cubic beside itself is one network whichever way it is asked
for. Propagation lies on the data direction, as netem's does in the study; the queue drops at its tail. A BDP counts
10^6 bits per Mbit, as the study's text does; its public code counts 2^20.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

from sagecc.common.errors import SageccError
from sagecc.schemas.environment import (
    CrossFlow,
    DelayStep,
    Environment,
    Flow,
    Link,
    LossStep,
    RateStep,
    queue_bytes,
)
from sagecc.schemas.repeats import delayed

SET = "study"

SECOND_START_RTTS, END_RTTS, MEASURED_RTTS = 500, 2000, 500
"""Of the two flows and the parking lot: the late flow's start, the end of all, and how much of it is measured."""

SHORT_RTT_MS = 20.0
"""Base RTT of the early flow where the two differ."""

MANY_CUBICS_S, JOIN_S, MANY_CUBICS_WINDOW_S = 60.0, (1, 15), (45.0, 59.0)
"""Beside many Cubics: the length, when they join (whole seconds, drawn), and what is measured."""

STAGGER_S, LIFE_S, STAGGERED_FLOWS = 25.0, 100.0, 4
"""Of the efficiency and convergence runs: between starts, each flow's life, and their number."""

CHANGE_EVERY_S, CHANGES = 10.0, 30
RESPONSIVENESS_QUEUE_BYTES = 655_360
"""100 ms at 50 x 2^20 bits/s, which the study calls 638 KB and one mean BDP."""
RESPONSIVENESS_LOSS_RTT_MS = 100.0

Order = Literal["cubic-first", "cubic-last"]


@dataclass(frozen=True, order=True)
class Cell:
    """A point of an experiment's grid; what the experiment does not vary by is None."""

    queue_bdp: float | None = None
    """Queue limit in BDPs, of the path that the experiment names."""
    bandwidth_mbps: float | None = None
    """Rate of each bottleneck; None where a schedule changes it."""
    rtt_ms: float | None = None
    """Base RTT: of the late flow where two differ; None where a schedule changes it."""
    cubics: int | None = None
    """How many Cubics the tested flow is beside."""
    order: Order | None = None
    """Whether Cubic starts before or after the tested flow."""
    flows: int | None = None
    """How many flows of the tested scheme, or of one of its sets."""
    case: str | None = None
    """What else sets it apart: a scenario, a queue discipline, a trace."""
    schedule: int | None = None
    """Which schedule of changes, from 1 to 50."""


CELL_COLUMNS = tuple(field.name for field in fields(Cell))
"""Of a table: what tells cells apart, last the schedule."""

Network = Callable[[Cell, str, int], Environment]
"""From a cell, the tested scheme and a repeat's number (from 0) to its network."""


def two_flows(cell: Cell, scheme: str, repeat: int) -> Environment:
    """Return the study's two flows of one scheme, the second after 500 of 2000 RTTs (Fig. 1, 2 and 4)."""
    return _two_flows(cell, repeat, scheme, known(cell.rtt_ms), known(cell.rtt_ms))


def two_flows_of_unlike_rtts(cell: Cell, scheme: str, repeat: int) -> Environment:
    """Return two flows of one scheme, the early one's RTT 20 ms, with a queue in BDPs of that RTT (Fig. 3)."""
    return _two_flows(cell, repeat, scheme, SHORT_RTT_MS, SHORT_RTT_MS)


def two_flows_of_unlike_rtts_long_queue(cell: Cell, scheme: str, repeat: int) -> Environment:
    """Return the same with a queue in BDPs of the late flow's RTT, as the study's public code has it."""
    return _two_flows(cell, repeat, scheme, SHORT_RTT_MS, known(cell.rtt_ms))


def beside_cubic(cell: Cell, scheme: str, repeat: int) -> Environment:
    """Return the tested flow beside one Cubic: the late of both (Fig. 6), or as the cell's order says (Fig. 7)."""
    environment = _two_flows(cell, repeat, "cubic", known(cell.rtt_ms), known(cell.rtt_ms))
    if cell.order != "cubic-last":
        return environment
    early, late = environment.cross[0].flow, environment.flow
    return replace(environment, flow=early, cross=(CrossFlow("cubic", late),))


def parking_lot(cell: Cell, scheme: str, repeat: int) -> Environment:
    """Return three links with a flow of one hop each from 0, and a tested flow over all after 500 RTTs (Fig. 5)."""
    rtt_ms = known(cell.rtt_ms)
    end_s = END_RTTS * rtt_ms / 1000
    starts = delayed([SECOND_START_RTTS * rtt_ms / 1000, 0.0, 0.0, 0.0], rtt_ms, repeat)
    return Environment(
        set=SET,
        links=(_bottleneck(cell, rtt_ms, 0.0),) * 3,
        return_links=(Link(),) * 3,
        duration_s=end_s,
        windows_s=(last_rtts(rtt_ms),),
        flow=Flow(starts[0], extra_rtt_ms=rtt_ms),
        cross=tuple(
            CrossFlow(scheme, Flow(start_s, extra_rtt_ms=rtt_ms, links=(link, link)))
            for link, start_s in enumerate(starts[1:])
        ),
    )


def beside_many_cubics(cell: Cell, scheme: str, repeat: int) -> Environment:
    """Return the tested flow from 0 beside Cubics that join at whole seconds drawn from 1 to 15 (Fig. 8).

    The draws' seed is the run's number times the flows', as in the study's public code.
    """
    rtt_ms, cubics = known(cell.rtt_ms), int(known(cell.cubics))
    draws = random.Random((repeat + 1) * cubics)
    starts = delayed([0.0, *(float(draws.randint(*JOIN_S)) for _ in range(cubics))], rtt_ms, repeat)
    return Environment(
        set=SET,
        links=(_bottleneck(cell, rtt_ms, rtt_ms),),
        return_links=(Link(),),
        duration_s=MANY_CUBICS_S,
        windows_s=(MANY_CUBICS_WINDOW_S,),
        flow=Flow(starts[0]),
        cross=tuple(CrossFlow("cubic", Flow(start_s)) for start_s in starts[1:]),
    )


def staggered_flows(cell: Cell, scheme: str, repeat: int) -> Environment:
    """Return four flows of one scheme, 25 s apart, each for 100 s (Fig. 9, 12 and 13); measured while all run."""
    rtt_ms = known(cell.rtt_ms)
    planned = [number * STAGGER_S for number in range(STAGGERED_FLOWS)]
    starts = delayed(planned, rtt_ms, repeat)
    flows = [Flow(start_s, stop_s=plan_s + LIFE_S) for start_s, plan_s in zip(starts, planned, strict=True)]
    return Environment(
        set=SET,
        links=(_bottleneck(cell, rtt_ms, rtt_ms),),
        return_links=(Link(),),
        duration_s=planned[-1] + LIFE_S,
        windows_s=((planned[-1], LIFE_S),),
        flow=flows[0],
        cross=tuple(CrossFlow(scheme, flow) for flow in flows[1:]),
    )


def changing_rtt(cell: Cell, scheme: str, repeat: int) -> Environment:
    """Return one flow whose bandwidth and base RTT change every 10 s (Fig. 10 and 11).

    The delay comes before the bottleneck, and packets overtake others where it falls, as with netem.
    """
    changes = schedule_of_rtts(_schedule(cell))
    delay = Link(
        delay_ms=changes[0][1],
        delays=tuple(DelayStep(_time_s(number), rtt_ms) for number, (_, rtt_ms) in enumerate(changes) if number),
        delay_reorders=len({rtt_ms for _, rtt_ms in changes}) > 1,
    )
    bottleneck = Link(rates=_rates(changes), queue_bytes=RESPONSIVENESS_QUEUE_BYTES)
    return _one_flow((delay, bottleneck), repeat, changes[0][1])


def changing_loss(cell: Cell, scheme: str, repeat: int) -> Environment:
    """Return one flow whose bandwidth and random loss change every 10 s (Fig. 10), at 100 ms."""
    changes = schedule_of_losses(_schedule(cell))
    bottleneck = Link(
        rates=_rates(changes),
        delay_ms=RESPONSIVENESS_LOSS_RTT_MS,
        queue_bytes=RESPONSIVENESS_QUEUE_BYTES,
        loss=changes[0][1] / 100,
        losses=tuple(LossStep(_time_s(number), percent / 100) for number, (_, percent) in enumerate(changes) if number),
    )
    return _one_flow((bottleneck,), repeat, RESPONSIVENESS_LOSS_RTT_MS)


def schedule_of_rtts(schedule: int) -> list[tuple[int, int]]:
    """Return a schedule's 30 pairs of bandwidth (Mbps) and base RTT (ms), as the study's public code draws them."""
    draws = random.Random(schedule)
    return [(draws.randint(1, 100), draws.randint(20, 200)) for _ in range(CHANGES)]


def schedule_of_losses(schedule: int) -> list[tuple[int, float]]:
    """Return a schedule's 30 pairs of bandwidth (Mbps) and random loss (%), drawn likewise."""
    draws = random.Random(schedule)
    return [(draws.randint(1, 100), round(draws.uniform(0, 5), 2)) for _ in range(CHANGES)]


def last_rtts(rtt_ms: float) -> tuple[float, float]:
    """Return what is measured of two flows and of the parking lot: from when to when (s)."""
    return (END_RTTS - MEASURED_RTTS) * rtt_ms / 1000, END_RTTS * rtt_ms / 1000


def _two_flows(cell: Cell, repeat: int, other: str, other_rtt_ms: float, queue_rtt_ms: float) -> Environment:
    rtt_ms = known(cell.rtt_ms)
    late_s, early_s = delayed([SECOND_START_RTTS * rtt_ms / 1000, 0.0], rtt_ms, repeat)
    return Environment(
        set=SET,
        links=(_bottleneck(cell, queue_rtt_ms, other_rtt_ms),),
        return_links=(Link(),),
        duration_s=END_RTTS * rtt_ms / 1000,
        windows_s=(last_rtts(rtt_ms),),
        flow=Flow(late_s, extra_rtt_ms=rtt_ms - other_rtt_ms),
        cross=(CrossFlow(other, Flow(early_s)),),
    )


def _one_flow(links: tuple[Link, ...], repeat: int, rtt_ms: float) -> Environment:
    duration_s = CHANGES * CHANGE_EVERY_S
    return Environment(
        set=SET,
        links=links,
        return_links=(Link(),) * len(links),
        duration_s=duration_s,
        windows_s=((0.0, duration_s),),
        flow=Flow(delayed([0.0], rtt_ms, repeat)[0]),
    )


def _bottleneck(cell: Cell, queue_rtt_ms: float, delay_ms: float) -> Link:
    bandwidth_mbps = known(cell.bandwidth_mbps)
    limit = queue_bytes(bandwidth_mbps, queue_rtt_ms, known(cell.queue_bdp))
    return Link(rates=(RateStep(0, bandwidth_mbps),), delay_ms=delay_ms, queue_bytes=limit)


def _time_s(change: int) -> float:
    return change * CHANGE_EVERY_S


def _rates(changes: Sequence[tuple[int, float]]) -> tuple[RateStep, ...]:
    return tuple(RateStep(_time_s(number), rate_mbps) for number, (rate_mbps, _) in enumerate(changes))


def _schedule(cell: Cell) -> int:
    return int(known(cell.schedule))


def known(value: float | None) -> float:
    """Return what a cell has; raises SageccError where it is None."""
    if value is None:
        raise SageccError("study: this cell lacks a value that its network needs")
    return value
