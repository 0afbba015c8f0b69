# SPDX-License-Identifier: Apache-2.0
"""Speed of online learning on this machine's cores: decisions of labs in step, updates of TD3, and both at once.

The labs' networks are 48 Mbps, 40 ms, a queue of one BDP, for 30 s, decided on every tick of 10 ms: Cubic keeps them
full, and the policies, whose weights are all zero, leave its window as it is. So a decision has the packets of a full
link, and inference the cost of a network of its size.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from evidence.machine import CpuTime, descendants_cpu_s, save
from sagecc.cli import errors_in_one_line
from sagecc.collector.kernel.identity import own_kernel
from sagecc.common import shipped
from sagecc.execution.environments.task import LearningTask
from sagecc.learner.core import Batch, Setting
from sagecc.learner.online.actors import Actors, ActorSpec
from sagecc.learner.online.lab_source import LabExperience
from sagecc.learner.specification import RunSpecification, load
from sagecc.learner.train import train
from sagecc.online import online_task
from sagecc.schemas.network_distribution import NetworkDistribution

LABS = (1, 4, 16, 64)
WARM_S, MEASURED_S = 3.0, 10.0
"""Time before and for which decisions are counted: labs boot before."""
UPDATES_S = 5.0
RECIPE = shipped.BEST_POLICY
"""The configuration of the policy that comes along."""
TOGETHER_STEPS = {RECIPE: 6000, "orca": 600, "astraea": 400}
"""Updates of a training with actors beside it, after a shortened warm-up."""
SIZES: dict[str, dict[str, Any]] = {
    "orca": {"network": {"kind": "mlp", "hidden": (256, 256), "action_layer": 2}},
    "sage": {"network": {"kind": "recurrent", "width": 256, "gru": 1024}, "window": 8},
}
"""Networks of the two sizes, on the pool's 69 features."""
TASK = {
    "observation": "pool",
    "control": {"like": "orca", "period_ms": 10.0, "slow_start": None},
    "reward": "orca",
    "networks": {"rate_mbps": 48, "rtt_ms": 40, "queue_bdp": 1, "duration_s": 30},
}
SCHEMES = {"orca": (256, 6.0), "astraea": (4, None)}
"""Environments that the papers' actors played in at once, in real time, and for how many hours."""


def configuration(policy: str, labs: int) -> RunSpecification:
    """Return what the actors are made of."""
    played = {"count": labs, "warm_up": 0, "replay": 200_000}
    return load("orca", task=TASK, labs=played, algorithm={"noise": 0.0}, **SIZES[policy])


def decisions(policy: str, labs: int, folder: Path) -> dict[str, Any]:
    """Let actors play as fast as they can, in as many processes as there are cores; count decisions and CPU time."""
    config = configuration(policy, labs)
    processes = min(labs, len(os.sched_getaffinity(0)))
    specs: list[ActorSpec] = LabExperience(config, online_task(config, own_kernel()), 0, processes).actor_specs(folder)
    with Actors(specs) as actors:
        actors.weights.write({name: np.zeros(shape, np.float32) for name, shape in specs[0].network.shapes().items()})
        actors.begin()
        actors.start(0)
        first = marks(actors, WARM_S)
        last = marks(actors, MEASURED_S)
    seconds, cpu_s, counted, labs_s, inference_s = (b - a for a, b in zip(first, last, strict=True))
    return {
        "policy": policy,
        "labs": labs,
        "processes": processes,
        "decisions_per_s": counted / seconds,
        "decisions_per_cpu_s": counted / cpu_s,
        "cores_used": cpu_s / seconds,
        "inference_share": inference_s / (labs_s + inference_s),
    }


def marks(actors: Actors, wait_s: float) -> tuple[float, ...]:
    """Wait, let the learner's part be done; return time, CPU time, decisions, time in labs and in inference."""
    until = time.perf_counter() + wait_s
    while time.perf_counter() < until:
        time.sleep(0.05)
        actors.check()
        actors.durable(actors.written)
    counters = actors.counters
    counted = (float(counters[name].sum()) for name in ("decisions", "labs_s", "inference_s"))
    return (time.perf_counter(), descendants_cpu_s(), *counted)


