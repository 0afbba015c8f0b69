# SPDX-License-Identifier: Apache-2.0
"""`sagecc measure`: what can be computed by hand, both sides over loopback, and paths between network namespaces."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagecc.collector.realtime.record import SAMPLES
from sagecc.common.errors import SageccError
from sagecc.execution.measure import channel, server
from sagecc.execution.measure.campaign import Campaign, measure
from sagecc.execution.measure.channel import ServerIdentity, connect
from sagecc.execution.measure.client import Session
from sagecc.execution.measure.clock import ClockOffset, HostClock, RoundTrip, RunClock
from sagecc.execution.measure.key import make_key, read_key
from sagecc.execution.measure.runs import PlannedRun, RunOrigin, finished, planned
from sagecc.execution.measure.server import Allowed, MeasureServer
from sagecc.execution.measure.stream import BrokenError, Receiver, Stream, stamped
from sagecc.execution.measure.trajectory import TimedRun, link_log, one_way_delays, path_environment
from sagecc.leagues.measured import path_results
from sagecc.leagues.plots import measured_figure
from sagecc.pool.derivation import build_pool
from sagecc.schemas.measured import DOWN, UP, HostVersions, MeasuredHost, MeasuredNumbers, MeasuredPath, measurements
from tests.helpers.measured_path import ADDRESSES, CLIENT, SERVER, MeasuredNetwork
from tests.helpers.stock import ENVIRONMENT, NO_NETWORK, SAGECC, on_stock_kernel

in_namespaces = pytest.mark.skipif(NO_NETWORK is not None, reason=str(NO_NETWORK))

KEY = bytes(range(32))
ALLOWED = Allowed(max_duration_s=5, max_rate_mbps=100, sessions=1, stall_s=5)
MS, S = 10**6, 10**9
AHEAD_NS = 3 * S
"""By how much the server's clock is wrong."""

# ---- clocks ----


def test_the_offset_is_that_of_the_shortest_round_trip() -> None:
    """10 ms there and back: half of 20 - 4 ms may be wrong; the trip that was held up for 90 ms does not count."""
    held_up = RoundTrip(0, 3000 * MS + 100 * MS, 3000 * MS + 104 * MS, 114 * MS)
    short = RoundTrip(200 * MS, 3208 * MS, 3212 * MS, 220 * MS)
    offset = ClockOffset.of([held_up, short])
    assert (offset.offset_ns, offset.rtt_ns, offset.error_ns) == (3000 * MS, 16 * MS, 8 * MS)
    assert offset.at_ns == 220 * MS


def test_a_path_of_one_direction_alone_is_the_error_that_is_stated() -> None:
    offset = ClockOffset.of([RoundTrip(0, 3000 * MS + 16 * MS, 3000 * MS + 16 * MS, 16 * MS)])
    assert offset.offset_ns - 3000 * MS == offset.error_ns


@given(st.integers(-(10**15), 10**15), st.integers(-4 * MS, 4 * MS), st.integers(0, 10 * S))
def test_times_of_a_clock_that_drifts_are_told_apart(ahead_ns: int, drift_ns: int, since_ns: int) -> None:
    began = 1_800_000_000 * S
    clock = RunClock(ClockOffset(began, ahead_ns, MS), ClockOffset(began + 10 * S, ahead_ns + drift_ns, MS))
    clock.check()
    peer_ns = began + since_ns + ahead_ns + round(drift_ns * since_ns / (10 * S))
    assert abs(int(clock.local_ns(np.array([peer_ns]))[0]) - (began + since_ns)) <= abs(drift_ns) ** 2 / S + 2000


def test_clocks_that_were_set_during_a_run_have_no_time_in_common() -> None:
    before = ClockOffset(0, 0, 2 * MS)
    RunClock(before, ClockOffset(10 * S, 6 * MS, 2 * MS)).check()  # 2 ms of error, and 500 ppm of 10 s
    with pytest.raises(SageccError, match=r"no common time: their clocks moved apart by 50\.0 ms in 10\.0 s"):
        RunClock(before, ClockOffset(10 * S, 50 * MS, 2 * MS)).check()
    with pytest.raises(SageccError, match="no common time"):
        RunClock(before, ClockOffset(-S, 0, 2 * MS)).check()


