# SPDX-License-Identifier: Apache-2.0
"""Steps a second of the lab as an environment for reinforcement learning, kernels and host together on one core.

A policy without a network keeps the link full with a short queue; features, rewards and infos are all made. The CPU
time of the kernels is what cannot be saved here: packets, timers, and the switch to the host and back at each tick.
"""

from __future__ import annotations

import os
import time
from statistics import median
from typing import Any

import gymnasium
from tqdm import tqdm

import sagecc.execution.environments  # noqa: F401 - registers ENVIRONMENT
from evidence.machine import CpuTime, save
from evidence.speed.collect import flat
from sagecc.cli import errors_in_one_line
from sagecc.pool.spaces import ENVIRONMENT
from sagecc.schemas.pool import FEATURE_NAMES

RATES_MBPS = (12, 48)
NUMBERS = (1, 8)
EPISODE_S = 30.0
STEPS = 23_200
"""Eight episodes but for their ends, one after another or side by side."""
ROUNDS = 5
RTT_RATE = FEATURE_NAMES.index("rtt_rate")
KEPT = 0.9
"""Of min RTT / sRTT: the window grows above it and shrinks below."""


def measure(rate_mbps: float, number: int) -> dict[str, float]:
    """Play STEPS steps, resets and boots included; returns microseconds a step, and packets."""
    start, began = CpuTime.now(), time.perf_counter()
    sent = single(rate_mbps) if number == 1 else vector(rate_mbps, number)
    wall_s, now = time.perf_counter() - began, CpuTime.now()
    return {
        "wall_us": wall_s / STEPS * 1e6,
        "kernel_us": (now.children_s - start.children_s) / STEPS * 1e6,
        "host_us": (now.own_s - start.own_s) / STEPS * 1e6,
        "packets": sent / STEPS,
    }


def single(rate_mbps: float) -> float:
    """Play one environment; returns the data packets sent."""
    env = gymnasium.make(ENVIRONMENT.id, environment=flat(rate_mbps, EPISODE_S))
    sent, over = 0.0, True
    for _ in range(STEPS):
        if over:
            observation, info = env.reset(seed=0)
        observation, _, _, over, info = env.step(observation[RTT_RATE : RTT_RATE + 1] - KEPT)
        sent += over * float(info["data_segs_out"])
    env.close()
    return sent + (not over) * float(info["data_segs_out"])


def vector(rate_mbps: float, number: int) -> float:
    """Play several environments side by side, STEPS steps of them together; returns the data packets sent."""
    envs = gymnasium.make_vec(ENVIRONMENT.id, num_envs=number, environment=flat(rate_mbps, EPISODE_S))
    observations, infos = envs.reset(seed=0)
    sent = 0.0
    for _ in range(STEPS // number):
        observations, _, _, over, infos = envs.step(observations[:, RTT_RATE : RTT_RATE + 1] - KEPT)
        sent += float(infos["data_segs_out"][over].sum())
    envs.close()
    return sent + float(infos["data_segs_out"][~over].sum())


def main() -> None:
    """Measure and save."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    cases = [(rate, number) for rate in RATES_MBPS for number in NUMBERS]
    for case in cases:
        measure(*case)  # compiles
    rounds = [
        {case: measure(*case) for case in cases} for _ in tqdm(range(ROUNDS), desc="rounds", unit="round", disable=None)
    ]
    rows: list[dict[str, Any]] = []
    for case in cases:
        figures = {name: median(found[case][name] for found in rounds) for name in rounds[0][case]}
        rows.append({"rate_mbps": case[0], "environments": case[1], **figures})
    load = round(os.getloadavg()[0], 1)
    measured = {"rows": rows, "steps": STEPS, "episode_s": EPISODE_S, "rounds": ROUNDS, "load_average": load}
    save("gymnasium", measured)


if __name__ == "__main__":
    with errors_in_one_line("evidence.speed.gymnasium"):
        main()
