# SPDX-License-Identifier: Apache-2.0
"""The link's queue, compiled as it is, against models written from the RFCs: packet by packet, to the nanosecond."""

from __future__ import annotations

import ctypes
import math
import random
import shutil
import subprocess
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagecc.schemas import wire
from tests.conftest import ROOT

MODULES = ROOT / "collector" / "kernel" / "modules"
HARNESS = Path(__file__).parent / "link_queue_harness.c"
KERNEL_HEADERS = ("linux/prandom.h", "linux/math64.h", "linux/mm.h", "net/inet_ecn.h", "net/pkt_sched.h")
FLOWS = 4
"""Of the harness's episode, so that FLOWS is the number of packets of none."""
MTU = 1500
MS = 1_000_000
S = 1_000_000_000


@dataclass(frozen=True)
class Setting:
    """A queue's parameters: times in ns, no limit unless given."""

    discipline: str
    target_ns: int = 0
    interval_ns: int = 0
    limit_bytes: int = wire.NO_LIMIT
    limit_packets: int = wire.NO_LIMIT
    seed: int = 0
    ecn: bool = False
    mark_packets: int = wire.NO_LIMIT
    quantum_bytes: int = MTU
    ack_filter: bool = False


class Real:
    """link_queue.c."""

    def __init__(self, library: ctypes.CDLL, setting: Setting) -> None:
        link = np.zeros(1, wire.LINK)
        for name in ("target_ns", "interval_ns", "limit_bytes", "limit_packets", "seed"):
            link[name] = getattr(setting, name)
        link["discipline"] = wire.DISCIPLINES.index(setting.discipline)
        extra = np.zeros(1, wire.EXTRA)
        for name in ("ecn", "mark_packets", "quantum_bytes", "ack_filter"):
            extra[name] = getattr(setting, name)
        self._library = library
        self._queue = ctypes.c_void_p(library.queue_new(link.tobytes(), extra.tobytes()))
        self._out = (ctypes.c_uint32 * (1 << 16))()

    def add(
        self, now: int, number: int, size: int, flow: int = FLOWS, ecn_capable: bool = False, plain_ack: bool = False
    ) -> bool:
        added = self._library.queue_add(self._queue, ctypes.c_uint64(now), number, size, flow, ecn_capable, plain_ack)
        return bool(added)

    def take(self, now: int) -> int | None:
        number = self._library.queue_take(self._queue, ctypes.c_uint64(now))
        return None if number < 0 else int(number)

    @property
    def waiting_bytes(self) -> int:
        return int(self._library.queue_bytes(self._queue))

    @property
    def drops(self) -> int:
        return int(self._library.queue_drop_count(self._queue))

    def dropped(self) -> list[int]:
        """Return who was dropped since the last call."""
        return list(self._out[: self._library.queue_dropped(self._out)])

    def marked(self) -> list[int]:
        """Return who was marked since the last call."""
        return list(self._out[: self._library.queue_marked(self._out)])

    def free(self) -> None:
        self._library.queue_free(self._queue)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")
    folder = tmp_path_factory.mktemp("link_queue")
    for header in KERNEL_HEADERS:
        (folder / header).parent.mkdir(exist_ok=True)
        (folder / header).touch()
    (folder / "wire.h").write_text(wire.c_header())
    built = folder / "queue.so"
    flags = ("-shared", "-fPIC", "-O1", "-std=gnu11", "-Wall", "-Werror", f"-I{folder}", f"-I{MODULES}")
    done = subprocess.run(["gcc", *flags, "-o", str(built), str(HARNESS)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    own = ctypes.CDLL(str(built))
    own.queue_new.restype = ctypes.c_void_p
    own.queue_take.restype = ctypes.c_int64
    own.queue_bytes.restype = own.queue_drop_count.restype = ctypes.c_uint64
    own.queue_add.restype = own.policer_admits.restype = ctypes.c_bool
    own.policer_new.restype = ctypes.c_void_p
    return own


# ---- the models ----


@dataclass
class Packet:
    number: int
    size: int
    arrival: int
    ecn_capable: bool = False
    acknowledges: int | None = None
    """Of whose data it is a plain acknowledgement."""


@dataclass
class Model:
    """Tail-drop; the others differ from it."""

    setting: Setting
    waiting: deque[Packet] = field(default_factory=deque)
    lost: list[int] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)

    @property
    def waiting_bytes(self) -> int:
        return sum(packet.size for packet in self.waiting)

    def fits(self, size: int) -> bool:
        own = self.setting
        return self.waiting_bytes + size <= own.limit_bytes and len(self.waiting) + 1 <= own.limit_packets

    def filter(self, flow: int, plain_ack: bool) -> None:
        if not (self.setting.ack_filter and plain_ack):
            return
        older = [packet for packet in self.waiting if packet.acknowledges == flow]
        for packet in older:
            self.waiting.remove(packet)
            self.lost.append(packet.number)

    def add(
        self, now: int, number: int, size: int, flow: int = FLOWS, ecn_capable: bool = False, plain_ack: bool = False
    ) -> bool:
        self.filter(flow, plain_ack)
        if not self.fits(size):
            self.lost.append(number)
            return False
        if len(self.waiting) > self.setting.mark_packets and ecn_capable:
            self.marks.append(number)
        self.waiting.append(Packet(number, size, now, ecn_capable, flow if plain_ack else None))
        return True

    def take(self, now: int) -> int | None:
        return self.waiting.popleft().number if self.waiting else None

    def dropped(self) -> list[int]:
        out = list(self.lost)
        self.lost.clear()
        return out

    def marked(self) -> list[int]:
        out = list(self.marks)
        self.marks.clear()
        return out


class HeadDrop(Model):
    def add(
        self, now: int, number: int, size: int, flow: int = FLOWS, ecn_capable: bool = False, plain_ack: bool = False
    ) -> bool:
        self.filter(flow, plain_ack)
        while self.waiting and not self.fits(size):
            self.lost.append(self.waiting.popleft().number)
        return super().add(now, number, size, flow, ecn_capable, plain_ack)


class BoDe(Model):
    def take(self, now: int) -> int | None:
        while len(self.waiting) > 1 and now - self.waiting[0].arrival > self.setting.target_ns:
            self.lost.append(self.waiting.popleft().number)
        return super().take(now)


class CoDel(Model):
    """RFC 8289 section 5, line by line; with ECN, a mark instead of each drop."""

    first_above_time = 0
    drop_next = 0
    count = 0
    lastcount = 0
    dropping = False

    def control_law(self, t: int, count: int) -> int:
        return t + self.setting.interval_ns * 2**16 // math.isqrt(count * 2**32)

    def dodequeue(self, now: int) -> tuple[Packet | None, bool]:
        ok_to_drop = False
        packet = self.waiting.popleft() if self.waiting else None
        if packet is None or now - packet.arrival < self.setting.target_ns or self.waiting_bytes <= MTU:
            self.first_above_time = 0
        elif self.first_above_time == 0:
            self.first_above_time = now + self.setting.interval_ns
        elif now >= self.first_above_time:
            ok_to_drop = True
        return packet, ok_to_drop

    def marks_instead(self, packet: Packet | None) -> bool:
        assert packet is not None
        instead = self.setting.ecn and packet.ecn_capable
        (self.marks if instead else self.lost).append(packet.number)
        return instead

    def take(self, now: int) -> int | None:
        packet = self.take_packet(now)
        return None if packet is None else packet.number

    def take_packet(self, now: int) -> Packet | None:
        packet, ok_to_drop = self.dodequeue(now)
        if self.dropping:
            if not ok_to_drop:
                self.dropping = False
            while now >= self.drop_next and self.dropping:
                self.count += 1
                if self.marks_instead(packet):
                    self.drop_next = self.control_law(self.drop_next, self.count)
                    break
                packet, ok_to_drop = self.dodequeue(now)
                if not ok_to_drop:
                    self.dropping = False
                else:
                    self.drop_next = self.control_law(self.drop_next, self.count)
        elif ok_to_drop:
            if not self.marks_instead(packet):
                packet, ok_to_drop = self.dodequeue(now)
            self.dropping = True
            delta = self.count - self.lastcount
            self.count = 1
            if delta > 1 and now - self.drop_next < 16 * self.setting.interval_ns:
                self.count = delta
            self.drop_next = self.control_law(now, self.count)
            self.lastcount = self.count
        return packet


class FqCoDel(Model):
    """RFC 8290 section 4, with a queue a flow; what does not fit is dropped one by one."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        alone = replace(setting, limit_bytes=wire.NO_LIMIT, limit_packets=wire.NO_LIMIT, mark_packets=wire.NO_LIMIT)
        self.queues = [CoDel(alone, lost=self.lost, marks=self.marks) for _ in range(2 * FLOWS + 1)]
        self.credits = [0] * len(self.queues)
        self.new: deque[int] = deque()
        self.old: deque[int] = deque()

    @property
    def waiting_bytes(self) -> int:
        return sum(queue.waiting_bytes for queue in self.queues)

    @property
    def packets(self) -> int:
        return sum(len(queue.waiting) for queue in self.queues)

    def add(
        self, now: int, number: int, size: int, flow: int = FLOWS, ecn_capable: bool = False, plain_ack: bool = False
    ) -> bool:
        if self.packets > self.setting.mark_packets and ecn_capable:
            self.marks.append(number)
        self.queues[flow].add(now, number, size, flow, ecn_capable, plain_ack)
        if flow not in self.new and flow not in self.old:
            self.new.append(flow)
            self.credits[flow] = self.setting.quantum_bytes
        is_in = True
        while self.waiting_bytes > self.setting.limit_bytes or self.packets > self.setting.limit_packets:
            longest = max(self.queues, key=lambda queue: queue.waiting_bytes)
            head = longest.waiting.popleft().number
            self.lost.append(head)
            is_in &= head != number
        return is_in

    def take(self, now: int) -> int | None:
        while self.new or self.old:
            turns = self.new or self.old
            flow = turns[0]
            if self.credits[flow] <= 0:
                self.credits[flow] += self.setting.quantum_bytes
                self.old.append(turns.popleft())
                continue
            packet = self.queues[flow].take_packet(now)
            if packet is not None:
                self.credits[flow] -= packet.size
                return packet.number
            turns.popleft()
            if turns is self.new:
                self.old.append(flow)
        return None


def generator(seed: int) -> Iterator[float]:
    """The harness's random numbers, in [0, 1)."""
    while True:
        seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
        yield (seed >> 32) / 2**32


class Pie(Model):
    """RFC 8033 sections 4.1, 4.2 and 4.4 in seconds and floats; the delay is the taken packet's own (section 5.2)."""

    MAX_BURST = 0.150
    alpha, beta = 0.125, 1.25
    scales = ((0.000001, 2048), (0.00001, 512), (0.0001, 128), (0.001, 32), (0.01, 8), (0.1, 2))

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.random = generator(setting.seed + 2)
        self.burst_allowance = self.MAX_BURST
        self.drop_prob = self.current_qdelay = self.qdelay_old = 0.0
        self.next_update = setting.interval_ns
        self.nearest = 1.0
        """How near a random number came to the probability: fixed-point numbers may decide otherwise there."""

    def update(self) -> None:
        reference = self.setting.target_ns / S
        p = self.alpha * (self.current_qdelay - reference) + self.beta * (self.current_qdelay - self.qdelay_old)
        p /= next((divisor for bound, divisor in self.scales if self.drop_prob < bound), 1)
        self.drop_prob += p
        if self.current_qdelay == 0 and self.qdelay_old == 0:
            self.drop_prob *= 0.98
        self.drop_prob = min(max(self.drop_prob, 0.0), 1.0)
        self.burst_allowance = max(0.0, self.burst_allowance - self.setting.interval_ns / S)
        if self.burst_allowance < 1e-9:
            self.burst_allowance = 0.0
        if self.drop_prob == 0 and self.current_qdelay < reference / 2 and self.qdelay_old < reference / 2:
            self.burst_allowance = self.MAX_BURST
        self.qdelay_old = self.current_qdelay

    def advance(self, now: int) -> None:
        while self.next_update <= now:
            self.update()
            self.next_update += self.setting.interval_ns

    def drop_early(self) -> bool:
        if self.burst_allowance > 0:
            return False
        if self.qdelay_old < self.setting.target_ns / S / 2 and self.drop_prob < 0.2:
            return False
        if self.waiting_bytes <= 2 * MTU:
            return False
        drawn = next(self.random)
        self.nearest = min(self.nearest, abs(drawn - self.drop_prob))
        return drawn < self.drop_prob

    def add(
        self, now: int, number: int, size: int, flow: int = FLOWS, ecn_capable: bool = False, plain_ack: bool = False
    ) -> bool:
        self.advance(now)
        if self.drop_early():
            self.lost.append(number)
            return False
        return super().add(now, number, size, flow, ecn_capable, plain_ack)

    def take(self, now: int) -> int | None:
        self.advance(now)
        head = self.waiting[0] if self.waiting else None
        number = super().take(now)
        if head:
            self.current_qdelay = (now - head.arrival) / S if self.waiting else 0.0
        return number


MODELS: dict[str, type[Model]] = {
    "tail-drop": Model,
    "head-drop": HeadDrop,
    "codel": CoDel,
    "pie": Pie,
    "bode": BoDe,
    "fq-codel": FqCoDel,
}


# ---- the comparison ----


@dataclass(frozen=True)
class Load:
    """Packets that come at random, now denser and now thinner, and a transmitter that takes one when it is free."""

    seed: int
    mean_load: float
    small_share: float
    packet_ns: int
    packets: int = 1200

    def events(self) -> Iterator[tuple[int, int]]:
        """Yield (moment, size of the packet that comes, 0 for the transmitter's turn)."""
        draw = random.Random(self.seed)
        coming, free, load = 0, self.packet_ns, self.mean_load
        for number in range(self.packets):
            if number % 300 == 0:
                load = self.mean_load * draw.choice((0.3, 1, 1, 2))
            coming += int(draw.expovariate(load / self.packet_ns))
            while free <= coming:
                yield free, 0
                free += self.packet_ns
            yield coming, 60 if draw.random() < self.small_share else MTU


loads = st.builds(
    Load,
    seed=st.integers(0, 2**32),
    mean_load=st.floats(0.5, 2.5),
    small_share=st.sampled_from((0.0, 0.3, 1.0)),
    packet_ns=st.sampled_from((100_000, 1_000_000, 7_777_777)),
)
limits = st.fixed_dictionaries(
    {},
    optional={"limit_bytes": st.integers(MTU, 200 * MTU), "limit_packets": st.integers(1, 200)},
)
times = st.one_of(st.just((5 * MS, 100 * MS)), st.tuples(st.integers(MS, 50 * MS), st.integers(5 * MS, 200 * MS)))


def agree(library: ctypes.CDLL, setting: Setting, load: Load) -> None:
    """Play the load to both; stop where two kinds of arithmetic may decide a random drop differently."""
    real, model = Real(library, setting), MODELS[setting.discipline](setting)
    drops = 0
    kinds = random.Random(load.seed)
    try:
        for number, (now, size) in enumerate(load.events()):
            flow, ecn_capable = min(int(kinds.expovariate(1)), 2 * FLOWS), kinds.random() < 0.5
            plain_ack = kinds.random() < 0.5
            if size:
                got = real.add(now, number, size, flow, ecn_capable, plain_ack)
                wanted = model.add(now, number, size, flow, ecn_capable, plain_ack)
            else:
                got, wanted = real.take(now), model.take(now)  # type: ignore[assignment]
            if isinstance(model, Pie) and model.nearest < 1e-5:
                return
            lost = model.dropped()
            assert (got, real.dropped()) == (wanted, lost), f"at {now} ns"
            assert real.marked() == model.marked(), f"at {now} ns"
            assert real.waiting_bytes == model.waiting_bytes
            drops += len(lost)
        assert real.drops == drops
    finally:
        real.dropped()
        real.marked()
        real.free()


@pytest.mark.parametrize("discipline", ["tail-drop", "head-drop"])
@settings(max_examples=40)
@given(load=loads, limit=limits)
def test_limits(library: ctypes.CDLL, discipline: str, load: Load, limit: dict[str, Any]) -> None:
    agree(library, Setting(discipline, **limit), load)


@pytest.mark.parametrize("discipline", ["codel", "bode"])
@settings(max_examples=40)
@given(load=loads, limit=limits, target_interval=times)
def test_drops_at_dequeue(
    library: ctypes.CDLL, discipline: str, load: Load, limit: dict[str, Any], target_interval: tuple[int, int]
) -> None:
    agree(library, Setting(discipline, *target_interval, **limit), load)


@pytest.mark.parametrize("discipline", ["codel", "fq-codel"])
@settings(max_examples=40)
@given(load=loads, limit=limits, target_interval=times, ecn=st.booleans(), quantum=st.sampled_from((300, 1500, 4000)))
def test_codel_of_several_flows_with_and_without_ecn(
    library: ctypes.CDLL,
    discipline: str,
    load: Load,
    limit: dict[str, Any],
    target_interval: tuple[int, int],
    ecn: bool,
    quantum: int,
) -> None:
    agree(library, Setting(discipline, *target_interval, ecn=ecn, quantum_bytes=quantum, **limit), load)


@pytest.mark.parametrize("discipline", ["tail-drop", "head-drop", "fq-codel"])
@settings(max_examples=20)
@given(load=loads, limit=limits, mark_packets=st.integers(1, 60))
def test_marks_above_a_threshold(
    library: ctypes.CDLL, discipline: str, load: Load, limit: dict[str, Any], mark_packets: int
) -> None:
    agree(library, Setting(discipline, 5 * MS, 100 * MS, mark_packets=mark_packets, **limit), load)


@pytest.mark.parametrize("discipline", ["tail-drop", "head-drop", "codel", "pie", "bode", "fq-codel"])
@settings(max_examples=20)
@given(load=loads, limit=limits)
def test_an_ack_drops_the_older_one(library: ctypes.CDLL, discipline: str, load: Load, limit: dict[str, Any]) -> None:
    agree(library, Setting(discipline, 15 * MS, 100 * MS, ack_filter=True, **limit), load)


@settings(max_examples=40)
@given(load=loads, limit=limits, seed=st.integers(0, 2**64 - 3), target=st.sampled_from((15 * MS, 2 * MS, 60 * MS)))
def test_pie(library: ctypes.CDLL, load: Load, limit: dict[str, Any], seed: int, target: int) -> None:
    agree(library, Setting("pie", target, 15 * MS, seed=seed, **limit), load)


# ---- by hand ----


def fill(real: Real, now: int, packets: int) -> None:
    for number in range(packets):
        real.add(now, number, MTU)


def drop_times(real: Real, moments: Iterable[int]) -> list[int]:
    """Take a packet at each moment; return when packets were dropped (ns)."""
    times = []
    for now in moments:
        real.take(now)
        times += [now] * len(real.dropped())
    return times


def test_codel_s_control_law(library: ctypes.CDLL) -> None:
    """Above the target from 5 ms on: dropping begins at 105 ms; then 100, 70.7, 57.7, 50, 44.7 ms after one another."""
    real = Real(library, Setting("codel", 5 * MS, 100 * MS))
    fill(real, 0, 60_000)
    times = drop_times(real, range(0, 600 * MS, 10_000))
    assert times[0] == 105 * MS
    assert np.diff(times[:6]) / MS == pytest.approx([100, 70.71, 57.74, 50, 44.72], abs=0.011)
    real.free()


def test_codel_restarts_where_it_left(library: ctypes.CDLL) -> None:
    """Soon after a spell of n drops the next one begins with a count of n - 1 (section 5.5: delta), not of 1."""
    real = Real(library, Setting("codel", 5 * MS, 100 * MS))
    fill(real, 0, 80)  # gone after 400 ms
    first = drop_times(real, range(0, 600 * MS, 5 * MS))
    fill(real, 600 * MS, 200)
    second = drop_times(real, range(600 * MS, 1000 * MS, 5 * MS))
    assert len(first) >= 4
    assert second[1] - second[0] == pytest.approx(100 * MS / math.sqrt(len(first) - 1), abs=5 * MS)
    real.free()


def test_pie_s_first_steps(library: ctypes.CDLL) -> None:
    """A delay of 1015 ms at every update: 0.125 (1.015 - 0.015) + 1.25 (the first time) and 0.125 after, scaled.

    p = 0.125 + 1.25 x 1.015 = 1.39375; / 2048 = 0.000680542 at the first; the second adds 0.125 / 32, the third
    0.125 / 8 (0.0046 < 0.01), the fourth 0.125 / 2 (0.0202 < 0.1); from 0.0827 on likewise, then 0.125 whole.
    """
    wanted = np.cumsum([1.39375 / 2048, 0.125 / 32, 0.125 / 8, 0.125 / 2, 0.125 / 2])
    model = Pie(Setting("pie", 15 * MS, 15 * MS))
    model.current_qdelay = 1.015
    seen = []
    for _ in range(5):
        model.update()
        seen.append(model.drop_prob)
    assert seen == pytest.approx(wanted)
    model.update()
    assert model.drop_prob == pytest.approx(wanted[-1] + 0.125)


def test_fq_codel_s_turns(library: ctypes.CDLL) -> None:
    """Three flows at once, of full packets (0), of one (1), of a third of one (2): a quantum of one packet each.

    New queues first: 0 sends one, 1 sends one, 2 sends three. Then the old ones in turn: 0 sends its second; 1 is empty
    and forgotten; 2 sends its fourth, is empty and forgotten. 1 comes back: as a new queue it goes before 0.
    """
    real = Real(library, Setting("fq-codel", 5 * MS, 100 * MS))
    for number in (1, 2, 3, 4):
        real.add(0, number, MTU, 0)
    real.add(0, 11, MTU, 1)
    for number in (21, 22, 23, 24):
        real.add(0, number, MTU // 3, 2)
    assert [real.take(0) for _ in range(8)] == [1, 11, 21, 22, 23, 2, 24, 3]
    real.add(0, 12, MTU, 1)
    assert [real.take(0) for _ in range(3)] == [12, 4, None]
    real.free()


def test_fq_codel_drops_from_the_longest_queue(library: ctypes.CDLL) -> None:
    """Of four packets at most: the fifth, of another flow, takes the place of the oldest of the longest queue."""
    real = Real(library, Setting("fq-codel", 5 * MS, 100 * MS, limit_packets=4))
    for number in (1, 2, 3):
        real.add(0, number, MTU, 0)
    real.add(0, 11, MTU, 1)
    assert real.add(0, 12, MTU, 1)
    assert real.dropped() == [1]
    real.free()


def test_codel_marks_by_its_control_law(library: ctypes.CDLL) -> None:
    """The packets of a flow with ECN are marked when the others of test_codel_s_control_law would be dropped."""
    real = Real(library, Setting("codel", 5 * MS, 100 * MS, ecn=True))
    for number in range(60_000):
        real.add(0, number, MTU, FLOWS, True)
    times = []
    for now in range(0, 600 * MS, 10_000):
        real.take(now)
        times += [now] * len(real.marked())
    assert times[0] == 105 * MS
    assert np.diff(times[:6]) / MS == pytest.approx([100, 70.71, 57.74, 50, 44.72], abs=0.011)
    assert real.drops == 0
    real.free()


# ---- the policer ----


class RealPolicer:
    def __init__(self, library: ctypes.CDLL, bits_s: int, burst_bytes: int) -> None:
        extra = np.zeros(1, wire.EXTRA)
        extra["policer_bits_per_s"], extra["policer_burst_bytes"] = bits_s, burst_bytes
        self._library, self._policer = library, ctypes.c_void_p(library.policer_new(extra.tobytes()))

    def admits(self, now: int, size: int) -> bool:
        return bool(self._library.policer_admits(self._policer, ctypes.c_uint64(now), size))


def test_a_policer_s_bucket(library: ctypes.CDLL) -> None:
    """12 Mbps are 1,500 bytes a millisecond, into a bucket of 3,000."""
    policer = RealPolicer(library, 12_000_000, 3000)
    moments = [(0, 1500), (0, 1500), (0, 1), (MS // 2, 751), (MS // 2, 700), (MS // 2, 51), (MS // 2, 50)]
    assert [policer.admits(*each) for each in moments] == [True, True, False, False, True, False, True]
    assert [policer.admits(100 * MS, 1500) for _ in range(3)] == [True, True, False]  # no more than full


@settings(max_examples=60)
@given(
    bits_s=st.integers(1000, 10**10),
    burst=st.integers(MTU, 2**30),
    packets=st.lists(st.tuples(st.integers(0, 10**10), st.integers(20, MTU)), max_size=60),
)
def test_a_policer_is_an_exact_token_bucket(
    library: ctypes.CDLL, bits_s: int, burst: int, packets: list[tuple[int, int]]
) -> None:
    policer = RealPolicer(library, bits_s, burst)
    tokens, now = Fraction(burst), 0
    for gap, size in packets:
        now += gap
        tokens = min(Fraction(burst), tokens + Fraction(gap * bits_s, 8 * S))
        passes = tokens >= size
        assert policer.admits(now, size) == passes
        tokens -= size if passes else 0


def test_without_a_rate_a_policer_lets_all_pass(library: ctypes.CDLL) -> None:
    policer = RealPolicer(library, 0, 0)
    assert all(policer.admits(0, MTU) for _ in range(1000))
