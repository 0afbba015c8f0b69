# SPDX-License-Identifier: Apache-2.0
"""Every feature of the link on the real kernel, against numbers computed by hand.

The source is a flow of `pure`, whose window never changes: with a large one the link always has something to
send, and with a pacing rate it is a source of that rate whatever the link does. A full packet has 1500 bytes on
the link and 1448 of payload; before the first go a SYN of 60 bytes and, a round trip later, an ACK of 52.
The guest's clock moves a few nanoseconds whenever somebody reads it: moments hold to TOLERANCE_MS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from sagecc.collector.lab.boot import per_flow, run_guest
from sagecc.collector.lab.episode import run_episode
from sagecc.collector.lab.spec import episode_spec, link_seed
from sagecc.schemas import wire
from sagecc.schemas.environment import (
    CrossFlow,
    DelayStep,
    Environment,
    Flow,
    Link,
    LossStep,
    Policer,
    RateStep,
    Trace,
)
from sagecc.schemas.trace_file import read_trace
from tests.conftest import ROOT
from tests.helpers.networks import rate

TRACES = ROOT.parent / "shared" / "traces"
TOLERANCE_MS = 0.01
START_MS = 100
"""Of flows whose every moment counts: in a guest's first millisecond its timers still wait for a tick."""

SYN, ACK, FULL = 60, 52, 1500
BACK = Link(delay_ms=5)
WHOLE = Flow()

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Played:
    """One flow's samples, a value a tick, and the one-way delay of each of its packets (ms), in the order of leaving.

    Counters include the SYN and the handshake's ACK.
    """

    samples: npt.NDArray[np.void]
    delays_ms: Floats

    @property
    def t_ms(self) -> Floats:
        return self["t_ns"] / np.float64(1e6)

    def __getitem__(self, field: str) -> Floats:
        return self.samples[field].astype(np.float64)

    def at(self, field: str, t_ms: float) -> float:
        return float(self[field][self.t_ms <= t_ms][-1])

    def delays_between(self, start_ms: float, end_ms: float) -> Floats:
        """Return the delays of the packets that left after `start_ms`, at `end_ms` at the latest (both ticks)."""
        return self.delays_ms[int(self.at("link_packets", start_ms)) : int(self.at("link_packets", end_ms))]


Play = Callable[..., Played]


def environment(
    link: Link, back: Link = BACK, duration_s: float = 1, flow: Flow = WHOLE, cross: tuple[str, ...] = ()
) -> Environment:
    everyone = tuple(CrossFlow(scheme) for scheme in cross)
    return Environment("custom", (link,), (back,), duration_s, ((0, duration_s),), cross=everyone, flow=flow)


@pytest.fixture
def play(kernel: Path) -> Play:
    """Run a flow of a fixed window (packets), paced or not (packets a second)."""

    def run(link: Link, window: int = 50, packets_s: float = 0, seed: int = 0, **rest: object) -> Played:
        spec = episode_spec(environment(link, **rest), "policy:fixed", seed)  # type: ignore[arg-type]
        pacing_bytes_s = round(packets_s * (FULL - ACK))
        recording = run_guest(kernel, spec, per_flow(lambda _: (window, pacing_bytes_s)))
        own = recording.packets[recording.packets["flow"] == 0]
        to_ms = wire.DELAY_UNIT_NS / 1e6
        return Played(recording.samples[recording.samples["flow"] == 0], own["delay"] * to_ms)

    return run


def left_on_trace(moments_ms: Floats, first: int, t_ms: Floats) -> Floats:
    """Return how many packets a trace has let go by `t_ms` if it is busy from opportunity `first` on.

    The SYN has one to itself. After it every opportunity carries 1500 bytes of what waits: the ACK and
    1448 bytes first, so each full packet ends 52 bytes into the next one's opportunity.
    """
    passed = np.searchsorted(moments_ms, t_ms, side="right") - first
    sent_bytes = np.maximum(passed, 0) * float(FULL)
    left: Floats = 1 + (sent_bytes >= ACK) + np.maximum(sent_bytes - ACK, 0) // FULL
    return left


def repeat(trace: Trace, duration_ms: float) -> Floats:
    periods = np.arange(duration_ms / trace.opportunities_ms[-1] + 1) * trace.opportunities_ms[-1]
    moments: Floats = (periods[:, None] + np.array(trace.opportunities_ms)).ravel()
    return moments


# ---- traces ----


