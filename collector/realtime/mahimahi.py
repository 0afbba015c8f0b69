# SPDX-License-Identifier: Apache-2.0
"""Episodes through real Mahimahi: its shells, the host's own kernel, real time.

    mm-delay D mm-link UP DOWN ... -- sender          receiver outside, on this machine

The sender runs inside, so that the uplink is the data direction: mm-link's queue and trace, then mm-delay's D ms.
Differences from the lab, according to Mahimahi's source (ravinet/mahimahi, src/frontend/link_queue.cc): times are whole
milliseconds; an opportunity carries 1504 bytes and a packet counts 4 bytes more than its IP length, which its tun
device prefixes; the packet being sent is no longer in the queue.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sagecc.collector.lab.episode import Episode
from sagecc.collector.realtime.endpoint import Specification
from sagecc.collector.realtime.process import Program, endpoint_command
from sagecc.collector.realtime.record import (
    LinkLog,
    check_host_scheme,
    check_supported,
    in_flight_bytes,
    lives_s,
    make_episode,
    read_samples,
    send_buffer_bytes,
)
from sagecc.common.errors import SEE_DOCTOR, SageccError
from sagecc.schemas.environment import MTU_BYTES, Environment, Link, episode_id
from sagecc.schemas.raw import TICK_S

TOOLS = ("mm-delay", "mm-link")
LEAD_MS = 3000
"""Time from the start of mm-link's trace until the episode begins, in which the shells and both ends start (ms)."""

TAIL_MS = 5000
"""Length of the trace beyond the episode (ms): it must not repeat before the shells have ended."""

PACKET_BYTES = MTU_BYTES + 4
"""Size of a full packet as Mahimahi counts it (bytes)."""

QUEUES = {"tail-drop": "droptail", "head-drop": "drophead"}
HEADER_S = 10.0
SKB_FACTOR = 2.5
"""Greatest ratio of kernel memory to payload: TCP's buffer limits count memory."""


def why_not() -> str | None:
    """Return why Mahimahi cannot run here, as far as can be told without running it, or None."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if not missing:
        return None
    return (
        f"{' and '.join(missing)} not on the PATH: install Mahimahi (Ubuntu: apt-get install mahimahi; else from "
        "source, github.com/ravinet/mahimahi); its tools must be set-user-ID root, run by another user than root, "
        "with 'sysctl -w net.ipv4.ip_forward=1'"
    )


def run_mahimahi(environment: Environment, scheme: str, seed: int = 0) -> Episode:
    """Run one episode in real time through mm-delay and mm-link; it takes some seconds more than the duration.

    Args:
        environment: the network and its flow.
        scheme: kernel scheme of the flow.
        seed: part of the episode's name only: real time is not reproducible.

    Raises:
        SageccError: Mahimahi is not installed or fails, it or this kernel cannot run the episode, or the flow did not
            get through.
    """
    reason = why_not()
    if reason:
        raise SageccError(f"{reason}; {SEE_DOCTOR}")
    delay_ms = _check(environment)
    check_host_scheme(scheme)
    name = episode_id(environment.id, scheme, seed)
    with tempfile.TemporaryDirectory(prefix="sagecc-") as scratch:
        folder = Path(scratch)
        write_trace(folder / "up", uplink_ms(environment))
        write_trace(folder / "down", downlink_ms(environment))
        log = folder / "up.log"
        port = _free_port()
        receive, send = (_specification(environment, scheme, port, folder / role) for role in ("receive", "send"))
        shells = ["mm-delay", str(delay_ms), "mm-link", str(folder / "up"), str(folder / "down")]
        shells += [*queue_options(environment.bottleneck), f"--uplink-log={log}", "--"]
        with (
            Program(name, "receiver", endpoint_command("receive", receive)) as receiver,
            Program(name, "sender in Mahimahi", [*shells, *endpoint_command("send", send)]) as sender,
        ):
            receiver.wait_ready()
            sender.wait_ready()
            began_ms = _log_start_ms(log, name) + LEAD_MS
            if began_ms < time.time() * 1000:
                raise SageccError(f"episode {name}: Mahimahi took more than {LEAD_MS / 1000:g} s to start")
            for end in (receiver, sender):
                end.send_line(str(began_ms * 1_000_000))
            left_s = began_ms / 1000 + environment.duration_s - time.time()
            for end in (sender, receiver):
                end.finish(left_s + 30)
        sender_samples, receiver_samples = (read_samples(Path(spec.out)) for spec in (send, receive))
        link = read_log(log, delay_ms)
        return make_episode(environment, scheme, seed, name, sent=sender_samples, received=receiver_samples, link=link)


def _check(environment: Environment) -> int:
    """Return the one-way delay (ms); raise SageccError where Mahimahi cannot run this environment."""
    link = environment.bottleneck
    check_supported(
        environment, "Mahimahi", ("rates", "trace", "queue_bytes", "queue_packets", "discipline", "grain_ms")
    )
    if environment.cross:
        raise SageccError("Mahimahi's log does not tell flows apart: run one flow, or use the lab")
    if link.discipline not in QUEUES:
        raise SageccError(f"with Mahimahi use one of {', '.join(QUEUES)}, not {link.discipline}, or use the lab")
    if link.grain_ms not in (0, 1):
        raise SageccError(f"Mahimahi's grain is 1 ms, not {link.grain_ms:g}: use the lab")
    if link.delay_ms != environment.return_delay_ms or link.delay_ms % 1:
        raise SageccError(
            f"mm-delay takes the same whole milliseconds in both directions, not {link.delay_ms:g} and "
            f"{environment.return_delay_ms:g}: choose an even RTT, or use the lab"
        )
    _check_buffers(environment)
    return int(link.delay_ms)


def _check_buffers(environment: Environment) -> None:
    """Check that TCP's buffers, which only root can force, do not limit a flow."""
    if os.geteuid() == 0:
        return
    needed_bytes = int(SKB_FACTOR * in_flight_bytes(environment))
    for name in ("tcp_rmem", "tcp_wmem"):
        low, default, most = Path(f"/proc/sys/net/ipv4/{name}").read_text().split()
        if int(most) < needed_bytes:
            raise SageccError(
                f"net.ipv4.{name} is too small for this network: "
                f"sysctl -w net.ipv4.{name}='{low} {default} {needed_bytes}'"
            )


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("", 0))
        port: int = free.getsockname()[1]
        return port


