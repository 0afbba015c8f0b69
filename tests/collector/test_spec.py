# SPDX-License-Identifier: Apache-2.0
"""What a guest is started with: layouts by hand, and any environment's consistency."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings

from sagecc.collector.lab.boot import run_guest
from sagecc.collector.lab.spec import UNLIMITED_QUEUE_BYTES, Drive, EpisodeSpec, episode_spec, link_seed
from sagecc.common.errors import SageccError
from sagecc.schemas import wire
from sagecc.schemas.environment import CrossFlow, DelayStep, Environment, Flow, Link, Policer, RateStep, Trace, dumbbell
from tests.helpers.networks import network
from tests.helpers.strategies import chain, environments

ARRAYS = (
    ("cables", wire.CABLE),
    ("links", wire.LINK),
    ("rates", wire.RATE),
    ("delays", wire.DELAY),
    ("opportunities", wire.OPPORTUNITY),
    ("routes", wire.ROUTE),
    ("flows", wire.FLOW),
)
MS = 1_000_000
S = 1000 * MS
WHOLE = Flow()


def sndbuf(window: int, flows: int = 1) -> int:
    """Of one of `flows` that can have `window` bytes on its way: sixteen times that, and its part of 1 GiB."""
    return 16 * window + 2**30 // max(flows, 2)


@dataclass(frozen=True)
class Layout:
    """The records of a specification's bytes, read as wire.py says."""

    head: np.void
    cables: npt.NDArray[np.void]
    links: npt.NDArray[np.void]
    rates: npt.NDArray[np.void]
    delays: npt.NDArray[np.void]
    opportunities: npt.NDArray[np.void]
    routes: npt.NDArray[np.void]
    flows: npt.NDArray[np.void]
    extras: npt.NDArray[np.void]
    transfers: npt.NDArray[np.void]
    windows: npt.NDArray[np.void]
    pauses: npt.NDArray[np.void]
    losses: npt.NDArray[np.void]

    @classmethod
    def of(cls, spec: EpisodeSpec) -> Layout:
        head = np.frombuffer(spec.wire, wire.SPEC, 1)[0]
        at, arrays = head.nbytes, {}
        for name, dtype in ARRAYS:
            count = 2 * int(head["cables"]) if name == "links" else int(head[name])
            arrays[name] = np.frombuffer(spec.wire, dtype, count, at)
            at += arrays[name].nbytes
        for bit, counted, names in (
            (wire.HAS_EXTENSION, wire.EXTENSION, {"extras": wire.EXTRA, "transfers": wire.TRANSFER}),
            (wire.HAS_APPLICATION, wire.APPLICATION, {"windows": wire.WINDOW, "pauses": wire.PAUSE}),
        ):
            is_there = bool(head["extended"] & bit)
            counts = np.frombuffer(spec.wire, counted, int(is_there), at)
            at += counts.nbytes
            for name, dtype in names.items():
                arrays[name] = np.frombuffer(spec.wire, dtype, int(counts[0][name]) if is_there else 0, at)
                at += arrays[name].nbytes
        losses = np.frombuffer(spec.wire, wire.LOSS, offset=at)
        assert at + losses.nbytes == len(spec.wire) == head["bytes"]
        return cls(head, **arrays, losses=losses)

    def walk(self, source: int, destination: int) -> list[int]:
        """Follow the routes; return the cables crossed."""
        hops = {(int(r["node"]), int(r["destination"])): int(r["cable"]) for r in self.routes}
        assert len(hops) == len(self.routes), "two routes for one destination"
        node, crossed = source, []
        while node != destination:
            cable = hops[node, destination]
            ends = [int(self.cables[cable]["node_a"]), int(self.cables[cable]["node_b"])]
            assert node in ends
            node = ends[1 - ends.index(node)]
            crossed.append(cable)
            assert len(crossed) <= len(self.cables), "a loop"
        return crossed


def layout(environment: Environment, scheme: str = "cubic", seed: int = 0) -> Layout:
    return Layout.of(episode_spec(environment, scheme, seed))


def rows(array: npt.NDArray[np.void], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(record[name].item() for name in names) for record in array]


