# SPDX-License-Identifier: Apache-2.0
"""Chains of links and many flows on the real kernel: delays, counters and shares against what they must be."""

from __future__ import annotations

import resource
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate, cycle, islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from sagecc.collector.lab.boot import Recording, per_flow, run_guest
from sagecc.collector.lab.episode import run_episode
from sagecc.collector.lab.spec import episode_spec
from sagecc.common.fairness import jain_index
from sagecc.schemas import wire
from sagecc.schemas.environment import CrossFlow, Environment, Flow, Link
from sagecc.schemas.schemes import OTHERS, SCHEMES
from tests.collector.conftest import Play
from tests.helpers.networks import rate

FULL, PAYLOAD = 1500, 1448
TOLERANCE_MS = 0.01
FIRST = 12
"""A SYN, an ACK and the ten packets that any flow sends before its first tick come before a window of one's own."""

Record = Callable[..., Recording]


def network(
    links: tuple[Link, ...], back_ms: float, duration_s: float, cross: tuple[CrossFlow, ...] = (), **rest: object
) -> Environment:
    back = (Link(delay_ms=back_ms),) * len(links)
    return Environment("custom", links, back, duration_s, ((0, duration_s),), cross=cross, **rest)  # type: ignore[arg-type]


def parking_lot(duration_s: float) -> Environment:
    """Three bottlenecks of 12 Mbps; one flow over all of them, one over each."""
    link = rate(12, delay_ms=5, queue_bytes=30_000)
    cross = tuple(CrossFlow("cubic", Flow(links=(n, n))) for n in range(3))
    return network((link,) * 3, 5, duration_s, cross)


@pytest.fixture
def record(kernel: Path) -> Record:
    """Run an episode whose own flow has a fixed window if it is a policy; return what the guest sent."""

    def run(environment: Environment, scheme: str = "policy:fixed", window: int = 10) -> Recording:
        return run_guest(kernel, episode_spec(environment, scheme, 0), per_flow(lambda _: (window, 0)))

    return run


def samples_of(recording: Recording, flow: int) -> npt.NDArray[np.void]:
    own: npt.NDArray[np.void] = recording.samples[recording.samples["flow"] == flow]
    return own


def delays_ms(recording: Recording, flow: int = 0) -> npt.NDArray[np.float64]:
    own = recording.packets["delay"][recording.packets["flow"] == flow]
    delays: npt.NDArray[np.float64] = own * (wire.DELAY_UNIT_NS / 1e6)
    return delays


def goodput_mbps(samples: npt.NDArray[np.void], start_s: float, end_s: float) -> float:
    at = np.searchsorted(samples["t_ns"], [start_s * 1e9, end_s * 1e9])
    first, last = samples["received_bytes"][at].astype(float)
    return float(last - first) * 8 / 1e6 / (end_s - start_s)


# ---- several links ----


def test_a_lone_packet_s_delay_is_the_sum_over_the_links(record: Record) -> None:
    """8, 4 and 6 Mbps send 1500 bytes in 1.5, 3 and 2 ms; 3 + 5 + 7 ms of propagation."""
    links = (rate(8, delay_ms=3), rate(4, delay_ms=5), rate(6, delay_ms=7))
    recording = record(network(links, 2, 2), window=1)
    assert delays_ms(recording)[FIRST:] == pytest.approx(1.5 + 3 + 2 + 15, abs=TOLERANCE_MS)
    # a round trip a packet, and six milliseconds back
    assert samples_of(recording, 0)["srtt_us"][-1] / 1000 == pytest.approx(21.5 + 6, abs=0.05)


def test_a_window_queues_at_the_narrowest_link(record: Record) -> None:
    """Twenty packets: 21.5 + 6 ms hold 27.5 / 3 of them, the others wait 3 ms each at 4 Mbps: an RTT of 60 ms."""
    links = (rate(8, delay_ms=3), rate(4, delay_ms=5), rate(6, delay_ms=7))
    recording = record(network(links, 2, 3), window=20)
    assert delays_ms(recording)[-100:] == pytest.approx(60 - 6, abs=TOLERANCE_MS)
    last = samples_of(recording, 0)[-1]
    assert last["link_capacity_bytes"] == pytest.approx(3 * 4e6 / 8, abs=10)
    # what waits anywhere: at 4 Mbps all but those on the way, a packet being sent at each of the others at most
    assert 11 * FULL <= last["link_queue_bytes"] <= 14 * FULL


def test_a_return_path_of_several_links(record: Record) -> None:
    """ACKs of 52 bytes take 4.16 ms at 0.1 Mbps, once a link; the third only takes time."""
    back = (rate(0.1, delay_ms=1), rate(0.1, delay_ms=2), Link(delay_ms=3))
    environment = replace(network((rate(100, delay_ms=4),) * 3, 1, 2), return_links=back)
    recording = record(environment, window=1)
    rtt_ms = 3 * (0.12 + 4) + 2 * 4.16 + 6
    assert samples_of(recording, 0)["srtt_us"][-1] / 1000 == pytest.approx(rtt_ms, abs=0.05)


