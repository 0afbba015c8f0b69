# SPDX-License-Identifier: Apache-2.0
"""Where a run computes: one device, all GPUs of a machine, or workers on several machines.

Each replica takes its share of the same batch of the same step, with the random numbers that one process would draw
for those windows, and all apply the same averaged gradients. So a run learns the same from the same data whatever the
number of replicas; only the order in which floats are summed differs.

One worker, the chief, has the run's folder and the artefact. The others read the pool, and take everything else from
the chief over the network: where to begin, the weights, when to stop.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Floats
from sagecc.common.errors import SEE_DOCTOR, SageccError
from sagecc.common.tensorflow_runtime import configure, tf
from sagecc.learner.crr import Crr, Transitions

Kind = Literal["one", "mirrored", "workers"]
Device = Literal["auto", "cpu", "gpu"]

SLURM_PORTS = 12_000
"""Lowest port of workers under Slurm; up to SLURM_PORT_BLOCKS * SLURM_TASKS above it, below what systems hand out."""
SLURM_PORT_BLOCKS, SLURM_TASKS = 1250, 16
"""Jobs on one node that surely have other ports, if their ids follow each other; workers of one job on one node."""


class Taken(NamedTuple):
    """What a step gave: the metrics, what it saw of this process's first windows, whether any worker asked to stop."""

    metrics: Floats
    transitions: Transitions
    stop: bool


Step = Callable[[tuple[Floats, ...], Callable[[], bool]], Taken]
"""Takes this process's share of a batch, and what says whether this worker wants to stop."""


class Strategy(Protocol):
    """How replicas are fed, stepped and kept together.

    replicas: over all workers; index: this worker's, of `workers`; part: the windows of a batch that this worker reads.
    """

    replicas: int
    index: int
    workers: int

    def part(self, batch: int) -> slice:
        """Return which of a batch's windows this process needs. Raises SageccError if they cannot be shared out."""

    def build(self, make: Callable[[], Crr]) -> Crr:
        """Make the learner, alike on every replica."""

    def stepper(self, crr: Crr) -> Step:
        """Return the function that takes a step on this process's windows, and asks all workers whether to stop."""

    def agree(self, fingerprint: str, finished: bool) -> bool:
        """Return the chief's `finished`. Raises SageccError unless all workers have the same fingerprint."""

    def spread(self, crr: Crr) -> None:
        """Give every worker the chief's state."""

    def meet(self) -> None:
        """Wait until every worker is here."""


class One:
    """One process on one device: nothing to share."""

    replicas = workers = 1
    index = 0

    def part(self, batch: int) -> slice:
        """All of the batch."""
        return slice(0, batch)

    def build(self, make: Callable[[], Crr]) -> Crr:
        """Make the learner."""
        return make()

    def stepper(self, crr: Crr) -> Step:
        """Return the learner's own step."""

        def step(batch: tuple[Floats, ...], stop: Callable[[], bool]) -> Taken:
            metrics, transitions = crr.learn(*batch)
            return Taken(metrics.numpy(), transitions, stop())

        return step

    def agree(self, fingerprint: str, finished: bool) -> bool:
        """One process agrees with itself."""
        return finished

    def spread(self, crr: Crr) -> None:
        """Nobody else needs the state."""

    def meet(self) -> None:
        """Nobody else is waited for."""


