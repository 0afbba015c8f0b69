# SPDX-License-Identifier: Apache-2.0
"""BBRv2's states, each seen in an episode made for it.

Expected values follow from the draft and the link (tests/helpers/bbr_trace.py).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.collector.conftest import Play, Run
from tests.helpers.bbr_trace import (
    MARGIN,
    PAYLOAD,
    RATE,
    Trace,
    bound_grows_ever_faster,
    drain_start,
    jain,
    probe_rtts,
    probes,
    steps,
    with_loss,
)
from tests.helpers.networks import network


@pytest.fixture
def deep(play: Play) -> Trace:
    """48 Mbps, 100 ms, a queue nothing overflows: BDP 400 packets. One PROBE_RTT, from 5 s on."""
    return Trace.of(play(network(rtt_ms=100, queue_bdp=2, duration_s=12), "bbr2"))


@pytest.fixture
def shallow(play: Play) -> Trace:
    """48 Mbps, 40 ms, half a BDP of queue: 160 packets on the way and 80 in the queue."""
    return Trace.of(play(network(queue_bdp=0.5, duration_s=10), "bbr2"))


# STARTUP


def test_startup_paces_and_windows_by_its_gains(deep: Trace) -> None:
    before = deep.between(0, drain_start(deep) - 0.01)
    bandwidth = np.maximum.accumulate(before.bandwidth)
    grown = bandwidth > 10
    assert before.pacing[grown] / bandwidth[grown] == pytest.approx(2.77 * MARGIN, rel=0.002)
    assert before.pacing.max() == pytest.approx(2.77 * MARGIN * RATE, rel=0.01)
    assert 2 * 400 <= before.cwnd.max() < 1.05 * 2 * 400  # and what came aggregated


def test_startup_doubles_the_bandwidth_each_round(deep: Trace) -> None:
    """Less a little: from an initial window of 10 to 400 packets are more than five doublings of 100 ms."""
    reached = deep.t_s[np.flatnonzero(deep.bandwidth > 0.9 * RATE)[0]] - deep.t_s[0]
    assert 5 * 0.1 < reached < 10 * 0.1


def test_startup_ends_after_three_rounds_on_a_plateau(deep: Trace) -> None:
    """A round takes 200 ms with the BDP of queue that STARTUP builds."""
    full = deep.t_s[np.flatnonzero(deep.bandwidth > 0.99 * RATE)[0]]
    assert drain_start(deep) - full == pytest.approx(3 * 0.2, abs=0.08)
    assert deep.drops[-1] == 0


def test_startup_ends_on_losses(play: Play, shallow: Trace) -> None:
    """The first round in recovery is enough; on the plateau alone the same path takes longer."""
    lossless = Trace.of(play(network(queue_bdp=4, duration_s=5), "bbr2"))
    assert drain_start(shallow) < drain_start(lossless)
    recovery = shallow.t_s[np.flatnonzero(shallow.ca_state == 3)[0]]
    assert recovery + 0.04 < drain_start(shallow) < recovery + 2 * 0.06
    v1 = Trace.of(play(network(queue_bdp=0.5, duration_s=10), "bbr"))
    assert shallow.between(0, 2).drops[-1] < 0.5 * v1.between(0, 2).drops[-1]


def test_leaving_startup_on_losses_bounds_what_is_in_flight(shallow: Trace) -> None:
    """inflight_hi is what a round delivered, so what path and queue hold: 240 packets."""
    after = shallow.between(1, 10)
    assert after.cwnd.max() == pytest.approx(240, abs=4)
    assert after.inflight.max() <= after.cwnd.max()


def test_three_losses_in_a_round_end_startup(play: Play) -> None:
    """5 % of a growing window: over before a tenth of the bandwidth is found, which takes 1.5 s without losses."""
    trace = Trace.of(play(with_loss(0.05), "bbr2"))
    rounds = trace.between(1, 1.6)
    found = np.maximum.accumulate(trace.bandwidth)[-len(trace.between(1, 4).t_s) :][: len(rounds.t_s)]
    assert np.all(rounds.pacing <= 1.3 * found)
    assert found.max() < 0.15 * RATE
    lossless = Trace.of(play(with_loss(0), "bbr2")).between(1, 1.5)
    assert np.all(lossless.pacing > 2.7 * lossless.bandwidth)


def test_a_loss_or_two_do_not_end_startup(play: Play) -> None:
    """0.1 %: recovery is entered rounds before, and yet the whole bandwidth is found."""
    trace = Trace.of(play(with_loss(0.001), "bbr2"))
    end = drain_start(trace)
    assert trace.t_s[np.flatnonzero(trace.ca_state == 3)[0]] < end - 0.5
    assert trace.drops[trace.t_s <= end][-1] >= 1
    assert trace.between(end - 0.3, end).bandwidth.max() > 0.99 * RATE


# DRAIN


def test_drain_empties_the_queue(deep: Trace) -> None:
    (start, end), *_ = deep.between(drain_start(deep), 12).stretches(RATE, 0.5)
    drain = deep.between(start, end)
    assert drain.queue[0] > 350
    assert np.all(np.diff(drain.queue) < 0)
    assert drain.cwnd.min() > 780  # the window stays, the pacing rate drains
    after = deep.between(end + 0.02, end + 0.1)
    assert after.queue.max() <= 4
    assert after.inflight == pytest.approx(400, abs=4)
    assert end - start == pytest.approx(0.2, abs=0.03)  # a BDP at half the rate


# PROBE_BW


def test_a_cycle_is_cruise_up_down_cruise(deep: Trace) -> None:
    order = [gain for _, _, gain in deep.between(drain_start(deep) + 0.3, 12).gains(RATE)]
    order = [gain for gain, before in zip(order[1:], order, strict=False) if abs(gain - before) > 0.05]
    cycle = [1.25, 0.9, 1.0]
    assert len(order) >= 6
    assert order == pytest.approx((cycle * len(order))[: len(order)], abs=0.021)


def test_up_ends_with_a_quarter_of_a_bdp_in_the_queue(deep: Trace) -> None:
    for start, end in probes(deep):
        up = deep.between(start, end + 0.02)
        assert up.inflight.max() == pytest.approx(1.25 * 400, abs=8)
        assert up.queue.max() == pytest.approx(0.25 * 400, abs=8)
        assert 0.09 <= end - start <= 0.13  # min_rtt at least, and the queue grows at a quarter of the rate


def test_down_lasts_until_the_queue_is_empty(deep: Trace) -> None:
    for _, end in probes(deep):
        (start, stop), *_ = deep.between(end, end + 1).stretches(RATE, 0.9)
        assert stop - start == pytest.approx(0.25, abs=0.06)  # 0.25 BDP at 0.1 of the rate, less a round's delay
        assert deep.between(stop + 0.11, stop + 0.5).queue.max() <= 4


def test_cruise_keeps_the_pipe_full_and_the_queue_empty(deep: Trace) -> None:
    cruise = deep.between(probes(deep)[0][1] + 0.5, 5)
    assert np.ptp(cruise.pacing) < 0.01 * RATE
    assert cruise.inflight == pytest.approx(400, abs=6)
    assert cruise.queue.max() <= 4


def test_it_waits_two_to_three_seconds_to_probe(run: Run) -> None:
    """From DOWN's begin (here DRAIN's end) to REFILL's, a round of 100 ms before UP."""
    waits = []
    for seed in range(6):
        trace = Trace.of(run("bbr2", seed=seed, rtt_ms=100, queue_bdp=2, duration_s=5.2))
        (_, drained), *_ = trace.between(drain_start(trace), 5).stretches(RATE, 0.5)
        waits.append(probes(trace)[0][0] - 0.1 - drained)
    assert min(waits) > 1.95
    assert max(waits) < 3.05
    assert max(waits) - min(waits) > 0.1