@pytest.mark.parametrize(
    "moments_ms", [(5.0, 5.0, 17.0, 40.0), (1.75, 1.75, 2.125, 33.3, 33.4, 33.40625), (7.0,), (0.0, 10.0)]
)
def test_a_trace_lets_go_exactly_its_opportunities(play: Play, moments_ms: tuple[float, ...]) -> None:
    """Also: a packet over two opportunities, what shares one, and the repetition after the last."""
    trace = Trace("t", moments_ms)
    moments = repeat(trace, 1000)
    got = play(Link(trace=trace))
    heard_ms = moments[moments > 0][0] + BACK.delay_ms  # the handshake's ACK and data are there
    expected = left_on_trace(moments, int(np.searchsorted(moments, heard_ms, side="right")), got.t_ms)
    assert np.array_equal(got["link_packets"], expected)
    assert np.array_equal(got["link_bytes"], SYN + np.where(expected > 1, ACK + FULL * (expected - 2), 0))
    past = np.searchsorted(moments, got.t_ms, side="right")
    assert np.array_equal(got["link_capacity_bytes"], past * float(FULL))


def test_packets_leave_at_the_opportunities(play: Play) -> None:
    """Propagation 3 ms; delays of the first packets by hand, all of the burst that came at 5 + 3 + 5 = 13 ms."""
    got = play(Link(trace=Trace("t", (5, 5, 17, 40)), delay_ms=3), window=10)
    assert got.delays_ms[0] == pytest.approx(5 + 3, abs=TOLERANCE_MS)
    leave_ms = np.array([17, 40, 45, 45, 57, 80])  # the ACK, then a packet an opportunity
    assert got.delays_ms[1:7] == pytest.approx(leave_ms - 13 + 3, abs=TOLERANCE_MS)


def test_unused_opportunities_are_lost(play: Play) -> None:
    """Idle for 3 s: what has passed is no credit."""
    trace = Trace("t", (10.0, 30.0))
    got = play(Link(trace=trace), flow=Flow(start_s=3), duration_s=4)
    moments = repeat(trace, 4000)
    first = int(np.searchsorted(moments, 3010 + BACK.delay_ms, side="right"))
    assert np.array_equal(got["link_packets"], left_on_trace(moments, first, got.t_ms))
    assert got.at("link_capacity_bytes", 4000) == FULL * (moments <= 4000).sum()


def test_small_packets_share_an_opportunity(play: Play) -> None:
    """Twenty packets in flight and an opportunity every 20 ms for their ACKs: all of them fit into one."""
    got = play(rate(100), window=20, back=Link(trace=Trace("acks", (20.0,)), delay_ms=1), duration_s=2)
    settled = got["delivered_pkts"][got.t_ms > 200]
    steps = np.diff(settled)
    assert set(steps) == {0, 20}
    assert np.array_equal(steps[::2], np.full(len(steps[::2]), steps[0]))  # every second tick


@pytest.mark.parametrize("name", ["trace-3114405-bus", "ATT-LTE-driving-2016.down"])
def test_a_cellular_trace(play: Play, name: str) -> None:
    if not (TRACES / name).is_file():
        pytest.skip("the trace is not here")
    trace = read_trace(TRACES / name)
    moments = repeat(trace, 10_000)
    got = play(Link(trace=trace), window=3000, duration_s=10)
    heard_ms = moments[moments > 0][0] + BACK.delay_ms
    expected = left_on_trace(moments, int(np.searchsorted(moments, heard_ms, side="right")), got.t_ms)
    assert got["link_queue_bytes"][20:].min() > FULL  # it always has something to send
    assert np.array_equal(got["link_capacity_bytes"], FULL * np.searchsorted(moments, got.t_ms, side="right"))
    # an opportunity may find the queue empty before the window has opened
    idle = expected[20] - got["link_packets"][20]
    assert 0 <= idle <= 200
    assert np.array_equal(got["link_packets"][20:], expected[20:] - idle)


# ---- rates ----


ACROSS_PACKETS = ((0, 1.2), (0.4333, 12), (0.5001, 0.3), (0.7, 7.7), (0.9888, 1.2))
OUTAGES = ((0, 1.2), (0.4333, 0), (3.4, 12), (3.5001, 0), (3.6, 0.3), (3.9, 0))
"""Of 3 s, which are several steps on the wire; of 0.1 s; and to the end."""