def test_bytes_of_a_dumbbell() -> None:
    """48 Mbps, 40 ms, 1 BDP, 10 s, written out by hand."""
    none = 2**64 - 1
    head = struct.pack("<QIIQQIIIIIIII", 0x31434347_53, 2, 408, 10 * MS, 10 * S, 2, 1, 1, 2, 0, 2, 1, 1)
    cable = struct.pack("<II", 0, 1)
    there = struct.pack("<6I8QIHH", 0, 1, 0, 1, 0, 0, 0, 240_000, none, 0, 0, 0, 0, 0, 0, 0, 0)
    back = struct.pack("<6I8QIHH", 1, 0, 1, 1, 0, 0, 0, none, none, 0, 0, 0, 0, 0, 0, 0, 0)
    rate = struct.pack("<QQ", 0, 48_000_000)
    delays = struct.pack("<QQQQ", 0, 20 * MS, 0, 20 * MS)
    routes = struct.pack("<8I", 0, 1, 0, 0, 1, 0, 0, 0)
    # at most 480,000 bytes on the way: sixteen times that and 512 MiB
    flow = struct.pack("<16sIIQQIIIIII", b"cubic", 0, 1, 0, 10 * S, 544_550_912, 0, 0, 0, 0, 1)
    spec = episode_spec(network(), "cubic", 0)
    assert spec.wire.hex() == (head + cable + there + back + rate + delays + routes + flow).hex()
    assert spec.memory_mb == 192 + 3  # eight times 480,000 bytes
    assert spec.name == f"{network().id}.cubic.0"
    assert spec.lockstep == ()


def test_what_few_networks_need_stands_in_an_extension() -> None:
    """A policed link, FQ-CoDel on the way back, and two of three flows with an end; nothing else moves."""
    link = Link((RateStep(0, 12),), 5, policer=Policer(6, 3000), mark_packets=7)
    back = Link((RateStep(0, 12),), 5, discipline="fq-codel", ecn=True, quantum_bytes=300, ack_filter=True)
    cross = (CrossFlow("cubic", Flow(ecn=True)), CrossFlow("bbr", Flow(size_bytes=10**12)))
    plain = replace(network(cross=("cubic", "bbr")), links=(Link((RateStep(0, 12),), 5),))
    special = replace(plain, links=(link,), return_links=(back,), cross=cross, flow=Flow(size_bytes=9))
    got = layout(special)
    none = wire.NO_LIMIT
    assert rows(got.extras, *(wire.EXTRA.names or ())) == [
        (0, 0, 0, 7, 6_000_000, 3000, 1500),
        (1, 1, 1, none, 0, 0, 300),
    ]
    assert rows(got.transfers, "flow", "bytes") == [(0, 9), (2, 10**12)]
    assert rows(got.flows, "sampled", "ecn") == [(1, 0), (1, 1), (1, 0)]
    assert got.head["extended"] == wire.HAS_EXTENSION
    assert layout(plain).head["extended"] == 0


def test_what_an_application_does_stands_behind_it() -> None:
    """The second of three flows has a receiver's window, the third pauses twice; a transfer makes room before them."""
    cross = (
        CrossFlow("cubic", Flow(receive_window_bytes=65_536)),
        CrossFlow("bbr", Flow(pauses_s=((1, 1.5), (2, 3)))),
    )
    quiet = replace(network(), cross=cross)
    got = layout(quiet)
    assert rows(got.windows, "flow", "bytes") == [(1, 65_536)]
    assert rows(got.pauses, "flow", "from_ns", "until_ns") == [(2, 1 * S, 1_500 * MS), (2, 2 * S, 3 * S)]
    assert got.head["extended"] == wire.HAS_APPLICATION
    both = layout(replace(quiet, flow=Flow(size_bytes=9)))
    assert both.head["extended"] == wire.HAS_EXTENSION | wire.HAS_APPLICATION
    assert (len(both.transfers), len(both.windows), len(both.pauses)) == (1, 1, 2)


