# SPDX-License-Identifier: Apache-2.0
"""One agent and many real sockets: the share of its deadlines that it meets, and what it costs (root only).

Flows between three network namespaces over a tbf; all under one agent, then each under an agent of its own, as many as
a machine can hold.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import resource
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm

from evidence.machine import save
from sagecc.cli import errors_in_one_line
from sagecc.collector.realtime import host
from sagecc.collector.realtime.process import Program
from sagecc.common.shipped import BEST_POLICY
from sagecc.execution.stock import kernel_scheme
from sagecc.execution.stock.shared import MODES, Shared
from sagecc.execution.stock.supervisor import driving
from sagecc.policy import runtime

MODEL, RUNTIME = Path("models") / BEST_POLICY, runtime.DEFAULT
FLOWS = (1, 100, 1000)
ALONE = 50
"""Agents of a flow each at once."""
RATE_MBPS = 200
QUEUE_BYTES = 16 << 20
RAMP_S = 5.0
SETTLE_S = 12.0
MEASURE_S = 30.0

NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, INET_DIAG_INFO, ESTABLISHED = 4, 20, 1 << 1, 1
NLM_F_REQUEST_DUMP = 0x301

ENDS = """
import contextlib, json, os, resource, select, socket, sys, time
role, schemes, ramp_s = sys.argv[1], json.loads(sys.argv[2]), float(sys.argv[3])
resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 14, 1 << 14))
poller, ends, got, began = select.epoll(), {}, 0, time.monotonic()
poller.register(sys.stdin, select.EPOLLIN)
if role == "receive":
    listener = socket.create_server(("", 5000), backlog=4096)
    poller.register(listener, select.EPOLLIN)
payload = os.memfd_create("payload")
os.ftruncate(payload, 1 << 20)
scratch = bytearray(1 << 20)
print("ready", flush=True)
if role == "send":
    sys.stdin.readline()
    began = time.monotonic()
while True:
    if role == "send":
        while len(ends) < len(schemes) and time.monotonic() - began >= ramp_s * len(ends) / len(schemes):
            sock = socket.socket()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, schemes[len(ends)].encode())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 17)
            sock.setblocking(False)
            sock.connect_ex(("10.0.1.1", 5000))
            ends[sock.fileno()] = sock
            poller.register(sock, select.EPOLLOUT)
    for fd, _ in poller.poll(0.005):
        if fd == 0:
            print(got, flush=True)
            sys.exit()
        if role == "send":
            with contextlib.suppress(BlockingIOError):
                os.sendfile(fd, payload, 0, 1 << 16)
        elif fd == listener.fileno():
            sock, _ = listener.accept()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1 << 14)
            ends[sock.fileno()] = sock
            poller.register(sock, select.EPOLLIN)
        else:
            got += ends[fd].recv_into(scratch, len(scratch), socket.MSG_TRUNC)