# ---- trajectories ----


def test_delays_are_those_of_the_last_mark_of_each_arrival() -> None:
    """Of 1000 and 2000, which one read brought, the stamp is of 2000's; 3000 was sent twice, 5000 is on its way."""
    marks = np.array([(1000, 10), (2000, 20), (3000, 30), (4000, 40), (3000, 55), (5000, 60)])
    arrivals = np.array([(2500, 120), (4500, 160)])
    arrived, delays = one_way_delays(marks, arrivals)
    assert arrived.tolist() == [120, 160] and delays.tolist() == [100, 120]


def samples(*rows: tuple[int, int, int]) -> np.ndarray:
    """Return SAMPLES of (time in ms, packets sent again, least RTT in us)."""
    found = np.zeros(len(rows), SAMPLES)
    for row, (t_ms, again, rtt_us) in zip(found, rows, strict=True):
        row["t_ns"], row["info"]["retrans_total_pkts"], row["info"]["min_rtt_us"] = t_ms * MS, again, rtt_us
        row["info"]["mss_bytes"] = 1000
    return found


def run_of_three_packets() -> TimedRun:
    """Packets of 1000 bytes, two at 100 ms and one at 200 ms, 30 ms under way; one more was lost by 150 ms."""
    return TimedRun(
        duration_s=1.0,
        sent=samples((0, 0, 2**32 - 1), (150, 1, 40_000), (250, 1, 40_000)),
        received=samples((100, 0, 0)),
        arrived_ns=np.array([100, 200]) * MS,
        arrived_bytes=np.array([2000, 3000]),
        marked_ns=np.array([100, 200]) * MS,
        delays_ns=np.array([30, 30]) * MS,
    )


def test_packets_cross_the_path_when_they_arrive() -> None:
    run = run_of_three_packets()
    path = path_environment("measured-up", [run, replace(run, delays_ns=np.array([25, 35]) * MS)], 50 * MS)
    assert (path.min_rtt_ms, path.bottleneck.delay_ms, path.return_delay_ms) == (40, 25, 15)
    assert path.bandwidth_mbps == 0.024  # 3000 bytes in the second
    columns = link_log(run, path).columns(0, np.array([50, 98, 120, 160, 300]) * MS)
    assert columns["link_packets"].tolist() == [0, 0, 2, 2, 3]
    assert columns["link_bytes"].tolist() == [0, 0, 2104, 2104, 3156]
    assert columns["link_delay_ns"].tolist() == [0, 0, 60 * MS, 60 * MS, 90 * MS]
    assert columns["link_drops"].tolist() == [0, 0, 0, 1, 1]
    assert columns["link_queue_bytes"].tolist() == [0, 2104, 0, 0, 0]  # for 5 ms, beyond the least delay
    assert columns["link_capacity_bytes"].tolist() == [150, 294, 360, 480, 900]


def test_rounds_are_in_random_order_by_the_seed() -> None:
    cells = [(direction, scheme) for scheme in ("cubic", "bbr", "reno") for direction in (UP, DOWN)]
    runs = planned(cells, 20, seed=7)
    rounds = [[(run.direction, run.scheme) for run in runs if run.number == number] for number in range(20)]
    assert all(sorted(each) == sorted(cells) for each in rounds)
    assert [run.number for run in runs] == sorted(run.number for run in runs)
    assert len({tuple(each) for each in rounds}) > 10
    assert runs == planned(list(reversed(cells)), 20, seed=7) != planned(cells, 20, seed=8)


# ---- the plane ----


def numbers(scheme: str, number: int, goodput: float, delay: float, direction: str = UP) -> MeasuredNumbers:
    return MeasuredNumbers(direction, scheme, number, 10, goodput, delay, 2 * delay, 0.01, 3000, 0, 5, 0, None, "0")