@pytest.mark.parametrize("steps", [ACROSS_PACKETS, OUTAGES], ids=["rates", "outages"])
def test_a_schedule_of_rates_crosses_packets(play: Play, steps: tuple[tuple[float, float], ...]) -> None:
    """1.2 Mbps take 10 ms a packet, so a change at any moment finds one half sent: bits sent are the integral."""
    schedule = Link(tuple(RateStep(t_s, mbps) for t_s, mbps in steps))
    duration_s = int(steps[-1][0]) + 1
    got = play(schedule, window=400, flow=Flow(start_s=START_MS / 1000), duration_s=duration_s)
    begin_ms = START_MS + SYN * 8 / 1200 + BACK.delay_ms  # the SYN's transmission, then the SYN-ACK
    edges_ms = np.array([*(t_s * 1000 for t_s, _ in steps), np.inf])
    bits, capacity = np.zeros((2, len(got.t_ms)))
    for (start_ms, end_ms), (_, mbps) in zip(pairwise(edges_ms), steps, strict=True):
        past = np.minimum(got.t_ms, end_ms)
        bits += np.maximum(past - max(start_ms, begin_ms), 0) * mbps * 1000
        capacity += np.maximum(past - start_ms, 0) * mbps * 1000 / 8
    packets = 2 + (bits - ACK * 8) / (FULL * 8)
    assert np.abs(packets - np.round(packets)).min() > 0.001  # no tick so near a packet's end that clock reads decide
    assert np.array_equal(got["link_packets"], np.floor(packets))
    assert got["link_capacity_bytes"] == pytest.approx(capacity, abs=TOLERANCE_MS * 12e3 / 8 + len(steps))
    for (start_ms, end_ms), (_, mbps) in zip(pairwise(edges_ms), steps, strict=True):
        within = (got.t_ms > start_ms + TOLERANCE_MS) & (got.t_ms < end_ms)
        assert mbps or len(set(got["link_capacity_bytes"][within])) == 1  # not one byte


def test_a_flow_starts_in_an_outage(play: Play) -> None:
    """Its SYN waits for the rate: 1.2 Mbps take 0.4 ms for it. TCP sends it again after 1 s."""
    got = play(Link((RateStep(0, 0), RateStep(0.5, 1.2))), window=10, flow=Flow(start_s=START_MS / 1000))
    assert got.delays_ms[0] == pytest.approx(400.4, abs=TOLERANCE_MS)
    assert got.t_ms[0] == 510  # its first sample: the SYN-ACK is there
    assert got["link_packets"][-1] == 2 + int((500 - 0.4 - BACK.delay_ms - ACK * 8 / 1200) / 10)


def test_capacity_is_the_integral_of_the_rate(play: Play) -> None:
    got = play(Link((RateStep(0, 10), RateStep(0.255, 20)), 5))
    expected = np.minimum(got.t_ms, 255) * 10e3 / 8 + np.maximum(got.t_ms - 255, 0) * 20e3 / 8
    assert got["link_capacity_bytes"] == pytest.approx(expected, abs=TOLERANCE_MS * 20e3 / 8)


# ---- limits and who is dropped ----


@pytest.mark.parametrize("limit", [{"queue_packets": 20}, {"queue_bytes": 20 * FULL}, {"queue_bytes": 21 * FULL - 1}])
def test_a_full_queue_drops_the_rest_of_a_burst(play: Play, limit: dict[str, int]) -> None:
    """12 Mbps: 1 ms a packet. The window opens at the first tick; no loss is known of before 20 ms have passed."""
    got = play(rate(12, **limit), window=200, duration_s=0.1)
    unlimited = play(rate(12), window=200, duration_s=0.1)
    came = unlimited["link_packets"][1] + unlimited["link_queue_bytes"][1] / FULL
    assert unlimited["link_drops"][-1] == 0
    assert got["link_queue_bytes"][1] == got["link_queue_bytes"].max() == 20 * FULL
    assert got["link_drops"][1] == came - got["link_packets"][1] - 20 > 0
    assert got.delays_ms.max() == pytest.approx(20, abs=TOLERANCE_MS)  # the last that fits waits for 19 and is sent


def test_an_unlimited_queue(play: Play) -> None:
    got = play(rate(12), window=2000, duration_s=1)
    assert got["link_drops"][-1] == 0
    on_the_way = 5  # 5 ms to the receiver's ACKs, 1 ms a packet
    assert got["link_queue_bytes"].max() / FULL == pytest.approx(2000 - on_the_way, abs=3)


OVERLOAD = {"window": 4000, "packets_s": 2000, "duration_s": 0.5}
"""Twice what 12 Mbps send: a packet each 0.5 ms, whatever is dropped."""


def test_tail_drop_makes_all_wait_for_the_whole_queue(play: Play) -> None:
    got = play(rate(12, queue_packets=20), **OVERLOAD)
    delays = got.delays_between(100, 500)
    assert delays.min() >= 19
    assert delays.max() <= 20 + TOLERANCE_MS
    assert got.at("link_drops", 500) - got.at("link_drops", 100) == pytest.approx(400, abs=1)