class Replicated:
    """Replicas of the learner under a tf.distribute strategy, in this process and, of several workers, in others."""

    def __init__(self, strategy: Any, workers: int = 1, index: int = 0) -> None:
        self._strategy, self.workers, self.index = strategy, workers, index
        self.replicas: int = strategy.num_replicas_in_sync

    def part(self, batch: int) -> slice:
        """Return this worker's equal share, by its index."""
        if batch % self.replicas:
            raise SageccError(
                f"a batch of {batch} windows cannot be shared equally among {self.replicas} replicas: choose a batch "
                "that is a multiple, or another number of GPUs or workers"
            )
        here = batch // self.workers
        return slice(self.index * here, (self.index + 1) * here)

    def build(self, make: Callable[[], Crr]) -> Crr:
        """Make the learner with a copy of every variable on every replica, each written to by its replica alone."""
        with _together(), self._strategy.scope(), tf.variable_creator_scope(_own_copy):
            return make()

    def stepper(self, crr: Crr) -> Step:
        """Return a step on all replicas; those of other workers take theirs at the same time."""

        @tf.function(autograph=False, reduce_retracing=True)  # type: ignore[untyped-decorator]
        def everywhere(batch: Any, stop: Any) -> Any:
            return self._strategy.run(take, (*batch, stop))

        def take(observation: Any, action: Any, reward: Any, stop: Any) -> Any:
            metrics, transitions = crr.update(observation, action, reward)
            return metrics, transitions, tf.distribute.get_replica_context().all_reduce("SUM", tf.identity(stop))

        def step(batch: tuple[Floats, ...], stop: Callable[[], bool]) -> Taken:
            with _together():
                shares = self._each(lambda i, n: tuple(np.array_split(x, n, axis=1)[i] for x in batch))
                results = everywhere(shares, self._each(lambda i, n: np.float32(stop())))
                metrics, transitions, stops = self._strategy.experimental_local_results(results)[0]
                return Taken(metrics.numpy(), transitions, bool(stops.numpy() > 0))

        return step

    def agree(self, fingerprint: str, finished: bool) -> bool:
        """Compare fingerprints with all workers."""
        said = np.zeros((self.workers, len(fingerprint) + 1), np.float32)
        said[self.index] = [*fingerprint.encode(), finished]
        said = self._sum(said)
        others = [i for i in range(self.workers) if (said[i, :-1] != said[0, :-1]).any()]
        if others:
            raise SageccError(
                f"worker {others[0]} of {self.workers} has another configuration, seed or pool than worker 0: start "
                "all with the same command, on the same pool"
            )
        return bool(said[0, -1])

    def spread(self, crr: Crr) -> None:
        """Send the chief's variables to all replicas: it adds them to the others' zeros."""
        for variable in crr.state().values():
            value = variable.numpy()
            variable.assign(self._sum(value if self.index == 0 else np.zeros_like(value)))

    def meet(self) -> None:
        """Wait for all workers in a sum of nothing."""
        self._sum(np.zeros(1, np.float32))

    def _each(self, make: Callable[[int, int], Any]) -> Any:
        """Give each replica of this process what `make` returns for its number among them, and theirs."""
        here = self.replicas // self.workers

        def of(context: Any) -> Any:
            number = context.replica_id_in_sync_group - self.index * here
            return tf.nest.map_structure(tf.convert_to_tensor, make(number, here))

        return self._strategy.experimental_distribute_values_from_function(of)

    def _sum(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Sum an array of each worker's over all workers, element by element."""
        with _together():
            parts = self._each(lambda number, here: values if number == 0 else np.zeros_like(values))
            total: npt.NDArray[Any] = self._strategy.reduce("SUM", parts, axis=None).numpy()
            return total


@dataclass(frozen=True)
class Cluster:
    """Where the workers are: `host:port` of each, the chief's first, and which of them this process is."""

    workers: tuple[str, ...]
    index: int

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Cluster:
        """Read TF_CONFIG or, in its absence, what Slurm tells the tasks of a step. Raises SageccError."""
        if "TF_CONFIG" in environment:
            return cls._of_tf_config(environment["TF_CONFIG"])
        if "SLURM_PROCID" in environment:
            return cls._of_slurm(environment)
        raise SageccError(
            "--strategy workers: nothing says where the workers are: set TF_CONFIG, or start them with Slurm's srun "
            "(docs/guide/train.md)"
        )

    @classmethod
    def _of_tf_config(cls, text: str) -> Cluster:
        try:
            found = json.loads(text)
            workers, task = found["cluster"]["worker"], found["task"]
            if set(found["cluster"]) != {"worker"} or task["type"] != "worker":
                raise ValueError("its cluster and its task may name the job 'worker' alone")
            if not isinstance(workers, list) or not all(re.fullmatch(r"[^\s/]+:\d{1,5}", str(x)) for x in workers):
                raise ValueError("cluster.worker must list each worker's host:port")
            if len(set(workers)) < len(workers):
                raise ValueError("cluster.worker names an address twice")
            if type(task["index"]) is not int or not 0 <= task["index"] < len(workers):
                raise ValueError(f"task.index must be one of 0 to {len(workers) - 1}")
        except (ValueError, KeyError, TypeError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else error
            raise SageccError(
                f"""TF_CONFIG cannot be read ({reason}): worker 0 of two, say, has {{"cluster": {{"worker": """
                """["a:2222", "b:2222"]}, "task": {"type": "worker", "index": 0}}"""
            ) from error
        return cls(tuple(workers), task["index"])

    @classmethod
    def _of_slurm(cls, environment: Mapping[str, str]) -> Cluster:
        try:
            hosts = expand_hosts(environment["SLURM_STEP_NODELIST"])
            tasks = expand_tasks(environment["SLURM_STEP_TASKS_PER_NODE"])
            index, job = int(environment["SLURM_PROCID"]), int(environment["SLURM_JOB_ID"])
            if len(hosts) != len(tasks) or not 0 <= index < sum(tasks) or max(tasks) > SLURM_TASKS:
                raise ValueError(f"task {index} of {tasks} tasks on {len(hosts)} nodes")
        except (ValueError, KeyError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else error
            raise SageccError(
                f"Slurm's variables do not say where the workers are ({reason}): start them with srun, or set "
                "TF_CONFIG (docs/guide/train.md)"
            ) from error
        port = SLURM_PORTS + job % SLURM_PORT_BLOCKS * SLURM_TASKS
        return cls(tuple(f"{h}:{port + i}" for h, n in zip(hosts, tasks, strict=True) for i in range(n)), index)


def expand_hosts(names: str) -> list[str]:
    """Return the hosts of Slurm's short form, in its order: `a[1-2,07],b` is a1, a2, a07, b. Raises ValueError."""
    parts = re.findall(r"([^,\[\]]+)(?:\[([^\[\]]+)\])?(?:,|$)", names)
    if ",".join(f"{name}[{ranges}]" if ranges else name for name, ranges in parts) != names or not parts:
        raise ValueError(f"no list of nodes: {names!r}")
    hosts = []
    for name, ranges in parts:
        for numbers in ranges.split(","):
            first, _, last = numbers.partition("-")
            if not ranges:
                hosts.append(name)
            else:
                hosts += [f"{name}{i:0{len(first)}d}" for i in range(int(first), int(last or first) + 1)]
    return hosts


def expand_tasks(counts: str) -> list[int]:
    """Return the tasks on each node from Slurm's short form: `2(x3),1` is 2, 2, 2, 1. Raises ValueError."""
    tasks: list[int] = []
    for part in counts.split(","):
        found = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if found is None:
            raise ValueError(f"no list of tasks a node: {counts!r}")
        tasks += [int(found[1])] * int(found[2] or 1)
    return tasks


def connect(kind: Kind, device: Device, seed: int) -> Strategy:
    """Set TensorFlow up for a run and return where it computes; of several workers, wait until all are there.

    kind: `one` device; `mirrored`, every GPU of this machine or, without one, every core; `workers`, those of
    TF_CONFIG or of Slurm's step, each with all its GPUs. device: `auto` takes GPUs where there are.
    Raises SageccError for a device that is not there, a cluster that is not described or does not come together.
    """
    cluster = Cluster.of(os.environ) if kind == "workers" else None
    configure(seed)
    gpus = tf.config.list_physical_devices("GPU")
    if device == "gpu" and not gpus:
        raise SageccError(
            "--device gpu: TensorFlow sees no GPU on this machine (a driver is needed, and CUDA's libraries: "
            f"pip install 'tensorflow[and-cuda]'); leave the option out to train on the processor; {SEE_DOCTOR}"
        )
    used = [] if device == "cpu" else gpus[:1] if kind == "one" else gpus
    tf.config.set_visible_devices(used, "GPU")
    if kind == "one":
        return One()
    tf.get_logger().setLevel("ERROR")
    if cluster is None:
        if used:
            return Replicated(tf.distribute.MirroredStrategy([f"GPU:{i}" for i in range(len(used))]))
        cores = len(os.sched_getaffinity(0))
        (processor,) = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * cores)
        return Replicated(tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(cores)]))
    count = len(cluster.workers)
    where = ", ".join(cluster.workers)
    print(f"worker {cluster.index} of {count}, waiting for all of {where}", file=sys.stderr, flush=True)
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": list(cluster.workers)}),
        task_type="worker",
        task_id=cluster.index,
        rpc_layer="grpc",
    )
    with _together():
        return Replicated(tf.distribute.MultiWorkerMirroredStrategy(resolver), count, cluster.index)


def _own_copy(make: Callable[..., Any], **options: Any) -> Any:
    """Create a variable that each replica reads and writes on its own; all compute the same, so all stay alike."""
    options["synchronization"] = tf.VariableSynchronization.ON_READ
    options["aggregation"] = tf.VariableAggregation.ONLY_FIRST_REPLICA
    return make(**options)


@contextmanager
def _together() -> Iterator[None]:
    """Say in one line that a worker is gone, whatever TensorFlow calls it."""
    try:
        yield
    except tf.errors.OpError as error:
        reason = str(error.message).splitlines()[0][:200]
        raise SageccError(
            f"the workers are no longer together ({type(error).__name__}: {reason}): one of them failed or could not "
            "be reached; start all of them again, they go on from the last checkpoint"
        ) from error
