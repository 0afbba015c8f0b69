# SPDX-License-Identifier: Apache-2.0
"""Episodes in real time: what can be computed by hand, real Mahimahi's stand-ins, and the host's own kernel."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagecc.collector.lab.episode import BOUND_SHARE, run_episode
from sagecc.collector.realtime import host, mahimahi, process
from sagecc.collector.realtime.endpoint import Specification
from sagecc.collector.realtime.host import run_on_host, why_not
from sagecc.collector.realtime.mahimahi import LEAD_MS, queue_options, read_log, run_mahimahi, uplink_ms
from sagecc.collector.realtime.process import Program, endpoint_command
from sagecc.collector.realtime.record import CLOSE_WAIT, SAMPLES, LinkLog, make_episode, rate_capacity
from sagecc.common.errors import SageccError
from sagecc.schemas.environment import CrossFlow, Environment, Flow, Link, Policer, RateStep, Trace
from sagecc.schemas.raw import RAW_SCHEMA
from sagecc.schemas.wire import FIRST_PORT
from tests.conftest import ROOT
from tests.helpers import mahimahi_standin
from tests.helpers.networks import network
from tests.helpers.processes import alive

pytestmark = pytest.mark.kernel

STANDIN = Path(mahimahi_standin.__file__)
HERE = why_not()
on_host = pytest.mark.skipif(HERE is not None, reason=str(HERE))


def link(environment: Environment, **fields: Any) -> Environment:
    return replace(environment, links=(replace(environment.links[0], **fields),))


# ---- samples ----


def test_a_fin_is_no_byte() -> None:
    """1000 bytes in the second; the FIN, which TCP counts as the 1001st, comes before the last tick."""
    sent, received = np.zeros(3, SAMPLES), np.zeros(2, SAMPLES)
    sent["t_ns"] = np.array([10, 20, 30]) * 10**6
    received["t_ns"] = np.array([15, 25]) * 10**6
    received["info"]["received_bytes"], received["info"]["state"] = [1000, 1001], [1, CLOSE_WAIT]
    one, none, line = np.ones(1, np.int64), np.empty(0, np.int64), np.array([0, 10**9])
    log = LinkLog(0 * one, 1500 * one, one, 2 * one, 10**6 * one, none, none, line, line)
    made = make_episode(network(duration_s=1), "cubic", 0, "e", sent=sent, received=received, link=log)
    assert made.rows["received_bytes"].to_pylist() == [0, 1000, 1000]
    assert made.flows[0].goodput_mbps == 0.008
    assert received["info"]["received_bytes"].tolist() == [1000, 1001]


# ---- traces ----


def test_a_rate_becomes_opportunities() -> None:
    moments = uplink_ms(network(bandwidth_mbps=12, duration_s=2))
    assert moments[: LEAD_MS - 1].tolist() == list(range(1, LEAD_MS))
    after = moments[moments > LEAD_MS]
    assert after[:5].tolist() == [LEAD_MS + ms for ms in (1, 2, 3, 4, 5)]
    assert after[-1] >= LEAD_MS + 2000


def test_a_step_changes_the_opportunities() -> None:
    environment = link(network(duration_s=2), rates=(RateStep(0, 12), RateStep(0.01, 48)))
    after = uplink_ms(environment) - LEAD_MS
    after = after[(after > 0) & (after <= 12)]
    assert after.tolist() == [*range(1, 11), *[11] * 4, *[12] * 4]


def test_an_outage_has_no_opportunity() -> None:
    """The tenth packet is sent when it begins, and not when it ends."""
    environment = link(network(duration_s=1), rates=(RateStep(0, 0), RateStep(0.01, 12), RateStep(0.02, 0)))
    after = uplink_ms(environment) - LEAD_MS
    assert after[after > 0].tolist() == [*range(11, 21)]
    environment = link(environment, rates=(*environment.bottleneck.rates, RateStep(0.05, 24)))
    after = uplink_ms(environment) - LEAD_MS
    assert after[after > 0][:14].tolist() == [*range(11, 21), 51, 51, 52, 52]


def test_a_trace_is_repeated_from_the_beginning_of_the_episode() -> None:
    environment = link(network(duration_s=1), rates=(), trace=Trace("t", (0.0, 2.5, 7.0)))
    after = uplink_ms(environment) - LEAD_MS
    assert after[after >= 0][:7].tolist() == [0, 3, 7, 7, 10, 14, 14]


@given(st.floats(0.5, 200), st.floats(0.1, 5), st.floats(0.5, 200))
def test_opportunities_carry_the_schedule_to_a_packet(first: float, at_s: float, second: float) -> None:
    schedule = Link(rates=(RateStep(0, first), RateStep(at_s, second)), queue_bytes=1500)
    count = len(mahimahi.rate_opportunities_ms(schedule, 6000))
    _, sent = rate_capacity(schedule, 6)
    assert abs(count - sent[-1] / 1500) <= 1


def test_queue_limits_count_what_mahimahi_counts() -> None:
    """Mahimahi's packets carry 4 more bytes: 160 full packets are 240640 of its bytes."""
    assert queue_options(Link(rates=(RateStep(0, 48),), queue_bytes=240_000)) == [
        "--uplink-queue=droptail",
        "--uplink-queue-args=bytes=240640",
    ]
    packets = Link(rates=(RateStep(0, 48),), queue_packets=100, discipline="head-drop")
    assert queue_options(packets) == ["--uplink-queue=drophead", "--uplink-queue-args=packets=100"]
    assert queue_options(Link(rates=(RateStep(0, 48),))) == ["--uplink-queue=infinite"]


