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
    assert (DUMBBELL.flows, DUMBBELL.competitors, DUMBBELL.start_s, DUMBBELL.stop_s) == (1, 1, 0, 30)
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
    assert (environment.flows, environment.competitors) == (4, 2)
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
        ({"rates": (RateStep(1, 48),)}, "the rate schedule must start at 0 s"),
        ({"rates": (RateStep(0, 48), RateStep(0, 24))}, "rate steps must increase in time"),
        ({"rates": (RateStep(0, 0),)}, "bandwidth must be at least 0.001 and at most 10000 Mbps"),
        ({"rates": (RateStep(0, float("nan")),)}, "bandwidth must be"),
        ({"trace": Trace("t", (1,))}, "either a rate or a trace"),
        ({"delay_ms": -1}, "a delay must be at least 0 and at most 10000 ms"),
        ({"delays": (DelayStep(1, 20_000),)}, "a delay must be at least 0"),
        ({"delays": (DelayStep(0, 1),)}, "a change of delay must come after 0 s"),
        ({"delays": (DelayStep(2, 1), DelayStep(1, 1))}, "changes of delay must increase in time"),
        ({"delays": (DelayStep(float("inf"), 1),)}, "changes of delay must come within a day"),
        ({"queue_bytes": 1499}, "at least one packet of 1500 bytes and at most 2.40, not 1499"),
        ({"queue_packets": 0}, "at least one packet and at most 2.40, not 0"),
        ({"discipline": "red"}, "unknown discipline 'red'"),
        ({"target_ms": 5.0}, "target_ms belongs to codel, pie, bode, not to tail-drop"),
        ({"discipline": "bode", "interval_ms": 5.0}, "interval_ms belongs to codel, pie, not to bode"),
        ({"discipline": "pie", "interval_ms": 0.0}, "interval_ms must be at least 0.001"),
        ({"delay_reorders": True}, "delay_reorders needs delays that change"),
        (
            {"delays": (DelayStep(1, 2),), "delay_reorders": True, "jitter_ms": 1},
            "delay_reorders and jitter_ms need jitter_reorders too",
        ),
        ({"losses": (LossStep(1, 1),)}, "loss probability must be at least 0 and below 1"),
        ({"losses": (LossStep(0, 0.1),)}, "a change of loss must come after 0 s"),
        ({"losses": (LossStep(2, 0.1), LossStep(1, 0.2))}, "changes of loss must increase in time"),
        ({"loss": 1.0}, "loss probability must be at least 0 and below 1"),
        ({"jitter_ms": -1.0}, "jitter and grain must be at least 0 and at most 1000 ms"),
        ({"grain_ms": 1001}, "jitter and grain must be at least 0 and at most 1000 ms"),
        ({"jitter_reorders": True}, "jitter_reorders needs jitter_ms above 0"),
    ],
)
def test_a_link_that_cannot_be(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SageccError, match=message):
        replace(FLAT, **fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"duration_s": 0}, "0 < duration"),
        ({"links": (FLAT,) * 9, "return_links": (FLAT,) * 9}, "there must be 1 to 8 links, each with its return link"),
        ({"return_links": ()}, "each with its return link"),
        ({"cross": (CrossFlow("cubic"),) * 64}, "at most 64 flows, not 65"),
        ({"flow": Flow(30)}, "the flow must start and stop within the episode"),
        ({"flow": Flow(5, 4)}, "the flow must start and stop within the episode"),
        ({"cross": (CrossFlow("cubic", Flow(0, 31)),)}, "a cross flow must start and stop within the episode"),
        ({"cross": (CrossFlow("cubic", Flow(links=(0, 1))),)}, "a cross flow crosses links that are not there"),
        ({"flow": Flow(links=(1, 0))}, "the flow crosses links that are not there"),
        ({"flow": Flow(extra_rtt_ms=-1)}, "extra_rtt_ms must be at least 0"),
        ({"links": (Link(delay_ms=5),)}, "the flow must cross a link with a rate or a trace"),
        ({"links": (replace(FLAT, delay_ms=0),), "return_links": (Link(),)}, "minimum RTT must be above 0"),
        ({"windows_s": ((0, 31),)}, "scoring windows must lie in the episode"),
        ({"reward": "joy"}, "unknown reward 'joy'"),
    ],
)
def test_an_environment_that_cannot_be(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SageccError, match=message):
        replace(DUMBBELL, **fields)


def test_a_cross_flow_needs_a_limit_too() -> None:
    unlimited = replace(chain(12, 24), links=(FLAT, Link(delay_ms=5)))
    with pytest.raises(SageccError, match="a cross flow must cross a link with a rate or a trace"):
        replace(unlimited, cross=(CrossFlow("cubic", Flow(links=(1, 1))),))


@pytest.mark.parametrize(
    ("moments", "message"),
    [
        ((), "must last longer than 0 ms"),
        ((0, 0), "must last longer than 0 ms"),
        ((2, 1), "must not decrease"),
        ((-1, 1), "must not be negative"),
        ((float("nan"),), "must last longer"),
        ((float("inf"),), "a day at most"),
        ((1.0,) * 1000, "mean rate must be at most 10000 Mbps"),
    ],
)
def test_a_trace_that_cannot_be(moments: tuple[float, ...], message: str) -> None:
    with pytest.raises(SageccError, match=message):
        Trace("t", moments)
