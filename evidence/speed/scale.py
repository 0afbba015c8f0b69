# SPDX-License-Identifier: Apache-2.0
"""What all of it would take on more cores, by simulation: episodes and trainings of measured length, started in order.

An episode's CPU time is modelled from `bench-collect`: what boot takes, and what a virtual second takes at the
bottleneck's mean rate. The sum over the full grid is held against what `make full` took, and all are scaled by the
ratio. What collects is measured here: it alone takes results from workers and writes files. Trainings are those of
`bench-algorithms` and `bench-gpu`. Nothing here ran on more than two cores.
"""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evidence.machine import KERNEL, CpuTime, read_json, save
from evidence.machine import RESULTS as MEASURED
from sagecc.cli import errors_in_one_line
from sagecc.collector.run.collect import collect
from sagecc.collector.run.engines import local
from sagecc.collector.run.grid import profile_environments
from sagecc.common.arrays import Doubles
from sagecc.schemas.capacity import capacity_bytes
from sagecc.schemas.environment import Environment
from sagecc.schemas.schemes import SCHEMES

CORES = (1, 100, 10_000)
GPUS = (1, 8)
SEEDS = 10
CONFIGS = ("bc-mean", "awr", "td3-bc", "cql", "iql")
"""The five algorithms, each with SEEDS seeds of `run_steps` updates on one core each."""
PAPER_STEPS = 10_000_000
"""Of Sage's public configuration."""
WINDOWS = 256
"""Per update of that size."""


def makespan(seconds: Sequence[float] | Doubles, workers: int) -> float:
    """Return when the last of some tasks ends, each started in order as soon as a worker is free."""
    free = [0.0] * min(workers, len(seconds))
    for each in seconds:
        heapq.heapreplace(free, free[0] + each)
    return max(free)


def episode_s(environment: Environment, measured: Mapping[str, Any]) -> float:
    """Return the modelled CPU seconds of an episode, before scaling.

    Args:
        environment: its network.
        measured: the result of bench-collect.
    """
    rows = sorted(measured["episodes"], key=lambda row: row["rate_mbps"])
    rates = sorted({row["rate_mbps"] for row in rows})
    costs = [np.mean([1 / row["virtual_s_per_cpu_s"] for row in rows if row["rate_mbps"] == rate]) for rate in rates]
    duration = environment.duration_s
    link = environment.links[environment.narrowest(environment.flow)]
    mean_mbps = float(capacity_bytes(link, np.array([round(duration * 1e9)]))[0]) * 8e-6 / duration
    beyond = max(1.0, mean_mbps / rates[-1])  # at the last rate and above, time goes by packets
    return float(measured["fixed_s"] + duration * beyond * np.interp(mean_mbps, rates, costs))


def driver_s() -> float:
    """Measure the CPU seconds an episode that the process takes which collects, and its workers do not."""
    environments = profile_environments("small")[::3]
    own_s = []
    for part in (environments[:2], environments):  # the first loads and compiles
        with tempfile.TemporaryDirectory() as scratch:
            start = CpuTime.now()
            collect(part, ("cubic",), Path(scratch), KERNEL, local(2), progress=False)
            own_s.append(CpuTime.now().own_s - start.own_s)
    return own_s[-1] / len(environments)


def main() -> None:
    """Measure, simulate and save."""
    of = {
        name: read_json(MEASURED / f"{name}.json")["result"]
        for name in ("collect", "full", "algorithms", "gpu", "feeding")
    }
    once = np.array([episode_s(environment, of["collect"]) for environment in profile_environments("full")])
    modelled_s, took_s = float(once.sum()) * len(SCHEMES), of["full"]["times"]["collect"]["cpu_s"]
    episodes = np.tile(once, 2 * len(SCHEMES)) * (took_s / modelled_s)  # as they are, and kicked
    parts = [of["full"]["times"]["pool"]["cpu_s"] / (2 * len(SCHEMES))] * (4 * len(SCHEMES))
    minutes = {row["config"]: row["run_minutes"] for row in of["algorithms"]["rows"]}
    trainings = [60 * minutes[name] for name in CONFIGS for _ in range(SEEDS)]
    collector_s = driver_s() * len(episodes)
    rows = []
    for cores in CORES:
        stages = {name: makespan(tasks, cores) for name, tasks in (("pool", parts), ("train", trainings))}
        rows.append({"cores": cores, "episodes_s": makespan(episodes, cores), "collector_s": collector_s, **stages})
    update = max(of["gpu"]["updates"], key=lambda each: float(each["updates_per_s"]))
    hours = PAPER_STEPS / update["updates_per_s"] / 3600
    fed = {
        cache: max(float(row["windows_per_s"]) for row in of["feeding"]["rows"] if row["cache"] == cache)
        for cache in ("cold", "warm")
    }
    save(
        "scale",
        {
            "episodes": len(episodes),
            "episodes_cpu_s": float(episodes.sum()),
            "longest_s": float(episodes.max()),
            "model_ratio": took_s / modelled_s,
            "trainings": len(trainings),
            "rows": rows,
            "gpu": {
                "name": of["gpu"]["gpu"]["name"],
                "precision": update["precision"],
                "training_h": hours,
                "windows_per_s": WINDOWS * update["updates_per_s"],
                "fed_windows_per_s": fed,
                "rows": [{"gpus": gpus, "hours": makespan([hours] * SEEDS, gpus)} for gpus in GPUS],
            },
            "raw_gb": 2 * of["full"]["raw"]["bytes"] / 1e9,
            "pool_gb": 2 * of["full"]["pool"]["bytes"] / 1e9,
        },
    )


if __name__ == "__main__":
    with errors_in_one_line("evidence.speed.scale"):
        main()