# ---- the log and what becomes of it ----

LOG = """# mahimahi mm-link (Uplink) [up] > up.log
# command line: 'mm-link' 'up' 'down'
# queue: droptail [bytes=240640]
# init timestamp: 1700000000000
# base timestamp: 7
3006 + 64
3006 - 64 0
3008 # 1504
3008 + 1504
3009 + 1504
3009 d 2 3008
3010 # 1504
3010 - 1504 2
3012 # 1504
3012 - 1504 3
"""


def test_the_log_of_mm_link(tmp_path: Path) -> None:
    """The episode begins at 7 + 3000: what was before it does not count."""
    path = tmp_path / "up.log"
    path.write_text(LOG)
    log = read_log(path, delay_ms=20)
    assert log.bytes.tolist() == [1500, 1500]
    columns = log.columns(0, np.array([0, 1, 2, 4, 6]) * 1_000_000)
    assert columns["link_packets"].tolist() == [0, 0, 0, 1, 2]
    assert columns["link_bytes"].tolist() == [0, 0, 0, 1500, 3000]
    assert columns["link_drops"].tolist() == [0, 0, 2, 2, 2]
    assert columns["link_delay_ns"].tolist() == [0, 0, 0, 22_000_000, 45_000_000]
    assert columns["link_queue_bytes"].tolist() == [0, 1500, 3000, 1500, 0]
    assert columns["link_capacity_bytes"].tolist() == [0, 1500, 2250, 3750, 4500]


@pytest.mark.parametrize("line", ["3013 - 1504", "x + 3", "3013 ? 3", "3013"])
def test_a_damaged_log_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "up.log"
    path.write_text(f"{LOG}{line}\n")
    with pytest.raises(SageccError, match=r"up.log:16"):
        read_log(path, delay_ms=20)
    path.write_text("3013 + 3\n")
    with pytest.raises(SageccError, match="header"):
        read_log(path, delay_ms=20)


def test_packets_of_two_flows_are_told_apart() -> None:
    def ints(*values: int) -> npt.NDArray[np.int64]:
        return np.array(values, np.int64)

    log = LinkLog(
        flow=ints(0, 1, 0),
        bytes=ints(1500, 1500, 40),
        entered_ns=ints(0, 10, 15),
        left_ns=ints(10, 20, 30),
        delay_ns=ints(110, 110, 115),
        drop_flow=ints(1),
        drop_ns=ints(12),
        capacity_ns=ints(0, 100),
        capacity_bytes=ints(0, 100),
    )
    at = ints(5, 20, 40)
    assert log.columns(0, at)["link_delay_ns"].tolist() == [0, 110, 225]
    assert log.columns(1, at)["link_packets"].tolist() == [0, 1, 1]
    assert log.columns(0, at)["link_drops"].tolist() == [0, 0, 0]
    assert log.columns(1, at)["link_drops"].tolist() == [0, 1, 1]
    assert log.columns(0, at)["link_queue_bytes"].tolist() == [1500, 40, 0]


