# SPDX-License-Identifier: Apache-2.0
"""Stands in for mm-delay and mm-link: their arguments, their log, their way to run a command; not their code.

`delay` only runs the command. `link` runs it where it is, and logs a packet a millisecond that waited 2 ms; with
STANDIN_TUN set (and root) it is a real link: the command runs in a network namespace behind a tun device, and
packets wait in a tail-drop queue for the trace's opportunities.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import struct
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import TextIO

OPPORTUNITY = 1504
BASE_MS = 5
"""When the trace begins, after the program."""
OUTSIDE, INSIDE = "100.64.0.1", "100.64.0.2"


def delay(arguments: list[str]) -> int:
    int(arguments[0])
    os.environ.setdefault("MAHIMAHI_BASE", OUTSIDE if "STANDIN_TUN" in os.environ else "127.0.0.1")
    os.execvp(arguments[1], arguments[1:])


def link(arguments: list[str]) -> int:
    end = arguments.index("--")
    names = [word for word in arguments[:end] if not word.startswith("--")]
    options = dict(word[2:].split("=", 1) for word in arguments[:end] if word.startswith("--"))
    assert set(options) <= {"uplink-queue", "uplink-queue-args", "uplink-log"}, options
    up, down = ([int(line) for line in Path(name).read_text().splitlines()] for name in names)
    assert up == sorted(up) and down
    log = Path(options["uplink-log"]).open("w", buffering=1)  # noqa: SIM115 - until the program's end
    init = time.time_ns() // 1_000_000
    print(f"# mahimahi mm-link (Uplink) [{names[0]}] > {options['uplink-log']}", file=log)
    print(f"# command line: 'mm-link'\n# queue: droptail\n# init timestamp: {init}", file=log)
    print(f"# base timestamp: {BASE_MS}", file=log)
    os.environ.setdefault("MAHIMAHI_BASE", OUTSIDE)
    if "STANDIN_TUN" in os.environ:
        assert options["uplink-queue"] == "droptail"
        limit = int(options["uplink-queue-args"].removeprefix("bytes="))
        return ferry(arguments[end + 1 :], [init + BASE_MS + ms for ms in up], limit, init, log)
    status = subprocess.run(arguments[end + 1 :]).returncode
    for ms in range(6, time.time_ns() // 1_000_000 - init):
        print(f"{ms} # 1504\n{ms} + 1504\n{ms} - 1504 2", file=log)
    print(f"{ms} d 3 4512", file=log)
    return status


def tun(name: str) -> int:
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, 0x400454CA, struct.pack("16sH22x", name.encode(), 1))  # TUNSETIFF, IFF_TUN with its 4-byte header
    return fd


def ip(*commands: str) -> None:
    for command in commands:
        subprocess.run(["ip", *command.split()], check=True)


def ferry(command: list[str], schedule: list[int], limit: int, init: int, log: TextIO) -> int:
    outside = tun("egress")
    ip(f"addr add {OUTSIDE} peer {INSIDE} dev egress", "link set egress up")
    assert ctypes.CDLL(None).unshare(0x40000000) == 0  # CLONE_NEWNET
    inside = tun("ingress")
    ip("link set lo up", f"addr add {INSIDE} peer {OUTSIDE} dev ingress", "link set ingress up")
    ip(f"route add default via {OUTSIDE}")
    process = subprocess.Popen(command)
    queue: deque[tuple[int, bytes]] = deque()
    queued, upcoming, period = 0, deque(schedule), schedule[-1] - init - BASE_MS
    while process.poll() is None:
        wait = max(upcoming[0] / 1000 - time.time(), 0)
        ready, _, _ = select.select([inside, outside], [], [], wait)
        while outside in ready:  # the way back limits nothing
            try:
                os.write(inside, os.read(outside, 2048))
            except BlockingIOError:
                break
        now = time.time_ns() // 1_000_000
        while upcoming[0] <= now:
            moment = upcoming.popleft()
            upcoming.append(moment + period)  # a trace that ends begins anew
            print(f"{moment - init} # {OPPORTUNITY}", file=log)
            room = OPPORTUNITY
            while queue and len(queue[0][1]) <= room:
                arrived, packet = queue.popleft()
                room -= len(packet)
                queued -= len(packet)
                print(f"{moment - init} - {len(packet)} {moment - arrived}", file=log)
                os.write(outside, packet)
        while inside in ready:
            try:
                packet = os.read(inside, 2048)
            except BlockingIOError:
                break
            print(f"{now - init} + {len(packet)}", file=log)
            if queued + len(packet) > limit:
                print(f"{now - init} d 1 {len(packet)}", file=log)
            else:
                queue.append((now, packet))
                queued += len(packet)
    return process.returncode


if __name__ == "__main__":
    sys.exit({"delay": delay, "link": link}[sys.argv[1]](sys.argv[2:]))