def test_a_policy_runs_as_pure_in_lockstep() -> None:
    spec = episode_spec(network(cross=("bbr",)), "policy:models/sage", 7)
    assert rows(Layout.of(spec).flows, "scheme", "lockstep") == [(b"pure", 1), (b"bbr", 0)]
    assert spec.lockstep == (0,)
    assert spec.name.endswith(".policy:models/sage.7")


def test_layout_of_a_parking_lot() -> None:
    """Three links, nodes 0 to 3; the flow crosses all, each competitor one."""
    cross = tuple(CrossFlow("cubic", Flow(links=(i, i))) for i in range(3))
    found = layout(chain(24, 18, 24, cross=cross), "reno")
    assert found.head["nodes"] == 4
    assert rows(found.cables, "node_a", "node_b") == [(0, 1), (1, 2), (2, 3)]
    assert rows(found.routes, "node", "destination", "cable") == [
        (0, 1, 0),
        (0, 3, 0),
        (1, 0, 0),
        (1, 2, 1),
        (1, 3, 1),
        (2, 0, 1),
        (2, 1, 1),
        (2, 3, 2),
        (3, 0, 2),
        (3, 2, 2),
    ]
    assert rows(found.flows, "scheme", "source", "destination", "first_cable", "last_cable", "bottleneck") == [
        (b"reno", 0, 3, 0, 2, 1),
        (b"cubic", 0, 1, 0, 0, 0),
        (b"cubic", 1, 2, 1, 1, 1),
        (b"cubic", 2, 3, 2, 2, 2),
    ]
    assert rows(found.links, "rates", "limit_bytes") == [(1, 90_000), (0, wire.NO_LIMIT)] * 3
    assert rows(found.rates, "bits_per_s") == [(24_000_000,), (18_000_000,), (24_000_000,)]
    assert rows(found.delays, "delay_ns") == [(5 * MS,), (10 * MS,)] * 3
    # the flow's: 18 Mbps for 45 ms are 101,250 bytes, and three queues; its first competitor's: 24 Mbps for 15 ms
    assert rows(found.flows, "sndbuf_bytes")[:2] == [(sndbuf(101_250 + 270_000, 4),), (sndbuf(135_000, 4),)]


def test_layout_of_different_rtts() -> None:
    """The second flow sends from a host of its own, node 2, whose cable takes half of its 30 ms each way."""
    environment = replace(network(), cross=(CrossFlow("bbr", Flow(1.5, 9, 30)), CrossFlow("vegas", Flow())))
    found = layout(environment)
    assert found.head["nodes"] == 3
    assert rows(found.cables, "node_a", "node_b") == [(0, 1), (2, 0)]
    assert rows(found.routes, "node", "destination", "cable") == [
        (0, 1, 0),
        (0, 2, 1),
        (1, 0, 0),
        (1, 2, 0),
        (2, 1, 1),
    ]
    names = ("source", "destination", "start_ns", "stop_ns", "first_cable", "last_cable", "bottleneck")
    assert rows(found.flows, *names) == [
        (0, 1, 0, 10 * S, 0, 0, 0),
        (2, 1, 1500 * MS, 9 * S, 0, 0, 0),
        (0, 1, 0, 10 * S, 0, 0, 0),
    ]
    assert rows(found.delays, "delay_ns") == [(20 * MS,), (20 * MS,), (15 * MS,), (15 * MS,)]
    assert rows(found.links[2:], "rates", "limit_bytes", "seed") == [(0, wire.NO_LIMIT, 0)] * 2
    # 48 Mbps for 70 ms are 420,000 bytes
    assert found.flows[1]["sndbuf_bytes"] == sndbuf(420_000 + 240_000, 3)


def test_a_host_in_mid_chain() -> None:
    """A flow over the second of two links with an RTT of its own: host 3, attached to node 1."""
    found = layout(chain(24, 18, cross=(CrossFlow("cubic", Flow(extra_rtt_ms=8, links=(1, 1))),)))
    assert rows(found.cables, "node_a", "node_b") == [(0, 1), (1, 2), (3, 1)]
    assert found.walk(3, 2) == [2, 1]
    assert found.walk(2, 3) == [1, 2]


