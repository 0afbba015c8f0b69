# SPDX-License-Identifier: Apache-2.0
"""BBRv3's states, each seen in an episode made for it.

Expected values follow from draft-ietf-ccwg-bbr-06 (its sections and the cases of its appendix A are named) and the
link (tests/helpers/bbr_trace.py).
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
    return Trace.of(play(network(rtt_ms=100, queue_bdp=2, duration_s=12), "bbr3"))


@pytest.fixture
def shallow(play: Play) -> Trace:
    """48 Mbps, 40 ms, half a BDP of queue: 160 packets on the way and 80 in the queue."""
    return Trace.of(play(network(queue_bdp=0.5, duration_s=10), "bbr3"))


# STARTUP (5.3.1)


def test_startup_paces_and_windows_by_its_gains(deep: Trace) -> None:
    before = deep.between(0, drain_start(deep) - 0.01)
    bandwidth = np.maximum.accumulate(before.bandwidth)
    grown = bandwidth > 10
    assert before.pacing[grown] / bandwidth[grown] == pytest.approx(2.77 * MARGIN, rel=0.002)
    assert before.pacing.max() == pytest.approx(2.77 * MARGIN * RATE, rel=0.01)
    assert before.cwnd.max() == pytest.approx(2 * 400, rel=0.05)  # and what is acknowledged together


def test_startup_ends_after_three_rounds_on_a_plateau(deep: Trace) -> None:
    """A round takes 200 ms with the BDP of queue that STARTUP builds (A.1)."""
    full = deep.t_s[np.flatnonzero(deep.bandwidth > 0.99 * RATE)[0]]
    assert drain_start(deep) - full == pytest.approx(3 * 0.2, abs=0.08)
    assert deep.drops[-1] == 0


def test_startup_ends_on_losses_and_bounds_what_is_in_flight(play: Play, shallow: Trace) -> None:
    """A round of losses is enough; inflight_longterm is what a round delivered: path and queue, 240 packets."""
    lossless = Trace.of(play(network(queue_bdp=4, duration_s=5), "bbr3"))
    assert drain_start(shallow) < drain_start(lossless)
    recovery = shallow.t_s[np.flatnonzero(shallow.ca_state == 3)[0]]
    assert recovery + 0.04 < drain_start(shallow) < recovery + 2 * 0.06
    assert shallow.between(1, 2.5).cwnd == pytest.approx(0.85 * 240, abs=4)


def test_six_losses_in_a_round_end_startup(play: Play) -> None:
    """5 % of a growing window: over before half of the bandwidth is found."""
    trace = Trace.of(play(with_loss(0.05), "bbr3"))
    assert trace.bandwidth.max() < 0.5 * RATE
    found = np.maximum.accumulate(trace.bandwidth)
    later = trace.t_s > 1
    assert np.all(trace.pacing[later] <= 1.3 * found[later])


def test_losses_below_the_threshold_do_not_end_startup(play: Play) -> None:
    """1 %: many a loss in recovery, and yet the whole bandwidth is found."""
    trace = Trace.of(play(with_loss(0.01), "bbr3"))
    end = drain_start(trace)
    assert trace.t_s[np.flatnonzero(trace.ca_state == 3)[0]] < end - 0.3
    assert trace.drops[trace.t_s <= end][-1] >= 6
    assert trace.between(end - 0.3, end).bandwidth.max() > 0.97 * RATE


# DRAIN (5.3.2)


def test_drain_empties_the_queue(deep: Trace) -> None:
    """Case A.3."""
    (start, end), *_ = deep.between(drain_start(deep), 12).stretches(RATE, 0.5)
    drain = deep.between(start, end)
    assert drain.queue[0] > 350
    assert np.all(np.diff(drain.queue) < 0)
    assert drain.cwnd.min() > 780  # the window stays, the pacing rate drains
    assert deep.between(end + 0.02, end + 0.1).inflight == pytest.approx(400, abs=6)
    assert end - start == pytest.approx(0.2, abs=0.03)  # a BDP at half the rate


def test_drain_gives_up_after_three_rounds(play: Play) -> None:
    """48 to 20 Mbps as DRAIN begins, which sends 24: more is in flight than a BDP of what was seen (A.4)."""
    trace = Trace.of(play(steps(((0, 48), (0.59, 20)), 8, 2), "bbr3"))
    (start, end), *_ = trace.stretches(RATE, 0.5)
    drain = trace.between(start, end)
    assert drain.inflight.min() > 200
    round_s = drain.queue / (20 / 0.012) + 0.04
    assert 3 * round_s.min() < end - start < 4 * round_s.max()
    assert trace.between(end + 0.01, end + 0.1).pacing == pytest.approx(0.9 * MARGIN * RATE, rel=0.02)


# PROBE_BW (5.3.3)


def test_a_cycle_is_cruise_up_down_cruise(deep: Trace) -> None:
    order = [gain for _, _, gain in deep.between(drain_start(deep) + 0.3, 12).gains(RATE)]
    order = [gain for gain, before in zip(order[1:], order, strict=False) if abs(gain - before) > 0.05]
    cycle = [1.25, 0.9, 1.0]
    assert len(order) >= 6
    assert order == pytest.approx((cycle * len(order))[: len(order)], abs=0.021)


def test_up_ends_after_three_rounds_without_more_bandwidth(deep: Trace) -> None:
    """Each round is longer than the one before by a quarter of the queue it adds (A.5)."""
    for start, end in probes(deep):
        assert 3 * 0.1 < end - start < 3 * 0.1 * 1.25**2
        up = deep.between(start, end + 0.02)
        assert up.queue.max() == pytest.approx(0.25 * (end - start) * 4000, rel=0.1)
        assert up.cwnd.max() == pytest.approx(2.25 * 400, rel=0.02)


def test_down_lasts_until_a_bdp_is_in_flight(play: Play) -> None:
    """What UP adds to the queue in three rounds goes at a tenth of the rate (A.8)."""
    trace = Trace.of(play(network(rtt_ms=20, queue_bdp=4, duration_s=5), "bbr3"))
    (start, end), *_ = probes(trace)
    (down, cruise), *_ = trace.between(end, 5).stretches(RATE, 0.9)
    added = trace.between(start, end + 0.01).queue.max()
    assert cruise - down == pytest.approx(added / 400, rel=0.25)
    assert trace.between(cruise, cruise + 0.02).inflight.min() == pytest.approx(80, abs=12)


def test_cruise_keeps_the_pipe_full_and_the_queue_empty(deep: Trace) -> None:
    cruise = deep.between(probes(deep)[0][0] - 2, probes(deep)[0][0] - 0.12)
    assert np.ptp(cruise.pacing) < 0.01 * RATE
    assert cruise.inflight == pytest.approx(400, abs=6)
    assert cruise.queue.max() <= 4


def test_it_waits_two_to_three_seconds_to_probe(run: Run) -> None:
    """From DOWN's begin (here DRAIN's end) to REFILL's, a round of 100 ms before UP."""
    waits = []
    for seed in range(4):
        trace = Trace.of(run("bbr3", seed=seed, rtt_ms=100, queue_bdp=2, duration_s=5))
        (_, drained), *_ = trace.between(drain_start(trace), 5).stretches(RATE, 0.5)
        waits.append(probes(trace)[0][0] - 0.1 - drained)
    assert min(waits) > 1.95
    assert max(waits) < 3.05
    assert max(waits) - min(waits) > 0.1


