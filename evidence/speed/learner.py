# SPDX-License-Identifier: Apache-2.0
"""Steps a second of our learner, in two precisions, and of Acme's RCRRLearner: one network, batches and core, in turn.

Each learner lives in a process of its own, pinned to one core, and takes steps when it is told to, so that both meet
the same moments of a busy machine. Beside them the floor: the products of matrices that a step cannot do without,
at the rate that this core multiplies large matrices in the same run.

Most of the benchmark's minutes are Acme's: it unrolls the windows in Python, so that each size of its learner takes
some hundred CPU-seconds and gigabytes to build before its first step.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from tqdm import tqdm

from evidence.machine import save
from sagecc.cli import errors_in_one_line
from sagecc.common.errors import SageccError
from sagecc.learner.architectures import Precision
from sagecc.learner.compiled import compile_pool
from sagecc.learner.core import Setting
from sagecc.learner.data import ALL, WindowSampler
from sagecc.learner.pool_source import PoolWindows
from sagecc.learner.specification import Data, RunSpecification, from_dict
from sagecc.schemas.pool import FEATURE_NAMES

PRECISIONS: dict[str, Precision] = {"ours": "float32", "lower": "bfloat16"}
"""Of our learners' matrix products."""
POOL, CACHE = Path("datasets/pool"), Path(".cache/pool")
SIZES = (64, 256, 1024)
ROUNDS = 5
ROUND_S = 2.0
"""CPU-seconds that each learner works in a round, about."""

KEPT_BATCHES = 64
"""Batches that Acme's learner goes round; ours reads the pool."""

SQUARE = 1024
"""Rows and columns of the matrices whose product gives the core's rate."""


def configuration(gru: int, precision: Precision = "float32") -> RunSpecification:
    """Return the paper's network with another GRU, in batches of 16 windows of 20 rows."""
    network: dict[str, object] = {"kind": "sage", "width": 256, "gru": gru, "precision": precision}
    network |= {"input_transform": "symlog", "input_limit": 5}
    algorithm = {"name": "crr", "policy_rate": 1e-4, "critic_rate": 1e-4, "value_range": [0, 500]}
    shape = {"steps": 1_000_000, "batch": 16, "window": 20}
    return from_dict({**shape, "data": {}, "network": network, "algorithm": algorithm})


def flop(config: RunSpecification) -> float:
    """Return the floating-point operations of a step's matrix products, two for each product of two numbers.

    Forward and twice that backward for both networks (less the gradient of the inputs), forward for their targets,
    and for each other action all but the state's share of the gates z and r, which the row's own action needs too.
    """
    network: Any = config.network
    algorithm: Any = config.algorithm
    width, gru, features = network.width, network.gru, len(FEATURE_NAMES)
    rows = (config.window - 1) * config.batch
    core = width * 3 * gru + gru * 3 * gru
    after = gru * width + width * width * (1 + 2 * network.residual_blocks)
    policy = features * width + core + after + width * 3 * network.mixture
    critic = (features + 1) * width + core + after + width * algorithm.atoms
    states = (features + 1) * width + core
    other = critic - gru * 2 * gru
    trained = 3 * policy - features * width + 3 * critic - (features + 1) * width
    return float(2 * rows * (trained + policy + states + (algorithm.value_samples + algorithm.td_samples) * other))