def test_head_drop_lets_the_newest_pass(play: Play) -> None:
    """The 19 that wait came in the last 9.5 ms, and the first of them is sent next: half of tail-drop's delay."""
    tail = play(rate(12, queue_packets=20), **OVERLOAD)
    head = play(rate(12, queue_packets=20, discipline="head-drop"), **OVERLOAD)
    delays = head.delays_between(100, 500)
    assert delays.min() >= 9
    assert delays.max() <= 9.5 + 1 + TOLERANCE_MS
    assert head.at("link_packets", 500) == tail.at("link_packets", 500)  # as much is sent
    assert head.at("link_drops", 500) == pytest.approx(tail.at("link_drops", 500), abs=1)


# ---- CoDel, PIE, BoDe (the algorithms packet by packet: test_link_queue.py) ----


def test_codel_drops_by_its_control_law(play: Play) -> None:
    """30 % too much: above 5 ms soon, the first drop 100 ms later, the next 100, 70.7, 57.7, 50, ... ms apart."""
    got = play(rate(12, discipline="codel"), window=4000, packets_s=1300, duration_s=0.8)
    above_ms = got.t_ms[np.flatnonzero(got["link_queue_bytes"] > 5 * FULL)[0]]
    steps = np.diff(got["link_drops"], prepend=0)
    times = np.repeat(got.t_ms, steps.astype(int))
    assert times[0] - above_ms == pytest.approx(100, abs=11)
    law = np.cumsum([100 / np.sqrt(n) for n in range(1, len(times))])
    assert len(times) >= 8
    assert times[1:] - times[0] == pytest.approx(law, abs=11)  # ticks of 10 ms, a packet of 1 ms


def test_codel_leaves_a_delay_below_its_target_alone(play: Play) -> None:
    """A window of the path's 12 packets and 4 more: 4 ms in the queue."""
    got = play(rate(12, delay_ms=5, discipline="codel"), window=15, duration_s=3)
    assert 3 * FULL <= got.at("link_queue_bytes", 2000) <= 5 * FULL
    assert got["link_drops"][-1] == 0
    dropped = play(rate(12, delay_ms=5, discipline="codel"), window=18, duration_s=3)
    assert dropped["link_drops"][-1] > 0


def test_codel_marks_where_it_would_drop(play: Play) -> None:
    """At 1,300 packets a second the delay stays above the target either way, so the control law's moments are equal."""
    load = {"window": 4000, "packets_s": 1300, "duration_s": 0.8}
    dropped = play(rate(12, discipline="codel"), **load)
    marked = play(rate(12, discipline="codel", ecn=True), **load, flow=Flow(ecn=True))
    deaf = play(rate(12, discipline="codel", ecn=True), **load)
    assert marked["link_drops"][-1] == 0
    assert marked["link_marks"][-1] > 10
    assert marked["link_marks"] == pytest.approx(dropped["link_drops"], abs=1)
    assert np.array_equal(deaf["link_drops"], dropped["link_drops"])
    assert deaf["link_marks"][-1] == 0


@pytest.mark.parametrize(("mark_packets", "share"), [(10, 1), (25, 0)])
def test_a_threshold_marks_all_that_find_more(play: Play, mark_packets: int, share: int) -> None:
    """A window of 30 packets, of which some 24 wait at 12 Mbps and 5 ms: all find more than 10, none more than 25."""
    got = play(rate(12, mark_packets=mark_packets), window=30, flow=Flow(ecn=True))
    sent, marked = (got.at(name, 900) - got.at(name, 100) for name in ("link_packets", "link_marks"))
    assert sent == pytest.approx(800, abs=1)
    assert marked == pytest.approx(share * sent, abs=1)


def test_dctcp_keeps_the_queue_at_the_threshold(kernel: Path) -> None:
    """Without a mark it fills 100 packets, 100 ms; with one above 10 it swings around 10 ms and sends as much."""
    link, flow = rate(12, delay_ms=5, queue_packets=100), Flow(ecn=True)
    filled = run_episode(kernel, environment(link, duration_s=3, flow=flow), "dctcp").flows[0]
    marked = run_episode(kernel, environment(replace(link, mark_packets=10), duration_s=3, flow=flow), "dctcp").flows[0]
    assert filled.lost_packets > 0 == filled.marked_packets
    assert marked.lost_packets == 0 < marked.marked_packets
    assert filled.delay_mean_ms > 60
    assert 5 < marked.delay_mean_ms < 25
    assert marked.goodput_mbps > 0.9 * 12 * 1448 / 1500