def test_only_pauses_with_packets_waiting_are_stalls() -> None:
    """At 12 Mbps a packet takes 1 ms: the third is 4 ms late though it waited, the fourth came late itself."""
    ms = 1_000_000
    log = LinkLog(
        flow=np.zeros(4, np.int64),
        bytes=np.full(4, 1500),
        entered_ns=np.array([0, 0, 0, 20]) * ms,
        left_ns=np.array([1, 2, 7, 21]) * ms,
        delay_ns=np.array([1, 2, 7, 1]) * ms,
        drop_flow=np.array([], np.int64),
        drop_ns=np.array([], np.int64),
        capacity_ns=np.array([0, 100]) * ms,
        capacity_bytes=np.array([0, 150_000]),
    )
    assert host.stalled_ms(log, 12) == pytest.approx(4)


def test_capacity_of_a_schedule() -> None:
    t_ns, sent = rate_capacity(Link(rates=(RateStep(0, 12), RateStep(2, 24)), queue_bytes=1500), 3)
    assert t_ns.tolist() == [0, 2_000_000_000, 3_000_000_000]
    assert sent.tolist() == [0, 3_000_000, 6_000_000]


def test_packets_are_matched_by_what_they_carry() -> None:
    assert host.match(np.array([5, 7, 9, 11]), np.array([9, 5])).tolist() == [2, 0]
    with pytest.raises(SageccError, match="lost packets"):
        host.match(np.array([5, 7]), np.array([6]))
    with pytest.raises(SageccError, match="lost packets"):
        host.match(np.array([], np.int64), np.array([6]))


# ---- what cannot be done ----


def put_on_path(folder: Path, monkeypatch: pytest.MonkeyPatch, *tools: str) -> None:
    folder.mkdir(exist_ok=True)
    for tool in tools:
        script = folder / tool
        script.write_text(f'#!/bin/sh\nexec {sys.executable} {STANDIN} {tool.removeprefix("mm-")} "$@"\n')
        script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/sbin:/usr/bin:/sbin:/bin")


@pytest.fixture
def standins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_on_path(tmp_path / "bin", monkeypatch, "mm-delay", "mm-link")


def test_without_mahimahi_one_line_says_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_on_path(tmp_path / "bin", monkeypatch, "mm-delay")
    with pytest.raises(SageccError, match=r"^mm-link not on the PATH: install Mahimahi .*ip_forward=1'; 'sagecc doc"):
        run_mahimahi(network(), "cubic")


@pytest.mark.usefixtures("standins")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda e: link(e, jitter_ms=1.0), "jitter_ms = 1.0 on the link"),
        (lambda e: link(e, loss=0.1), "loss = 0.1"),
        (lambda e: link(e, discipline="codel"), "codel"),
        (lambda e: link(e, grain_ms=2.0), "grain is 1 ms"),
        (lambda e: link(e, delay_ms=12.5), "choose an even RTT"),
        (lambda e: replace(e, return_links=(Link(delay_ms=20, queue_packets=9),)), "queue_packets = 9 on the way back"),
        (lambda e: replace(e, links=2 * e.links, return_links=2 * e.return_links), "not 2 links"),
        (lambda e: replace(e, cross=(CrossFlow("cubic"),)), "tell flows apart"),
        (lambda e: replace(e, flow=Flow(extra_rtt_ms=5)), "one RTT"),
        (lambda e: replace(e, flow=Flow(size_bytes=5)), "no finite transfers"),
        (lambda e: replace(e, flow=Flow(ecn=True)), "no ECN"),
        (lambda e: replace(e, flow=Flow(receive_window_bytes=9000)), "limits no receiver"),
        (lambda e: replace(e, flow=Flow(pauses_s=((1, 2),))), "limits no receiver or application"),
        (lambda e: link(e, ack_filter=True), "ack_filter"),
        (lambda e: link(e, policer=Policer(12, 3000)), "policer"),
        (lambda e: link(e, mark_packets=9), "mark_packets = 9"),
        (lambda e: link(e, discipline="fq-codel"), "fq-codel"),
    ],
)
def test_what_mahimahi_cannot_do_is_one_line(change: Callable[[Environment], Environment], words: str) -> None:
    with pytest.raises(SageccError, match=words):
        run_mahimahi(change(network()), "cubic")


