# SPDX-License-Identifier: Apache-2.0
"""LEDBAT's and LEDBAT++'s rules, each seen in an episode made for it.

Expected values follow from RFC 6817, draft-irtf-iccrg-ledbat-plus-plus and the link: 10 Mbps send 833 packets of 1500
bytes a second, 83 of them wait 100 ms and 50 wait 60 ms; with a base delay of 40 ms LEDBAT++'s GAIN is
1 / ceil(2 x 60 / 40) = 1/3.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest

from sagecc.collector.lab.episode import Episode
from sagecc.schemas.environment import CrossFlow, DelayStep, Environment, Flow, Link, RateStep, dumbbell
from tests.collector.conftest import Play
from tests.helpers.networks import network
from tests.helpers.traces import Floats, Ticks, columns


@dataclass(frozen=True)
class Trace(Ticks):
    """One flow, a value a tick: volumes in packets, the queue's wait and the sRTT in ms."""

    cwnd: Floats
    ssthresh: Floats
    wait: Floats
    srtt: Floats
    ca_state: Floats
    drops: Floats
    delivered: Floats

    @classmethod
    def of(cls, episode: Episode) -> Trace:
        c = columns(episode)
        return cls(
            t_s=c["t_s"],
            cwnd=c["cwnd_pkts"],
            ssthresh=c["ssthresh_pkts"],
            wait=c["link_queue_bytes"] * 8e-3 / episode.environment.bandwidth_mbps,
            srtt=c["srtt_us"] / 1000,
            ca_state=c["ca_state"],
            drops=c["link_drops"],
            delivered=c["delivered_pkts"],
        )

    @property
    def slope(self) -> float:
        """Packets that the window gains an RTT."""
        return float((self.cwnd[-1] - self.cwnd[0]) / ((self.t_s[-1] - self.t_s[0]) / (self.srtt.mean() / 1000)))


def deep(duration_s: float, *rates: tuple[float, float], cross: tuple[CrossFlow, ...] = ()) -> Environment:
    """Return 10 Mbps, 40 ms and a queue of 500 ms; the rate may change."""
    link = Link(tuple(RateStep(*rate) for rate in ((0.0, 10.0), *rates)), 20, 625_000)
    return dumbbell("custom", link, 20, duration_s, ((0, duration_s),), cross=cross)


def back_longer(environment: Environment, at_s: float, by_ms: float) -> Environment:
    """Return the same with a longer way back from a moment on."""
    (back,) = environment.return_links
    return replace(environment, return_links=(replace(back, delays=(DelayStep(at_s, back.delay_ms + by_ms),)),))


# LEDBAT


@pytest.fixture
def ledbat(play: Play) -> Trace:
    return Trace.of(play(deep(40), "ledbat"))


def test_ledbat_begins_with_two_packets_and_adds_one_an_rtt(play: Play) -> None:
    trace = Trace.of(play(network(duration_s=4), "ledbat"))
    assert trace.cwnd[0] == 2
    assert trace.between(0.5, 3.5).slope == pytest.approx(1, rel=0.05)


def test_ledbat_holds_100_ms_of_queue(ledbat: Trace) -> None:
    late = ledbat.between(30, 40)
    assert late.wait.mean() == pytest.approx(100, abs=4)
    assert np.ptp(late.cwnd) <= 2
    assert ledbat.drops[-1] == 0
    assert late.delivered[-1] - late.delivered[0] == pytest.approx(10 * 10e6 / 12000, rel=0.01)


def test_ledbat_grows_by_how_far_it_is_from_the_target(ledbat: Trace) -> None:
    """(target - queueing) / target packets an RTT."""
    for low in (20, 50, 80):
        near = np.flatnonzero((ledbat.wait > low - 10) & (ledbat.wait < low + 10) & (ledbat.t_s < 25))
        part = ledbat.between(ledbat.t_s[near[0]], ledbat.t_s[near[-1]])
        assert part.slope == pytest.approx(1 - low / 100, abs=0.12)


def test_ledbat_shrinks_as_slowly_above_the_target(play: Play) -> None:
    """10 to 5 Mbps: the queue of 100 ms is one of 240 then, 40 ms of the path included; 1.4 packets an RTT at first."""
    trace = Trace.of(play(deep(30, (15, 5)), "ledbat"))
    first = trace.between(15.5, 16.5)
    assert -1.6 < first.slope < -0.8
    assert trace.drops[-1] == 0


def test_ledbat_does_not_mind_the_way_back(play: Play) -> None:
    """40 ms more on it: the RTT rises, the one-way delay does not, nor do the queue of 100 ms and the rate change."""
    trace = Trace.of(play(back_longer(deep(60), 30, 40), "ledbat"))
    late = trace.between(50, 60)
    assert late.srtt.mean() == pytest.approx(40 + 40 + 100, abs=10)
    assert late.wait.mean() == pytest.approx(100, abs=8)


def test_a_loss_halves_ledbat(play: Play) -> None:
    """Half a BDP of queue: path and queue hold 240 packets."""
    trace = Trace.of(play(network(queue_bdp=0.5, duration_s=14), "ledbat"))
    (top,) = np.flatnonzero(np.diff(trace.ca_state) > 0)[:1]
    assert trace.cwnd[top] == pytest.approx(240, abs=4)
    open_again = top + 1 + np.flatnonzero(trace.ca_state[top + 1 :] == 0)[0]
    assert trace.cwnd[open_again] == pytest.approx(120, abs=4)


