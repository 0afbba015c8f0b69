# SPDX-License-Identifier: Apache-2.0
"""What a decision of a policy costs: one step of the network in each runtime, on one pinned core.

Network sizes of the configurations, random weights (time does not depend on them). A step holds the scaling of the
observation too. The network's cost is the whole of a decision but for features and window (tens of microseconds).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from evidence.machine import save
from sagecc.cli import errors_in_one_line
from sagecc.common.arrays import Floats
from sagecc.learner.specification import load
from sagecc.policy import artefact, runtime
from sagecc.policy.export import export
from sagecc.policy.scaling import Scaling
from sagecc.schemas.pool import FEATURE_NAMES

CONFIGURATIONS = ("paper", "small")
BATCHES = (1, 16, 64, 1000)
LEAST_STEPS, MOST_STEPS, BUDGET_S = 5, 2000, 1.0
"""A runtime and batch is measured until its budget is spent, with at least and at most so many steps."""


def policy_of(name: str, folder: Path) -> artefact.PolicyArtefact:
    """Write and load a policy of a configuration's size, with random weights, in every format."""
    random = np.random.default_rng(0)
    sizes = load(name).network.sizes(len(FEATURE_NAMES))
    weights = {
        key: random.normal(0, 1 / np.sqrt(shape[0]), shape).astype(np.float32) for key, shape in sizes.shapes().items()
    }
    ones = np.ones(sizes.inputs, np.float32)
    scaling = Scaling("symlog", 0 * ones, ones, 5.0)
    artefact.write(folder, weights, sizes, scaling, FEATURE_NAMES, {}, exported=export(sizes, weights, int8=True))
    return artefact.PolicyArtefact.load(folder)


def measure(step: runtime.Step, observations: Floats, hidden: Floats) -> dict[str, Any]:
    """Time steps of one batch [B, F], each from the state before; returns median and 99th percentile in ms."""
    for _ in range(3):
        step(observations, hidden)
    times: list[float] = []
    begun = time.perf_counter()
    while len(times) < LEAST_STEPS or (len(times) < MOST_STEPS and time.perf_counter() - begun < BUDGET_S):
        start = time.perf_counter()
        *_, hidden = step(observations, hidden)
        times.append(time.perf_counter() - start)
    p50, p99 = np.percentile(times, (50, 99)) * 1e3
    return {"p50_ms": round(p50, 4), "p99_ms": round(p99, 4), "steps": len(times)}


def main() -> None:
    """Measure every configuration, runtime and batch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)), help="the core to measure on")
    core = parser.parse_args().core
    os.sched_setaffinity(0, {core})
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":  # numpy's BLAS has started a thread a core already
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
        os.execv(sys.executable, [sys.executable, "-m", "evidence.speed.execution", "--core", str(core)])
    rows, errors, parameters = [], {}, {}
    random = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        policies = {name: policy_of(name, Path(folder) / name) for name in CONFIGURATIONS}
        cases = [(name, engine, batch) for name in policies for engine in runtime.RUNTIMES for batch in BATCHES]
        for name, engine, batch in tqdm(cases, unit="case", disable=None):
            policy = policies[name]
            observations = random.lognormal(0, 1, (batch, policy.sizes.inputs)).astype(np.float32)
            figures = measure(runtime.load(policy, engine), observations, policy.initial_state(batch))
            rows.append({"configuration": name, "runtime": engine, "batch": batch, **figures})
            errors[name], parameters[name] = policy.card["export_errors"], policy.sizes.parameters
    load = os.getloadavg()[0]
    save("execution", {"rows": rows, "errors": errors, "parameters": parameters, "load_average": round(load, 1)})


if __name__ == "__main__":
    with errors_in_one_line("evidence.speed.execution"):
        main()