@pytest.mark.usefixtures("standins")
def test_a_scheme_that_the_host_lacks() -> None:
    with pytest.raises(SageccError, match=r"has no scheme 'nosuch': it offers .*cubic"):
        run_mahimahi(network(), "nosuch")
    with pytest.raises(SageccError, match="the lab alone runs it"):
        run_mahimahi(network(), "policy:models/any")


def test_a_tool_that_refuses_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_on_path(tmp_path / "bin", monkeypatch, "mm-delay", "mm-link")
    (tmp_path / "bin" / "mm-delay").write_text("#!/bin/sh\necho 'mm-delay: please run as non-root' >&2\nexit 1\n")
    with pytest.raises(SageccError, match="ended early: mm-delay: please run as non-root"):
        run_mahimahi(network(), "reno")


def test_an_end_does_not_outlive_its_parent(tmp_path: Path) -> None:
    specification = Specification(
        address=None,
        first_port=0,
        schemes=(),
        lives_s=(),
        duration_s=60,
        tick_s=0.01,
        buffer_bytes=0,
        priority=0,
        out=str(tmp_path / "out"),
    )
    with Program("e", "receiver", endpoint_command("receive", specification)) as program:
        program.wait_ready()
        program.send_line(str(time.time_ns()))
        pid = program.pid
        with pytest.raises(SageccError, match="episode e: the receiver ended with status 1"):
            program.stop()
    assert not Path(f"/proc/{pid}").exists()


# ---- Mahimahi's stand-ins, in real time ----


@pytest.mark.usefixtures("standins")
def test_an_episode_through_the_shells() -> None:
    """The stand-in runs the sender where it is: its window is the loopback's, the link's columns are the log's."""
    episode = run_mahimahi(network(rtt_ms=40, duration_s=1), "reno", seed=3)
    assert episode.rows.schema.equals(RAW_SCHEMA)
    rows = episode.rows.to_pylist()
    assert rows[-1]["t_s"] == pytest.approx(1, abs=0.2)
    assert rows[-1]["link_packets"] == pytest.approx(1000 * rows[-1]["t_s"], abs=2)
    assert rows[-1]["link_delay_ns"] == rows[-1]["link_packets"] * 22_000_000
    assert episode.flows[0].delay_mean_ms == 22
    assert episode.flows[0].goodput_mbps > 0
    assert np.all(np.diff(episode.rows["step"].to_numpy()) >= 1)
    assert rows[-1]["received_bytes"] > 0
    assert episode.id.endswith(".reno.3")


