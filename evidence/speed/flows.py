# SPDX-License-Identifier: Apache-2.0
"""What many flows on one link cost: 1, 10 and 60 Cubics at 600 Mbps, and where the time of 60 goes.

CPU time of the guest and, apart, of the host's side: reading the stream, making every flow's rows of it, and the series
that a study keeps. All pinned to one core. Where perf and the kernel's folder are there, the guest's time is told apart
by groups of functions (evidence.speed.profile).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import TypeVar

from evidence.machine import KERNEL, CpuTime, save
from evidence.speed.collect import flat
from evidence.speed.profile import profile, profiled_kernel
from sagecc.cli import errors_in_one_line
from sagecc.collector.lab.boot import run_guest
from sagecc.collector.lab.episode import episode_from_recording
from sagecc.collector.lab.spec import episode_spec
from sagecc.leagues.flow_metrics import flow_series
from sagecc.schemas.environment import CrossFlow, Environment

SCHEME = "cubic"
RATE_MBPS = 600.0
FLOWS = (1, 10, 60)
DURATION_S = 20.0
REPEATS = 3

Made = TypeVar("Made")


def main() -> None:
    """Measure and save; with arguments (kernel, flows) only run the episode, for perf to watch."""
    if len(sys.argv) > 1:
        kernel, flows = sys.argv[1:]
        run_guest(Path(kernel), episode_spec(shared(int(flows)), SCHEME, 0))
        return
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    result: dict[str, object] = {"scheme": SCHEME, "rate_mbps": RATE_MBPS, "duration_s": DURATION_S}
    result["rows"] = [measure(flows) for flows in FLOWS]
    if watched := profiled_kernel():
        result["shares"] = {
            f"{flows} flow{'s' if flows > 1 else ''}": profile(
                watched, ["-m", "evidence.speed.flows", str(watched), str(flows)]
            )
            for flows in (min(FLOWS), max(FLOWS))
        }
    result["load_average"] = round(os.getloadavg()[0], 1)
    save("flows", result)


def shared(flows: int) -> Environment:
    """Return the link of evidence.speed.collect at RATE_MBPS with so many flows from the start."""
    return replace(flat(RATE_MBPS, DURATION_S), cross=(CrossFlow(SCHEME),) * (flows - 1))


def measure(flows: int) -> dict[str, object]:
    """Run one episode several times; return the medians of its CPU seconds."""
    environment = shared(flows)
    spec = episode_spec(environment, SCHEME, 0)
    runs = []
    for _ in range(REPEATS):
        begin = CpuTime.now()
        recording = run_guest(KERNEL, spec)
        read = CpuTime.now()
        rows_s, episode = timed(
            lambda: episode_from_recording(environment, SCHEME, 0, spec, recording, every_flow=True)  # noqa: B023
        )
        series_s, _ = timed(lambda: flow_series(episode.every_flow))  # noqa: B023
        runs.append((read.children_s - begin.children_s, read.own_s - begin.own_s, rows_s, series_s))
    guest_s, read_s, rows_s, series_s = (median(column) for column in zip(*runs, strict=True))
    packets = sum(flow.sent_packets for flow in episode.flows)
    whole_s = guest_s + read_s + rows_s + series_s
    return {
        "flows": flows,
        "packets": packets,
        "goodput_mbps": sum(flow.goodput_mbps for flow in episode.flows),
        "guest_s": guest_s,
        "read_s": read_s,
        "rows_s": rows_s,
        "series_s": series_s,
        "virtual_s_per_cpu_s": DURATION_S / whole_s,
        "us_per_packet": whole_s / packets * 1e6,
        "guest_us_per_packet": guest_s / packets * 1e6,
    }


def timed(make: Callable[[], Made]) -> tuple[float, Made]:
    """Return the CPU seconds of this process that making something took, and the thing."""
    begin = CpuTime.now()
    result = make()
    return CpuTime.now().own_s - begin.own_s, result


if __name__ == "__main__":
    with errors_in_one_line("evidence.speed.flows"):
        main()
