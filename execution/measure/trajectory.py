# SPDX-License-Identifier: Apache-2.0
"""From what both ends of a run recorded to raw trajectories, with the lab's columns.

All times become those of the host that measures, from the sender's first sample on. What only a lab can count is told
from packets that arrived: a packet has crossed the path when it arrived, took as long as the marked packets before and
after it, and waited for what it took beyond the path's least delay. A packet is dropped when its sender counts it lost.
The path's capacity is the most that any of its runs got through in a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sagecc.collector.lab.episode import Episode
from sagecc.collector.realtime.record import SAMPLES, LinkLog, lost_total, make_episode, rate_capacity
from sagecc.collector.run.store import Partition, pack
from sagecc.common.arrays import Ints
from sagecc.common.errors import SageccError
from sagecc.execution.measure.clock import RunClock
from sagecc.execution.measure.runs import MeasuredRun
from sagecc.schemas.environment import MAX_MBPS, MIN_MBPS, Environment, Link, RateStep, dumbbell, episode_id
from sagecc.schemas.measured import UP
from sagecc.schemas.raw import RAW_SCHEMA, TICK_S

MAKER = "measured path"
"""What stands in the files' metadata in place of the kernel that ran the episodes."""
HEADERS_BYTES = 52
"""Of IP, TCP and its time stamps."""
LEAST_TCP_INFO = 208
"""Bytes of TCP_INFO up to tcpi_bytes_sent, which Linux has had since 4.19."""


@dataclass(frozen=True)
class TimedRun:
    """A run in one time: ns since its sender's first sample."""

    duration_s: float
    """How long data were sent (s)."""

    sent: npt.NDArray[np.void]
    """The sender's SAMPLES [sender samples]."""

    received: npt.NDArray[np.void]
    """The receiver's SAMPLES [receiver samples]."""

    arrived_ns: Ints
    """When bytes arrived [arrivals]."""

    arrived_bytes: Ints
    """How many had by then [arrivals]."""

    marked_ns: Ints
    """When marked packets arrived, in their order [marked]."""

    delays_ns: Ints
    """Their one-way delays, wrong by the clocks' error [marked]."""

    @property
    def missed(self) -> float:
        """Share of the ticks at which the sender was not sampled."""
        return max(1 - len(self.sent) * TICK_S / self.duration_s, 0.0)


def timed(run: MeasuredRun) -> TimedRun:
    """Return a run in one time.

    Raises:
        SageccError: nothing got through, or a host's kernel tells too little.
    """
    is_up, clock = run.direction == UP, run.clock
    sent, received = (_samples(run, data) for data in (run.log.sender.samples, run.log.receiver.samples))
    marks, arrivals = (np.frombuffer(log.pairs, "<i8").reshape(-1, 2) for log in (run.log.sender, run.log.receiver))
    sent_ns, marks_ns = (_local(times, clock, not is_up) for times in (sent["t_ns"].astype(np.int64), marks[:, 1]))
    received_ns, arrived_ns = (
        _local(times, clock, is_up) for times in (received["t_ns"].astype(np.int64), arrivals[:, 1])
    )
    began_ns, end_ns = sent_ns[0], round(run.duration_s * 1e9)
    sent, received = (
        _timed(rows, times - began_ns, end_ns) for rows, times in ((sent, sent_ns), (received, received_ns))
    )
    marked_ns, delays_ns = one_way_delays(
        np.column_stack((marks[:, 0], marks_ns - began_ns)), np.column_stack((arrivals[:, 0], arrived_ns - began_ns))
    )
    within = arrived_ns - began_ns < end_ns
    if not len(delays_ns) or not within.any() or not len(received):
        raise SageccError(f"{run.name}: nothing got through")
    return TimedRun(
        run.duration_s, sent, received, (arrived_ns - began_ns)[within], arrivals[within, 0], marked_ns, delays_ns
    )


def one_way_delays(marks: Ints, arrivals: Ints) -> tuple[Ints, Ints]:
    """Return when marked packets arrived, and how long they had taken.

    A stamp of an arrival is that of the last packet that it read; so of the marks that it brought the last one counts.
    What was sent again is left out.

    Args:
        marks: bytes sent, and when the packet with the last of them left (ns) [marks, 2].
        arrivals: bytes received in order, and when (ns) [arrivals, 2].

    Returns:
        Times of arrival and delays, both (ns) [delays].
    """
    numbers, first, counts = np.unique(marks[:, 0], return_index=True, return_counts=True)
    marks = marks[first[counts == 1]]
    index = np.searchsorted(arrivals[:, 0], numbers[counts == 1])
    marks, index = marks[index < len(arrivals)], index[index < len(arrivals)]
    is_last = np.append(np.diff(index) > 0, True)[: len(index)]
    arrived_ns = arrivals[index[is_last], 1]
    return arrived_ns, arrived_ns - marks[is_last, 1]