def measurement(host: str, *runs: MeasuredNumbers) -> MeasuredHost:
    directions = dict.fromkeys(run.direction for run in runs)
    return MeasuredHost(host, tuple(MeasuredPath(each, f"{host}-{each}", 10, 40, 20) for each in directions), runs)


def test_the_plane_is_relative_to_the_best_of_each_path() -> None:
    """Interval of two runs: 12.706 times their standard error (leagues.intervals)."""
    one = measurement(
        "a", *(numbers("cubic", n, 10, delay) for n, delay in enumerate((40, 60))), numbers("bbr", 0, 8, 25)
    )
    two = measurement("b", numbers("cubic", 0, 4, 30), numbers("bbr", 0, 4, 30))
    first, second, overall = path_results([one, two])
    bbr, cubic = (each.measures for each in first.schemes)
    assert (cubic["relative_goodput"].mean, cubic["relative_delay"].mean) == (1, 2)
    high = cubic["relative_delay"].high
    assert high is not None and high - 2 == pytest.approx(12.706 * 0.4)
    assert (bbr["relative_goodput"].mean, bbr["relative_delay"].mean, bbr["relative_delay"].high) == (0.8, 1, None)
    assert [each.measures["relative_delay"].mean for each in second.schemes] == [1, 1]
    assert [each.measures["relative_goodput"].mean for each in overall.schemes] == [0.9, 1]
    assert [each.measures["relative_delay"].mean for each in overall.schemes] == [1, 1.5]


def test_no_delay_is_relative_to_none() -> None:
    """Where the clocks' error is larger than the path, a mean delay may come to 0."""
    (result,) = path_results([measurement("a", numbers("cubic", 0, 10, 0), numbers("bbr", 0, 8, 1))])
    assert all(each.measures["relative_delay"].mean is None for each in result.schemes)


def test_the_planes_frame_holds_the_means_and_nothing_below_zero() -> None:
    """Two runs that are far apart have intervals of ten times their mean."""
    runs = [numbers(name, n, of, 5 * of) for name in ("cubic", "bbr") for n, of in enumerate((2, 14))]
    (axes,) = measured_figure(path_results([measurement("a", *runs, numbers("reno", 0, 4, 100))])).axes
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    assert 0 == left < 2.5 < right < 5 and 0 == bottom < 1 < top < 2


# ---- both sides over loopback ----


@contextmanager
def serving(allowed: Allowed = ALLOWED, key: bytes = KEY, ahead_ns: int = AHEAD_NS) -> Iterator[int]:
    """Serve on loopback; yield the port."""
    running = MeasureServer("127.0.0.1", (0, 0), key, allowed, HostClock(ahead_ns))
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        yield running.ports[0]
    finally:
        running.close()
        thread.join()


def campaign(port: int, **fields: object) -> Campaign:
    plain = Campaign("127.0.0.1", port, ("reno", "cubic"), (UP, DOWN), 1, 0.5, 0, 5)
    return replace(plain, **fields)  # type: ignore[arg-type]


def silent(*_: object) -> None:
    pass


def test_a_path_becomes_trajectories_that_a_pool_is_made_of(tmp_path: Path) -> None:
    with serving() as port:
        measure(campaign(port), KEY, tmp_path, silent, silent)
    (found,) = measurements([tmp_path])
    assert {(run.direction, run.scheme) for run in found.runs} == {
        (d, s) for d in (UP, DOWN) for s in ("reno", "cubic")
    }
    for run in found.runs:
        assert abs(run.clock_offset_ms - 3000) <= run.clock_error_ms + 1
        assert 0 < run.goodput_mbps < 150  # ALLOWED, and BURST_S at once
        assert 0 <= run.delay_mean_ms < 1500
    made = build_pool(tmp_path / "raw", tmp_path / "pool")
    assert made.episodes == 4 and made.rows > 20