def test_every_feature_of_a_link() -> None:
    trace = Link(
        trace=Trace("t", (0, 0.5, 2.25)),
        delay_ms=10,
        delays=(DelayStep(1, 12.5), DelayStep(2, 3)),
        queue_packets=50,
        discipline="pie",
        loss=0.25,
        jitter_ms=0.5,
        jitter_reorders=True,
        grain_ms=1,
    )
    codel = Link((RateStep(0, 1.5), RateStep(0.5, 3)), 1, 3000, discipline="codel", target_ms=2.5)
    bode = Link((RateStep(0, 1),), discipline="bode")
    environment = Environment("custom", (trace, codel, bode), (Link(),) * 3, 10, ())
    found = layout(environment, seed=5)
    one, _, two, _, three, _ = found.links
    assert rows(found.opportunities, "t_ns") == [(0,), (500_000,), (2_250_000,)]
    assert rows(found.rates, "t_ns", "bits_per_s") == [(0, 1_500_000), (500 * MS, 3_000_000), (0, 1_000_000)]
    first_delays = [(0, 10 * MS), (S, 12_500_000), (2 * S, 3 * MS), (0, 0), (0, 1 * MS)]
    assert rows(found.delays, "t_ns", "delay_ns")[:5] == first_delays
    names = ("first_rate", "rates", "first_delay", "delays", "first_opportunity", "opportunities", "period_ns")
    assert rows(found.links, *names)[::2] == [
        (0, 0, 0, 3, 0, 3, 2_250_000),
        (0, 2, 4, 1, 3, 0, 0),
        (2, 1, 6, 1, 3, 0, 0),
    ]
    queues = ("limit_bytes", "limit_packets", "discipline", "target_ns", "interval_ns", "loss", "jitter_ns", "reorder")
    none = wire.NO_LIMIT
    assert rows(found.links, *queues)[::2] == [
        (none, 50, 3, 15 * MS, 15 * MS, 2**30, 500_000, 1),
        (3000, none, 2, 2_500_000, 100 * MS, 0, 0, 0),
        (none, none, 4, 20 * MS, 0, 0, 0, 0),
    ]
    assert (one["grain_ns"], two["grain_ns"]) == (MS, 0)
    assert one["seed"] == link_seed(5, 0) != 0
    assert (two["seed"], three["seed"]) == (0, 0)


def test_an_outage_is_steps_that_are_too_short_for_a_bit() -> None:
    """The guest divides by a rate: 1 bit/s stands for none, and what a step sends is rounded down to whole bits."""
    steps = (RateStep(0, 0), RateStep(0.5, 3), RateStep(7, 0), RateStep(9, 1), RateStep(9.5, 0), RateStep(11, 2))
    found = layout(dumbbell("custom", Link(steps, 5, 90_000), 5, 10, ()))
    almost = S - 1
    assert rows(found.rates, "t_ns", "bits_per_s") == [
        (0, 1),
        (500 * MS, 3_000_000),
        (7 * S, 1),
        (7 * S + almost, 1),
        (7 * S + 2 * almost, 1),
        (9 * S, 1_000_000),
        (9500 * MS, 1),
        (9500 * MS + almost, 1),
        (11 * S, 2_000_000),
    ]
    assert rows(found.links, "first_rate", "rates") == [(0, 9), (9, 0)]
    ending = layout(dumbbell("custom", Link((RateStep(0, 3), RateStep(8.5, 0)), 5, 90_000), 5, 10, ()))
    assert rows(ending.rates, "t_ns", "bits_per_s") == [(0, 3_000_000), (8500 * MS, 1), (8500 * MS + almost, 1)]


def test_seed_of_a_link() -> None:
    """The documented hash; and only links with something random have one."""
    digest = hashlib.sha256(b"7 1").digest()
    assert link_seed(7, 1) == struct.unpack("<Q", digest[:8])[0]
    lossy = dumbbell("custom", Link((RateStep(0, 8),), 5, 90_000), 5, 10, ())
    lossy = replace(lossy, return_links=(Link(delay_ms=5, loss=0.1),))
    assert rows(layout(lossy, seed=7).links, "seed") == [(0,), (link_seed(7, 1),)]
    assert episode_spec(network(), "cubic", 1).wire == episode_spec(network(), "cubic", 2).wire
    assert episode_spec(network(), "cubic", 1).sha256 != episode_spec(network(), "cubic", 2).sha256


