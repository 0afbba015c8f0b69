# SPDX-License-Identifier: Apache-2.0
"""The same dumbbell in ns-3, compiled where its headers are installed (Debian: libns3-dev and g++)."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from evidence.machine import CpuTime
from sagecc.common.errors import SageccError
from sagecc.schemas.environment import Environment

SOURCE = Path(__file__).with_name("ns3_dumbbell.cc")
PROGRAM = Path("build/ns3_dumbbell")
LIBRARIES = ("applications", "internet", "point-to-point", "network", "core")
HEADER = "#include <ns3/core-module.h>\n"


@dataclass(frozen=True)
class Ns3Run:
    """One flow in ns-3: CPU seconds of the whole process, the application's goodput, packets dropped at the queue."""

    cpu_s: float
    goodput_mbps: float
    sent_packets: int
    dropped_packets: int


def missing() -> str | None:
    """Return what keeps ns-3 from being measured, or None."""
    try:
        process = subprocess.run(
            ["g++", "-std=c++17", "-E", "-x", "c++", "-", "-o", "/dev/null"],
            input=HEADER,
            capture_output=True,
            text=True,
        )
    except FileNotFoundError:
        return "g++ is not installed"
    return "ns-3's headers are not installed (Debian: libns3-dev)" if process.returncode else None


def version() -> str:
    """Return the installed ns-3's version, as the package manager knows it."""
    process = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "libns3-dev"], capture_output=True, text=True)
    return process.stdout.strip() if process.returncode == 0 else "unknown version"


def build() -> None:
    """Compile the program; raises SageccError with the compiler's first complaint."""
    PROGRAM.parent.mkdir(exist_ok=True)
    command = ["g++", "-std=c++17", "-O2", str(SOURCE), "-o", str(PROGRAM), *(f"-lns3-{name}" for name in LIBRARIES)]
    process = subprocess.run(command, capture_output=True, text=True)
    if process.returncode:
        complaint = next((line for line in process.stderr.splitlines() if "error" in line), "no message")
        raise SageccError(f"{SOURCE.name} does not compile against this ns-3: {complaint}")


def run(environment: Environment) -> Ns3Run:
    """Run one Cubic flow over the environment's bottleneck, in this process's CPU affinity."""
    seconds = environment.duration_s
    start = CpuTime.now()
    process = subprocess.run(
        [
            str(PROGRAM.resolve()),
            f"--mbps={environment.bandwidth_mbps:g}",
            f"--rttMs={environment.min_rtt_ms:g}",
            f"--queueBytes={environment.bottleneck.queue_bytes}",
            f"--seconds={seconds:g}",
        ],
        capture_output=True,
        text=True,
    )
    cpu_s = CpuTime.now().since(start)
    if process.returncode:
        raise SageccError(f"{PROGRAM.name} failed: {(process.stderr or 'no message').strip().splitlines()[-1]}")
    out = json.loads(process.stdout)
    return Ns3Run(cpu_s, out["received_bytes"] * 8 / 1e6 / seconds, out["sent_packets"], out["dropped_packets"])