def test_fq_codel_spares_the_thin_flow(kernel: Path) -> None:
    """At 12 Mbps one flow sends twice what fits, the other a packet each 10 ms, which waits for one packet at most."""
    network = environment(rate(12, queue_packets=400, discipline="fq-codel"), cross=("policy:thin",), duration_s=1)
    spec = episode_spec(network, "policy:fat", 0)

    def drive(sample: np.void) -> tuple[int, int]:
        return (4000, 100 * (FULL - ACK)) if sample["flow"] else (4000, 2000 * (FULL - ACK))

    recording = run_guest(kernel, spec, per_flow(drive))
    last = {flow: recording.samples[recording.samples["flow"] == flow] for flow in (0, 1)}
    grown = {flow: {name: int(s[name][-1]) - int(s[name][20]) for name in s.dtype.names} for flow, s in last.items()}
    thin, fat = grown[1], grown[0]
    assert thin["link_drops"] == 0
    assert thin["link_packets"] == pytest.approx(100 * (last[1]["t_ns"][-1] - last[1]["t_ns"][20]) / 1e9, abs=1)
    assert thin["link_delay_ns"] / thin["link_packets"] < 2e6
    assert fat["link_delay_ns"] / fat["link_packets"] > 10e6


def test_pie_spares_a_burst_of_150_ms_then_holds_its_target(play: Play, kernel: Path) -> None:
    link = rate(24, delay_ms=10, discipline="pie")
    burst = play(link, window=4000, packets_s=4000, duration_s=0.4)  # 2000 packets a second leave
    dropped_ms = burst.t_ms[np.flatnonzero(burst["link_drops"])[0]]
    assert dropped_ms > 150
    assert burst.at("link_queue_bytes", 140) > 100 * FULL
    several = environment(link, Link(delay_ms=10), 20, cross=("reno",) * 4)
    rows = run_episode(kernel, several, "reno").rows
    waiting_ms = rows["link_queue_bytes"].to_numpy()[500:] * 8 / 24e3
    assert 10 < waiting_ms.mean() < 20
    assert rows["link_drops"].to_numpy()[-1] > 0


def test_bode_bounds_every_delay(play: Play) -> None:
    got = play(rate(12, delay_ms=3, discipline="bode", target_ms=20), **OVERLOAD)
    assert got.delays_ms.max() <= 20 + 1 + 3 + TOLERANCE_MS
    assert got.delays_between(200, 500).min() > 19 + 3
    assert got.at("link_packets", 500) - got.at("link_packets", 100) == 400  # the link is never idle


def test_bode_does_not_drop_the_last_packet(play: Play) -> None:
    """50 ms a packet: what waited for one is beyond the bound, and yet the link stays busy."""
    got = play(rate(0.24, discipline="bode", target_ms=20), window=4, duration_s=5)
    assert got["link_packets"][-1] == pytest.approx(5 / 0.05, rel=0.05)


# ---- loss ----


def test_random_loss_is_binomial_and_seeded(play: Play) -> None:
    link = rate(12, loss=0.03)
    one, again, other = (play(link, duration_s=8, window=100, seed=seed) for seed in (1, 1, 2))
    for got in (one, other):
        lost, sent = got["link_drops"][-1], got["link_drops"][-1] + got["link_packets"][-1]
        assert abs(lost - 0.03 * sent) < 4 * np.sqrt(0.03 * 0.97 * sent)
    assert np.array_equal(one.samples, again.samples)
    assert not np.array_equal(one["link_drops"][:200], other["link_drops"][:200])


def prandom(seed: int, count: int) -> npt.NDArray[np.uint32]:
    """The first numbers of prandom_u32_state after prandom_seed_state (linux, lib/random32.c and prandom.h)."""
    first = ((seed >> 32) ^ (seed << 10) ^ seed) & 0xFFFFFFFF
    state = [first + least if first < least else first for least in (2, 8, 16, 128)]
    shifts = ((6, 13, ~1, 18), (2, 27, ~7, 2), (13, 21, ~15, 7), (3, 12, ~127, 13))
    numbers = []
    for _ in range(count):
        state = [
            (((s & mask) << d) & 0xFFFFFFFF) ^ ((((s << a) & 0xFFFFFFFF) ^ s) >> b)
            for s, (a, b, mask, d) in zip(state, shifts, strict=True)
        ]
        numbers.append(state[0] ^ state[1] ^ state[2] ^ state[3])
    return np.array(numbers, np.uint32)


def test_a_schedule_of_losses_is_drawn_packet_by_packet(play: Play) -> None:
    """None is lost for half a second, then 10 %, then 40 %, then none: which ones, the kernel's numbers say."""
    link = rate(12, delay_ms=5, losses=(LossStep(0.5, 0.1), LossStep(1, 0.4), LossStep(1.5, 0)))
    got = play(link, window=400, packets_s=500, duration_s=2, seed=3)
    entered = got["link_packets"] + got["link_drops"] + got["link_queue_bytes"] // FULL
    before = [int(entered[got.t_ms <= ms][-1]) for ms in (500, 1000, 1500)]
    draws = prandom(link_seed(3, 0), before[2] - before[0])
    share = np.where(np.arange(len(draws)) < before[1] - before[0], 0.1, 0.4)
    lost = np.concatenate([[0], np.cumsum(draws < share * 2**32)])
    expected = lost[np.clip(entered - before[0], 0, len(draws)).astype(int)]
    assert np.array_equal(got["link_drops"], expected)
    assert expected[-1] > 40