def test_finished_runs_stay_and_the_missing_are_measured(tmp_path: Path) -> None:
    with serving() as port:
        shown: list[PlannedRun] = []
        measure(campaign(port, directions=(UP,)), KEY, tmp_path, silent, lambda run, *_: shown.append(run))
        before = {path: path.read_bytes() for path in tmp_path.glob("runs/*")}
        shown[0].file(tmp_path).unlink()
        again: list[PlannedRun] = []
        measure(campaign(port, rounds=2, directions=(UP,)), KEY, tmp_path, silent, lambda run, *_: again.append(run))
        with pytest.raises(SageccError, match=r"has another duration, 0.5 and not 1"):
            measure(campaign(port, duration_s=1), KEY, tmp_path, silent, silent)
    assert len(shown) == 2 and again[0] == shown[0] and len(again) == 3
    kept = shown[1].file(tmp_path)
    assert kept.read_bytes() == before[kept]
    assert len(measurements([tmp_path])[0].runs) == len(finished(tmp_path)) == 4


def test_a_wrong_name_is_said_before_another_duration(tmp_path: Path) -> None:
    with serving() as port:
        measure(campaign(port, schemes=("reno",), directions=(UP,)), KEY, tmp_path, silent, silent)
        with pytest.raises(SageccError, match="nosuch cannot be measured"):
            measure(campaign(port, schemes=("nosuch",), duration_s=1), KEY, tmp_path, silent, silent)


def test_a_folder_is_of_one_kernel(tmp_path: Path) -> None:
    with serving() as port:
        asked = campaign(port, schemes=("reno",), directions=(UP,))
        measure(asked, KEY, tmp_path, silent, silent)
        (run,) = finished(tmp_path)
        other = replace(run.origin, server=HostVersions("Linux 1.0", "0.1"))
        replace(run, origin=other).save(tmp_path)
        with pytest.raises(SageccError, match=r"another version at 127.0.0.1, Linux 1\.0 with sagecc 0\.1 and not"):
            measure(replace(asked, rounds=2), KEY, tmp_path, silent, silent)
        replace(run, origin=RunOrigin()).save(tmp_path)  # of version 1.0, which did not say
        measure(replace(asked, rounds=2), KEY, tmp_path, silent, silent)
    (found,) = measurements([tmp_path])
    assert len(found.runs) == 2 and found.servers == (HostVersions.here(),)


def test_a_run_that_fails_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise BrokenError("nothing got through for 5 s")

    with serving() as port:
        asked = campaign(port, schemes=("reno",), directions=(UP,))
        with monkeypatch.context() as patch:
            patch.setattr(Session, "run", broken)
            with pytest.raises(SageccError, match=r"run 'up reno 0' broke: nothing got through for 5 s; the same"):
                measure(asked, KEY, tmp_path, silent, silent)
        assert not (tmp_path / "measure.json").exists()
        measure(asked, KEY, tmp_path, silent, silent)
    (found,) = measurements([tmp_path])
    (failure,) = found.failures
    assert len(found.runs) == 1 and (failure.direction, failure.scheme, failure.number) == (UP, "reno", 0)
    assert abs(failure.began_unix_s - time.time()) < 600 and "nothing got through for 5 s" in failure.reason


