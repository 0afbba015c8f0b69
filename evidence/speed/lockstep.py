# SPDX-License-Identifier: Apache-2.0
"""What it gains to play policies many labs in step: 64 environments, one by one and in batches, on the same cores.

Two policies play: the one that comes with the repository, and the same one in the published network's size, which
decides every tick, as the published one does. For that each of its units is copied 4 times, the GRU's 16 times, and the
copies share what the unit was worth to the next layer: the same function, to rounding, so that windows stay sane.

Every way of playing must give the same bytes. CPU time of guests, the floor, and of the host can be told apart where
one process is the host.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from evidence.machine import KERNEL, CpuTime, save
from sagecc.cli import errors_in_one_line
from sagecc.collector.run.engines import Engine, local
from sagecc.collector.run.grid import profile_environments
from sagecc.collector.run.task import Task
from sagecc.common.errors import SageccError
from sagecc.execution.lab.controllers import policy_controller, policy_drives
from sagecc.execution.lab.lockstep import BATCH, lockstep
from sagecc.learner import specification
from sagecc.policy.artefact import Control, PolicyArtefact, write
from sagecc.policy.residual import NetworkSizes
from sagecc.schemas.pool import FEATURE_NAMES
from sagecc.schemas.raw import TICK_S
from sagecc.schemas.schemes import POLICY_PREFIX

SHIPPED = Path("models/sagecc-1")
ENVIRONMENTS = 64


@dataclass(frozen=True)
class Way:
    """A way to play: so many processes, and guests in step in each (none: one by one)."""

    jobs: int
    batch: int | None

    def engine(self) -> Engine:
        """Return the collector's engine."""
        return local(self.jobs) if self.batch is None else lockstep(self.jobs, self.batch)


def ways() -> Iterator[Way]:
    """Yield what is compared; the first is what the others are held against."""
    cores = len(os.sched_getaffinity(0))
    for jobs in sorted({1, cores}):
        yield Way(jobs, None)
        yield Way(jobs, BATCH)


def widened(policy: PolicyArtefact, sizes: NetworkSizes, folder: Path) -> Path:
    """Write the policy with every unit copied, as often as `sizes` has it, and a decision each tick, into `folder`."""
    weights = {}
    for name, shape in sizes.shapes().items():
        w = policy.weights[name]
        if w.ndim == 2:
            copies = shape[0] // w.shape[0]
            w = np.tile(w, (copies, 1)) / np.float32(copies)
        gates = np.split(w, 3 if name.startswith("gru.") else 1, axis=-1)
        copies = shape[-1] // w.shape[-1]
        weights[name] = np.concatenate([np.tile(gate, copies) for gate in gates], axis=-1)
    tick_ms = TICK_S * 1000
    control = Control(base=policy.control.base ** (tick_ms / policy.control.period_ms), period_ms=tick_ms)
    write(folder, weights, sizes, policy.scaling, policy.observations, {}, control=control)
    return folder


def measure(way: Way, tasks: list[Task]) -> dict[str, object]:
    """Play all tasks; return seconds of wall and CPU, ticks, and a digest of every byte that came out."""
    cpu, began = CpuTime.now(), time.perf_counter()
    rows, digests = 0, {}
    for task, result in way.engine()(KERNEL, tasks):
        if isinstance(result, SageccError):
            raise result
        rows, digests[task.id] = rows + result.rows, hashlib.sha256(result.file).hexdigest()
    wall_s, spent = time.perf_counter() - began, CpuTime.now()
    return {
        "jobs": way.jobs,
        "batch": way.batch,
        "wall_s": round(wall_s, 2),
        "cpu_s": round(spent.since(cpu), 2),
        "guests_s": round(spent.children_s - cpu.children_s, 2) if way.jobs == 1 else None,
        "ticks": rows,
        "sha256": hashlib.sha256(repr(sorted(digests.items())).encode()).hexdigest(),
    }


def main() -> None:
    """Measure and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--environments", type=int, default=ENVIRONMENTS, help="how many of the profile 'small'")
    count = parser.parse_args().environments
    profile = profile_environments("small")
    environments = [profile[index * len(profile) // count] for index in range(count)]
    policies = []
    with tempfile.TemporaryDirectory() as folder:
        sizes = specification.load("paper").network.sizes(len(FEATURE_NAMES))
        assert isinstance(sizes, NetworkSizes)
        wide = widened(PolicyArtefact.load(SHIPPED), sizes, Path(folder) / "wide")
        for name, path in (("sagecc-1", SHIPPED), ("the same, widened", wide)):
            scheme, loaded = f"{POLICY_PREFIX}{path}", PolicyArtefact.load(path)
            drives = policy_drives([scheme])
            tasks = [Task(e, scheme, 0, "", policy_controller, drives) for e in environments]
            for task in tasks[:2]:  # compiled code and files are warm
                list(lockstep(1)(KERNEL, [task]))
            rows = [measure(way, tasks) for way in tqdm(list(ways()), desc=name, disable=None)]
            if len({row["sha256"] for row in rows}) != 1:
                raise SageccError(f"{name}: ways to play differ in what came out: {rows}")
            policies.append(
                {
                    "name": name,
                    "parameters": loaded.card["parameters"],
                    "period_ms": loaded.control.period_ms,
                    "rows": rows,
                }
            )
    load = os.getloadavg()[0]
    save("lockstep", {"environments": count, "policies": policies, "load_average": round(load, 1)})


if __name__ == "__main__":
    with errors_in_one_line("evidence.speed.lockstep"):
        main()