def _specification(environment: Environment, scheme: str, port: int, out: Path) -> Specification:
    return Specification(
        address=None,  # inside, MAHIMAHI_BASE
        first_port=port,
        schemes=(scheme,),
        lives_s=lives_s(environment),
        duration_s=environment.duration_s,
        tick_s=TICK_S,
        buffer_bytes=0 if os.geteuid() else send_buffer_bytes(environment),
        priority=0,
        out=str(out),
    )


def queue_options(link: Link) -> list[str]:
    """Return mm-link's options for the queue of the data direction."""
    limits = []
    if link.queue_bytes is not None:
        limits.append(f"bytes={link.queue_bytes * PACKET_BYTES // MTU_BYTES}")
    if link.queue_packets is not None:
        limits.append(f"packets={link.queue_packets}")
    if not limits:
        return ["--uplink-queue=infinite"]
    return [f"--uplink-queue={QUEUES[link.discipline]}", f"--uplink-queue-args={','.join(limits)}"]


def uplink_ms(environment: Environment) -> npt.NDArray[np.int64]:
    """Return the times of mm-link's opportunities (whole ms): a lead, then the link's schedule from LEAD_MS on."""
    link, until_ms = environment.bottleneck, environment.duration_s * 1000 + TAIL_MS
    if link.trace:
        period = np.array(link.trace.opportunities_ms)
        repeats = int(until_ms / period[-1]) + 1
        times_ms = (period[None, :] + period[-1] * np.arange(repeats)[:, None]).ravel()
        lead = np.arange(1.0, LEAD_MS)
    else:
        times_ms = rate_opportunities_ms(link, until_ms)
        lead = np.arange(1.0, LEAD_MS, max(12 / link.base_mbps, 1))
    return np.concatenate((lead, LEAD_MS + np.ceil(times_ms[times_ms <= until_ms]))).astype(np.int64)


def rate_opportunities_ms(link: Link, until_ms: float) -> npt.NDArray[np.float64]:
    """Return the times at which a link that follows its rates has sent each further 1500 bytes (ms)."""
    steps = [step for step in link.rates if step.t_s * 1000 < until_ms]
    step_times_ms = np.array([*(step.t_s * 1000 for step in steps), until_ms])
    rates_mbps = np.array([step.rate_mbps for step in steps])
    sent_kbit = np.concatenate(([0.0], np.cumsum(np.diff(step_times_ms) * rates_mbps)))
    packet_kbits = MTU_BYTES * 8 / 1000
    due = packet_kbits * np.arange(1, int(sent_kbit[-1] / packet_kbits) + 1)
    step = np.searchsorted(sent_kbit, due) - 1  # the one in which it is sent, which is no outage
    times_ms: npt.NDArray[np.float64] = step_times_ms[step] + (due - sent_kbit[step]) / rates_mbps[step]
    return times_ms