def test_it_probes_as_often_as_reno_would_on_a_small_bdp(play: Play) -> None:
    """12 Mbps, 20 ms: 20 packets, so 19 or 20 rounds of some 22 ms, one of REFILL, three of UP; not 2 s."""
    trace = Trace.of(play(network(12, 20, 2, duration_s=5), "bbr3"))
    ups = [start for start, _ in trace.between(1, 5).stretches(12 * PAYLOAD, 1.25)]
    assert len(ups) >= 5
    assert np.diff(ups).min() > 21 * 0.020
    assert np.diff(ups).max() < 25 * 0.028


def test_refill_leaves_the_headroom_for_one_round(shallow: Trace) -> None:
    """CRUISE keeps 15 % below inflight_longterm; a round before UP the window goes back to it."""
    high = shallow.between(1, 2).cwnd.max() / 0.85
    start, _ = probes(shallow)[0]
    assert high == pytest.approx(240, abs=8)
    assert shallow.between(start - 0.3, start - 0.07).cwnd == pytest.approx(0.85 * high, abs=2)
    refill = shallow.between(start - 0.03, start - 0.01)
    assert refill.cwnd == pytest.approx(high, abs=20)  # it grows by what is ACKed
    assert refill.pacing == pytest.approx(MARGIN * RATE, rel=0.02)