def test_it_probes_as_often_as_reno_would_on_a_small_bdp(play: Play) -> None:
    """12 Mbps, 20 ms: 20 packets, so 19 or 20 rounds of some 22 ms, one of REFILL, one or two of UP; not 2 s."""
    trace = Trace.of(play(network(12, 20, 2, duration_s=5), "bbr2"))
    ups = [start for start, _ in trace.between(1, 5).stretches(12 * PAYLOAD, 1.25)]
    assert len(ups) >= 6
    assert np.diff(ups).min() > 21 * 0.020
    assert np.diff(ups).max() < 23 * 0.024


def test_refill_leaves_the_headroom_for_one_round(shallow: Trace) -> None:
    """CRUISE keeps 15 % below inflight_hi; a round before UP the window goes back to it."""
    high = shallow.between(1, 10).cwnd.max()
    for start, _ in probes(shallow):
        assert shallow.between(start - 0.3, start - 0.07).cwnd == pytest.approx(0.85 * high, abs=2)
        refill = shallow.between(start - 0.03, start - 0.01)
        assert refill.cwnd == pytest.approx(high, abs=20)  # it grows by what is ACKed
        assert refill.pacing == pytest.approx(MARGIN * RATE, rel=0.02)


def test_inflight_hi_keeps_losses_low_in_shallow_queues(play: Play) -> None:
    for queue_bdp in (0.1, 0.25, 0.5):
        environment = network(queue_bdp=queue_bdp, duration_s=10)
        v1, v2 = (play(environment, scheme).flows[0] for scheme in ("bbr", "bbr2"))
        assert v2.loss_rate < 0.01
        assert v2.loss_rate < 0.33 * v1.loss_rate
        assert v2.goodput_mbps > 0.85 * 48


