# SPDX-License-Identifier: Apache-2.0
"""Where a guest's CPU time goes, by perf's samples of the kernel with its symbols (build/kernel/linux-*/linux).

Symbols are put into groups by their names: the first group whose pattern is found takes them, so a share is good
to a percent or two, not to a tenth.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from evidence.machine import save
from evidence.speed.collect import flat
from sagecc.cli import errors_in_one_line
from sagecc.collector.lab.boot import run_guest
from sagecc.collector.lab.spec import episode_spec

EPISODES = {"start and end": (12.0, 0.05, 20), "12 Mbps": (12.0, 60.0, 2), "192 Mbps": (192.0, 60.0, 1)}
"""What is profiled: rate (Mbps), virtual seconds, how many times."""

SAMPLES_HZ = 5000
HOST, GUEST_PROGRAM, REST = "host kernel (ptrace, page faults)", "guest program, C library", "rest"
GROUPS = {
    "sampling and stream": r"^(sample|put|put_packets|take_actions|lab_|link_read|host_write|tcp_get_info)",
    "link": r"^(link_|serve|arm|sent_ns|classify|discipline|transmit|codel|pie_)",
    "unpacking init at boot": r"inflate",
    "interrupts and signals of user mode": r"signals|irq|IRQ|interrupt|alarm|os_|um_|fast_mix",
    "timers, scheduler, virtual time": r"timer|time_travel|ktime|timekeep|tick|idle|sched|softirq|rcu|jiffies|"
    r"run_queues|pick_|enqueue_task|dequeue_task|update_curr|switch",
    "memory: slabs, pages, clearing, copying": r"slab|kmem|kfree|kmalloc|page|alloc|free_|partial|rmqueue|memset|"
    r"memcpy|memmove|csum|copy",
    "TCP and sockets": r"tcp|cubic|inet_|rb_|rbtree|minmax|sk_|sock",
    "packets, IP, devices": r"skb|ip_|eth_|netif|net_rx|net_tx|veth|dev_|qdisc|dst|ipv4|neigh|xmit|rcv|local_bh|"
    r"deliver",
    "calls of the guest program": r"userspace|stub|mm_|vm_|ptrace|syscall|sys_|epoll|ep_|splice|file|fput|fdget|wake|"
    r"poll",
}


def main() -> None:
    """Profile and save; with arguments (kernel, Mbps, seconds, times) only run episodes, for perf to watch."""
    if len(sys.argv) > 1:
        kernel, rate, seconds, times = sys.argv[1:]
        for _ in range(int(times)):
            run_guest(Path(kernel), episode_spec(flat(float(rate), float(seconds)), "cubic", 0))
        return
    if watched := profiled_kernel():
        shares = {
            name: profile(watched, ["-m", "evidence.speed.profile", str(watched), *map(str, episode)])
            for name, episode in EPISODES.items()
        }
        save("profile", {"shares": shares})


def profiled_kernel() -> Path | None:
    """Return the kernel with its symbols; where that or perf is missing, say so."""
    kernels = sorted(Path("build/kernel").glob("linux-*/linux"))
    if not kernels or shutil.which("perf") is None:
        print(
            "not profiled: this needs perf (Debian: linux-perf) and the kernel's folder build/kernel", file=sys.stderr
        )
        return None
    return kernels[-1]


def profile(kernel: Path, arguments: Sequence[str]) -> dict[str, float]:
    """Return group -> share of the CPU time of a kernel's guests, which Python with these arguments runs."""
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch) / "perf.data"
        watch = ["perf", "record", "-q", "-F", str(SAMPLES_HZ), "-e", "cpu-clock", "-o", str(data), "--"]
        subprocess.run([*watch, sys.executable, *arguments], check=True)
        shares: dict[str, float] = defaultdict(float)
        for percent, dso, symbol in symbols(data, kernel.name):
            shares[group(dso, symbol, kernel.name)] += percent
    whole = sum(shares.values())
    return {name: shares[name] / whole for name in sorted(shares, key=lambda name: -shares[name])}


def symbols(data: Path, comm: str) -> Iterator[tuple[float, str, str]]:
    """Yield (percent, file, symbol) of what perf saw in processes called `comm`."""
    fields = ["-F", "overhead,dso,symbol", "-t", "|", "--stdio", "-g", "none"]
    process = subprocess.run(
        ["perf", "report", "-i", str(data), "--comm", comm, *fields], capture_output=True, text=True, check=True
    )
    for line in process.stdout.splitlines():
        if "|" in line and not line.startswith("#"):
            percent, dso, symbol = (part.strip() for part in line.split("|")[:3])
            yield float(percent.rstrip("%")), dso, re.sub(r"^\[.\] ", "", symbol)


def group(dso: str, symbol: str, comm: str) -> str:
    """Return the group of a symbol."""
    if "kernel" in dso:
        return HOST
    if dso != comm:
        return GUEST_PROGRAM
    return next((name for name, pattern in GROUPS.items() if re.search(pattern, symbol)), REST)


if __name__ == "__main__":
    with errors_in_one_line("evidence.speed.profile"):
        main()
