# SPDX-License-Identifier: Apache-2.0
"""How fast the lab is: virtual seconds a CPU-second, microseconds a packet, fixed cost, the whole grid's estimate.

CPU time counts the guest (its kernel and its user process) and the host's side (reading, decoding,
writing the trajectory), all pinned to one core.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from statistics import median

from tqdm import tqdm

from benchmarks.machine import CpuTime, save
from collector.collect import Task
from collector.episode import Episode, run_episode
from collector.grid import bottleneck, profile_environments
from collector.schemes import SCHEMES
from collector.store import Partition
from schemas.environment import Environment, dumbbell

KERNEL = Path("build/sagecc-linux")
RATES_MBPS = (12, 24, 48, 96, 192)
REPEATS = 3


def flat(rate_mbps: float, duration_s: float) -> Environment:
    """Return the benchmark's link: flat, 40 ms, 1 BDP."""
    return dumbbell("custom", bottleneck(rate_mbps, 1, 40, 1, duration_s), 20, duration_s, ((0, duration_s),))


def cpu_s(environment: Environment, scheme: str, out: Path) -> tuple[float, Episode]:
    """Return the CPU seconds of one whole episode, its storing included."""
    start = CpuTime.now()
    episode = run_episode(KERNEL, environment, scheme)
    Partition(out, "custom", scheme, "benchmark").add(episode)
    return CpuTime.now().since(start), episode


def main() -> None:
    """Measure and save."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    result: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch)
        fixed_s = median(cpu_s(flat(12, 0.05), "cubic", out)[0] for _ in range(10))
        result["fixed_s"] = fixed_s
        rows = []
        for scheme in ("cubic", "bbr2"):
            for rate in tqdm(RATES_MBPS, desc=scheme):
                spent, packets = [], 0
                for _ in range(REPEATS):
                    seconds, episode = cpu_s(flat(rate, 30), scheme, out)
                    spent.append(seconds)
                    packets = episode.flows[0].sent_packets
                rows.append(
                    {
                        "scheme": scheme,
                        "rate_mbps": rate,
                        "cpu_s": median(spent),
                        "virtual_s_per_cpu_s": 30 / median(spent),
                        "us_per_packet": (median(spent) - fixed_s) / packets * 1e6,
                    }
                )
        result["episodes"] = rows
        result["grid"] = grid_estimate(out)
    save("collect", result)


def grid_estimate(out: Path, every: int = 37) -> dict[str, object]:
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
    return Task(environment, "cubic", 0, Path(), KERNEL, "", None).cost


if __name__ == "__main__":
    main()
