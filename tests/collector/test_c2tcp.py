# SPDX-License-Identifier: Apache-2.0
"""C2TCP's conditions, each seen in an episode made for it.

Expected values follow from the paper (JSAC 2019) and the link: 48 Mbps send 160 packets of 1500 bytes in 40 ms, the
lowest RTT; setpoint and interval begin at 1.5 of it, 60 ms, and the target is twice it, 80 ms.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from sagecc.collector.lab.episode import Episode
from sagecc.schemas.environment import DelayStep, Link, RateStep, dumbbell
from tests.collector.conftest import Play
from tests.helpers.networks import network
from tests.helpers.traces import Floats, Ticks, columns


@dataclass(frozen=True)
class Trace(Ticks):
    """One flow, a value a tick: times in ms but for `t_s`, volumes in packets."""

    cwnd: Floats
    ssthresh: Floats
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
            srtt=c["srtt_us"] / 1000,
            ca_state=c["ca_state"],
            drops=c["link_drops"],
            delivered=c["delivered_pkts"],
        )

    def cuts(self) -> npt.NDArray[np.intp]:
        """Return the ticks before a window that fell below half of ssthresh without a loss: a bad condition."""
        low = (self.cwnd < 0.5 * self.ssthresh) & (self.ca_state == 0)
        return np.flatnonzero(low[1:] & ~low[:-1])


@pytest.fixture
def deep(play: Play) -> Trace:
    return Trace.of(play(network(queue_bdp=4, duration_s=20), "c2tcp"))


def test_a_bad_condition_sets_the_window_to_one_without_a_loss(deep: Trace) -> None:
    """Slow start ends the rest: ssthresh is Cubic's, 0.7 of the window that the condition met."""
    cuts = deep.between(0.5, 20).cuts()
    assert len(cuts) >= 3
    late = deep.between(0.5, 20)
    for cut in cuts:
        assert late.ssthresh[cut + 1] == pytest.approx(0.7 * late.cwnd[cut], rel=0.03)
    assert deep.drops[-1] == 0
    assert late.cwnd[cuts + 1].min() < 0.25 * late.cwnd.max()


def test_the_condition_is_bad_once_the_rtt_was_above_for_an_interval(deep: Trace) -> None:
    """The setpoint is at most the target here: 80 ms above it, then the window falls; growth takes longer than that."""
    late = deep.between(4, 20)
    for cut in late.cuts():
        before = late.between(late.t_s[cut] - 0.06, late.t_s[cut])
        assert before.srtt.min() > 60


def test_alpha_keeps_the_mean_rtt_within_the_target(deep: Trace) -> None:
    """85 to 100 % of twice the lowest RTT, at the whole rate."""
    late = deep.between(5, 20)
    assert 0.85 * 80 <= late.srtt.mean() <= 80
    assert late.delivered[-1] - late.delivered[0] > 0.98 * 15 * 4000


def test_the_depth_of_the_queue_does_not_matter(play: Play, deep: Trace) -> None:
    deeper = Trace.of(play(network(queue_bdp=16, duration_s=20), "c2tcp"))
    assert np.array_equal(deeper.cwnd, deep.cwnd)


def test_a_good_condition_adds_setpoint_over_rtt_each_rtt(play: Play) -> None:
    """A quarter of a BDP keeps the RTT far below the target; alpha is 10 after 9 s: 400 / 47 packets an RTT."""
    trace = Trace.of(play(network(queue_bdp=0.25, duration_s=16), "c2tcp"))
    early, late = (per_rtt(trace.between(*times)) for times in ((1.5, 3), (12, 16)))
    assert early < late
    assert 400 / 47 < late < 400 / 40 + 3


def per_rtt(trace: Trace) -> float:
    """Return how much a window grows an RTT where it grows (packets)."""
    grown = np.diff(trace.cwnd)
    grows = (grown > 0) & (trace.ca_state[1:] == 0) & (trace.ca_state[:-1] == 0) & (trace.cwnd[:-1] > 140)
    ticks = (trace.ca_state[1:] == 0) & (trace.ca_state[:-1] == 0) & (grown >= 0) & (trace.cwnd[:-1] > 140)
    return float(grown[grows].sum() / (ticks.sum() * 0.01 / (trace.srtt.mean() / 1000)))


def test_short_queues_leave_it_to_cubic(play: Play) -> None:
    """Half a BDP: 60 ms at most, never above the setpoint; losses cut to 0.7 as ever."""
    trace = Trace.of(play(network(queue_bdp=0.25, duration_s=12), "c2tcp"))
    assert len(trace.between(1, 12).cuts()) == 0
    assert trace.drops[-1] > 0
    assert trace.between(3, 12).cwnd.min() > 0.7 * 200 - 10


def test_backoffs_repeat_while_the_rtt_stays_above(play: Play) -> None:
    """From 4 s on the way takes 200 ms more, with no queue: bad for good, at a window of a few packets."""
    link = Link((RateStep(0, 48),), 20, 960_000, delays=(DelayStep(4, 220),))
    trace = Trace.of(play(dumbbell("custom", link, 20, 10, ((0, 10),)), "c2tcp"))
    stuck = trace.between(7, 10)
    assert stuck.cwnd.max() <= 10
    assert np.median(stuck.cwnd) <= 3
    assert stuck.ssthresh[-1] <= 4
    assert set(stuck.ca_state) == {0.0}


def test_the_window_comes_back_once_the_rtt_is_within(play: Play) -> None:
    """The same way, 200 ms shorter again from 8 s on."""
    link = Link((RateStep(0, 48),), 20, 960_000, delays=(DelayStep(4, 220), DelayStep(8, 20)))
    trace = Trace.of(play(dumbbell("custom", link, 20, 18, ((0, 18),)), "c2tcp"))
    assert trace.between(7, 8).cwnd.max() <= 10
    late = trace.between(16, 18)
    assert late.delivered[-1] - late.delivered[0] > 0.9 * 2 * 4000


def test_a_falling_rate_is_met_within_intervals(play: Play) -> None:
    """48 to 6 Mbps: Cubic's window fills the queue, C2TCP's is cut and starts anew below a twentieth of it."""
    link = Link((RateStep(0, 48), RateStep(5, 6)), 20, 960_000)
    environment = dumbbell("custom", link, 20, 12, ((5, 12),))
    cubic, ours = (play(environment, scheme).flows[0] for scheme in ("cubic", "c2tcp"))
    assert ours.delay_p95_ms < 0.4 * cubic.delay_p95_ms
