# SPDX-License-Identifier: Apache-2.0
"""What a growing pool costs on one core: a flooding policy's episodes with and without giving up, and a whole round."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from evidence.machine import CpuTime, save
from sagecc.cli import errors_in_one_line
from sagecc.collector.kernel.identity import own_kernel
from sagecc.collector.run.grid import profile_environments
from sagecc.collector.run.task import FinishedEpisode, Task
from sagecc.common.errors import SageccError
from sagecc.execution.agent.exploration import Exploration
from sagecc.execution.lab.controllers import Playing, policy_controller
from sagecc.execution.lab.giving_up import GiveUp
from sagecc.execution.lab.lockstep import lockstep
from sagecc.growth.places import Places
from sagecc.growth.playing import play_round
from sagecc.growth.pooling import pool_round
from sagecc.growth.settings import Growth
from sagecc.growth.training import train_round
from sagecc.learner.specification import load
from sagecc.policy.artefact import write
from sagecc.policy.residual import NetworkSizes
from sagecc.policy.scaling import Scaling
from sagecc.schemas.pool import FEATURE_NAMES

FLOODED = ("I-12mbps-40ms-1bdp", "I-24mbps-40ms-1bdp", "I-48mbps-40ms-1bdp")
"""Networks of the profile `small` in which a policy floods; how their ids begin."""
RATIO_LOG2 = 0.05
"""The flooding policy multiplies its window by 2 to this, 1.035, at each tick, up to the largest there is."""
POOL, CACHE = Path("datasets/pool"), Path(".cache/pool")
"""The first pool, of `make repro`, and where it is compiled to."""
STEPS = 400
"""Of a round's training."""
EVERY = 9
"""A round plays in every ninth network of `small`."""


def flooding(folder: Path) -> str:
    """Write a policy that multiplies its window by the same at each tick; return its scheme."""
    sizes = NetworkSizes(inputs=len(FEATURE_NAMES), width=4, gru=4, residual_blocks=1, mixture=1, min_scale=0.01)
    weights = {name: np.zeros(shape, np.float32) for name, shape in sizes.shapes().items()}
    weights["head.loc.b"][:] = RATIO_LOG2
    ones = np.ones(len(FEATURE_NAMES), np.float32)
    write(folder, weights, sizes, Scaling("none", 0 * ones, ones, 10.0), FEATURE_NAMES, {})
    return f"policy:{folder}"


def floods(scheme: str) -> list[dict[str, Any]]:
    """Play the policy in each network to its end, and till it is given up; count CPU time of guest and host side."""
    rows = []
    for begins in FLOODED:
        (environment,) = (each for each in profile_environments("small") if each.id.startswith(f"{begins}-"))
        row: dict[str, Any] = {"network": begins, "duration_s": environment.duration_s}
        for name, playing in (("whole", Playing()), ("given_up", Playing(give_up=GiveUp(), keep=True))):
            began = CpuTime.now()
            task = Task(environment, scheme, 0, "", policy_controller)
            [(_, result)] = lockstep(1, 1, playing)(own_kernel(), [task])
            if not isinstance(result, FinishedEpisode):
                raise result
            row[name] = {"cpu_s": CpuTime.now().since(began), "ticks": result.rows}
        rows.append(row)
    return rows


def grown_round(folder: Path) -> dict[str, Any]:
    """Let a pool grow by a round on one core; count CPU time of each of its steps."""
    growth, places = Growth("mine", load("small", steps=STEPS), round_steps=STEPS), Places(folder)
    environments = profile_environments("small")[::EVERY]
    cpu_s, began = {}, CpuTime.now()

    def done(step: str) -> None:
        nonlocal began
        now = CpuTime.now()
        cpu_s[step], began = now.since(began), now

    train_round(growth, places, 0, POOL, CACHE)
    done("train")
    play_round(growth, places, 0, environments, own_kernel(), Exploration(sample=True), GiveUp())
    done("play")
    grown = pool_round(places, 0, POOL)
    done("pool")
    virtual_s = sum(environment.duration_s for environment in environments)
    return {"cpu_s": cpu_s, "steps": STEPS, "episodes": grown.episodes, "rows": grown.rows, "virtual_s": virtual_s}


def main() -> None:
    """Measure and save."""
    if not (POOL / "manifest.json").exists():
        raise SageccError(f"no pool in {POOL}: 'make repro' makes the one that a round is measured on")
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as folder:
        flooded = floods(flooding(Path(folder) / "flooding"))
        save("growth", {"floods": flooded, "round": grown_round(Path(folder) / "mine")})


if __name__ == "__main__":
    with errors_in_one_line("evidence.speed.growth"):
        main()
