# SPDX-License-Identifier: Apache-2.0
"""What one GPU makes of the paper's training: updates a second against the card's ceilings, and the same losses.

Parts by name, all by default; each is a process of its own and adds its figures to the result:

    ceilings  rates of large matrix products in each precision and of a copy: what the others are held against;
    updates   the paper's network and batch in each precision, plain and with XLA, on windows of a pool;
    losses    the same updates in float32 on the processor and on the GPU;
    moves     a run that is stopped on the processor, goes on with the GPU, and ends on the processor again; and the
              same run under MirroredStrategy on one GPU;
    feeding   windows a second of that pool, and a training that reads them.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from safetensors.numpy import load_file
from tqdm import tqdm

from evidence.machine import RESULTS, read_json, save
from evidence.speed.learner import flop
from sagecc.cli import errors_in_one_line
from sagecc.common.arrays import Floats
from sagecc.common.errors import SageccError
from sagecc.learner import specification
from sagecc.learner.compiled import compile_pool
from sagecc.learner.core import Batch
from sagecc.learner.pool_source import PoolExperience
from sagecc.learner.specification import RunSpecification
from sagecc.policy.folder import WEIGHTS
from sagecc.schemas.pool import FEATURE_NAMES

if TYPE_CHECKING:
    from sagecc.learner.loop import Training

POOL, CACHE = Path("datasets/pool"), Path(".cache/pool")
PRECISIONS = ("float32", "tensorfloat32", "bfloat16")
SQUARE = 8192
"""Rows and columns of the matrices of the ceilings."""
COPIED_BYTES = 2**30
BATCHES = 8
"""Batches that the updates go round."""
SECONDS = 8.0
"""Time that each variant's updates are measured for."""
COMPARED = ((100, 16), (5, 256))
"""Updates and windows per update of the comparison of losses: the processor takes minutes for them."""
MOVED_STEPS, MOVES_AT = 600, (200, 400)
"""Updates of the run that moves between devices, and about when it does."""
FED_STEPS = 400
"""Updates of the training that reads the pool."""

SHARING = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
"""For processes that use the card at the same time: TensorFlow takes all of its memory otherwise."""


def paper(**changes: Any) -> RunSpecification:
    """Return the paper's configuration with other values of some fields."""
    return specification.load("paper", **changes)


def main() -> None:
    """Measure the parts asked for, each in its own process; or be one of these."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of gpu.json")
    parser.add_argument("--pool", type=Path, default=POOL)
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, *arguments = options.one
        print(json.dumps(ONE[name](options.pool, *arguments)))
        return
    if unknown := set(options.parts) - PARTS.keys():
        raise SageccError(f"there is no part '{min(unknown)}'; the parts are {', '.join(PARTS)}")
    path = options.out / "gpu.json"
    result: dict[str, Any] = read_json(path)["result"] if path.exists() else {}
    result["gpu"] = card()
    for name in tqdm(options.parts or PARTS, desc="parts", disable=None):
        result[name] = PARTS[name](options.pool)
        save("gpu", result, options.out)


def card() -> dict[str, str]:
    """Return the name and the driver of the first GPU."""
    try:
        found = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader", "-i", "0"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise SageccError(f"nvidia-smi finds no GPU ({error}); this benchmark needs one") from None
    name, driver, memory = (each.strip() for each in found.stdout.split(","))
    return {"name": name, "driver": driver, "memory": memory}


def alone(pool: Path, *what: str, **environment: str) -> dict[str, Any]:
    """Return what one of ONE finds, in a process of its own."""
    command = [sys.executable, "-m", "evidence.speed.gpu", "--pool", str(pool), "--one", *what]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})
    if ended.returncode:
        raise SageccError(f"the part '{' '.join(what)}' ended with status {ended.returncode} (its own words are above)")
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def ceilings(pool: Path) -> dict[str, Any]:
    """Return the card's rates."""
    return alone(pool, "ceilings")