def test_losses_in_up_end_it_and_bound_what_is_in_flight(play: Play) -> None:
    """240 packets (path and queue) become 160: REFILL overflows them, UP learns of it, inflight_hi falls."""
    trace = Trace.of(play(steps(((0, 48), (1.5, 24)), 0.5, 12), "bbr2"))
    (start, end), *_ = trace.between(2.5, 12).stretches(RATE, 1.25)
    probe = trace.between(start - 0.08, end + 0.1)
    assert probe.drops[-1] - probe.drops[0] > 0.02 * 160
    assert end - start < 0.08  # the losses' round: a queue of 40 ms on a path of 40 ms
    assert trace.between(3, start).cwnd.max() == pytest.approx(240, abs=4)
    later = trace.between(end + 0.2, 12)
    assert 0.7 * 160 <= later.cwnd.max() <= 180
    assert later.drops[-1] - later.drops[0] < 0.02 * (later.t_s[-1] - later.t_s[0]) * 2000


def test_the_short_term_model_follows_losses_by_beta_until_refill(play: Play) -> None:
    """48 to 24 Mbps in CRUISE: by 0.7 a round at most down to what is delivered; REFILL forgets it."""
    trace = Trace.of(play(steps(((0, 48), (1.5, 24)), 0.4, 4), "bbr2"))
    falling = trace.between(1.5, 2.3).pacing
    levels = falling[np.flatnonzero(np.diff(falling, prepend=0))]
    assert np.all(levels[1:] / levels[:-1] > 0.69)
    assert levels[-1] == pytest.approx(MARGIN * RATE / 2, rel=0.03)
    assert trace.between(2.3, 3.25).pacing == pytest.approx(MARGIN * RATE / 2, rel=0.03)
    (start, _), *_ = trace.between(2.5, 4).stretches(RATE, 1.25)
    assert trace.between(start - 0.04, start - 0.01).pacing == pytest.approx(MARGIN * RATE, rel=0.02)


def test_inflight_hi_grows_ever_faster_in_up(play: Play) -> None:
    """24 to 96 Mbps with inflight_hi set at 120: growth by 1, 2, 4, ... packets a round of 40 ms finds the rest."""
    bound_grows_ever_faster(Trace.of(play(steps(((0, 24), (1.5, 96)), 0.5, 5), "bbr2")))


# PROBE_RTT


def test_probe_rtt_every_five_seconds_at_half_the_bdp(play: Play) -> None:
    trace = Trace.of(play(network(queue_bdp=4, duration_s=17), "bbr2"))
    for end in probe_rtts(trace, 17, 3):
        assert trace.between(end, end + 0.1).cwnd.min() == pytest.approx(320, abs=12)  # as before