def test_lost_acks_are_no_drops(play: Play) -> None:
    """Of four ACKs a third is lost: sometimes all of a window are, and the sender sends again what had arrived."""
    got = play(rate(12), window=4, back=Link(delay_ms=5, loss=0.33), duration_s=5)
    assert got["link_drops"][-1] == 0
    assert got["retrans_total_pkts"][-1] > 0
    assert got["received_bytes"][-1] < (got["link_packets"][-1] - 2) * (FULL - ACK)


# ---- propagation, jitter, grain ----

STEADY = {"window": 400, "packets_s": 500}
"""A packet of 1 ms every 2 ms at 12 Mbps: nobody waits."""


def test_a_schedule_of_propagation_delays(play: Play) -> None:
    link = rate(12, delay_ms=20, delays=(DelayStep(0.5, 50), DelayStep(1, 10)))
    got = play(link, **STEADY, duration_s=1.5)
    assert got.delays_between(100, 500) == pytest.approx(20 + 1, abs=TOLERANCE_MS)
    assert got.delays_between(500, 1000) == pytest.approx(50 + 1, abs=TOLERANCE_MS)
    # none overtakes: each arrives with the one before it until 40 ms have passed, 2 ms of sending a packet
    after = got.delays_between(1000, 1500)
    assert after[:19] == pytest.approx(after[0] - 2 * np.arange(19), abs=2 * TOLERANCE_MS)
    assert after[0] == pytest.approx(50, abs=1.1)
    assert after[21:] == pytest.approx(10 + 1, abs=TOLERANCE_MS)
    assert got["retrans_total_pkts"][-1] == 0


def test_packets_may_overtake_where_the_delay_falls(play: Play) -> None:
    """From 50 ms to 10 ms: the 20 packets on the way are overtaken, as behind netem; the receiver says so."""
    link = rate(12, delay_ms=50, delays=(DelayStep(1, 10),))
    kept = play(link, **STEADY, duration_s=1.5)
    mixed = play(replace(link, delay_reorders=True), **STEADY, duration_s=1.5)
    assert mixed.delays_between(100, 1000) == pytest.approx(50 + 1, abs=TOLERANCE_MS)
    assert mixed.delays_between(1010, 1500) == pytest.approx(10 + 1, abs=TOLERANCE_MS)
    assert kept.delays_between(1010, 1500)[0] > 30
    assert kept["sacked_pkts"].max() == 0
    assert mixed["sacked_pkts"].max() > 15


def uniform(values: Floats, low: float, high: float) -> bool:
    """Whether the largest gap to the uniform distribution is below Kolmogorov and Smirnov's bound for 1 in 1000."""
    ordered = np.sort((values - low) / (high - low))
    gap = np.abs(ordered - np.arange(len(ordered)) / len(ordered)).max()
    return bool(gap < 1.95 / np.sqrt(len(ordered)) and ordered[0] >= -0.01 and ordered[-1] <= 1.01)


@pytest.mark.parametrize("reorders", [False, True])
def test_jitter_is_uniform_around_the_propagation(play: Play, reorders: bool) -> None:
    """Below half the distance between packets nobody could overtake."""
    link = rate(12, delay_ms=10, jitter_ms=0.9, jitter_reorders=reorders)
    got = play(link, **STEADY, duration_s=4)
    delays = got.delays_between(100, 4000)
    assert uniform(delays, 10 + 1 - 0.9, 10 + 1 + 0.9)
    assert np.corrcoef(delays[1:], delays[:-1])[0, 1] == pytest.approx(0, abs=0.1)
    assert got["retrans_total_pkts"][-1] == 0


def test_jitter_keeps_the_order_or_not(play: Play) -> None:
    """+-5 ms, packets 2 ms apart: an overtaken packet makes the receiver acknowledge selectively."""
    link = rate(12, delay_ms=10, jitter_ms=5)
    kept = play(link, **STEADY, duration_s=2)
    mixed = play(replace(link, jitter_reorders=True), **STEADY, duration_s=2)
    in_order, out_of_order = kept.delays_between(100, 2000), mixed.delays_between(100, 2000)
    assert np.all(np.diff(in_order) > -2 - TOLERANCE_MS)
    assert kept["sacked_pkts"].max() == kept["retrans_total_pkts"][-1] == 0
    assert uniform(out_of_order, 10 + 1 - 5, 10 + 1 + 5)
    assert np.any(np.diff(out_of_order) < -2)
    assert mixed["sacked_pkts"].max() > 0
    # who keeps the order waits for whom it may not overtake
    assert in_order.max() <= 10 + 1 + 5 + TOLERANCE_MS
    assert in_order.mean() > out_of_order.mean() + 1