def test_no_packet_is_lost_from_the_books(kernel: Path) -> None:
    """Sent by the long flow: dropped at one of the links, left the last one, waiting, or on a line."""
    environment = parking_lot(10)
    recording = run_guest(kernel, episode_spec(environment, "cubic", 0))
    for flow, propagation_ms in ((0, 15), (1, 5), (2, 5), (3, 5)):
        own = samples_of(recording, flow)
        sent = own["data_segs_out"] + 2.0  # SYN and the handshake's ACK
        inside = sent - own["link_packets"] - own["link_drops"]
        on_lines = 12e3 * propagation_ms / 8 / FULL
        assert inside.min() >= 0
        assert inside.max() <= own["link_queue_bytes"].max() / FULL + on_lines + 2
        assert own["link_drops"][-1] > 0
        counted = np.sum(recording.packets["flow"] == flow)
        assert counted >= own["link_packets"][-1]


def test_drops_of_all_links_are_summed(record: Record) -> None:
    """Two links that lose 10 % each, one after the other: 19 % in all."""
    link = rate(12, delay_ms=5, loss=0.1)
    own = samples_of(record(network((link, link), 5, 15), window=100), 0)[-1]
    sent = float(own["data_segs_out"])
    assert abs(own["link_drops"] - 0.19 * sent) < 4 * np.sqrt(0.19 * 0.81 * sent)
    assert own["link_packets"] == pytest.approx(sent - own["link_drops"], abs=100)


def test_a_parking_lot_starves_the_long_flow(play: Play) -> None:
    """It competes three times and its RTT is three times as long; every link stays full."""
    episode = play(parking_lot(20), "cubic")
    long, *short = (flow.goodput_mbps for flow in episode.flows)
    assert 0.05 < long < 0.2 * min(short)
    for own in short:
        assert own + long == pytest.approx(12 * PAYLOAD / FULL, rel=0.02)
    assert episode.flows[0].delay_mean_ms > 3 * 6


# ---- flows of one's own RTT ----


@pytest.mark.parametrize("extra_rtt_ms", [0, 1, 30, 200])
def test_a_flow_s_own_rtt(record: Record, extra_rtt_ms: float) -> None:
    """100 Mbps send a packet in 0.12 ms; the way is 5 + 5 ms. One-way delay is measured at the link alone."""
    recording = record(network((rate(100, delay_ms=5),), 5, 4, flow=Flow(extra_rtt_ms=extra_rtt_ms)), window=1)
    own = samples_of(recording, 0)[-1]
    assert own["srtt_us"] / 1000 == pytest.approx(10.12 + extra_rtt_ms, abs=0.05)
    assert delays_ms(recording)[FIRST:] == pytest.approx(5.12, abs=TOLERANCE_MS)


def test_reno_is_unfair_to_long_rtts(play: Play) -> None:
    """The more the RTTs differ, the more do the rates; random loss keeps the flows from falling into step."""
    ratios = []
    for extra_rtt_ms in (0, 20, 60):
        link = rate(24, delay_ms=10, queue_bytes=30_000, loss=0.0005)
        cross = (CrossFlow("reno", Flow(extra_rtt_ms=extra_rtt_ms)),)
        near, far = play(network((link,), 10, 60, cross), "reno").flows
        ratios.append(near.goodput_mbps / far.goodput_mbps)
    assert 0.6 < ratios[0] < 1.6
    assert ratios[0] < ratios[1] < ratios[2]
    assert ratios[2] > 2.5  # four times the RTT without the queue, three with


# ---- lives ----


def test_flows_live_from_start_to_stop(kernel: Path) -> None:
    """Their samples lie in their lives, to the last tick, and others take what they leave."""
    guests = (CrossFlow("cubic", Flow(start_s=1, stop_s=2)), CrossFlow("reno", Flow(start_s=0.5005, stop_s=2.5055)))
    environment = network((rate(12, delay_ms=5, queue_bytes=30_000),), 5, 5, guests)
    recording = run_guest(kernel, episode_spec(environment, "cubic", 0))
    for flow, (start_s, last_s) in enumerate(((0, 5), (1, 2), (0.5005, 2.5))):
        own = samples_of(recording, flow)
        assert start_s < own["t_ns"][0] / 1e9 < start_s + 0.1
        assert own["t_ns"][-1] / 1e9 == pytest.approx(last_s)
        assert np.all(np.diff(own["t_ns"]) == 10_000_000)
        for counter in ("delivered_pkts", "bytes_acked", "received_bytes", "link_packets", "link_drops"):
            assert np.all(np.diff(own[counter].astype(float)) >= 0)
        assert own["srtt_us"].min() > 0
    own = samples_of(recording, 0)
    assert goodput_mbps(own, 1.2, 2) < 8
    assert goodput_mbps(own, 3.5, 5) == pytest.approx(12 * PAYLOAD / FULL, rel=0.01)


