# SPDX-License-Identifier: Apache-2.0
"""A path to measure: two hosts and a router in namespaces, a rate by tbf and a delay of our own, IPv4 and IPv6.

    client --veth-- router [tbf on a tun device] ==this program== [tbf on a tun device] server

Run as a program, it is the delay: it takes packets from each tun device, and writes them to the other when due.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from sagecc.collector.realtime.process import Program

CLIENT, ROUTER, SERVER = range(3)
ADDRESSES = {"IPv4": "10.0.1.1", "IPv6": "fd00:1::1"}
"""Of the server."""
MTU_BYTES = 1500
CLONE_NEWNET, TUNSETIFF, TUN_WITHOUT_INFO = 0x40000000, 0x400454CA, 0x1001


class MeasuredNetwork:
    """The path, in namespaces that end with the `with` block."""

    def __init__(self, stack: ExitStack, rate_mbps: float, delay_ms: float, queue_bytes: int) -> None:
        self._pids = [stack.enter_context(_namespace()) for _ in range(3)]
        _, router, server = self._pids
        self.do(CLIENT, f"ip link set lo up; ip link add out type veth peer name in netns {router}")
        self.do(CLIENT, "ip link set dev out gso_max_segs 1; ip addr add 10.0.0.1/24 dev out")
        self.do(CLIENT, "ip -6 addr add fd00:0::1/64 dev out nodad; ip link set out up")
        self.do(ROUTER, "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding")
        self.do(
            ROUTER, "ip addr add 10.0.0.254/24 dev in; ip -6 addr add fd00:0::fe/64 dev in nodad; ip link set in up"
        )
        namespaces = [f"/proc/{pid}/ns/net" for pid in (router, server)]
        delay = Program("test", "delay", [sys.executable, __file__, *namespaces, str(delay_ms)])
        stack.enter_context(delay).wait_ready()
        tbf = f"root tbf rate {rate_mbps}mbit burst 3028 limit {queue_bytes}"
        up = f"ip link set tun mtu {MTU_BYTES} up; tc qdisc add dev tun {tbf}"
        self.do(
            ROUTER, f"ip addr add 10.0.1.254 peer 10.0.1.1 dev tun; {up}; ip -6 addr add fd00:1::fe/64 dev tun nodad"
        )
        self.do(SERVER, f"ip link set lo up; ip addr add 10.0.1.1 peer 10.0.1.254 dev tun; {up}")
        self.do(SERVER, "ip -6 addr add fd00:1::1/64 dev tun nodad; ip route add default dev tun")
        self.do(SERVER, "ip -6 route add default dev tun")
        self.do(CLIENT, "ip route add default via 10.0.0.254; ip -6 route add default via fd00:0::fe")

    def inside(self, node: int, command: list[str]) -> list[str]:
        """Return the command that runs another at a node."""
        return ["nsenter", f"--net=/proc/{self._pids[node]}/ns/net", *command]

    def do(self, node: int, script: str) -> None:
        """Run a script at a node."""
        done = subprocess.run(self.inside(node, ["sh", "-ec", script]), capture_output=True, text=True)
        assert done.returncode == 0, f"{script}: {done.stderr}"

    def cut(self) -> None:
        """Let nothing pass any more, in silence."""
        self.do(ROUTER, "ip link set tun down")

    def mend(self) -> None:
        """Let packets pass again."""
        self.do(ROUTER, "ip link set tun up; ip -6 addr replace fd00:1::fe/64 dev tun nodad")


@contextmanager
def _namespace() -> Iterator[int]:
    with Program("test", "namespace", ["unshare", "--net", "sh", "-c", "echo ready; exec cat"]) as program:
        program.wait_ready()
        yield program.pid


def _tun(namespace: str) -> int:
    handle = os.open(namespace, os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(handle, CLONE_NEWNET):
        sys.exit(f"{namespace}: {os.strerror(ctypes.get_errno())}")
    os.close(handle)
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", b"tun", TUN_WITHOUT_INFO))
    return tun


def delay(near: str, far: str, delay_ms: float) -> None:
    """Hold packets between two namespaces for so long, until standard input ends."""
    tuns = _tun(near), _tun(far)
    lines: dict[int, deque[tuple[float, bytes]]] = {tun: deque() for tun in tuns}
    other = dict(zip(tuns, reversed(tuns), strict=True))
    poller = select.poll()
    for descriptor in (sys.stdin.fileno(), *tuns):
        poller.register(descriptor, select.POLLIN)
    print("ready", flush=True)
    while True:
        due = min((line[0][0] for line in lines.values() if line), default=time.monotonic() + 1)
        for descriptor, _ in poller.poll(max(due - time.monotonic(), 0) * 1000):
            if descriptor not in lines:
                return
            try:
                while True:
                    packet = os.read(descriptor, MTU_BYTES + 4)
                    lines[other[descriptor]].append((time.monotonic() + delay_ms / 1000, packet))
            except BlockingIOError:
                continue
            except OSError:  # the device is down
                time.sleep(0.01)
        for tun, line in lines.items():
            while line and line[0][0] <= time.monotonic():
                _, packet = line.popleft()
                with contextlib.suppress(OSError):  # the device is down
                    os.write(tun, packet)


if __name__ == "__main__":
    delay(sys.argv[1], sys.argv[2], float(sys.argv[3]))