@pytest.fixture
def through_a_real_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run Python in a network namespace where the stand-in's link is real; return what it prints as JSON."""
    put_on_path(tmp_path / "bin", monkeypatch, "mm-delay", "mm-link")
    monkeypatch.setenv("STANDIN_TUN", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def run(code: str, first: str = "ip link set lo up") -> Any:
        command = ["unshare", "--net", "sh", "-c", f'{first}; exec "$@"', "sh", sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@on_host
def test_an_episode_through_a_link_that_follows_mahimahis_rules(through_a_real_link: Callable[..., Any]) -> None:
    """12 Mbps, a queue of 20 packets; the stand-in's link is real, its delay is not: the RTT is the queue's."""
    goodput_mbps, delay_mean_ms, lost, notice, last = through_a_real_link(
        "import json; from tests.helpers.networks import network;"
        "from sagecc.collector.realtime.mahimahi import run_mahimahi;"
        "e = run_mahimahi(network(12, 20, 1, duration_s=4), 'reno');"
        "f, last = e.flows[0], e.rows.slice(e.rows.num_rows - 1).to_pylist()[0];"
        "print(json.dumps([f.goodput_mbps, f.delay_mean_ms, f.lost_packets, f.notice, last]))"
    )
    assert notice is None
    assert 0.7 * 12 < goodput_mbps < 12
    assert 10 < delay_mean_ms < 10 + 22
    assert lost > 0
    assert last["link_queue_bytes"] <= 30_000
    assert last["link_bytes"] <= last["link_capacity_bytes"] + 1500
    assert 0 < last["srtt_us"] < 40_000
    # what the link let go is what arrived, or was on its way
    assert last["received_bytes"] <= last["link_bytes"]


@on_host
def test_the_command_tells_of_a_flow_that_its_receive_window_bound(through_a_real_link: Callable[..., Any]) -> None:
    """Buffers are not forced, as for an ordinary user, and tcp_rmem is a tenth of what the queue holds."""
    result = through_a_real_link(
        "from unittest.mock import patch; from sagecc.cli import main;"
        "patch('sagecc.collector.realtime.mahimahi.send_buffer_bytes', lambda environment: 0).start();"
        "main('run --backend mahimahi --scheme cubic --bandwidth 12 --queue-bdp 4 --duration 2 --json'.split())",
        first="ip link set lo up; echo 4096 24000 24000 > /proc/sys/net/ipv4/tcp_rmem",
    )
    assert result["limits"]["receive_window"] > 0.5
    assert result["limits"]["send_buffer"] < result["limits"]["receive_window"]
    assert result["notice"].startswith("bound by its receive window (")
    # on a busy host the application may have bound it, too, and its advice follows
    assert " of its life): raise net.ipv4.tcp_rmem" in result["notice"]
    assert result["flows"][0]["notice"] == result["notice"]


# ---- the host's own kernel ----


def test_what_reaches_the_queue_after_the_episode_is_left_out() -> None:
    """Flows' buffers drain after it: a packet and a drop within 8 s, a packet on its way at the end, and two after."""
    arrived_s, left_s = [1.0, 2.0, 7.99, 8.01, 8.02, 8.03], {0: 1.01, 2: 8.01, 5: 8.05}
    records = np.zeros(len(arrived_s) + len(left_s), host.RECORD)
    records["source_port"], records["destination_port"], records["bytes"] = 40_000, FIRST_PORT, 1500
    records["number"] = records["ip_id"] = [*range(len(arrived_s)), *left_s]
    records["t_ns"] = np.rint(np.array([*arrived_s, *left_s.values()]) * 1e9)
    records["tap"][: len(arrived_s)] = host.QUEUE
    records["tap"][len(arrived_s) :], records["outgoing"][len(arrived_s) :] = host.NEAR, 1
    log = host.link_log(records, 0, network(12, 40, 1, duration_s=8))
    assert log.entered_ns.tolist() == [1_000_000_000, 7_990_000_000]
    assert log.drop_ns.tolist() == [2_000_000_000]
    assert (log.delay_ns / 1e6).tolist() == [30, 40]  # 10 and 20 ms in the queue, 20 on the way


@on_host
def test_the_lab_and_the_hosts_kernel_agree(kernel: Path) -> None:
    environment = network(12, 40, 1, duration_s=8)
    lab, real = run_episode(kernel, environment, "cubic").flows[0], run_on_host(environment, "cubic")
    own = real.episode.flows[0]
    assert own.goodput_mbps == pytest.approx(lab.goodput_mbps, rel=0.1)
    assert lab.limits is None and own.limits is not None and own.notice is None
    assert real.queueing_ms == pytest.approx(lab.delay_mean_ms - 20, rel=0.3)
    last = real.episode.rows.slice(real.episode.rows.num_rows - 1).to_pylist()[0]
    assert 0 < last["link_drops"] <= own.lost_packets <= last["link_drops"] + 10  # what a tick after the last row sends
    assert last["link_capacity_bytes"] == pytest.approx(12e6 / 8 * last["t_s"])
    assert last["link_bytes"] <= last["link_capacity_bytes"] + 2 * 1500
    assert max(real.episode.rows["link_queue_bytes"].to_pylist()) <= 60_000
    assert last["min_rtt_us"] >= 40_000
    assert last["received_bytes"] <= last["bytes_sent"]


@on_host
def test_a_flow_whose_buffers_the_kernel_chooses_fills_48_mbps(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A receiver that slept until 256 KiB had arrived shut its window first: 28 Mbps in place of 45."""
    monkeypatch.setattr(host, "RECEIVE_WINDOW_BYTES", 0)
    monkeypatch.setattr(host, "send_buffer_bytes", lambda environment: 0)
    monkeypatch.setattr(host, "BUFFER_LIMIT_BYTES", 32 << 20)  # as Linux 6.18 has it
    environment = network(48, 40, 1, duration_s=5)
    lab, own = run_episode(kernel, environment, "cubic").flows[0], run_on_host(environment, "cubic").episode.flows[0]
    assert own.goodput_mbps > 0.8 * lab.goodput_mbps
    assert own.limits is not None and own.limits.receive_window < BOUND_SHARE


@on_host
def test_a_flow_bound_by_its_receive_window_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "RECEIVE_WINDOW_BYTES", 64 << 10)
    flow = run_on_host(network(12, 40, 1, duration_s=2), "cubic").episode.flows[0]
    assert flow.limits is not None and flow.limits.receive_window > 0.5
    assert flow.notice is not None and flow.notice.startswith("bound by its receive window (")


@on_host
def test_a_flow_bound_by_its_send_buffer_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "send_buffer_bytes", lambda environment: 64 << 10)
    flow = run_on_host(network(12, 40, 1, duration_s=2), "cubic").episode.flows[0]
    assert flow.limits is not None and flow.limits.send_buffer > 0.5
    assert flow.notice is not None and flow.notice.startswith("bound by its send buffer (")


SLOW = f"""
import importlib.util, os, sys, time
specification = importlib.util.spec_from_file_location("endpoint", {str(process.ENDPOINT)!r})
endpoint = importlib.util.module_from_spec(specification)
sys.modules["endpoint"] = endpoint
specification.loader.exec_module(endpoint)
def send_more(fd, payload):
    time.sleep(0.05)
    os.sendfile(fd, payload, 0, 15_000)
endpoint.send_more = send_more
endpoint.main()
"""


@on_host
def test_a_flow_bound_by_its_application_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 15,000 bytes each 50 ms are 2.4 of 12 Mbps."""

    def command(role: str, specification: Specification) -> list[str]:
        usual = endpoint_command(role, specification)
        return usual if role == "receive" else [sys.executable, "-c", SLOW, *usual[-2:]]

    monkeypatch.setattr(host, "endpoint_command", command)
    flow = run_on_host(network(12, 40, 1, duration_s=2), "cubic").episode.flows[0]
    assert flow.goodput_mbps < 2.4
    assert flow.limits is not None and flow.limits.application > 0.5
    assert flow.notice is not None and flow.notice.startswith("bound by its application (")


@on_host
def test_two_flows_and_a_step_on_the_hosts_kernel() -> None:
    environment = link(network(12, 20, 2, duration_s=5, cross=("reno",)), rates=(RateStep(0, 6), RateStep(2.5, 12)))
    late = replace(environment, flow=Flow(start_s=1.0))
    run = run_on_host(late, "cubic")
    assert [flow.scheme for flow in run.episode.flows] == ["cubic", "reno"]
    assert run.episode.rows["t_s"][0].as_py() >= 1
    sent = sum(f.goodput_mbps * life for f, life in zip(run.episode.flows, (4, 5), strict=True))
    assert 0.75 * 45 < sent < 45
    assert run.episode.jain_index is not None and 0.5 <= run.episode.jain_index <= 1


@on_host
def test_a_killed_run_leaves_no_process_and_no_namespace(tmp_path: Path) -> None:
    code = "from tests.helpers.networks import network; from sagecc.collector.realtime.host import run_on_host;"
    code += "run_on_host(network(12, 20, 1, duration_s=60), 'cubic')"
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 60
        while len(started := children(process.pid)) < 6 and time.monotonic() < until:
            time.sleep(0.05)
        assert len(started) >= 6, "three namespaces, the delay line, two ends"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    while alive(started) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive(started)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_as_another_user_the_reason_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(SageccError, match="need root"):
        run_on_host(network(), "cubic")