"""


@contextmanager
def traffic(schemes: Sequence[str]) -> Iterator[Program]:
    """Yield a sender that, once told, sends through a flow of each scheme, the last from RAMP_S later on."""
    with ExitStack() as stack:
        pids = stack.enter_context(namespaces())
        for role, pid in (("receive", pids[2]), ("send", pids[0])):
            command = ["nsenter", f"--net=/proc/{pid}/ns/net", sys.executable, "-c", ENDS, role]
            end = stack.enter_context(Program("benchmark", role, [*command, json.dumps(schemes), str(RAMP_S)]))
            end.wait_ready()
        yield end


@contextmanager
def namespaces() -> Iterator[list[int]]:
    """Yield the process ids of three network namespaces: sender, router with the link, receiver."""
    with ExitStack() as stack:
        holder = ["unshare", "--net", "sh", "-c", "echo ready; exec cat"]
        nodes = [stack.enter_context(Program("benchmark", "namespace", holder)) for _ in range(3)]
        for node in nodes:
            node.wait_ready()
        pids = [node.pid for node in nodes]
        for pid, script in zip(pids, _scripts(pids), strict=True):
            command = ["nsenter", f"--net=/proc/{pid}/ns/net", "sh", "-ec", f"{script}; echo ready; exec cat"]
            stack.enter_context(Program("benchmark", "network", command)).wait_ready()
        yield pids


def _scripts(pids: Sequence[int]) -> tuple[str, str, str]:
    quiet = "ip link set lo up; echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6"
    _, router, receiver = pids
    return (
        f"{quiet}; ip link add out type veth peer name in netns {router}; ip addr add 10.0.0.1/24 dev out;"
        " ip link set out up; ip route add default via 10.0.0.254",
        f"{quiet}; echo 1 > /proc/sys/net/ipv4/ip_forward; ip link add far type veth peer name in netns {receiver};"
        " ip addr add 10.0.0.254/24 dev in; ip link set in up; ip addr add 10.0.1.254/24 dev far; ip link set far up;"
        f" tc qdisc add dev far root tbf rate {RATE_MBPS}mbit burst 128kb limit {QUEUE_BYTES}",
        f"{quiet}; ip addr add 10.0.1.1/24 dev in; ip link set in up; ip route add default via 10.0.1.254",
    )


def measure(flows: int, agents: int, fifo: bool) -> dict[str, Any]:
    """Return how `agents` agents together kept time with `flows` flows between them.

    fifo: with the priority of real time, as `chrt --fifo` gives it.
    """
    each = flows // agents
    names = [f"sagecc_b{number}" for number in range(agents)]
    with ExitStack() as stack:
        sender = stack.enter_context(traffic([name for name in names for _ in range(each)]))
        loads = [
            stack.enter_context(driving(MODEL, RUNTIME, each, name))
            for name in tqdm(names, desc="agents", leave=False, disable=agents == 1)
        ]
        if fifo:
            for supervisor, _, _ in loads:
                os.sched_setscheduler(supervisor.pid, os.SCHED_FIFO, os.sched_param(host.PRIORITY))
        sender.send_line("go")
        time.sleep(SETTLE_S)
        for supervisor, _, _ in loads:
            supervisor.report()
        load = os.getloadavg()[0]
        time.sleep(MEASURE_S)
        timings = [supervisor.report() for supervisor, _, _ in loads]
        rows = [shared.rows[shared.rows["tick"] + 2 > shared.agent["tick"][0]] for _, _, shared in loads]
        under_policy = sum(int((row["mode"] == MODES.index("policy")).sum()) for row in rows)
        fell_back = sum(shared.count("fell_back") for _, _, shared in loads)
    return {
        "flows": flows,
        "agents": agents,
        "priority": "real time" if fifo else "as any program",
        "ticks": sum(timing.ticks for timing in timings),
        "met": sum(timing.met for timing in timings),
        "p50_ms": max(timing.p50_ms for timing in timings),
        "p99_ms": max(timing.p99_ms for timing in timings),
        "longest_ms": max(timing.longest_ms for timing in timings),
        "cores": round(sum(timing.cpu_s / timing.wall_s for timing in timings), 3),
        "under_policy": under_policy,
        "fell_back": fell_back,
        "load": round(load, 1),
    }


def ways_to_look(count: int = 1000) -> dict[str, float]:
    """Return what it costs to read the counters of 1,000 sockets, in microseconds of processor time, each way."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 14, 1 << 14))
    with ExitStack() as stack:
        scheme = stack.enter_context(closing(kernel_scheme.Scheme(count, kernel_scheme.private_name())))
        scheme.register()
        stack.callback(scheme.unregister)
        shared = stack.enter_context(closing(Shared(scheme.descriptors)))
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=4096))
        own = [stack.enter_context(socket.socket()) for _ in range(count)]
        for sock in own:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, scheme.name.encode())
            sock.connect(listener.getsockname())
            stack.enter_context(listener.accept()[0])
        diagnostics = stack.enter_context(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG))

        def iterate() -> int:
            return len(shared.observe(int(shared.agent["tick"][0]) + 1))

        def ask_each() -> int:
            return sum(len(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 280)) > 0 for sock in own)

        def dump() -> int:
            return _dump(diagnostics)

        ways = {"iterator": iterate, "getsockopt": ask_each, "socket diagnostics": dump}
        return {name: round(min(_cost_us(way) for _ in range(50)), 1) for name, way in ways.items()}


def _cost_us(way: Callable[[], int]) -> float:
    """Return the processor time of one look, for 1,000 of the sockets it saw."""
    begun = time.process_time_ns()
    flows = way()
    return (time.process_time_ns() - begun) / flows


def _dump(diagnostics: socket.socket) -> int:
    """Ask for TCP_INFO of all established IPv4 connections of this namespace; return how many there were."""
    request = struct.pack("=BBBxI48x", socket.AF_INET, socket.IPPROTO_TCP, INET_DIAG_INFO, 1 << ESTABLISHED)
    header = struct.pack("=IHHII", 16 + len(request), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST_DUMP, 0, 0)
    diagnostics.send(header + request)
    count = 0
    while True:
        data, at = diagnostics.recv(1 << 17), 0
        while at < len(data):
            size, kind = struct.unpack_from("=IH", data, at)
            if kind != SOCK_DIAG_BY_FAMILY:
                return count
            count += 1
            at += (size + 3) & ~3


def end_if_refused() -> None:
    """End with the reason where this machine cannot drive its own sockets."""
    if reason := kernel_scheme.why_not() or host.why_not():
        sys.exit(f"this machine cannot drive its own sockets: {reason}")


def main() -> None:
    """Measure and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flows", type=int, nargs="*", default=FLOWS)
    parser.add_argument("--alone", type=int, default=ALONE, help="agents of a flow each at once; 0: none")
    parser.add_argument("--dry", action="store_true", help="print, save nothing")
    options = parser.parse_args()
    end_if_refused()
    logging.disable(logging.INFO)
    cases = [(flows, 1, fifo) for flows in options.flows for fifo in (False, True)]
    cases += [(options.alone, options.alone, False)] * bool(options.alone)
    looks = ways_to_look()
    rows = [measure(*case) for case in tqdm(cases, desc="cases")]
    setting = {"policy": str(MODEL), "runtime": RUNTIME}
    result = {**setting, "rate_mbps": RATE_MBPS, "measured_s": MEASURE_S, "looks_us": looks, "rows": rows}
    if options.dry:
        print(json.dumps(result, indent=1))
    else:
        save("attach", result)


if __name__ == "__main__":
    with errors_in_one_line("evidence.speed.attach"):
        main()