def test_jitter_of_seconds(play: Play) -> None:
    """As much as the environment allows."""
    got = play(rate(12, delay_ms=1500, jitter_ms=1000, jitter_reorders=True), window=2000, packets_s=50, duration_s=15)
    delays = got.delays_ms[2:]
    assert len(delays) > 400
    assert uniform(delays, 1501 - 1000, 1501 + 1000)


@pytest.mark.parametrize("link", [rate(12), Link(trace=Trace("t", (0.5, 1.5, 3)))])
def test_grain_lets_packets_go_only_at_its_multiples(play: Play, link: Link) -> None:
    coarse = play(replace(link, delay_ms=2, grain_ms=25), window=100)
    fine = play(replace(link, delay_ms=2), window=100)
    begun = np.maximum(np.floor(coarse.t_ms / 25), 1)
    for field in ("link_packets", "link_delay_ns"):
        moved = np.diff(coarse[field]) != 0
        assert not np.any(moved & (np.diff(begun) == 0))
        assert moved.any()
    # the rate is the same: packets wait for the next multiple, they lose no turn
    assert coarse["link_packets"][-1] == pytest.approx(fine["link_packets"][-1], abs=60)
    settled = coarse["link_packets"][(coarse.t_ms >= 500) & (coarse.t_ms % 50 == 0)]
    assert np.diff(settled) == pytest.approx(50, abs=1.01)


def test_what_waits_for_a_grain_is_in_the_queue(play: Play) -> None:
    """1000 packets a second, a quarter of the link, gathered for 25 ms: 25 packets, of which 10 fit."""
    link = rate(48, grain_ms=25, queue_packets=10)
    got = play(link, window=2000, packets_s=1000, duration_s=1)
    assert got["link_queue_bytes"].max() == 10 * FULL
    share = (got.at("link_packets", 1000) - got.at("link_packets", 200)) / 800
    assert share == pytest.approx(10 / 25, rel=0.05)


# ---- nothing ----


def test_neutral_values_change_nothing(kernel: Path) -> None:
    plain = environment(rate(24, delay_ms=10, queue_bytes=60_000), Link(delay_ms=10), 4)
    expected = run_episode(kernel, plain, "cubic").sha256
    link = plain.links[0]
    for neutral in (
        replace(link, delays=(DelayStep(1, 10), DelayStep(2, 10))),
        replace(link, queue_packets=40, queue_bytes=None),
        replace(link, discipline="bode", target_ms=1000),
        replace(link, discipline="codel", target_ms=1000),
    ):
        same = run_episode(kernel, replace(plain, links=(neutral,)), "cubic")
        if neutral.queue_bytes is None:  # the handshake's small ACK is a packet too: the last to be told apart
            assert same.flows[0].goodput_mbps == pytest.approx(22, rel=0.05)
        else:
            assert same.sha256 == expected


# ---- the policer ----


def test_a_policer_passes_its_burst_and_its_rate(play: Play) -> None:
    """24 Mbps come to a policer of 12: since the first data its bucket of 30,000 bytes was never full again.

    What has passed is the SYN, the burst, 1,500 bytes a millisecond, less the tokens left: under a packet and the half
    that comes until the next. Nothing waits: 0.12 ms of sending at 100 Mbps, but for the first ten, which came at once.
    """
    link = rate(100, policer=Policer(12, 30_000))
    got = play(link, window=4000, packets_s=2000, flow=Flow(start_s=START_MS / 1000), duration_s=0.6)
    begin_ms = START_MS + SYN * 8 / 100_000 + BACK.delay_ms
    loaded = got.t_ms >= 300
    left = SYN + 30_000 + 1500 * (got.t_ms[loaded] - begin_ms) - got["link_bytes"][loaded]
    assert left.min() >= -1
    assert left.max() < 1500 + 750 + 1500  # one is being sent
    assert got.at("link_drops", 600) - got.at("link_drops", 300) == pytest.approx(300, abs=2)
    assert got.delays_between(300, 600) == pytest.approx(0.12, abs=TOLERANCE_MS)


# ---- finite transfers ----


