# SPDX-License-Identifier: Apache-2.0
"""How fast the lab is: virtual seconds a CPU-second, microseconds a packet, fixed cost, the whole grid's estimate.

CPU time counts the guest (its kernel and its user process) and the host's side (reading, decoding,
writing the trajectory), all pinned to one core. Where ns-3 is installed it runs the same dumbbell in turn with
the lab, so that both see the same machine.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from statistics import median

from tqdm import tqdm

from evidence.machine import KERNEL, CpuTime, save
from evidence.speed import ns3
from sagecc.cli import errors_in_one_line
from sagecc.collector.lab.episode import Episode, run_episode
from sagecc.collector.run.grid import bottleneck, profile_environments
from sagecc.collector.run.store import Partition, pack
from sagecc.collector.run.task import Task
from sagecc.schemas.environment import Environment, dumbbell
from sagecc.schemas.schemes import SCHEMES

RATES_MBPS = (12, 24, 48, 96, 192)
REPEATS = 3
DURATION_S = 30.0
FIXED_S = 0.05
"""An episode of almost nothing: what starting, ending and storing cost."""


def flat(rate_mbps: float, duration_s: float) -> Environment:
    """Return the benchmark's link: flat, 40 ms, 1 BDP."""
    return dumbbell("custom", bottleneck(rate_mbps, 1, 40, 1, duration_s), 20, duration_s, ((0, duration_s),))


def cpu_s(environment: Environment, scheme: str, out: Path) -> tuple[float, Episode]:
    """Return the CPU seconds of one whole episode, its storing included."""
    start = CpuTime.now()
    episode = run_episode(KERNEL, environment, scheme)
    Partition(out, "custom", scheme, "benchmark").add(episode.id, pack(episode, "benchmark"))
    return CpuTime.now().since(start), episode


def main() -> None:
    """Measure and save."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    result: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch)
        fixed_s = median(cpu_s(flat(12, FIXED_S), "cubic", out)[0] for _ in range(10))
        result["fixed_s"] = fixed_s
        result["ns3"] = against_ns3(out)
        result["episodes"] = [
            flow(scheme, rate, fixed_s, out) for scheme in ("cubic", "bbr2") for rate in tqdm(RATES_MBPS, desc=scheme)
        ]
        result["grid"] = grid_estimate(out)
    save("collect", result)


def flow(scheme: str, rate_mbps: float, fixed_s: float, out: Path) -> dict[str, object]:
    """Measure one flow on the benchmark's link."""
    runs = [cpu_s(flat(rate_mbps, DURATION_S), scheme, out) for _ in range(REPEATS)]
    seconds, packets = median(spent for spent, _ in runs), runs[0][1].flows[0].sent_packets
    return {
        "scheme": scheme,
        "rate_mbps": rate_mbps,
        "cpu_s": seconds,
        "virtual_s_per_cpu_s": DURATION_S / seconds,
        "us_per_packet": (seconds - fixed_s) / packets * 1e6,
    }


def against_ns3(out: Path) -> dict[str, object]:
    """Run Cubic in the lab and in ns-3 in turn; say why not where ns-3 is not installed."""
    reason = ns3.missing()
    if reason:
        print(f"ns-3 is not compared: {reason}", file=sys.stderr)
        return {"missing": reason}
    ns3.build()
    rows = []
    for rate in tqdm(RATES_MBPS, desc="ns-3"):
        link = flat(rate, DURATION_S)
        pairs = [(cpu_s(link, "cubic", out), ns3.run(link)) for _ in range(REPEATS)]
        (_, episode), theirs = pairs[0]
        ours_s = median(ours for (ours, _), _ in pairs)
        theirs_s = median(run.cpu_s for _, run in pairs)
        row = {
            "rate_mbps": rate,
            "lab_virtual_s_per_cpu_s": DURATION_S / ours_s,
            "ns3_virtual_s_per_cpu_s": DURATION_S / theirs_s,
            "ratio": theirs_s / ours_s,
            "lab_goodput_mbps": episode.flows[0].goodput_mbps,
            "ns3_goodput_mbps": theirs.goodput_mbps,
            "lab_dropped_packets": episode.flows[0].lost_packets,
            "ns3_dropped_packets": theirs.dropped_packets,
        }
        rows.append(row)
        tqdm.write(f"{rate} Mbps: the lab is {row['ratio']:.1f} times as fast as ns-3", file=sys.stderr)
    return {"version": ns3.version(), "rows": rows}


def grid_estimate(out: Path, every: int = 19) -> dict[str, object]:
    """Estimate the whole grid from a sample: one environment in `every`, schemes taken in turn."""
    environments = profile_environments("full")
    schemes = tuple(SCHEMES)
    measured = weight = 0.0
    sample = environments[::every]
    for index, environment in enumerate(tqdm(sample, desc="grid")):
        scheme = schemes[index % len(schemes)]
        measured += cpu_s(environment, scheme, out)[0]
        weight += cost(environment)
    whole = len(schemes) * sum(cost(environment) for environment in environments)
    return {
        "episodes": len(environments) * len(schemes),
        "sampled": len(sample),
        "cpu_hours": measured / weight * whole / 3600,
    }


def cost(environment: Environment) -> float:
    """Return the collector's own cost model, used to weight the sample."""
    return Task(environment, "cubic", 0, "").cost


if __name__ == "__main__":
    with errors_in_one_line("evidence.speed.collect"):
        main()
