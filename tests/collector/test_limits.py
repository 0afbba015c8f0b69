# SPDX-License-Identifier: Apache-2.0
"""What a flow in real time is said to be bound by, from samples made by hand."""

from __future__ import annotations

import re
from dataclasses import astuple, replace

import numpy as np
import numpy.typing as npt
import pytest

from sagecc.collector.lab.episode import BOUND_SHARE, FlowSummary, Limits
from sagecc.collector.realtime.endpoint import MEMINFO, SAMPLE
from sagecc.collector.realtime.limits import limits
from sagecc.collector.realtime.record import SAMPLES
from tests.helpers.messages import facts

TICK_NS = 10_000_000


def watched(ticks: int = 100) -> npt.NDArray[np.void]:
    """A sender that has data waiting, its window of 40 packets full, at each tick."""
    sent = np.zeros(ticks, SAMPLES)
    sent["t_ns"] = TICK_NS * (1 + np.arange(ticks))
    sent["info"]["mss_bytes"] = 1448
    sent["info"]["cwnd_pkts"] = sent["info"]["unacked_pkts"] = 40
    sent["info"]["notsent_bytes"] = 100_000
    sent["send_buffer_bytes"], sent["queued_bytes"] = 200_000, 160_000
    return sent


def starve(ticks: npt.NDArray[np.void], queued_bytes: int) -> None:
    """Let there be nothing to send, and the window half used."""
    ticks["info"]["notsent_bytes"], ticks["info"]["unacked_pkts"], ticks["queued_bytes"] = 0, 20, queued_bytes


def test_a_flow_that_its_window_holds_is_bound_by_nothing_else() -> None:
    assert limits(watched(), 0, 10) == Limits(0, 0, 0)
    full = watched()
    full["info"]["notsent_bytes"] = 0  # all that is left is in flight, the window is full
    assert limits(full, 0, 10) == Limits(0, 0, 0)


def test_time_at_the_receive_window_is_tcp_infos_own() -> None:
    sent = watched()
    sent["info"]["rwnd_limited_us"] = 5000 + np.linspace(0, 990_000 / 2, 100).astype(int)
    found = limits(sent, 0, 10)
    assert found is not None and astuple(found) == (pytest.approx(0.5), 0, 0)


def test_nothing_to_send_is_the_buffers_where_that_is_full_and_else_the_applications() -> None:
    """The kernel wakes a program when what is queued is at most two thirds of the buffer."""
    sent = watched()
    starve(sent[:20], queued_bytes=133_334)
    starve(sent[20:50], queued_bytes=133_333)
    assert limits(sent, 0, 10) == Limits(0, 0.2, 0.3)


def test_a_sender_that_has_to_repeat_packets_has_something_to_send() -> None:
    sent = watched()
    starve(sent, queued_bytes=0)
    sent["info"]["lost_pkts"] = 2
    assert limits(sent, 0, 10) == Limits(0, 0, 0)
    sent["info"]["retrans_pkts"] = 2
    assert limits(sent, 0, 10) == Limits(0, 0, 1)


def test_what_is_before_a_flows_start_and_after_its_stop_does_not_count() -> None:
    sent = watched()
    starve(sent[:30], queued_bytes=0)
    starve(sent[80:], queued_bytes=0)
    assert limits(sent, 0.305, 0.81) == Limits(0, 0, 0)
    assert limits(sent, 0, 10) == Limits(0, 0, 0.5)
    assert limits(sent, 5, 10) is None


def test_a_notice_names_each_bound_and_its_remedy() -> None:
    assert Limits(BOUND_SHARE, BOUND_SHARE, BOUND_SHARE).notice is None
    one, two = Limits(0.972, 0, 0).notice, Limits(0, 0.5, 0.06).notice
    assert one and re.search(facts("receive window (97%…net.ipv4.tcp_rmem"), one) and "buffer" not in one
    assert two and re.search(facts("send buffer (50%…application (6%…net.ipv4.tcp_wmem"), two) and "rmem" not in two


def test_a_flow_of_the_lab_has_no_notice() -> None:
    flow = FlowSummary("cubic", 1.0, 2.0, 3.0, 4, 5, 6.0)
    assert flow.notice is None
    assert replace(flow, limits=Limits(0, 0, 0)).notice is None
    assert replace(flow, limits=Limits(1, 0, 0)).notice == Limits(1, 0, 0).notice


def test_a_sample_is_read_as_it_is_written() -> None:
    info = bytearray(280)
    info[144:148], info[176:184] = (1234).to_bytes(4, "little"), (5678).to_bytes(8, "little")
    _, _, _, buffer, _, used, *_ = MEMINFO.unpack(np.arange(9, dtype=np.uint32).tobytes())
    sample = np.frombuffer(SAMPLE.pack(7, 1, 280, bytes(info), buffer, used), SAMPLES)[0]
    assert (sample["t_ns"], sample["flow"], sample["send_buffer_bytes"], sample["queued_bytes"]) == (7, 1, 3, 5)
    assert (sample["info"]["notsent_bytes"], sample["info"]["rwnd_limited_us"]) == (1234, 5678)