def updates(name: str) -> dict[str, Any]:
    """Take updates of a configuration's size on made-up records; alone on the machine."""
    from sagecc.common.tensorflow_runtime import configure

    configure(0)
    from sagecc.common.tensorflow_runtime import tf
    from sagecc.learner.optimisers import compiled, in_turn

    config = load(name)
    task = LearningTask.of(config.task or {})
    seen, states = len(task.observations), 12 if task.global_state else 0
    setting = Setting(config.network, seen, states, config.burn_in, config.window, config.steps, 0)
    learner, random = config.algorithm.learner(setting), np.random.default_rng(0)
    learn = compiled(in_turn(learner.update, len(learner.metrics)))
    shape = (config.round_steps, config.window, config.batch)
    sizes = (*shape, seen), shape, shape, (*shape, states), shape
    batch = Batch(*(tf.constant(random.normal(size=s), tf.float32) for s in sizes))
    learn(batch)
    count, begun, spent = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() < begun + UPDATES_S:
        learn(batch).metrics.numpy()
        count += config.round_steps
    return {
        "config": name,
        "batch": config.batch,
        "window": config.window,
        "updates_per_s": count / (time.perf_counter() - begun),
        "updates_per_cpu_s": count / (time.process_time() - spent),
    }


def together(name: str, folder: Path) -> dict[str, Any]:
    """Train for a while as `sagecc train --actors` with a process per core does; learner and actors share the cores."""
    config = load(name, steps=TOGETHER_STEPS[name], labs={"warm_up": 2000})
    task, cores = LearningTask.of(config.task or {}), len(os.sched_getaffinity(0))
    began = CpuTime.now()
    outcome = train(
        config,
        LabExperience(config, online_task(config, own_kernel()), 0, cores),
        folder / "model",
        folder / "logs",
        checkpoint_s=60,
    )
    assert outcome is not None, "a run in one process is its own chief"
    taken = outcome.metrics["decisions"]
    flows = np.mean(task.networks.flows.values) if isinstance(task.networks, NetworkDistribution) else 1
    return {
        "config": name,
        "updates_per_s": outcome.trained_steps / outcome.seconds,
        "decisions_per_s": taken / outcome.seconds,
        "decisions_per_update": taken / outcome.trained_steps,
        "waiting_share": outcome.waiting,
        "real_time_hours": taken * task.control.period_ms / 1e3 / flows / 3600,
        "cpu_hours": CpuTime.now().since(began) / 3600,
    }


def in_process(kind: str, *words: str) -> dict[str, Any]:
    """Run a part in a process of its own, as TensorFlow needs it; return what it measured."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "evidence.speed.online", kind, *words, folder], check=True)
        measured: dict[str, Any] = json.loads((Path(folder) / "answer.json").read_text())
    return measured


def be(kind: str, words: list[str]) -> None:
    """Be a part."""
    folder = Path(words[-1])
    measured: Mapping[str, Any]
    match kind:
        case "decisions":
            measured = decisions(words[0], int(words[1]), folder / "shared")
        case "updates":
            measured = updates(words[0])
        case _:
            measured = together(words[0], folder)
    (folder / "answer.json").write_text(json.dumps(measured))


def main() -> None:
    """Measure and save; with arguments be one part."""
    if len(sys.argv) > 1:
        be(sys.argv[1], sys.argv[2:])
        return
    cases = [(policy, labs) for policy in SIZES for labs in LABS]
    with tqdm(total=len(cases) + 2 * len(TOGETHER_STEPS), unit="part", disable=None) as bar:

        def part(kind: str, *words: str) -> dict[str, Any]:
            bar.set_description(" ".join((kind, *words)))
            measured = in_process(kind, *words)
            bar.update()
            return measured

        result = {
            "decisions": [part("decisions", policy, str(labs)) for policy, labs in cases],
            "updates": [part("updates", name) for name in TOGETHER_STEPS],
            "together": [part("together", name) for name in TOGETHER_STEPS],
            "measured_s": MEASURED_S,
            "papers": {name: {"environments": n, "hours": hours} for name, (n, hours) in SCHEMES.items()},
            "load_average": round(os.getloadavg()[0], 1),
        }
    save("online", result)


if __name__ == "__main__":
    with errors_in_one_line("evidence.speed.online"):
        main()
