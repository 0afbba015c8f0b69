# SPDX-License-Identifier: Apache-2.0
"""`wander`: its slow start, its segments, and what turns it."""

from __future__ import annotations

import math
from itertools import pairwise
from random import Random

import pytest

from sagecc.execution.schemes.scheme import Sample
from sagecc.execution.schemes.wander.scheme import DECISION_TICKS, FEWEST, MOST, Wander
from tests.execution.schemes.samples import IDLE, after

RATE_PKTS = 20
"""Packets that a tick delivers: 2,000 a second, 80 of them in an RTT of 40 ms."""


def ticks(count: int, lost_share: float = 0.0) -> list[Sample]:
    """Return samples of a path that delivers RATE_PKTS a tick, and loses a share of what is sent from tick 10 on."""
    return [
        after(tick, 2 * RATE_PKTS * tick, RATE_PKTS * tick, int(lost_share * RATE_PKTS * max(tick - 10, 0)))
        for tick in range(1, count + 1)
    ]


def windows(samples: list[Sample], seed: int = 0) -> list[float]:
    flow = Wander(Random(seed))
    return [flow.on_tick(sample)[0] for sample in samples]


def wandering(count: int, seed: int = 0) -> list[float]:
    """Return the windows of a flow that a loss has ended the slow start of."""
    return windows([sample._replace(lost_total_pkts=1) for sample in ticks(count)], seed)


def test_a_slow_start_grows_by_what_is_acknowledged() -> None:
    assert windows(ticks(5)) == [30, 50, 70, 90, 110]


def test_a_queue_ends_the_slow_start() -> None:
    late = [sample._replace(srtt_us=101_000) for sample in ticks(50)]  # above 2 x 40 + 20 ms
    found = windows(late)
    assert found[0] == 30
    assert max(found) < 30 * 2 ** (MOST * 50 / DECISION_TICKS)


def test_nothing_is_asked_before_the_first_round_trip() -> None:
    assert Wander(Random(0)).on_tick(IDLE._replace(srtt_us=0)) == (10.0, 0.0)


def test_a_decision_moves_it_by_no_more_than_a_policy_may() -> None:
    found = wandering(6_000)
    steps = [math.log2(after / before) for before, after in pairwise(found[20:])]
    assert max(map(abs, steps)) <= MOST / DECISION_TICKS + 1e-9 or min(found) == FEWEST
    assert max(steps) > 0.5 * MOST / DECISION_TICKS


def test_it_holds_drifts_and_moves_fast() -> None:
    found = wandering(60_000)
    seconds = [abs(math.log2(found[i + 100] / found[i])) for i in range(0, 59_000, 100)]
    assert sum(x == 0 for x in seconds) > 50
    assert sum(0 < x < 0.5 for x in seconds) > 100
    assert sum(x > 1 for x in seconds) > 8


def test_losses_send_it_down() -> None:
    """Once every second at least where a tenth is lost, by 2**0.03 in 50 ms at least for 0.3 s."""
    found = windows(ticks(3_000, lost_share=0.1))
    assert max(found[2_000:]) < 0.5 * max(found[:200])


def test_the_fewest_packets_send_it_up() -> None:
    lossy = ticks(5_000, lost_share=0.1)
    whole = [sample._replace(lost_total_pkts=lossy[-1].lost_total_pkts) for sample in ticks(20_000)[5_000:]]
    found = windows([*lossy, *whole])
    assert found[4_999] < 2 * FEWEST
    assert max(found[5_000:]) > 4 * FEWEST


def test_it_paces_one_window_per_smoothed_rtt() -> None:
    flow = Wander(Random(0))
    for sample in ticks(100):
        window, pacing_bytes_s = flow.on_tick(sample._replace(lost_total_pkts=1))
    assert pacing_bytes_s == pytest.approx(window * 1448 / 0.040)


def test_a_seed_is_a_walk() -> None:
    assert wandering(500, seed=1) == wandering(500, seed=1)
    assert wandering(500, seed=1) != wandering(500, seed=2)
