# SPDX-License-Identifier: Apache-2.0
"""Copa's rules, each seen in an episode made for it.

Expected values follow from the paper (NSDI 2018) and the link: 48 Mbps send 4000 packets of 1500 bytes a
second, so 160 in 40 ms, and four of them wait 1 ms. With delta = 0.5 a flow's step is 2 packets an RTT and its
queue swings from 0 to 2.5 / delta = 5 packets over 5 RTTs: it rises for an RTT and a half beyond 1 / delta (an RTT
until its doing is seen, half an sRTT of minimum), and falls for one below.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from sagecc.collector.lab.episode import Episode
from sagecc.common.fairness import jain_index
from sagecc.schemas.environment import CrossFlow, Environment, Flow, Link, RateStep, dumbbell
from tests.collector.conftest import Play
from tests.helpers.networks import network
from tests.helpers.traces import Floats, Ticks, columns

PAYLOAD = 1448 / 1500


@dataclass(frozen=True)
class Trace(Ticks):
    """One flow, a value a tick: the pacing rate in packets a second, volumes in packets."""

    pacing: Floats
    cwnd: Floats
    queue: Floats
    drops: Floats
    delivered: Floats

    @classmethod
    def of(cls, episode: Episode) -> Trace:
        c = columns(episode)
        return cls(
            t_s=c["t_s"],
            pacing=c["pacing_rate_bytes_s"] / 1448,
            cwnd=c["cwnd_pkts"],
            queue=np.maximum(c["link_queue_bytes"] / 1500 - 1, 0),  # without the packet that is being sent
            drops=c["link_drops"],
            delivered=c["delivered_pkts"],
        )

    def at(self, t_s: float) -> float:
        """Return the window at a time (packets)."""
        return float(self.cwnd[np.searchsorted(self.t_s, t_s)])


def link(*rates: tuple[float, float], queue_bdp: float = 4) -> Link:
    queue = round(queue_bdp * rates[0][1] * 40 * 125)
    return Link(tuple(RateStep(*rate) for rate in rates), 20, queue)


def path(bottleneck: Link, duration_s: float, *cross: CrossFlow) -> Environment:
    return dumbbell("custom", bottleneck, 20, duration_s, ((0, duration_s),), cross=cross)


@pytest.fixture
def alone(play: Play) -> Trace:
    return Trace.of(play(network(queue_bdp=4, duration_s=8), "copa"))


def test_slow_start_doubles_until_the_queue_shows(alone: Trace) -> None:
    """10 packets, doubled each RTT; beyond the BDP for the 1.5 RTTs that a queue needs to be seen, at most."""
    for start in (0.06, 0.1, 0.14):
        assert alone.at(start + 0.04) / alone.at(start) == pytest.approx(2, rel=0.1)
    assert 160 < alone.cwnd.max() < 160 * 2**1.5
    assert alone.drops[-1] == 0


def test_a_flow_keeps_five_packets_at_most_and_half_of_that_on_average(alone: Trace) -> None:
    steady = alone.between(4, 8)
    assert steady.queue.max() == pytest.approx(5, abs=1)
    assert steady.queue.min() <= 1
    assert steady.queue.mean() == pytest.approx(2.5, abs=0.5)
    assert np.ptp(steady.cwnd) == pytest.approx(5, abs=1)


def test_the_queue_swings_once_in_five_rtts(alone: Trace) -> None:
    """Ticks sample it four times an RTT; minimum and ACKs of two packets each are worth a quarter."""
    queue = alone.between(4, 8).queue
    power = np.abs(np.fft.rfft(queue - queue.mean()))
    assert 4 / power.argmax() == pytest.approx(4.5 * 0.0405, rel=0.25)


def test_it_paces_at_two_windows_an_rtt(alone: Trace) -> None:
    steady = alone.between(4, 8)
    rtt_s = 2 * steady.cwnd / steady.pacing
    assert rtt_s.min() == pytest.approx(0.04025, abs=0.0003)
    assert rtt_s.max() == pytest.approx(0.04025 + 4 / 4000, abs=0.0006)


@pytest.fixture
def freed(play: Play) -> Trace:
    """24 Mbps, from 4 s on 192 Mbps: 560 packets to find."""
    return Trace.of(play(path(link((0, 24), (4, 192), queue_bdp=16), 5.2), "copa"))


def test_the_velocity_doubles_after_three_rtts(freed: Trace) -> None:
    """Steps of 2 v packets an RTT: at v = 1 for three RTTs, then of twice the last one."""
    start = 4.08 + 0.04 * np.arange(12)
    windows = np.array([freed.at(t) for t in start])
    steps = np.diff(windows)
    assert np.all(steps[:2] <= 3)
    doubling = steps[(windows[:-1] < 560) & (steps > 7)]
    assert len(doubling) >= 4
    assert doubling[1:] / doubling[:-1] == pytest.approx(2, rel=0.3)
    assert windows.max() > 640


def test_the_velocity_falls_to_one_where_the_direction_turns(freed: Trace) -> None:
    top = int(freed.between(4, 5.2).cwnd.argmax())
    after = freed.between(4, 5.2).cwnd[top : top + 5]
    assert after[0] - after[-1] <= 6


def test_copa_flows_share_and_stay_in_default_mode(play: Play) -> None:
    """Five flows: five times the queue, from empty on, and no loss."""
    episode = play(network(queue_bdp=4, duration_s=14, cross=("copa",) * 4), "copa")
    steady = Trace.of(episode).between(6, 14)
    assert steady.queue.mean() == pytest.approx(5 * 2.5, abs=2)
    assert steady.queue.max() <= 5 * 5 + 3
    assert steady.drops[-1] == 0
    index = jain_index([flow.goodput_mbps for flow in episode.flows])
    assert index is not None
    assert index > 0.97


@pytest.fixture
def visited(play: Play) -> Trace:
    """Beside a Cubic flow from 4 to 16 s; a BDP of queue."""
    return Trace.of(play(path(link((0, 48), queue_bdp=1), 24, CrossFlow("cubic", Flow(4, 16))), "copa"))


def test_competitive_mode_holds_its_own_beside_cubic(visited: Trace) -> None:
    """Without it, two packets in a queue of 100 would be a fiftieth of the rate; with it, about a half."""
    beside = visited.between(8, 16)
    rate = (beside.delivered[-1] - beside.delivered[0]) / 8
    assert 0.3 * 2000 < rate < 1.6 * 2000
    assert beside.queue.min() > 20


def test_one_over_delta_grows_by_one_an_rtt_and_is_halved_on_loss(visited: Trace) -> None:
    """1 / delta is rate x queueing delay: what the flow has queued of its own, cwnd less its rate x RTTmin."""
    beside = visited.between(6, 16)
    own = beside.cwnd - beside.pacing / 2 * 0.0405
    assert own.max() > 20
    assert np.all(own < 160)
    lost = np.flatnonzero(np.diff(beside.drops) > 0)
    assert len(lost) > 0


def test_default_mode_comes_back_when_cubic_leaves(visited: Trace) -> None:
    after = visited.between(18, 24)
    assert after.queue.mean() == pytest.approx(2.5, abs=1)
    assert after.queue.max() <= 8


@pytest.mark.parametrize("loss", [0.01, 0.05])
def test_random_losses_leave_the_window(play: Play, loss: float) -> None:
    lossy = network(12, 40, 4, duration_s=12)
    lossy = replace(lossy, links=(replace(lossy.links[0], loss=loss),))
    goodput = play(lossy, "copa").flows[0].goodput_mbps
    assert goodput > 0.85 * 12 * PAYLOAD * (1 - loss)


def test_a_timeout_begins_slow_start_anew(play: Play) -> None:
    """A second at 10 kbps: nothing is acknowledged, so the window is that of a timeout, and doubles from there."""
    trace = Trace.of(play(path(link((0, 48), (3, 0.01), (4, 48), queue_bdp=1), 7), "copa"))
    assert trace.between(3, 4.6).cwnd.min() <= 3
    assert trace.between(6, 7).queue.mean() < 10
    assert trace.between(6, 7).delivered[-1] - trace.between(6, 7).delivered[0] > 0.9 * 4000
