# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from sagecc.common.errors import SageccError
from sagecc.schemas.environment import (
    CrossFlow,
    DelayStep,
    Environment,
    Flow,
    Link,
    LossStep,
    RateStep,
    Trace,
    bdp_bytes,
    dumbbell,
    queue_bytes,
)
from tests.helpers.messages import facts
from tests.helpers.strategies import chain, environments

FLAT = Link((RateStep(0, 48),), 20, 240_000)
DUMBBELL = dumbbell("custom", FLAT, 20, 30, ((0, 30),))


@settings(max_examples=40)
@given(environments())
def test_any_environment_survives_json(environment: Environment) -> None:
    again = Environment.from_json(environment.to_json())
    assert again == environment
    assert again.id == environment.id


def test_derived_figures_of_a_dumbbell() -> None:
    """48 Mbps for 40 ms are 240,000 bytes."""
    assert (DUMBBELL.bandwidth_mbps, DUMBBELL.min_rtt_ms, DUMBBELL.return_delay_ms) == (48, 40, 20)
    assert (DUMBBELL.bdp_bytes, DUMBBELL.queue_bdp, DUMBBELL.step) == (240_000, 1, 1)
    assert (DUMBBELL.flow_count, DUMBBELL.competitors, DUMBBELL.start_s, DUMBBELL.stop_s) == (1, 1, 0, 30)
    assert bdp_bytes(12, 10) == 15_000
    assert queue_bytes(12, 10, 0.5) == 7_500


def test_derived_figures_of_a_parking_lot() -> None:
    """The flow crosses the last two links: 18 Mbps is its bottleneck, and the third cross flow is beside it there."""
    cross = tuple(CrossFlow("cubic", Flow(links=(i, i))) for i in range(3))
    environment = chain(12, 24, 18, cross=cross, flow=Flow(2.0, 9.0, 7.0, (1, 2)))
    assert environment.path(environment.flow) == range(1, 3)
    assert environment.narrowest(environment.flow) == 2
    assert environment.bandwidth_mbps == 18
    assert environment.return_delay_ms == 2 * 10 + 7
    assert environment.min_rtt_ms == 2 * 5 + 2 * 10 + 7
    assert (environment.flow_count, environment.competitors) == (4, 2)
    assert (environment.start_s, environment.stop_s) == (2, 9)
    assert environment.id.startswith("custom-18mbps-37ms-1.08bdp-3links-")


def test_figures_of_a_trace() -> None:
    """Three packets in 4 ms: 9 Mbps; in its busiest second as many as in the mean, for it repeats."""
    link = Link(trace=Trace("t", (0.5, 2, 4)), queue_packets=10)
    assert link.base_mbps == link.rate_mbps_at(3) == link.peak_mbps == 9
    assert link.limit_bytes == 15_000
    burst = Trace("burst", (*(10.0,) * 500, 2000.0))
    assert Link(trace=burst).peak_mbps == 500 * 12_000 / 1e6
    assert burst.mean_mbps == 501 * 12 / 2000


def test_peaks_and_limits_of_a_link() -> None:
    link = Link(
        (RateStep(0, 5), RateStep(2, 9)), 20, 30_000, 10, delays=(DelayStep(1, 30), DelayStep(2, 4)), jitter_ms=2
    )
    assert (link.peak_mbps, link.base_mbps, link.rate_mbps_at(2)) == (9, 5, 9)
    assert link.peak_delay_ms == 32
    assert link.limit_bytes == 15_000
    assert Link().limit_bytes is None
    assert not Link().limited


@pytest.mark.parametrize(
    ("rates", "base", "step"),
    [(((0, 12), (5, 0), (15, 6)), 12, 0), (((0, 0), (5, 12), (15, 6)), 12, 1), (((0, 0), (5, 0), (15, 6)), 6, 0)],
)
def test_an_outage_is_no_base_rate(rates: tuple[tuple[float, float], ...], base: float, step: float) -> None:
    """Whose BDP would be 0: a queue of no byte, and an infinite step."""
    link = replace(FLAT, rates=tuple(RateStep(*each) for each in rates))
    environment = replace(DUMBBELL, links=(link,))
    assert (link.base_mbps, environment.bandwidth_mbps, environment.step) == (base, base, step)
    assert environment.bdp_bytes == base * 40 * 125
    assert environment.queue_bdp == 48 / base
    assert link.rate_mbps_at(5.5) == rates[1][1]
    assert replace(DUMBBELL, links=(FLAT, link), return_links=(Link(),) * 2).narrowest(DUMBBELL.flow) == 1