def test_losses_in_up_end_it_and_bound_what_is_in_flight(shallow: Trace) -> None:
    """The first probe grows beyond the queue; what was in flight as 2 % were lost becomes the bound (A.21)."""
    start, end = probes(shallow)[0]
    probe = shallow.between(start, end + 0.08)
    assert probe.drops[-1] - probe.drops[0] > 0.02 * 240
    assert probe.cwnd.max() > 245
    lost = probe.t_s[np.flatnonzero(probe.drops - probe.drops[0] > 0.02 * 240)[0]]
    assert end - lost < 1.5 * 0.06  # it shows after a round
    assert shallow.between(end + 0.2, end + 1).cwnd.max() == pytest.approx(0.85 * 240, abs=8)


def test_after_a_lossy_probe_it_probes_with_caution(shallow: Trace) -> None:
    """UP until inflight_longterm is reached, a round of DOWN, REFILL, and only then UP beyond it (5.3.3.6)."""
    _, careful, bold = probes(shallow)[:3]
    up = shallow.between(*careful)
    assert careful[1] - careful[0] < 0.1
    assert up.inflight.max() <= up.cwnd.max() == pytest.approx(240, abs=8)
    drops = shallow.between(careful[0], bold[0]).drops
    assert drops[-1] - drops[0] < 0.02 * 240
    assert 2 * 0.04 < bold[0] - careful[1] < 4 * 0.06
    assert shallow.between(*bold).cwnd.max() > up.cwnd.max()


def test_inflight_longterm_keeps_losses_low_in_shallow_queues(play: Play) -> None:
    for queue_bdp in (0.1, 0.5):
        environment = network(queue_bdp=queue_bdp, duration_s=10)
        v1, v3 = (play(environment, scheme).flows[0] for scheme in ("bbr", "bbr3"))
        assert v3.loss_rate < 0.01
        assert v3.loss_rate < v1.loss_rate
        assert v3.goodput_mbps > 0.85 * 48


def test_the_short_term_model_follows_losses_by_beta_until_refill(play: Play) -> None:
    """48 to 24 Mbps in CRUISE: by 0.7 a round at most down to what is delivered; REFILL forgets it (A.16)."""
    trace = Trace.of(play(steps(((0, 48), (1.5, 24)), 0.5, 6), "bbr3"))
    falling = trace.between(1.5, 2.3).pacing
    levels = falling[np.flatnonzero(np.diff(falling, prepend=0))]
    assert np.all(levels[1:] / levels[:-1] > 0.69)
    assert levels[-1] == pytest.approx(MARGIN * RATE / 2, rel=0.03)
    assert trace.between(2.3, 3).pacing == pytest.approx(MARGIN * RATE / 2, rel=0.03)
    forgotten = trace.t_s[np.flatnonzero((trace.t_s > 3) & (trace.pacing > 0.95 * RATE))[0]]
    assert forgotten < 1.5 + 3.05


def test_inflight_longterm_grows_ever_faster_in_up(play: Play) -> None:
    """24 to 96 Mbps with inflight_longterm at 120: growth by 1, 2, 4, ... packets a round of 40 ms (A.15)."""
    bound_grows_ever_faster(Trace.of(play(steps(((0, 24), (1.5, 96)), 0.5, 5), "bbr3")))


