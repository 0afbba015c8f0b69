# SPDX-License-Identifier: Apache-2.0
"""Program at one end of all flows of a real-time episode: the senders, or the receivers.

It needs only Python's standard library, because it may run inside a shell of Mahimahi or another network namespace.
Usage: `endpoint.py send|receive SPECIFICATION` (JSON of `Specification`). It prints "ready", reads from standard input
when the episode begins (CLOCK_REALTIME, ns), and writes each flow's TCP_INFO and send-buffer use, sampled every tick,
to a file. It ends when its standard input does, so that it never outlives its parent.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

TCP_INFO_BYTES = 280
SAMPLE = struct.Struct(f"<QII{TCP_INFO_BYTES}sII")
"""A sample: time since the episode began (ns), flow, length of TCP_INFO as the kernel returned it (bytes), TCP_INFO
(padded with zeros), size of the send buffer (bytes), how much of it is used (bytes)."""

SO_SNDBUFFORCE, SO_RCVBUFFORCE, SO_MEMINFO = 32, 33, 55
MEMINFO = struct.Struct("=9I")
"""SK_MEMINFO_* of include/uapi/linux/sock_diag.h: the fourth is the send buffer, the sixth how much of it is used."""

PAYLOAD_BYTES = 1 << 20
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
NS_PER_S = 1_000_000_000
GRACE_NS = NS_PER_S
"""Time for which a receiver stays after the episode for senders that have not ended (ns)."""


@dataclass(frozen=True)
class Specification:
    """What one end of the flows does."""

    address: str | None
    """Address of the receivers; None inside Mahimahi, which gives it as MAHIMAHI_BASE."""

    first_port: int
    """Port of flow 0; flow i has first_port + i."""

    schemes: tuple[str, ...]
    """Kernel scheme of every flow."""

    lives_s: tuple[tuple[float, float], ...]
    """Start and stop of every flow (s)."""

    duration_s: float
    """Length of the episode (s)."""

    tick_s: float
    """Time between samples (s)."""

    buffer_bytes: int
    """Socket buffer to force, as root (bytes); 0 for the kernel's choice."""

    priority: int
    """Priority under SCHED_FIFO; 0 for the default scheduler."""

    out: str
    """Path of the file for the samples."""


class Sampler(threading.Thread):
    """Read TCP_INFO and SO_MEMINFO of every registered socket once per tick."""

    def __init__(self, began_ns: int, specification: Specification) -> None:
        super().__init__(daemon=True)
        self._began_ns = began_ns
        self._tick_ns = round(specification.tick_s * NS_PER_S)
        self._ticks = round(specification.duration_s / specification.tick_s)
        self.sockets: dict[int, socket.socket] = {}
        self.samples = bytearray()

    def run(self) -> None:
        """Sample until the episode's last tick; ticks that the thread has missed are skipped."""
        tick = 0
        while True:
            tick = max(tick, (time.time_ns() - self._began_ns) // self._tick_ns) + 1
            if tick > self._ticks:
                return
            while left_s := time_left_s(self._began_ns + tick * self._tick_ns):
                time.sleep(left_s)
            for flow, sock in tuple(self.sockets.items()):
                self.samples += sample(sock, flow, lambda: time.time_ns() - self._began_ns)


def sample(sock: socket.socket, flow: int, now_ns: Callable[[], int]) -> bytes:
    """Return a SAMPLE of a socket; `now_ns` tells the time once it is read."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
    memory = sock.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, MEMINFO.size)
    _, _, _, buffer, _, used_bytes, *_ = MEMINFO.unpack(memory)
    return SAMPLE.pack(now_ns(), flow, len(info), info, buffer, used_bytes)


def wait_for_start() -> int:
    """Report that this end is ready; return when the episode begins (CLOCK_REALTIME, ns), or exit with the parent."""
    print("ready", flush=True)
    line = sys.stdin.readline()
    if not line:
        sys.exit(1)
    return int(line)


def time_left_s(until_ns: int) -> float:
    """Return the time until `until_ns` of CLOCK_REALTIME (s), at least 0."""
    return max(until_ns - time.time_ns(), 0) / NS_PER_S


def poll(poller: select.epoll, until_ns: int) -> list[tuple[int, int]]:
    """Wait for events until `until_ns` of CLOCK_REALTIME; exit at the end of standard input."""
    events = poller.poll(time_left_s(until_ns))
    if any(fd == sys.stdin.fileno() for fd, _ in events):
        sys.exit(1)
    return events


def send(specification: Specification) -> None:
    """Run the senders: each sends as fast as its window allows, from its start to its stop."""
    address = specification.address or os.environ["MAHIMAHI_BASE"]
    payload = os.memfd_create("payload")
    os.ftruncate(payload, PAYLOAD_BYTES)
    began_ns = wait_for_start()
    poller = select.epoll()
    poller.register(sys.stdin, select.EPOLLIN)
    sampler = Sampler(began_ns, specification)
    sampler.start()
    changes = [
        (began_ns + round(time_s * NS_PER_S), is_stop, flow)
        for flow, life_s in enumerate(specification.lives_s)
        for is_stop, time_s in enumerate(life_s)
    ]
    senders: dict[int, tuple[int, socket.socket]] = {}
    for change_ns, is_stop, flow in sorted(changes):
        while time_left_s(change_ns):
            for fd, events in poll(poller, change_ns):
                sender, sock = senders[fd]
                if events & (select.EPOLLERR | select.EPOLLHUP):
                    sys.exit(f"flow {sender}: its connection broke")
                sampler.sockets[sender] = sock
                send_more(fd, payload)
        if is_stop:
            for fd in [fd for fd, (sender, _) in senders.items() if sender == flow]:
                poller.unregister(fd)
                senders[fd][1].shutdown(socket.SHUT_WR)
        else:
            sock = new_sender(specification, flow, address)
            senders[sock.fileno()] = flow, sock
            poller.register(sock, select.EPOLLOUT)
    finish(sampler, specification)


def new_sender(specification: Specification, flow: int, address: str) -> socket.socket:
    """Return a socket of a flow's scheme that is connecting to its receiver."""
    sock = socket.socket()
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, specification.schemes[flow].encode())
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    if specification.buffer_bytes:
        sock.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, specification.buffer_bytes // 2)
    sock.connect_ex((address, specification.first_port + flow))
    return sock