class Worker:
    """One learner in its own process.

    first_step_s, first_step_cpu_s: time and CPU time from the start of the process to the end of its first step.
    """

    def __init__(self, kind: str, gru: int, core: int) -> None:
        begun = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "evidence.speed.learner", kind, str(gru), str(core)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # What Keras and oneDNN have to say about Acme's networks would tear the progress bar.
            env={**os.environ, "PYTHONWARNINGS": "ignore", "TF_CPP_MIN_LOG_LEVEL": "3"},
        )
        self.name = f"{kind}, GRU {gru}"
        first = self._answer()
        self.parameters: int = first["parameters"]
        self.first_step_cpu_s: float = first["cpu_s"]
        self.first_step_s = time.perf_counter() - begun

    def take(self, steps: int) -> dict[str, Any]:
        """Take steps; return wall and CPU seconds a step and, of ours, what else it measured."""
        return self._ask(str(steps))

    def end(self) -> dict[str, Any]:
        """End the process; return its peak memory."""
        answer = self._ask("end")
        self._process.wait()
        return answer

    def stop(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.communicate()

    def _ask(self, what: str) -> dict[str, Any]:
        if self._process.stdin is None:
            raise SageccError(f"{self.name} has no input")
        self._process.stdin.write(what + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise SageccError(f"the learner '{self.name}' ended early (its own words are above)")
        answer: dict[str, Any] = json.loads(line)
        return answer


def main() -> None:
    """Measure and save; with arguments (kind, GRU, core) be one of the learners."""
    if len(sys.argv) > 1:
        kind, gru, where = sys.argv[1:]
        os.sched_setaffinity(0, {int(where)})
        serve(kind, configuration(int(gru), PRECISIONS.get(kind, "float32")))
        return
    compile_pool(POOL, CACHE)
    core = max(os.sched_getaffinity(0))
    with tqdm(total=len(SIZES) * (len(PRECISIONS) + 1 + ROUNDS), unit="part", disable=None) as bar:
        result = {
            "batch": configuration(64).batch,
            "window": configuration(64).window,
            "rounds": ROUNDS,
            "sizes": [measure(gru, core, bar) for gru in SIZES],
            "load_average": round(os.getloadavg()[0], 1),
        }
    save("learner", result)


def measure(gru: int, core: int, bar: tqdm[Any]) -> dict[str, Any]:
    """Let the learners of one size work in turn."""
    workers: dict[str, Worker] = {}
    rounds: dict[str, list[dict[str, Any]]] = {kind: [] for kind in (*PRECISIONS, "acme")}
    try:
        for kind in rounds:
            bar.set_description(f"GRU {gru}, {kind} builds")
            workers[kind] = Worker(kind, gru, core)
            bar.update()
        bar.set_description(f"GRU {gru}, steps")
        counts = {kind: steps_in(worker) for kind, worker in workers.items()}
        for _ in range(ROUNDS):
            for kind, worker in workers.items():
                rounds[kind].append(worker.take(counts[kind]))
            bar.update()
        peaks = {kind: worker.end()["peak_mb"] for kind, worker in workers.items()}
    finally:
        for worker in workers.values():
            worker.stop()
    gflop = flop(configuration(gru)) / 1e9
    rate = median(r["gflop_per_s"] for r in rounds["ours"])
    cpu_s = {kind: median(r["cpu_s"] for r in results) for kind, results in rounds.items()}
    return {
        "gru": gru,
        "parameters": workers["ours"].parameters,
        "acme_parameters": workers["acme"].parameters,
        "gflop_a_step": gflop,
        "matrix_gflop_per_s": rate,
        "floor_steps_per_s": rate / gflop,
        "share_of_floor": gflop / rate / cpu_s["ours"],
        "times_as_fast": median(
            other["cpu_s"] / own["cpu_s"] for own, other in zip(rounds["ours"], rounds["acme"], strict=True)
        ),
        **{
            kind: {
                "steps_per_cpu_s": 1 / cpu_s[kind],
                "steps_per_wall_s": 1 / median(r["wall_s"] for r in results),
                "first_step_s": workers[kind].first_step_s,
                "first_step_cpu_s": workers[kind].first_step_cpu_s,
                "peak_mb": peaks[kind],
            }
            for kind, results in rounds.items()
        },
        "waiting_share": median(r["waiting_share"] for r in rounds["ours"]),
    }


def steps_in(worker: Worker) -> int:
    """Return how many steps a worker takes in about ROUND_S of CPU time."""
    cpu_s: float = worker.take(2)["cpu_s"]
    return max(2, round(ROUND_S / cpu_s))


def serve(kind: str, config: RunSpecification) -> None:
    """Be a learner: a line of JSON after the first step and after each order, a number of steps or `end`."""
    pool = compile_pool(POOL, CACHE)
    scaling = pool.moments.scaling(config.network.input_transform, config.network.input_limit)
    sampler = WindowSampler(pool, scaling, config.batch, config.window, 0)
    with PoolWindows(sampler, Data(), ALL, range(config.steps)) as source:
        if kind in PRECISIONS:
            answer_orders(*ours(config, source), source)
        else:
            answer_orders(*acme(config, [sampler.batch(step)[:3] for step in range(KEPT_BATCHES)]), None)


def answer_orders(step: Callable[[], object], parameters: int, batches: PoolWindows | None) -> None:
    """Take the first step, then orders from standard input."""
    step()
    print(json.dumps({"parameters": parameters, "cpu_s": time.process_time()}), flush=True)
    for order in sys.stdin:
        if order.strip() == "end":
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            print(json.dumps({"peak_mb": peak / 1e6}), flush=True)
            return
        count, waited = int(order), batches.waited_s if batches else 0.0
        begun, spent = time.perf_counter(), time.process_time()
        for _ in range(count):
            step()
        wall, cpu = time.perf_counter() - begun, time.process_time() - spent
        answer = {"wall_s": wall / count, "cpu_s": cpu / count}
        if batches is not None:
            answer |= {"waiting_share": (batches.waited_s - waited) / wall, "gflop_per_s": matrix_rate()}
        print(json.dumps(answer), flush=True)


def ours(config: RunSpecification, batches: PoolWindows) -> tuple[Callable[[], object], int]:
    """Return our step, fed as in training, and the policy's number of parameters."""
    from sagecc.common.tensorflow_runtime import configure

    configure(0)
    from sagecc.learner.strategy import SingleDevice

    setting = Setting(config.network, len(FEATURE_NAMES), 0, 0, config.window, config.steps, 0, (0.0, 500.0))
    crr = config.algorithm.learner(setting)
    count = sum(int(np.prod(v.shape)) for v in crr.exported().values())
    step = SingleDevice().stepper(crr.update)
    return lambda: step(batches.next(dict), lambda: False), count


def acme(config: RunSpecification, batches: list[tuple[Any, ...]]) -> tuple[Callable[[], object], int]:
    """Return the step of Acme's RCRRLearner on the same networks, made of Acme's and Sonnet's modules."""
    from sagecc.common.tensorflow_runtime import configure

    configure(0)
    from sagecc.common.tensorflow_runtime import snt, tf
    from sagecc.learner import acme_compat

    networks, continuous = acme_compat.networks, acme_compat.continuous
    sizes: Any = config.network
    algorithm: Any = config.algorithm
    width, features = sizes.width, len(FEATURE_NAMES)

    def after() -> list[Any]:
        blocks = [
            continuous.ResidualLayernormWrapper(snt.nets.MLP([width, width])) for _ in range(sizes.residual_blocks)
        ]
        return [snt.GRU(sizes.gru), continuous.LayerNormMLP([width]), snt.Linear(width), *blocks]

    def policy() -> Any:
        head = networks.MultivariateGaussianMixture(num_dimensions=1, num_components=sizes.mixture)
        network = snt.DeepRNN([continuous.LayerNormMLP([width]), *after(), head])
        acme_compat.utils.create_variables(network, [tf.TensorSpec([features], tf.float32)])
        return network

    def critic() -> Any:
        first = networks.CriticMultiplexer(critic_network=continuous.LayerNormMLP([width]))
        head = networks.DiscreteValuedHead(vmin=0.0, vmax=500.0, num_atoms=algorithm.atoms)
        network = networks.CriticDeepRNN([first, *after(), head])
        specs = [tf.TensorSpec([size], tf.float32) for size in (features, 1)]
        acme_compat.utils.create_variables(network, specs)
        return network

    observation, action, reward = (np.stack([np.swapaxes(b[i], 0, 1) for b in batches]) for i in range(3))
    transitions = acme_compat.types.Transition(observation, action[..., None], reward, np.ones_like(reward), ())
    module = acme_compat.reference_learner()
    policy_network = policy()
    learner = module.RCRRLearner(
        policy_network=policy_network,
        critic_network=critic(),
        target_policy_network=policy(),
        target_critic_network=critic(),
        dataset=tf.data.Dataset.from_tensor_slices(transitions).repeat().prefetch(4),
        policy_optimizer=snt.optimizers.Adam(algorithm.policy_rate),
        critic_optimizer=snt.optimizers.Adam(algorithm.critic_rate),
        discount=algorithm.discount,
        target_update_period=algorithm.target_period,
        num_action_samples_td_learning=algorithm.td_samples,
        num_action_samples_policy_weight=algorithm.value_samples,
        logger=module.loggers.NoOpLogger(),
    )
    return learner.step, sum(int(np.prod(v.shape)) for v in policy_network.trainable_variables)


def matrix_rate() -> float:
    """Return the GFLOP/s at which this core multiplies large matrices: the best of three."""
    from sagecc.common.tensorflow_runtime import tf

    matrix = tf.random.stateless_normal([SQUARE, SQUARE], [0, 0])
    tf.matmul(matrix, matrix)
    seconds = []
    for _ in range(3):
        spent = time.process_time()
        for _ in range(4):
            tf.matmul(matrix, matrix)
        seconds.append((time.process_time() - spent) / 4)
    return 2 * SQUARE**3 / min(seconds) / 1e9


if __name__ == "__main__":
    with errors_in_one_line("evidence.speed.learner"):
        main()