def test_a_damaged_run_is_named(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "up-cubic-0.npz"
    path.parent.mkdir()
    path.write_bytes(b"PK\3\4 half of it")
    with pytest.raises(SageccError, match=r"up-cubic-0\.npz is no whole run of"):
        finished(tmp_path)


def test_a_scheme_that_a_kernel_lacks_is_said_by_name(tmp_path: Path) -> None:
    told: list[str] = []
    with serving() as port:
        with pytest.raises(
            SageccError, match="bbr2 cannot be measured: this host's kernel has no scheme 'bbr2': it offers"
        ):
            measure(campaign(port, schemes=("reno", "bbr2")), KEY, tmp_path, told.append, silent)
        with pytest.raises(SageccError, match="drives no such policy: start 'sagecc measure serve --policy sagecc-10'"):
            measure(
                campaign(port, schemes=("policy:sagecc-10",), directions=(DOWN,)), KEY, tmp_path, told.append, silent
            )
    assert not list(tmp_path.glob("runs/*"))


def test_a_server_keeps_its_limits(tmp_path: Path) -> None:
    with serving() as port:
        with pytest.raises(SageccError, match=r"127.0.0.1 allows runs of 5 s at most, not 6"):
            measure(campaign(port, duration_s=6), KEY, tmp_path, silent, silent)
        with Session("127.0.0.1", port, KEY, 5) as session:
            with pytest.raises(SageccError, match="busy: it lets 1 measure at once"):
                Session("127.0.0.1", port, KEY, 5)
            with pytest.raises(SageccError, match="says: a run lasts 5 s at most"):
                session.run(UP, "reno", "reno", 600)


def test_a_server_reads_no_faster_than_its_rate() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        receiver = Receiver(stamped(ours), Stream(1.0, 5.0, 0.001), HostClock())
        receiver._moved_bytes = 13  # 0.1 s at 125 bytes/s
        assert receiver._allowed_bytes <= 1


def test_data_without_a_token_are_dropped() -> None:
    with serving() as port:
        with Session("127.0.0.1", port, KEY, 5) as session:
            data_port = session._data_port
        with socket.create_connection(("127.0.0.1", data_port)) as sock:
            sock.sendall(bytes(32))
            sock.settimeout(10)
            assert sock.recv(1) == b""


def test_the_two_commands(tmp_path: Path) -> None:
    """The first makes the key, and what the second prints 'sagecc compare' shows again."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    given = ["--port", str(port), "--key", str(tmp_path / "key")]
    command = [*SAGECC, "measure", "serve", "--address", "127.0.0.1", "--max-rate", "50mbps", *given]
    with subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True) as serving:
        assert serving.stderr is not None
        try:
            told = [serving.stderr.readline() for _ in range(2)]
            done = sagecc("measure", "127.0.0.1", "--schemes", "reno", "--runs", "1", "--duration", "0.3", *given,
                          "--out", str(tmp_path / "out"))  # fmt: skip
        finally:
            serving.terminate()
    assert "made a key: copy " in told[0] and f"serving at ports {port} and {port + 1}" in told[1]
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Path: 127.0.0.1 up, at most ") and "\nreno " in done.stdout
    assert sagecc("compare", "--measured", str(tmp_path / "out")).stdout == done.stdout


# ---- who is at the other end ----


def test_another_key_is_said_on_both_sides(caplog: pytest.LogCaptureFixture) -> None:
    with serving() as port, pytest.raises(SageccError, match=r"127.0.0.1 says: the keys differ"):
        Session("127.0.0.1", port, bytes(32), 5)
    assert "127.0.0.1 has another key" in caplog.text


@contextmanager
def answering(talk: Callable[[socket.socket], None]) -> Iterator[int]:
    """Have a program answer one connection; yield the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with suppress(OSError, SageccError, ValueError), listener.accept()[0] as sock:
                sock.settimeout(10)
                talk(sock)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


def test_whoever_sits_in_between_is_refused() -> None:
    """It ends TLS by a certificate of its own, and passes every message on."""
    with serving() as port:

        def relay(sock: socket.socket) -> None:
            client = ServerIdentity().accept(sock, "client")
            upstream = connect(socket.create_connection(("127.0.0.1", port)), "server")
            with suppress(SageccError):
                client.send(upstream.receive())
                upstream.send(client.receive())
                client.send(upstream.receive())

        with answering(relay) as middle, pytest.raises(SageccError):
            Session("127.0.0.1", middle, KEY, 5)
        with Session("127.0.0.1", port, KEY, 5):
            pass


def test_a_peer_that_only_echoes_proofs_has_no_key() -> None:
    def echo(sock: socket.socket) -> None:
        end = ServerIdentity().accept(sock, "client")
        end.send(channel._hello(bytes(32)))
        end.send({"proof": end.receive()["proof"]})

    with answering(echo) as port, pytest.raises(SageccError, match="does not have this host's key"):
        Session("127.0.0.1", port, KEY, 5)


def test_a_peer_that_is_no_sagecc_is_one_line() -> None:
    def web(sock: socket.socket) -> None:
        sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with answering(web) as port, pytest.raises(SageccError, match=r"no 'sagecc measure': it speaks no TLS 1.3"):
        Session("127.0.0.1", port, KEY, 5)

    def other(sock: socket.socket) -> None:
        ServerIdentity().accept(sock, "client").send({"program": "mail"})

    with answering(other) as port, pytest.raises(SageccError, match=r"127.0.0.1 is no 'sagecc measure'"):
        Session("127.0.0.1", port, KEY, 5)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(SageccError, match=f"nothing answers at port {port} .*start 'sagecc measure serve' there"):
        Session("127.0.0.1", port, KEY, 5)
    with pytest.raises(SageccError, match=r"no-such-host.invalid: there is no such host"):
        Session("no-such-host.invalid", port, KEY, 5)


def test_a_path_that_lets_one_port_through_breaks_the_run_that_needs_the_other() -> None:
    with serving() as port, Session("127.0.0.1", port, KEY, 5) as session:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            session._data_port = taken.getsockname()[1]
        with pytest.raises(
            BrokenError, match=rf"its port of data, {session._data_port} \(Connection refused\); let it"
        ):
            session.run(UP, "reno", "reno", 1)


def test_a_peer_of_another_version_is_one_line() -> None:
    def older(sock: socket.socket) -> None:
        ServerIdentity().accept(sock, "client").send({**channel._hello(bytes(32)), "protocol": 99})

    with (
        answering(older) as port,
        pytest.raises(SageccError, match="speaks version 99 of 'sagecc measure', this host 1:"),
    ):
        Session("127.0.0.1", port, KEY, 5)


@pytest.mark.parametrize(
    "garbage", [b"", b"\0" * 4, b"\xff\xff\xff\xff", b"\0\0\0\2[]", b"\0\0\0\2{}", b"\0\0\x0f\xa0" + b"[" * 4000]
)
def test_a_server_outlives_whatever_comes(garbage: bytes) -> None:
    with serving() as port:
        context = ssl._create_unverified_context()
        with socket.create_connection(("127.0.0.1", port)) as sock, context.wrap_socket(sock) as secured:
            secured.sendall(garbage)
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.sendall(garbage)
        with Session("127.0.0.1", port, KEY, 5) as session:
            assert session.refused(["reno"]) == {}


def test_a_client_that_is_silent_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "IDLE_S", 0.2)
    with serving() as port:
        idle = Session("127.0.0.1", port, KEY, 5)
        until = time.monotonic() + 20
        while True:
            try:
                with Session("127.0.0.1", port, KEY, 5):
                    break
            except SageccError as error:
                assert "busy" in str(error) and time.monotonic() < until
        with pytest.raises(BrokenError, match=r"closed the connection|broke"):
            idle.run(UP, "reno", "reno", 1)