def path_environment(name: str, flows: Sequence[TimedRun], rtt_ns: int) -> Environment:
    """Return a path in one direction as an environment.

    Args:
        name: of the set.
        flows: its runs.
        rtt_ns: the least round trip that control has seen (ns).
    """
    duration_s = flows[0].duration_s
    least_rtt_ns = min(rtt_ns, *(int(each.sent["info"]["min_rtt_us"][-1]) * 1000 for each in flows))
    least_ns = min(int(each.delays_ns.min()) for each in flows)
    rtt_ms = max(round(least_rtt_ns / 1e6, 3), 0.001)
    delay_ms = round(min(max(least_ns / 1e6, 0.0), rtt_ms), 3)
    most_mbps = max(_most_mbps(each) for each in flows)
    rate = RateStep(0, min(max(round(most_mbps, 3), MIN_MBPS), MAX_MBPS))
    link = Link(rates=(rate,), delay_ms=delay_ms)
    return dumbbell(name, link, round(rtt_ms - delay_ms, 3), duration_s, ((0.0, duration_s),))


def _most_mbps(each: TimedRun) -> float:
    """Return the most that arrived in a second, or in all of a shorter run (Mbps)."""
    window_s = min(1.0, each.duration_s)
    ends_ns = np.arange(round(window_s * 1e9), round(each.duration_s * 1e9) + 1, 100_000_000)
    counts = np.append(0, each.arrived_bytes)
    times = np.maximum.accumulate(each.arrived_ns)
    got = [counts[np.searchsorted(times, at, side="right")] for at in (ends_ns, ends_ns - round(window_s * 1e9))]
    return float((got[0] - got[1]).max()) * 8 / 1e6 / window_s


def episode(run: MeasuredRun, each: TimedRun, environment: Environment) -> Episode:
    """Return the raw trajectory of a run; as in those of own logs, steps go over ticks that a busy host has missed.

    Args:
        run: the run.
        each: it in one time.
        environment: its path.
    """
    name = episode_id(environment.id, run.scheme, run.number)
    link = link_log(each, environment)
    made = make_episode(environment, run.scheme, run.number, name, sent=each.sent, received=each.received, link=link)
    step = pa.array(np.arange(made.rows.num_rows, dtype=np.int32))
    rows = made.rows.set_column(made.rows.schema.get_field_index("step"), RAW_SCHEMA.field("step"), step)
    return replace(made, rows=rows, spec_sha256=made.sha256)  # a run measured again has the same specification


def link_log(each: TimedRun, environment: Environment) -> LinkLog:
    """Return what the path did with a run's packets.

    Args:
        each: the run.
        environment: its path.
    """
    mss = int(each.sent["info"]["mss_bytes"][-1])
    counts = -(-each.arrived_bytes // mss)
    times_ns = np.maximum.accumulate(each.arrived_ns)
    left_ns = np.repeat(times_ns, np.diff(counts, prepend=0))
    order = np.argsort(each.marked_ns, kind="stable")
    delay_ns = np.interp(left_ns, each.marked_ns[order], each.delays_ns[order]).astype(np.int64)
    waited_ns = np.maximum(delay_ns - round(environment.bottleneck.delay_ms * 1e6), 0)
    lost = np.diff(lost_total(each.sent["info"]), prepend=np.uint32(0)).astype(np.int64)
    drop_ns = np.repeat(each.sent["t_ns"].astype(np.int64), lost)
    capacity_ns, capacity_bytes = rate_capacity(environment.bottleneck, environment.duration_s + 1)
    return LinkLog(
        flow=np.zeros(len(left_ns), np.int64),
        bytes=np.full(len(left_ns), mss + HEADERS_BYTES),
        entered_ns=left_ns - waited_ns,
        left_ns=left_ns,
        delay_ns=np.maximum(delay_ns, 0),
        drop_flow=np.zeros(len(drop_ns), np.int64),
        drop_ns=drop_ns,
        capacity_ns=capacity_ns,
        capacity_bytes=capacity_bytes,
    )


def write_raw(episodes: Sequence[Episode], out: Path) -> None:
    """Make these episodes the content of a folder of raw trajectories, in the partitions that they belong to."""
    for set_name, scheme in sorted({(each.environment.set, each.scheme) for each in episodes}):
        with Partition(out, set_name, scheme, MAKER) as partition:
            own = [each for each in episodes if (each.environment.set, each.scheme) == (set_name, scheme)]
            stored = partition.kept()
            for each in own:
                if stored.get(each.id) != each.spec_sha256:
                    partition.add(each.id, pack(each, MAKER))
            partition.assemble([each.id for each in own])


def _local(times_ns: Ints, clock: RunClock, is_peer: bool) -> Ints:
    return clock.local_ns(times_ns) if is_peer else times_ns


def _samples(run: MeasuredRun, data: bytes) -> npt.NDArray[np.void]:
    if not data or len(data) % SAMPLES.itemsize:
        raise SageccError(f"{run.name}: its samples are none")
    rows = np.frombuffer(data, SAMPLES)
    if rows["length"].min() < LEAST_TCP_INFO:
        raise SageccError(
            f"{run.name}: a host's kernel tells too little of a flow (TCP_INFO): Linux 4.19 or newer does"
        )
    return rows


def _timed(rows: npt.NDArray[np.void], t_ns: Ints, end_ns: int) -> npt.NDArray[np.void]:
    """Return rows with these times instead of their own, within the run, the last of each tick."""
    within = (t_ns >= 0) & (t_ns < end_ns)
    rows, t_ns = rows[within].copy(), t_ns[within]
    rows["t_ns"] = t_ns
    rows["flow"] = 0
    ticks = t_ns // round(TICK_S * 1e9)
    is_last: npt.NDArray[np.bool_] = np.append(np.diff(ticks) > 0, True)[: len(ticks)]
    return rows[is_last]