def measured_ceilings(pool: Path) -> dict[str, Any]:
    """Return TFLOP/s of a large product of random matrices by precision, and GB/s of a copy, read and written."""
    tf = configured("float32")
    found: dict[str, Any] = {}
    square = tf.random.stateless_normal([SQUARE, SQUARE], [0, 0])
    for precision in PRECISIONS:
        tf.config.experimental.enable_tensor_float_32_execution(precision == "tensorfloat32")
        matrix = tf.cast(square, "bfloat16" if precision == "bfloat16" else "float32")
        found[precision] = 2 * SQUARE**3 / seconds_of(partial(tf.matmul, matrix, matrix)) / 1e12
    vector = tf.random.stateless_normal([COPIED_BYTES // 4], [0, 0])
    found["copy_gb_per_s"] = 2 * COPIED_BYTES / seconds_of(lambda: vector + 1.0) / 1e9
    return found


def seconds_of(function: Callable[[], Any], rounds: int = 20) -> float:
    """Return the seconds that a function of tensors takes on the GPU, the mean over rounds behind one another."""
    function()
    last = function()
    float(last[..., 0].numpy().reshape(-1)[0])
    begun = time.perf_counter()
    for _ in range(rounds):
        last = function()
    float(last[..., 0].numpy().reshape(-1)[0])
    return (time.perf_counter() - begun) / rounds


def updates(pool: Path) -> list[dict[str, Any]]:
    """Return each variant's updates a second, with what it took of the card."""
    return [alone(pool, "updates", precision, xla) for precision in PRECISIONS for xla in ("plain", "xla")]


def measured_updates(pool: Path, precision: str, xla: str) -> dict[str, Any]:
    """Return the updates a second of the paper's configuration."""
    config = paper(network={"precision": precision, "xla": xla == "xla"})
    begun = time.perf_counter()
    tf = configured(precision)
    step, batches = stepper(pool, config, BATCHES)
    step(batches[0])
    first_s = time.perf_counter() - begun
    for number in range(10):
        step(batches[number % BATCHES])
    with watched() as seen:
        count, begun, spent = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() - begun < SECONDS:
            step(batches[count % BATCHES])
            count += 1
        wall_s, cpu_s = time.perf_counter() - begun, time.process_time() - spent
    work = flop(config)
    return {
        "precision": precision,
        "xla": xla == "xla",
        "first_step_s": first_s,
        "updates_per_s": count / wall_s,
        "cores": cpu_s / wall_s,
        "tflop_an_update": work / 1e12,
        "tflop_per_s": work * count / wall_s / 1e12,
        "least_bytes": least_bytes(config),
        "peak_memory_bytes": tf.config.experimental.get_memory_info("GPU:0")["peak"],
        **seen,
    }


def least_bytes(config: RunSpecification) -> int:
    """Return the fewest bytes that an update moves through the card's memory.

    Weights, gradients and Adam's moments of both trained networks, read and written once; their targets' weights, read;
    the batch; and what the backward pass needs of each row of the GRUs' recurrence (z, r, the candidate and the state),
    written and read.
    """
    network: Any = config.network
    width: int = network.width
    gru: int = network.gru
    inputs = len(FEATURE_NAMES)
    trunk = width * 3 * gru + gru * 3 * gru + gru * width + width * width * (1 + 2 * int(network.residual_blocks))
    weights = 2 * (trunk + inputs * width)
    rows = config.window * config.batch
    return 4 * (8 * weights + weights + rows * inputs + 2 * 2 * 4 * gru * rows)


@contextmanager
def watched(every_ms: int = 100) -> Iterator[dict[str, float]]:
    """Yield what will hold the means of what nvidia-smi says of the card meanwhile."""
    fields = {"busy": "utilization.gpu", "memory_busy": "utilization.memory"}
    command = ["nvidia-smi", f"--query-gpu={','.join(fields.values())}", "--format=csv,noheader,nounits", "-i", "0"]
    process = subprocess.Popen([*command, "-lms", str(every_ms)], stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = {}
    try:
        yield found
    finally:
        process.terminate()
        lines = [line.split(",") for line in (process.communicate()[0] or "").splitlines()]
        rows = [[float(x) for x in line] for line in lines if len(line) == len(fields)]
        for name, values in zip(fields, zip(*rows, strict=True), strict=False):
            found[name] = mean(values) / 100


def losses(pool: Path) -> list[dict[str, Any]]:
    """Return how far the GPU's losses are from the processor's, update by update."""
    compile_pool(pool, CACHE)
    cases = [(steps, batch, device) for steps, batch in COMPARED for device in ("cpu", "gpu")]
    with ThreadPoolExecutor(len(cases)) as together:
        runs = {
            case: together.submit(alone, pool, "losses", case[2], str(case[0]), str(case[1]), **SHARING)
            for case in cases
        }
    found = []
    for steps, batch in COMPARED:
        curves = {device: np.array(runs[steps, batch, device].result()["losses"]) for device in ("cpu", "gpu")}
        away = np.abs(curves["gpu"] - curves["cpu"]) / np.maximum(np.abs(curves["cpu"]), 1e-6)
        found.append(
            {
                "updates": steps,
                "batch": batch,
                "first": away[0].tolist(),
                "largest": away.max(axis=0).tolist(),
                "losses": curves["cpu"][[0, -1]].tolist(),
            }
        )
    return found


def measured_losses(pool: Path, device: str, steps: str, batch: str) -> dict[str, Any]:
    """Return both losses of each update on a device."""
    config = paper(batch=int(batch))
    configured("float32", device)
    step, batches = stepper(pool, config, BATCHES)
    return {"losses": [step(batches[number % BATCHES])[:2].tolist() for number in range(int(steps))]}


def moves(pool: Path) -> dict[str, Any]:
    """Return how far a run that moved between devices, and one of MirroredStrategy, end from one that stayed."""
    with TemporaryDirectory() as folder, ThreadPoolExecutor(4) as together:
        here = Path(folder)
        config = here / "moves.yaml"
        config.write_text(
            yaml.safe_dump({"base": "small", "steps": MOVED_STEPS, "algorithm": {"value_range": [0, 500]}})
        )

        def moved() -> None:
            for stop_at, device in (*zip(MOVES_AT, ("cpu", "gpu"), strict=True), (0, "cpu")):
                train(pool, config, here / "moved", device, stop_at=stop_at)

        compile_pool(pool, CACHE)
        runs = [
            together.submit(moved),
            together.submit(train, pool, config, here / "cpu", "cpu"),
            together.submit(train, pool, config, here / "gpu", "gpu"),
            together.submit(train, pool, config, here / "mirrored", "gpu", "--strategy", "mirrored"),
        ]
        for run in runs:
            run.result()
        return {
            "steps": MOVED_STEPS,
            "stops": list(MOVES_AT),
            "gpu": distance(here / "cpu", here / "gpu"),
            "moved": distance(here / "cpu", here / "moved"),
            "mirrored": distance(here / "gpu", here / "mirrored"),
        }


def train(pool: Path, config: Path, out: Path, device: str, *options: str, stop_at: int = 0) -> None:
    """Run `sagecc train`, to its end or until SIGTERM after an update that is written down."""
    logs = out.with_name(f"{out.name}-logs")
    command = [sys.executable, "-m", "sagecc", "train", "--config", str(config), "--pool", str(pool)]
    command += ["--cache", str(CACHE), "--out", str(out), "--logs", str(logs), "--device", device, *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ | SHARING)
    metrics = logs / "metrics.jsonl"
    while stop_at and process.poll() is None:
        time.sleep(0.02)
        lines = metrics.read_text().splitlines() if metrics.exists() else []
        if lines and json.loads(lines[-1])["step"] >= stop_at:
            process.send_signal(signal.SIGTERM)
            break
    if process.wait() != (128 + signal.SIGTERM if stop_at else 0):
        raise SageccError(f"training on {device} ended with status {process.returncode} (its own words are above)")


def distance(one: Path, other: Path) -> float:
    """Return the norm of the difference of two policies' weights over that of the first's."""
    first, second = (weights_of(folder) for folder in (one, other))
    return float(np.linalg.norm(first - second) / np.linalg.norm(first))


def weights_of(policy: Path) -> Floats:
    """Return all weights of a policy in one row."""
    weights = load_file(policy / WEIGHTS)
    return np.concatenate([weights[name].ravel() for name in sorted(weights)])


def feeding(pool: Path) -> dict[str, Any]:
    """Return windows a second of the pool alone, and how a training fares that reads them."""
    return {**alone(pool, "feeding"), "training": alone(pool, "fed")}


def measured_feeding(pool: Path) -> dict[str, Any]:
    """Return the windows a second that the sampler makes, from the page cache."""
    config = paper()
    with training_of(pool, config).source(0) as windows:
        for _ in range(4):
            windows.next(dict)
        begun, spent, count = time.perf_counter(), time.process_time(), 100
        for _ in range(count):
            windows.next(dict)
        wall_s, cpu_s = time.perf_counter() - begun, time.process_time() - spent
    return {"windows_per_s": count * config.batch / wall_s, "cores": cpu_s / wall_s}


def measured_fed(pool: Path) -> dict[str, Any]:
    """Return updates a second of a training that reads the pool, in the fastest variant, and what it waits."""
    config = paper(network={"precision": "bfloat16", "xla": True})
    configured("bfloat16")
    training = training_of(pool, config)
    step = updating(training)
    with training.source(0) as windows:
        for _ in range(10):
            step(windows.next(dict))
        begun, waited = time.perf_counter(), windows.waited_s
        for _ in range(FED_STEPS):
            step(windows.next(dict))
        wall_s = time.perf_counter() - begun
    return {"updates_per_s": FED_STEPS / wall_s, "waiting_share": (windows.waited_s - waited) / wall_s}


def configured(precision: str, device: str = "gpu") -> Any:
    """Return TensorFlow, set up as a run sets it up."""
    from sagecc.learner.lazy import tf
    from sagecc.learner.strategy import connect

    connect("one", "gpu" if device == "gpu" else "cpu", 0, precision == "tensorfloat32")
    return tf


def training_of(pool: Path, config: RunSpecification) -> Training:
    """Return a run as `sagecc train` has it, on one device."""
    from sagecc.learner.loop import Training
    from sagecc.learner.strategy import SingleDevice

    return Training(config, PoolExperience(config, pool, CACHE, 0), 0, SingleDevice(), Path())


def updating(training: Training) -> Callable[[Batch], Any]:
    """Return what takes an update and returns its metrics."""
    take = training.stepper(training.learner())
    return lambda batch: take(batch, lambda: False).metrics


def stepper(pool: Path, config: RunSpecification, count: int) -> tuple[Callable[[Batch], Any], list[Batch]]:
    """Return what takes an update and returns its metrics, and some batches."""
    training = training_of(pool, config)
    with training.source(0) as windows:
        batches = [windows.next(dict) for _ in range(count)]
    return updating(training), batches


PARTS: dict[str, Callable[[Path], Any]] = {
    "ceilings": ceilings,
    "updates": updates,
    "losses": losses,
    "moves": moves,
    "feeding": feeding,
}
ONE: dict[str, Callable[..., dict[str, Any]]] = {
    "ceilings": measured_ceilings,
    "updates": measured_updates,
    "losses": measured_losses,
    "feeding": measured_feeding,
    "fed": measured_fed,
}

if __name__ == "__main__":
    with errors_in_one_line("evidence.speed.gpu"):
        main()