def downlink_ms(environment: Environment) -> npt.NDArray[np.int64]:
    """Return a trace for the return direction that is never the bottleneck: the peak rate, each millisecond."""
    return np.ones(max(1, int(np.ceil(environment.bottleneck.peak_mbps / 12))), np.int64)


def write_trace(path: Path, times_ms: npt.NDArray[np.int64]) -> None:
    """Write mm-link's trace file, with times in whole ms."""
    np.savetxt(path, times_ms, fmt="%d")


def _log_start_ms(log: Path, name: str) -> int:
    """Return when mm-link's trace started (CLOCK_REALTIME, ms), as soon as its log says so."""
    deadline = time.monotonic() + HEADER_S
    while time.monotonic() < deadline:
        if log.exists():
            header = LogHeader.parse(log.read_text().splitlines())
            if header:
                return header.init_ms + header.base_ms
        time.sleep(0.01)
    raise SageccError(f"episode {name}: mm-link's log has no '# init timestamp': Mahimahi 0.98 or newer is needed")


@dataclass(frozen=True)
class LogHeader:
    """Header of mm-link's log."""

    init_ms: int
    """Time from which the log's times count (CLOCK_REALTIME, ms)."""

    base_ms: int
    """When the trace starts, on the log's clock (ms)."""

    @classmethod
    def parse(cls, lines: list[str]) -> LogHeader | None:
        """Return the header in a log's lines, or None where it is not complete (yet)."""
        timestamps = dict(line[2:].split(" timestamp: ") for line in lines if " timestamp: " in line and line[0] == "#")
        if "init" not in timestamps or "base" not in timestamps:
            return None
        return cls(int(timestamps["init"]), int(timestamps["base"]))


def read_log(log: Path, delay_ms: int) -> LinkLog:
    """Return what mm-link did from the episode's beginning on, with times in whole milliseconds.

    Args:
        log: path of mm-link's log.
        delay_ms: mm-delay's delay, which follows the queue (ms).

    Raises:
        SageccError: the header or a line is not that of a log; the message names the line.
    """
    lines = log.read_text().splitlines()
    header = LogHeader.parse(lines)
    if header is None:
        raise SageccError(f"{log}: no header of mm-link's log")
    began_ms = header.base_ms + LEAD_MS
    left, drops, opportunities = [], [], []
    for number, line in enumerate(lines, 1):
        fields = line.split()
        if line.startswith("#"):
            continue
        try:
            t_ms, kind, values = int(fields[0]) - began_ms, fields[1], [int(value) for value in fields[2:]]
            if kind == "-":
                left.append((t_ms, values[0] - PACKET_BYTES + MTU_BYTES, values[1]))
            elif kind == "d":
                drops += [t_ms] * values[0]
            elif kind == "#":
                opportunities.append(t_ms)
            elif kind != "+":
                raise ValueError(kind)
        except (ValueError, IndexError):
            raise SageccError(f"{log}:{number}: '{line}' is no line of mm-link's log") from None
    sent = np.array([packet for packet in left if packet[0] >= 0], np.int64).reshape(-1, 3)
    drops_ms = np.array([t_ms for t_ms in drops if t_ms >= 0], np.int64)
    times_ms, counts = np.unique([t_ms for t_ms in opportunities if t_ms > 0], return_counts=True)
    ms = 1_000_000
    return LinkLog(
        flow=np.zeros(len(sent), np.int64),
        bytes=sent[:, 1],
        entered_ns=(sent[:, 0] - sent[:, 2]) * ms,
        left_ns=sent[:, 0] * ms,
        delay_ns=(sent[:, 2] + delay_ms) * ms,
        drop_flow=np.zeros(len(drops_ms), np.int64),
        drop_ns=drops_ms * ms,
        capacity_ns=np.concatenate(([0], times_ms)).astype(np.int64) * ms,
        capacity_bytes=np.concatenate(([0], np.cumsum(counts) * MTU_BYTES)).astype(np.int64),
    )