def test_queues_without_limit_are_shared() -> None:
    unlimited = replace(network().links[0], queue_bytes=None)
    one = replace(network(duration_s=30), links=(unlimited,))
    sixteen = replace(one, cross=(CrossFlow("cubic"),) * 15)
    assert layout(one).flows["sndbuf_bytes"].tolist() == [min(sndbuf(240_000 + UNLIMITED_QUEUE_BYTES), 2**30)]
    assert set(layout(sixteen).flows["sndbuf_bytes"].tolist()) == {sndbuf(240_000 + UNLIMITED_QUEUE_BYTES // 16, 16)}


def test_queues_without_limit_hold_no_more_than_the_link_sends() -> None:
    """In one second 48 Mbps send 6 MB; the path holds 240,000 bytes."""
    unlimited = replace(network(duration_s=1), links=(replace(network().links[0], queue_bytes=None),))
    assert layout(unlimited).flows["sndbuf_bytes"] == sndbuf(6_240_000)


def test_nobody_waits_where_there_is_no_rate() -> None:
    environment = chain(24, 24)
    passing = replace(environment, links=(environment.links[0], Link(delay_ms=5, queue_bytes=10**9)))
    assert layout(passing).flows["sndbuf_bytes"] == sndbuf(90_000 + 90_000)  # 24 Mbps for 30 ms, one queue


def test_memory_of_several_flows() -> None:
    """Eight times the largest window, 12 MiB a further flow, 512 KiB for each over several links."""
    flow = CrossFlow("cubic")
    spec = episode_spec(chain(24, 18, 24, cross=(flow, flow)), "cubic", 0)
    assert spec.memory_mb == 192 + (8 * (101_250 + 270_000) + 2 * (12 << 20) + 3 * (512 << 10)) // 2**20


@pytest.mark.parametrize(
    ("scheme", "queue_bdp"), [("cubic", 0.5), ("cubic", 4), ("bbr2", 0.5), ("bbr2", 4), ("hybla", 0.5), ("hybla", 4)]
)
def test_the_send_buffer_is_not_the_limit(kernel: Path, scheme: str, queue_bdp: float) -> None:
    """Twice the buffer changes no byte, not even of Hybla, whose first burst asks for up to its 65,535 packets."""
    spec = episode_spec(network(12, 160, queue_bdp, 15), scheme, 0)
    flows = Layout.of(spec).flows.copy()
    flows["sndbuf_bytes"] *= 2
    wider = replace(spec, wire=spec.wire[: -flows.nbytes] + flows.tobytes())
    one, two = run_guest(kernel, spec), run_guest(kernel, wider)
    assert one.samples.tobytes() == two.samples.tobytes()
    if scheme == "hybla":
        assert one.samples["cwnd_pkts"].max() > 5 * (1 + queue_bdp) * 240_000 / 1500


def test_a_cross_flow_that_the_kernel_cannot_run() -> None:
    with pytest.raises(SageccError, match="cross flow: 'tahoe' is no kernel scheme; 'sagecc schemes' lists them"):
        episode_spec(network(cross=("tahoe",)), "cubic", 0)
    with pytest.raises(SageccError, match="cross flow: 'policy:models/sage' is no kernel scheme"):
        episode_spec(network(cross=("policy:models/sage",)), "cubic", 0, drives={})


@settings(max_examples=40)
@given(environments())
def test_any_environment_gives_a_consistent_specification(environment: Environment) -> None:
    spec = episode_spec(environment, "cubic", 3)
    found = Layout.of(spec)
    everyone = environment.all_flows
    own_hosts = sum(bool(flow.extra_rtt_ms) for flow in everyone)
    assert found.head["nodes"] == len(environment.links) + 1 + own_hosts
    assert found.head["cables"] == len(environment.links) + own_hosts
    for array, bound in ((found.cables["node_a"], "nodes"), (found.cables["node_b"], "nodes")):
        assert array.max() < found.head[bound]
    for kind in ("rate", "delay", "opportunity"):
        many = {"rate": "rates", "delay": "delays", "opportunity": "opportunities"}[kind]
        first, counts = found.links[f"first_{kind}"], found.links[many]
        assert first.tolist() == np.concatenate([[0], np.cumsum(counts)[:-1]]).tolist()
        assert counts.sum() == found.head[many]
    for record in found.links:
        begin, count = int(record["first_delay"]), int(record["delays"])
        assert count >= 1
        assert found.delays["t_ns"][begin] == 0
        begin, count = int(record["first_rate"]), int(record["rates"])
        assert not count or not record["opportunities"]
        assert (found.rates["bits_per_s"][begin : begin + count] > 0).all()
        assert (np.diff(found.rates["t_ns"][begin : begin + count].astype(np.int64)) >= 0).all()
        begin, count = int(record["first_opportunity"]), int(record["opportunities"])
        moments = found.opportunities["t_ns"][begin : begin + count].tolist()
        assert moments == sorted(moments)
        assert record["period_ns"] == (moments[-1] if moments else 0)
        assert not moments or record["period_ns"] > 0
        assert record["discipline"] < len(wire.DISCIPLINES)
    for flow, record in zip(everyone, found.flows, strict=True):
        path = list(environment.path(flow))
        crossed = found.walk(int(record["source"]), int(record["destination"]))
        access = crossed[: -len(path)]
        assert crossed == access + path
        assert len(access) == bool(flow.extra_rtt_ms)
        assert found.walk(int(record["destination"]), int(record["source"])) == crossed[::-1]
        assert (record["first_cable"], record["last_cable"]) == (path[0], path[-1])
        assert record["bottleneck"] in path
        assert record["start_ns"] < record["stop_ns"] <= found.head["duration_ns"]
        assert record["sndbuf_bytes"] >= 2**20
        delays = [found.delays["delay_ns"][found.links[2 * c + end]["first_delay"]] for c in access for end in (0, 1)]
        assert sum(map(int, delays)) == pytest.approx(flow.extra_rtt_ms * MS, abs=2)
    assert spec.memory_mb >= 192
    assert episode_spec(Environment.from_json(environment.to_json()), "cubic", 3).sha256 == spec.sha256


def test_a_host_may_drive_several_flows_on_top_of_any_scheme() -> None:
    competitor = Drive("reno", latency_us=7000, sha256="ab")
    drives = {2: competitor, 0: Drive("cubic", latency_us=5000, sha256="cd")}
    spec = episode_spec(network(cross=("bbr", "policy:x")), "policy:models/orca", 7, drives=drives)
    assert rows(Layout.of(spec).flows, "scheme", "lockstep") == [(b"cubic", 1), (b"bbr", 0), (b"reno", 1)]
    assert (spec.lockstep, spec.latencies_us, spec.competitors) == ((0, 2), (5000, 7000), ("ab",))
    others = [replace(spec, latencies_us=(5000, 5000)), replace(spec, latencies_us=()), replace(spec, competitors=())]
    assert len({spec.sha256, *(other.sha256 for other in others)}) == 4


def test_a_specification_is_what_it_was_before_competitors_could_be_driven() -> None:
    """Raw data hold these hashes: of a driven flow with and without a latency."""
    late = episode_spec(network(), "policy:models/orca", 7, drives={0: Drive("cubic", latency_us=5000)})
    text = f"{late.seed} {late.memory_mb} 5000 us as ordered ".encode()
    assert late.sha256 == hashlib.sha256(text + late.wire).hexdigest()
    prompt = episode_spec(network(), "policy:models/orca", 7)
    assert prompt.sha256 == hashlib.sha256(f"{prompt.seed} {prompt.memory_mb} ".encode() + prompt.wire).hexdigest()


def test_no_decision_takes_longer_than_a_second() -> None:
    with pytest.raises(SageccError, match=r"latency.*0 to 1000 ms"):
        Drive(latency_us=1_000_001)