# PROBE_RTT (5.3.4)


def test_probe_rtt_every_five_seconds_at_half_the_bdp(play: Play) -> None:
    """Case A.10."""
    probe_rtts(Trace.of(play(network(queue_bdp=4, duration_s=12), "bbr3")), 12, 2)


def test_probe_rtt_of_a_long_path_lasts_a_round_and_leads_back_to_startup(play: Play) -> None:
    """24 Mbps, 400 ms: STARTUP is not over after 5 s, so nothing lowers its pacing rate (A.20)."""
    trace = Trace.of(play(network(24, 400, 2, duration_s=8), "bbr3"))
    probe = trace.between(5, 8)
    at_target = probe.t_s[(probe.cwnd <= 404) & (probe.inflight <= 404)]
    assert at_target[-1] - at_target[0] == pytest.approx(0.4, abs=0.05)
    after = trace.between(at_target[-1] + 0.05, 8)
    assert after.cwnd.max() == trace.between(4, 5).cwnd.max()
    assert after.pacing / (24 * PAYLOAD) == pytest.approx(2.77 * MARGIN, rel=0.01)


# aggregation (5.5.9)


@pytest.mark.parametrize("grain_ms", [20, 40])
def test_aggregated_acks_widen_the_window_in_startup_too(play: Play, grain_ms: float) -> None:
    """ACKs that come together every 20 or 40 ms bring 80 or 160 packets at once: that much more is in flight (A.12)."""
    smooth = network(queue_bdp=8, duration_s=6)
    grainy = replace(smooth, return_links=(replace(smooth.return_links[0], grain_ms=grain_ms),))
    without, with_them = (play(environment, "bbr3") for environment in (smooth, grainy))
    windows = [float(np.median(Trace.of(episode).between(2, 5).cwnd)) for episode in (without, with_them)]
    assert windows[1] - windows[0] >= 4 * grain_ms
    assert with_them.flows[0].goodput_mbps > 0.9 * without.flows[0].goodput_mbps


# a timeout, and its undoing (5.5.11)


def test_a_spurious_timeout_is_undone(play: Play) -> None:
    """Two seconds at 50 kbps: a timeout, but the queue's packets do arrive. Then 48 Mbps again (A.19)."""
    episode = play(steps(((0, 48), (1.5, 0.05), (3.5, 48)), 4, 5), "bbr3")
    trace, timeouts = Trace.of(episode), episode.rows["rto_total"].to_numpy()
    assert timeouts[-1] == 1
    lost = trace.between(1.6, 2).cwnd
    assert lost.min() <= 2
    assert lost[-1] > 300
    assert trace.drops[-1] == 0
    assert trace.between(4, 4.15).bandwidth == pytest.approx(RATE, rel=0.03)


# as a whole


def test_it_fills_the_link(play: Play) -> None:
    for bandwidth_mbps in (12, 96):
        own = play(network(bandwidth_mbps, duration_s=10), "bbr3").flows[0]
        assert own.goodput_mbps > 0.9 * bandwidth_mbps


def test_flows_that_start_together_share(play: Play) -> None:
    episode = play(network(queue_bdp=1, duration_s=30, cross=("bbr3",)), "bbr3")
    assert jain(episode) > 0.97
    assert sum(flow.goodput_mbps for flow in episode.flows) > 0.9 * 48
    assert max(flow.loss_rate for flow in episode.flows) < 0.01


def test_it_leaves_cubic_its_share(play: Play) -> None:
    v1, v3 = (play(network(queue_bdp=1, duration_s=30, cross=("cubic",)), scheme) for scheme in ("bbr", "bbr3"))
    assert jain(v3) > 0.9 > jain(v1)
    assert v3.flows[0].loss_rate < v1.flows[0].loss_rate


def test_same_seed_same_bytes_another_seed_others(run: Run) -> None:
    first, again, other = (run("bbr3", seed=seed, queue_bdp=0.5, duration_s=4) for seed in (3, 3, 4))
    assert first.sha256 == again.sha256
    assert first.sha256 != other.sha256