def test_ledbat_yields_to_cubic(play: Play) -> None:
    episode = play(network(queue_bdp=4, duration_s=30, cross=("cubic",)), "ledbat")
    assert episode.flows[0].goodput_mbps < 0.03 * 48
    assert episode.flows[1].goodput_mbps > 0.9 * 48 * 1448 / 1500


def test_a_base_delay_is_forgotten_after_ten_minutes(play: Play) -> None:
    """From 20 s on the way is 50 ms longer, which leaves 50 of the target to the queue; ten minutes later all of it."""
    link = Link((RateStep(0, 2),), 20, 125_000, delays=(DelayStep(20, 70),))
    trace = Trace.of(play(dumbbell("custom", link, 20, 720, ((0, 720),)), "ledbat"))
    assert trace.between(500, 590).wait.mean() == pytest.approx(50, abs=8)
    assert trace.between(690, 720).wait.mean() > 85


# LEDBAT++


@pytest.fixture
def plus(play: Play) -> Trace:
    return Trace.of(play(deep(40), "ledbatpp"))


def slowdowns(trace: Trace) -> list[tuple[float, float]]:
    """Return when each slowdown began, and when the window was back at ssthresh (s)."""
    starts = np.flatnonzero((trace.cwnd[1:] == 2) & (trace.cwnd[:-1] > 10)) + 1
    ends = [start + np.flatnonzero(trace.cwnd[start:] >= trace.ssthresh[start])[:1] for start in starts]
    return [(float(trace.t_s[a]), float(trace.t_s[b[0]])) for a, b in zip(starts, ends, strict=True) if len(b)]


def test_slow_start_grows_by_gain(play: Play) -> None:
    """48 Mbps, far from its BDP: by a third an RTT, where doubling would be a whole one."""
    trace = Trace.of(play(network(duration_s=1), "ledbatpp"))
    grown = trace.between(0.3, 0.62)
    assert (grown.cwnd[-1] / grown.cwnd[0]) ** (1 / 8) == pytest.approx(4 / 3, rel=0.05)


def test_the_first_slow_start_ends_at_three_quarters_of_the_target(plus: Trace) -> None:
    """45 ms; what is under way then adds a third of an RTT's growth at most."""
    (start, _), *_ = slowdowns(plus)
    first = plus.between(0, start)
    assert 45 < first.wait.max() < 45 + 85 / 3 + 5


def test_the_initial_slowdown_follows_two_rtts_later(plus: Trace) -> None:
    (start, _), *_ = slowdowns(plus)
    over = plus.t_s[np.flatnonzero(plus.wait > 45)[0]]
    assert 2 * 0.085 <= start - over <= 4 * 0.1


def test_a_slowdown_is_two_packets_for_two_rtts(plus: Trace) -> None:
    for start, _ in slowdowns(plus):
        low = plus.between(start, start + 1)
        frozen = np.flatnonzero(low.cwnd > 2)[0] * 0.01
        assert 2 * 0.04 <= frozen <= 2 * 0.14
        assert low.wait.min() < 3


def test_slowdowns_take_a_tenth_of_the_time(plus: Trace) -> None:
    """The next one comes nine times its duration after one has ended."""
    found = slowdowns(plus)
    assert len(found) >= 3
    for (start, end), (after, _) in pairwise(found):
        assert after - end == pytest.approx(9 * (end - start), rel=0.05)


def test_ledbatpp_holds_60_ms(plus: Trace) -> None:
    found = slowdowns(plus)
    (_, end), (after, _) = found[-2:]
    steady = plus.between((end + after) / 2, after - 0.02)
    assert steady.wait.mean() == pytest.approx(60, abs=4)
    assert plus.drops[-1] == 0


def test_below_the_target_it_grows_by_gain(play: Play) -> None:
    """48 Mbps: a third of a packet takes long to fill what the first slow start left, some 55 ms of queue."""
    trace = Trace.of(play(network(queue_bdp=8, duration_s=6), "ledbatpp"))
    (_, end), *_ = slowdowns(trace)
    part = trace.between(end + 0.3, end + 3)
    assert part.wait.max() < 60
    assert part.slope == pytest.approx(1 / 3, rel=0.2)


def test_above_the_target_it_falls_in_proportion(play: Play, plus: Trace) -> None:
    """10 to 4 Mbps in between slowdowns: the excess is over a target, so by a half an RTT, in some 600 ms."""
    change = round(slowdowns(plus)[1][1] + 3, 1)
    trace = Trace.of(play(deep(30, (change, 4)), "ledbatpp"))
    after = trace.between(change, change + 3)
    assert after.cwnd[0] > 70
    assert np.flatnonzero(after.cwnd < 0.6 * after.cwnd[0])[0] * 0.01 < 0.8
    assert trace.drops[-1] == 0


def test_the_way_back_counts_for_ledbatpp(play: Play) -> None:
    """30 ms more on it leave 30 of the 60 to the queue."""
    trace = Trace.of(play(back_longer(deep(60), 20, 30), "ledbatpp"))
    assert trace.between(35, 60).wait.mean() < 40


@pytest.mark.parametrize(("scheme", "low", "high"), [("ledbat", 0.8, 1), ("ledbatpp", 0.3, 0.7)])
def test_a_latecomer(play: Play, scheme: str, low: float, high: float) -> None:
    """LEDBAT's takes the queue that it finds for the path and then all; a slowdown shows LEDBAT++'s the path."""
    episode = play(deep(80, cross=(CrossFlow(scheme, Flow(start_s=20)),)), scheme)
    late = Trace.of(episode).between(50, 80)
    first = (late.delivered[-1] - late.delivered[0]) / (30 * 10e6 / 12000)
    assert low <= 1 - first <= high