def test_a_key_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "measure.key"
    with pytest.raises(SageccError, match="no key; 'sagecc measure serve' makes one"):
        read_key(path)
    assert make_key(path) and not make_key(path)
    assert len(read_key(path)) == 32 and path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    with pytest.raises(SageccError, match=r"others may read the key: chmod 600"):
        read_key(path)
    path.chmod(0o600)
    path.write_text("secret\n")
    with pytest.raises(SageccError, match="is no key: it has 64 hexadecimal digits"):
        read_key(path)


# ---- measured folders ----


def test_folders_of_paths_are_compared(tmp_path: Path) -> None:
    for host in ("a", "b"):
        (tmp_path / host).mkdir()
        measurement(host, numbers("cubic", 0, 10, 40), numbers("cubic", 1, 11, 44), numbers("bbr", 0, 8, 25)).write(
            tmp_path / host
        )
    picture = tmp_path / "plane.svg"
    done = sagecc("compare", "--measured", str(tmp_path), "--plot", str(picture))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Path: ") == 2 and "All paths up: means over them" in done.stdout
    assert "one-way delays within 5 ms by the clocks" in done.stdout
    assert picture.read_text().count("goodput / best") == 3
    done = sagecc("compare", "bbr", "--measured", str(tmp_path), "--json")
    assert [[each["scheme"] for each in path["schemes"]] for path in json.loads(done.stdout)] == [["bbr"]] * 3


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "has no measure.json: 'sagecc measure HOST"),
        ("{}", "is not what 'sagecc measure' writes"),
        ('{"version": "2.0"}', "has version 2.0, this program reads 1.1: measure again"),
        ('{"version": "1.0", "host": "a", "paths": [], "runs": [{}]}', "is not what 'sagecc measure' writes"),
        ('{"version": "1.0", "host": "a"', "measure.json"),
    ],
)
def test_a_folder_that_is_none_is_one_line(tmp_path: Path, content: str | None, line: str) -> None:
    if content is not None:
        (tmp_path / "measure.json").write_text(content)
    with pytest.raises(SageccError, match=line):
        measurements([tmp_path])