def send_more(fd: int, payload: int) -> None:
    """Fill the socket's buffer from the file of zeros `payload`."""
    with contextlib.suppress(BlockingIOError):
        os.sendfile(fd, payload, 0, PAYLOAD_BYTES)


def receive(specification: Specification) -> None:
    """Run the receivers: read what arrives and discard it."""
    poller = select.epoll()
    listeners: dict[int, tuple[int, socket.socket]] = {}
    for flow in range(len(specification.lives_s)):
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if specification.buffer_bytes:
            sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, specification.buffer_bytes // 2)
        sock.setblocking(False)
        sock.bind(("", specification.first_port + flow))
        sock.listen(1)
        listeners[sock.fileno()] = flow, sock
        poller.register(sock, select.EPOLLIN)
    began_ns = wait_for_start()
    poller.register(sys.stdin, select.EPOLLIN)
    sampler = Sampler(began_ns, specification)
    sampler.start()
    receivers: dict[int, socket.socket] = {}
    scratch = bytearray(PAYLOAD_BYTES)
    end_ns = began_ns + round(specification.duration_s * NS_PER_S)
    while time_left_s(end_ns) or (receivers and time_left_s(end_ns + GRACE_NS)):
        for fd, _ in poll(poller, end_ns + GRACE_NS if receivers else end_ns):
            if fd in listeners:
                flow, listener = listeners[fd]
                sock, _ = listener.accept()
                sock.setblocking(False)
                # no SO_RCVLOWAT: tcp_rcv_space_adjust widens the window by bytes read less bytes that wait, 0 in bursts
                receivers[sock.fileno()] = sampler.sockets[flow] = sock
                poller.register(sock, select.EPOLLIN)
            elif not discard(receivers[fd], scratch):
                poller.unregister(fd)
                del receivers[fd]
    finish(sampler, specification)


def discard(sock: socket.socket, scratch: bytearray) -> bool:
    """Discard what has arrived without copying it; return whether more may come."""
    try:
        return sock.recv_into(scratch, len(scratch), socket.MSG_TRUNC) > 0
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


def finish(sampler: Sampler, specification: Specification) -> None:
    """Wait for the last tick and write the samples."""
    sampler.join()
    with open(specification.out, "wb") as file:  # noqa: PTH123 - pathlib is slow to import here
        file.write(sampler.samples)


def main() -> None:
    """Run one end."""
    role, specification = sys.argv[1], Specification(**json.loads(sys.argv[2]))
    if specification.priority:
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(specification.priority))
    {"send": send, "receive": receive}[role](specification)


if __name__ == "__main__":
    main()