@pytest.mark.parametrize(
    ("size_bytes", "sending_ms"),
    [(13_032, 9), (10_000, 6 + (1312 + 52) * 8 / 12_000), (1, (1 + 52) * 8 / 12_000)],
)
def test_a_transfer_ends_when_all_is_acknowledged(kernel: Path, size_bytes: int, sending_ms: float) -> None:
    """Within the first window, at 12 Mbps and 20 ms: the SYN's round trip; ACK, data and a FIN of 52 bytes, theirs."""
    link, back, start_s = rate(12, delay_ms=10), Link(delay_ms=10), START_MS / 1000
    network = environment(link, back, duration_s=1, flow=Flow(start_s=start_s, size_bytes=size_bytes))
    episode = run_episode(kernel, network, "cubic")
    expected_ms = (SYN + ACK + ACK) * 8 / 12_000 + 20 + sending_ms + 20
    completion_s = episode.flows[0].completion_s
    assert completion_s is not None
    assert completion_s * 1000 == pytest.approx(expected_ms, abs=TOLERANCE_MS)
    assert episode.rows["received_bytes"][-1].as_py() == size_bytes  # without the FIN, which TCP counts
    assert episode.rows["t_s"][-1].as_py() == pytest.approx(np.ceil((start_s + completion_s) * 100) / 100)
    assert episode.flows[0].goodput_mbps == pytest.approx(size_bytes * 8 / 1e6 / completion_s)


def test_a_transfer_that_is_stopped_has_no_completion(kernel: Path) -> None:
    network = environment(rate(12, delay_ms=10), duration_s=1, flow=Flow(stop_s=0.5, size_bytes=10**6))
    assert run_episode(kernel, network, "cubic").flows[0].completion_s is None


# ---- the way back, the receiver and the application ----


def test_filtered_acks_carry_what_queued_ones_would(play: Play) -> None:
    """A packet comes each millisecond; the way back sends an ACK each 8 ms, which tells of 8 packets.

    Without the filter those wait that the receiver sent at the start, one for each packet.
    """
    back = Link((RateStep(0, ACK * 8 / 8e3),), delay_ms=5)
    slow = play(rate(12), back=back, window=400, duration_s=1)
    got = play(rate(12), back=replace(back, ack_filter=True), window=400, duration_s=1)
    assert slow.at("delivered_pkts", 900) - slow.at("delivered_pkts", 500) == pytest.approx(50, abs=2)
    assert got.at("delivered_pkts", 900) - got.at("delivered_pkts", 500) == pytest.approx(400, abs=9)
    told = np.diff(got["delivered_pkts"][(got.t_ms >= 500) & (got.t_ms <= 900)])
    assert set(told) <= {7, 8, 9, 15, 16, 17}
    assert got["lost_total_pkts"][-1] == 0


def test_a_receiver_s_window_holds_a_flow_back(play: Play) -> None:
    """Of 60 packets that fit, the receiver takes 20 for each RTT of 50 ms and the sending of one to three of them."""
    window_bytes = 20 * (FULL - ACK)
    flow = Flow(receive_window_bytes=window_bytes)
    got = play(rate(12, delay_ms=25), back=Link(delay_ms=25), window=200, flow=flow, duration_s=2)
    assert got["unacked_pkts"][got.t_ms >= 500].max() == 20
    packets_s = (got.at("link_packets", 2000) - got.at("link_packets", 1000)) / 1
    assert 20 / 0.0535 <= packets_s <= 20 / 0.051


def test_a_window_that_never_binds_changes_nothing(kernel: Path) -> None:
    plain = environment(rate(12, delay_ms=10, queue_bytes=30_000), Link(delay_ms=10), 2)
    wide = replace(plain, flow=Flow(receive_window_bytes=10_000_000))
    expected, got = (run_episode(kernel, network, "cubic").flows[0] for network in (plain, wide))
    assert got.goodput_mbps == pytest.approx(expected.goodput_mbps, rel=0.02)


def test_an_application_pauses(play: Play) -> None:
    """At 12 Mbps what waits at 400 ms, the window and 128 KiB, is gone by 600 ms; at 800 ms it goes on at once."""
    flow = Flow(pauses_s=((0.4, 0.8), (1.2, 1.6)))
    got = play(rate(12), window=30, flow=flow, duration_s=2)
    for begin_ms in (400, 1200):
        assert got.at("link_packets", begin_ms) > got.at("link_packets", begin_ms - 50)
        assert got.at("link_packets", begin_ms + 400) == got.at("link_packets", begin_ms + 200)
        assert got.at("unacked_pkts", begin_ms + 390) == 0
        sent = got.at("link_packets", begin_ms + 500) - got.at("link_packets", begin_ms + 400)
        assert sent == pytest.approx(100, abs=3)
    unsent = got.at("link_packets", 800) - got.at("link_packets", 400)
    assert 131_072 / 2 / (FULL - ACK) <= unsent <= 131_072 / (FULL - ACK) + 30 + 1