def test_compare_plays_or_shows_and_never_both(tmp_path: Path) -> None:
    measurement("a", numbers("cubic", 0, 10, 40)).write(tmp_path)
    done = sagecc("compare", "--measured", str(tmp_path), "--rtt", "20")
    assert done.returncode == 2 and "--measured excludes --rtt: leave it out" in done.stderr
    done = sagecc("compare", "reno", "--measured", str(tmp_path))
    assert done.returncode == 2 and done.stderr == "sagecc: reno was not measured; there are cubic\n"


# ---- between network namespaces ----

SERVE = """
import sys
from pathlib import Path
from sagecc.execution.measure.clock import HostClock
from sagecc.execution.measure.key import read_key
from sagecc.execution.measure.server import Allowed, MeasureServer
key, ahead_ns = read_key(Path(sys.argv[1])), int(sys.argv[2])
allowed = Allowed(60, 1000, 1, 3, tuple(sys.argv[3:]))
server = MeasureServer("", (5260, 5261), key, allowed, HostClock(ahead_ns))
print("ready", flush=True)
server.run()
"""
NOBODY = 65534


def sagecc(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*SAGECC, *arguments], env=ENVIRONMENT, capture_output=True, text=True, timeout=120)


class Hosts:
    """A client and a server on a path of 8 Mbps, 10 ms each way, and a queue of 40 ms."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.network = MeasuredNetwork(stack, 8, 10, 40_000)
        self.key, self.out = folder / "key", folder / "out"
        make_key(self.key)
        stack.callback(lambda: self.server.kill())
        self.serve()

    def serve(self, *policies: str) -> None:
        """Start the server, which has the key: as a user without any right, or as root where it drives policies."""
        owner = 0 if policies else NOBODY
        os.chown(self.key, owner, owner)
        command = [sys.executable, "-c", SERVE, str(self.key), str(AHEAD_NS), *policies]
        self.server = subprocess.Popen(
            self.network.inside(SERVER, ["setpriv", f"--reuid={owner}", "--clear-groups", *command]),
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.server.stdout is not None and self.server.stdout.readline() == "ready\n"

    def command(self, host: str, *options: str) -> list[str]:
        """Return the command that measures."""
        given = ["--key", str(self.key), "--out", str(self.out), "--stall", "2", *options]
        return self.network.inside(CLIENT, [*SAGECC, "measure", host, *given])

    def measure(self, host: str, *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(host, *options), env=ENVIRONMENT, capture_output=True, text=True, timeout=180
        )

    def first_run(self, host: str, *options: str) -> subprocess.Popen[str]:
        """Start to measure, and return when a run is finished and the next is under way."""
        process = subprocess.Popen(self.command(host, *options), env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
        until = time.monotonic() + 120
        while not list(self.out.glob("runs/[!.]*.npz")) and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(0.5)
        return process


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory())
        )  # not pytest's folder, which is its user's alone
        folder.chmod(0o755)
        yield Hosts(stack, folder)


@in_namespaces
@pytest.mark.kernel
@pytest.mark.parametrize("family", ADDRESSES)
def test_a_path_between_hosts_whose_clocks_are_3_s_apart(hosts: Hosts, family: str) -> None:
    done = hosts.measure(ADDRESSES[family], "--schemes", "reno", "--runs", "1", "--duration", "1.5", "--json")
    assert done.returncode == 0, done.stderr
    (found,) = measurements([hosts.out])
    assert len(found.runs) == 2
    for run in found.runs:
        assert abs(run.clock_offset_ms - 3000) <= run.clock_error_ms
        assert 10 - run.clock_error_ms <= run.delay_mean_ms < 1000
        assert 0.5 < run.goodput_mbps < 8
    for path in found.paths:
        assert path.least_rtt_ms >= 20 and path.most_mbps < 9
    assert {each["name"] for each in json.loads(done.stdout)} >= {f"{ADDRESSES[family]} {UP}"}


@in_namespaces
@pytest.mark.kernel
def test_a_receiver_that_dies_loses_no_finished_run(hosts: Hosts) -> None:
    options = ("--schemes", "cubic", "--runs", "2", "--duration", "1", "--direction", "up")
    process = hosts.first_run(ADDRESSES["IPv4"], *options)
    hosts.server.send_signal(signal.SIGKILL)
    hosts.server.wait()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert said.strip().splitlines()[-1].startswith("sagecc: 10.0.1.1: run 'up cubic 1' broke: ")
    assert len(measurements([hosts.out])[0].runs) == 1
    hosts.serve()
    assert hosts.measure(ADDRESSES["IPv4"], *options).returncode == 0
    assert len(measurements([hosts.out])[0].runs) == 2


@in_namespaces
@pytest.mark.kernel
def test_a_path_that_breaks_is_given_up_and_goes_on_when_it_is_mended(hosts: Hosts) -> None:
    options = ("--schemes", "cubic", "--runs", "2", "--duration", "2", "--direction", "up")
    process = hosts.first_run(ADDRESSES["IPv4"], *options)
    hosts.network.cut()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    line = said.strip().splitlines()[-1]
    assert line.startswith("sagecc: 10.0.1.1: run 'up cubic 1' broke: ") and line.endswith("measures what is missing")
    assert len(measurements([hosts.out])[0].runs) == 1
    hosts.network.mend()
    until = time.monotonic() + 60
    while (done := hosts.measure(ADDRESSES["IPv4"], *options)).returncode and time.monotonic() < until:
        assert "busy" in done.stderr  # until the server has given the broken run up too
        time.sleep(0.5)
    assert len(measurements([hosts.out])[0].runs) == 2


@in_namespaces
@on_stock_kernel
@pytest.mark.kernel
def test_a_policy_drives_where_it_sends(hosts: Hosts) -> None:
    done = hosts.measure(ADDRESSES["IPv4"], "--schemes", "sagecc-10", "--runs", "1", "--duration", "2")
    assert done.returncode == 0, done.stderr
    assert "policy:sagecc-10 is not measured down: the host that serves drives no such policy" in done.stderr
    (run,) = measurements([hosts.out])[0].runs
    assert (run.direction, run.scheme) == (UP, "policy:sagecc-10") and run.goodput_mbps > 0.5


@in_namespaces
@on_stock_kernel
@pytest.mark.kernel
def test_a_server_drives_the_policies_that_it_was_started_with(hosts: Hosts) -> None:
    hosts.server.kill()
    hosts.server.wait()
    hosts.serve("policy:sagecc-10")
    options = ("--runs", "1", "--duration", "2", "--direction", "down")
    done = hosts.measure(ADDRESSES["IPv4"], "--schemes", "sagecc-10", *options)
    assert done.returncode == 0, done.stderr
    (run,) = measurements([hosts.out])[0].runs
    assert (run.direction, run.scheme) == (DOWN, "policy:sagecc-10") and run.goodput_mbps > 0.5
    other = hosts.measure(ADDRESSES["IPv4"], "--schemes", "sagecc-1", *options)
    assert other.returncode == 2 and "the host that serves drives no such policy" in other.stderr