def test_probe_rtt_lasts_a_round_where_that_is_longer(play: Play) -> None:
    trace = Trace.of(play(network(24, 400, 2, duration_s=9), "bbr2"))
    probe = trace.t_s[(trace.t_s > 5) & (trace.cwnd < 0.6 * 800)]
    assert 0.4 + 0.2 <= probe[-1] - probe[0] <= 0.4 + 0.4 + 0.25  # half a BDP and more drains, then a round


# aggregation


@pytest.mark.parametrize("grain_ms", [10, 20, 40])
def test_aggregated_acks_widen_the_window(play: Play, grain_ms: float) -> None:
    """ACKs that come together every 10 to 40 ms bring 40 to 160 packets: that much more may be in flight, early too."""
    smooth = network(queue_bdp=8, duration_s=10)
    grainy = replace(smooth, return_links=(replace(smooth.return_links[0], grain_ms=grain_ms),))
    without, with_them = (play(environment, "bbr2") for environment in (smooth, grainy))
    windows = [float(np.median(Trace.of(episode).between(2, 10).cwnd)) for episode in (without, with_them)]
    assert windows[1] - windows[0] >= 4 * grain_ms
    assert with_them.flows[0].goodput_mbps > 0.96 * without.flows[0].goodput_mbps


# a timeout, and its undoing


def test_a_spurious_timeout_is_undone(play: Play) -> None:
    """Two seconds at 50 kbps: a timeout, but the queue's packets do arrive. Then 48 Mbps again."""
    episode = play(steps(((0, 48), (1.5, 0.05), (3.5, 48)), 1, 6), "bbr2")
    trace, timeouts = Trace.of(episode), episode.rows["rto_total"].to_numpy()
    assert timeouts[-1] == 1
    lost = trace.between(1.6, 2.3).cwnd
    assert lost.min() <= 2
    assert lost[-1] > 300
    assert trace.between(4.2, 5).bandwidth == pytest.approx(MARGIN * RATE, rel=0.03)


# as a whole


@pytest.mark.parametrize("bandwidth_mbps", [12, 48, 192])
def test_it_fills_the_link(play: Play, bandwidth_mbps: float) -> None:
    own = play(network(bandwidth_mbps, duration_s=10), "bbr2").flows[0]
    assert own.goodput_mbps > 0.9 * bandwidth_mbps


def test_it_keeps_a_deep_queue_nearly_empty(play: Play) -> None:
    own = play(network(queue_bdp=4, duration_s=17), "bbr2").flows[0]
    assert own.delay_mean_ms - 20.25 < 2
    assert own.lost_packets == 0


def test_flows_that_start_together_share(play: Play) -> None:
    for queue_bdp in (0.5, 1):
        episode = play(network(queue_bdp=queue_bdp, duration_s=30, cross=("bbr2",)), "bbr2")
        assert jain(episode) > 0.97
        assert sum(flow.goodput_mbps for flow in episode.flows) > 0.9 * 48
        assert max(flow.loss_rate for flow in episode.flows) < 0.01


def test_a_late_flow_is_not_starved(play: Play) -> None:
    """It comes closer slowly: the draft ends UP at 1.25 BDP, which a standing queue already holds."""
    episode = play(network(queue_bdp=1, duration_s=30, cross=("bbr2",), start_s=3.0), "bbr2")
    assert episode.flows[0].goodput_mbps > 0.4 * 24


@pytest.mark.parametrize("queue_bdp", [0.5, 1])
def test_it_leaves_cubic_more_than_bbr_v1_does(play: Play, queue_bdp: float) -> None:
    v1, v2 = (play(network(queue_bdp=queue_bdp, duration_s=30, cross=("cubic",)), scheme) for scheme in ("bbr", "bbr2"))
    assert v2.flows[1].goodput_mbps > 1.5 * v1.flows[1].goodput_mbps
    assert jain(v2) > jain(v1)
    assert v2.flows[0].loss_rate < 0.33 * v1.flows[0].loss_rate


def test_same_seed_same_bytes_another_seed_others(run: Run) -> None:
    first, again, other = (run("bbr2", seed=seed, queue_bdp=0.5, duration_s=6) for seed in (3, 3, 4))
    assert first.sha256 == again.sha256
    assert first.sha256 != other.sha256