def test_every_field_is_in_the_id() -> None:
    changes: list[dict[str, Any]] = [
        {"discipline": "codel"},
        {"loss": 0.001},
        {"jitter_ms": 1.0},
        {"grain_ms": 1.0},
        {"delays": (DelayStep(1, 2),)},
        {"delays": (DelayStep(1, 2),), "delay_reorders": True},
        {"losses": (LossStep(1, 0.5),)},
        {"queue_packets": 160},
    ]
    others = [replace(DUMBBELL, links=(replace(FLAT, **change),)) for change in changes]
    others += [replace(DUMBBELL, flow=Flow(stop_s=9)), replace(DUMBBELL, cross=(CrossFlow("cubic"),))]
    others += [replace(DUMBBELL, return_links=(replace(DUMBBELL.return_links[0], loss=0.5),))]
    assert len({environment.id for environment in (DUMBBELL, *others)}) == len(others) + 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rates": (RateStep(1, 48),)}, "rate…start…0 s"),
        ({"rates": (RateStep(0, 48), RateStep(0, 24))}, "rate…increase"),
        ({"rates": (RateStep(0, 0.0009),)}, "bandwidth…0.001…10000 Mbps…0 for an outage"),
        ({"rates": (RateStep(0, -1),)}, "bandwidth…0.001"),
        ({"rates": (RateStep(0, 0), RateStep(1, 0))}, "bandwidth…above 0 at some time"),
        ({"rates": tuple(RateStep(t_s / 2, 1) for t_s in range(100_001))}, "100000 steps"),
        ({"rates": (RateStep(0, float("nan")),)}, "bandwidth"),
        ({"trace": Trace("t", (1,))}, "rate…trace"),
        ({"delay_ms": -1}, "delay…0…10000 ms"),
        ({"delays": (DelayStep(1, 20_000),)}, "delay…0"),
        ({"delays": (DelayStep(0, 1),)}, "delay…after 0 s"),
        ({"delays": (DelayStep(2, 1), DelayStep(1, 1))}, "delay…increase"),
        ({"delays": (DelayStep(float("inf"), 1),)}, "delay…day"),
        ({"queue_bytes": 1499}, "1500 bytes…2^40…1499"),
        ({"queue_packets": 0}, "packet…2^40…0"),
        ({"discipline": "red"}, "discipline…'red'"),
        ({"target_ms": 5.0}, "target_ms…codel, pie, bode…tail-drop"),
        ({"discipline": "bode", "interval_ms": 5.0}, "interval_ms…codel, pie…bode"),
        ({"discipline": "pie", "interval_ms": 0.0}, "interval_ms…0.001"),
        ({"delay_reorders": True}, "delay_reorders…delays"),
        ({"delays": (DelayStep(1, 2),), "delay_reorders": True, "jitter_ms": 1}, "delay_reorders…jitter_reorders"),
        ({"losses": (LossStep(1, 1.1),)}, "loss…0…1"),
        ({"losses": (LossStep(0, 0.1),)}, "loss…after 0 s"),
        ({"losses": (LossStep(2, 0.1), LossStep(1, 0.2))}, "loss…increase"),
        ({"loss": 1.0}, "loss…0…1"),
        ({"jitter_ms": -1.0}, "jitter…grain…0…1000 ms"),
        ({"grain_ms": 1001}, "jitter…grain…0…1000 ms"),
        ({"jitter_reorders": True}, "jitter_reorders…jitter_ms"),
    ],
)
def test_a_link_that_cannot_be(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SageccError, match=facts(message)):
        replace(FLAT, **fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"duration_s": 0}, "0 < duration"),
        ({"links": (FLAT,) * 9, "return_links": (FLAT,) * 9}, "1 to 8 links…return"),
        ({"return_links": ()}, "return link"),
        ({"cross": (CrossFlow("cubic"),) * 1024}, "1024 flows…1025"),
        ({"flow": Flow(30)}, "flow…start…stop…episode"),
        ({"flow": Flow(5, 4)}, "flow…start…stop…episode"),
        ({"cross": (CrossFlow("cubic", Flow(0, 31)),)}, "cross flow…start…stop…episode"),
        ({"cross": (CrossFlow("cubic", Flow(links=(0, 1))),)}, "cross flow…links"),
        ({"flow": Flow(links=(1, 0))}, "the flow…links"),
        ({"flow": Flow(extra_rtt_ms=-1)}, "extra_rtt_ms…0"),
        ({"links": (Link(delay_ms=5),)}, "the flow…rate…trace"),
        ({"links": (replace(FLAT, delay_ms=0),), "return_links": (Link(),)}, "RTT…above 0"),
        ({"windows_s": ((0, 31),)}, "windows…episode"),
        ({"reward": "joy"}, "reward…'joy'"),
    ],
)
def test_an_environment_that_cannot_be(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SageccError, match=facts(message)):
        replace(DUMBBELL, **fields)


def test_a_cross_flow_needs_a_limit_too() -> None:
    unlimited = replace(chain(12, 24), links=(FLAT, Link(delay_ms=5)))
    with pytest.raises(SageccError, match=facts("cross flow…rate…trace")):
        replace(unlimited, cross=(CrossFlow("cubic", Flow(links=(1, 1))),))


@pytest.mark.parametrize(
    ("moments", "message"),
    [
        ((), "longer…0 ms"),
        ((0, 0), "longer…0 ms"),
        ((2, 1), "decrease"),
        ((-1, 1), "negative"),
        ((float("nan"),), "longer"),
        ((float("inf"),), "a day"),
        ((1.0,) * 1000, "rate…10000 Mbps"),
    ],
)
def test_a_trace_that_cannot_be(moments: tuple[float, ...], message: str) -> None:
    with pytest.raises(SageccError, match=facts(message)):
        Trace("t", moments)