def test_goodput_is_over_the_flow_s_own_life(play: Play) -> None:
    """Alone from 2 to 4 s it fills the link, whatever the episode's length."""
    link = rate(12, delay_ms=5, queue_bytes=30_000)
    for duration_s in (4, 6):
        own = play(network((link,), 5, duration_s, flow=Flow(start_s=2, stop_s=4)), "cubic").flows[0]
        assert own.goodput_mbps == pytest.approx(12 * PAYLOAD / FULL, rel=0.05)


def test_a_stopped_flow_sends_nothing_more(record: Record) -> None:
    """A window of 100 in a queue of 1 ms a packet: what waits leaves within 100 ms, then the link is idle.

    As many packets are measured as its last sample counts; what waited then, and the resets, are no longer its.
    """
    cross = (CrossFlow("reno", Flow(start_s=2.9)),)
    recording = record(network((rate(12, delay_ms=5),), 5, 3.5, cross, flow=Flow(stop_s=1)), window=100)
    own, later = samples_of(recording, 0), samples_of(recording, 1)
    assert own["link_queue_bytes"][-1] > 80 * FULL
    assert later["link_queue_bytes"][0] <= 10 * FULL
    assert delays_ms(recording, 1).min() < 5.1
    assert len(delays_ms(recording)) == own["link_packets"][-1]


def test_a_policy_may_stop_before_the_others(record: Record) -> None:
    environment = network((rate(12, delay_ms=5, queue_bytes=30_000),), 5, 2, (CrossFlow("cubic"),), flow=Flow(stop_s=1))
    recording = record(environment, window=20)
    assert set(samples_of(recording, 0)["cwnd_pkts"][1:]) == {20}
    assert samples_of(recording, 1)["t_ns"][-1] == 2e9


# ---- many flows ----


def crowd(schemes: tuple[str, ...], duration_s: float, extra_rtts_ms: tuple[float, ...] = (0,)) -> Environment:
    """Return 50 flows on 50 Mbps, 20 ms apart: that of the scheme under test and 49 more."""
    link = rate(50, delay_ms=10, queue_bytes=250_000)
    names, rtts = cycle(schemes), cycle(extra_rtts_ms)
    starts = accumulate([0.02] * 49)
    flows = (Flow(start_s=round(start_s, 2), extra_rtt_ms=rtt) for start_s, rtt in zip(starts, rtts, strict=False))
    return network(
        (link,), 10, duration_s, tuple(CrossFlow(name, flow) for name, flow in zip(names, flows, strict=False))
    )


def test_fifty_flows_of_any_schemes(play: Play) -> None:
    episode = play(crowd((*SCHEMES, *OTHERS), 8, (0, 4, 10, 40)), "cubic")
    assert len(episode.flows) == 50
    assert sum(flow.sent_packets > 10 for flow in episode.flows) >= 45  # a beginner among BBR flows may starve
    assert sum(flow.goodput_mbps for flow in episode.flows) > 0.9 * 50 * PAYLOAD / FULL


def test_fifty_cubics_share(play: Play) -> None:
    episode = play(crowd(("cubic",), 40), "cubic")
    goodputs = [flow.goodput_mbps for flow in episode.flows]
    index = jain_index(goodputs)
    assert index is not None
    assert index > 0.9
    assert sum(goodputs) > 0.94 * 50 * PAYLOAD / FULL


def test_what_fifty_flows_cost(kernel: Path) -> None:
    """Printed, not judged: CPU-seconds of a guest that only starts its flows, with and without hosts of their own."""
    for extra_rtt_ms in (0, 4):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        recording = run_guest(kernel, episode_spec(crowd(("cubic",), 1.1, (extra_rtt_ms,)), "cubic", 0))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(f"50 flows, {extra_rtt_ms} ms of RTT of their own: {spent_s:.3f} CPU-s")
        assert set(recording.samples["flow"]) == set(range(50))


@pytest.mark.parametrize(
    "environment",
    [
        parking_lot(3),
        network((rate(12, delay_ms=5, queue_bytes=30_000),), 5, 3, (CrossFlow("bbr", Flow(1, 2, 20)),), flow=Flow(0.5)),
        network((rate(24, delay_ms=5, discipline="pie", loss=0.01, jitter_ms=1, jitter_reorders=True),) * 2, 5, 3),
        crowd(tuple(islice(SCHEMES, 5)), 2, (0, 7)),
    ],
    ids=["parking-lot", "lives", "random", "crowd"],
)
def test_the_same_bytes_twice(kernel: Path, environment: Environment) -> None:
    first, again = (run_episode(kernel, environment, "bbr2", seed=7) for _ in range(2))
    assert first.sha256 == again.sha256
    assert first.flows == again.flows
