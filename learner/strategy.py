# SPDX-License-Identifier: Apache-2.0
"""Where a run computes: one device, all GPUs of a machine, or workers on several machines.

Each replica takes its share of the same batch of the same step, with the random numbers that one process would draw
for those windows, and all apply the same averaged gradients. So a run learns the same from the same data whatever the
number of replicas; only the order in which floats are summed differs.

One worker, the chief, has the run's folder and the artefact. The others read the pool, and get everything else from
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
from typing import Any, Literal, NamedTuple, Protocol, get_args

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Floats
from sagecc.common.errors import SEE_DOCTOR, SageccError
from sagecc.common.tensorflow_runtime import configure, tf
from sagecc.learner.core import Batch, Learner, Update
from sagecc.learner.optimisers import compiled

Kind = Literal["one", "mirrored", "workers"]
Device = Literal["auto", "cpu", "gpu"]

SLURM_PORTS = 12_000
"""Lowest of the SLURM_PORT_BLOCKS * SLURM_TASKS ports of workers under Slurm, all below the ephemeral ports."""
SLURM_PORT_BLOCKS, SLURM_TASKS = 1250, 16
"""Jobs with consecutive ids that have distinct ports on one node; most workers of one job on one node."""


class StepResult(NamedTuple):
    """The result of a step."""

    metrics: Floats
    """The values of Learner.metrics."""
    transitions: dict[str, Any]
    """What the step says of the transitions of this process's first replica."""
    stop: bool
    """Whether any worker asked to stop."""


Step = Callable[[Batch, Callable[[], bool]], StepResult]
"""Takes a step, from this process's share of a batch and a function that tells whether this worker asks to stop."""


class Strategy(Protocol):
    """How replicas are fed, stepped and kept together."""

    replicas: int
    """Number of replicas over all workers."""
    index: int
    """This worker's number; the chief's is 0."""
    workers: int
    """Number of workers."""

    def part(self, batch: int) -> slice:
        """Return which windows of a batch this process reads.

        Args:
            batch: number of windows in a batch.

        Raises:
            SageccError: They cannot be shared equally.
        """

    def build(self, make: Callable[[], Learner]) -> Learner:
        """Make the learner, the same on every replica."""

    def stepper(self, update: Callable[[Batch], Update]) -> Step:
        """Return the function that takes an update on this process's windows, and asks all workers whether to stop."""

    def agree(self, fingerprint: str, finished: bool) -> bool:
        """Check that all workers run the same training.

        Args:
            fingerprint: what only workers of this training have.
            finished: whether this worker holds the finished policy.

        Returns:
            The chief's `finished`.

        Raises:
            SageccError: A worker has another fingerprint.
        """

    def broadcast(self, learner: Learner) -> None:
        """Give every worker the chief's state."""

    def barrier(self) -> None:
        """Wait until every worker has called this."""


class SingleDevice:
    """One process on one device: nothing to share."""

    replicas = workers = 1
    index = 0

    def part(self, batch: int) -> slice:
        """All of the batch."""
        return slice(0, batch)

    def build(self, make: Callable[[], Learner]) -> Learner:
        """Make the learner."""
        return make()

    def stepper(self, update: Callable[[Batch], Update]) -> Step:
        """Return the update as a graph."""
        graph = compiled(update)

        def step(batch: Batch, stop: Callable[[], bool]) -> StepResult:
            metrics, transitions = graph(Batch(*map(tf.convert_to_tensor, batch)))
            return StepResult(metrics.numpy(), transitions, stop())

        return step

    def agree(self, fingerprint: str, finished: bool) -> bool:
        """One process agrees with itself."""
        return finished

    def broadcast(self, learner: Learner) -> None:
        """Nobody else needs the state."""

    def barrier(self) -> None:
        """Nobody else is waited for."""


class Replicated:
    """Replicas of the learner under a tf.distribute strategy, in this process and in those of other workers.

    Args:
        strategy: the tf.distribute strategy.
        workers: number of workers.
        index: this worker's number.
    """

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
        share = batch // self.workers
        return slice(self.index * share, (self.index + 1) * share)

    def build(self, make: Callable[[], Learner]) -> Learner:
        """Make the learner with a copy of every variable on every replica, each written to by its replica alone."""
        with _naming_lost_workers(), self._strategy.scope(), tf.variable_creator_scope(_own_copy):
            return make()

    def stepper(self, update: Callable[[Batch], Update]) -> Step:
        """Return a step on all replicas; those of other workers take it at the same time."""

        @tf.function(autograph=False, reduce_retracing=True)  # type: ignore[untyped-decorator]
        def on_all_replicas(batch: Any, stop: Any) -> Any:
            return self._strategy.run(on_one_replica, (*batch, stop))

        def on_one_replica(*batch: Any) -> Any:
            *windows, stop = batch
            metrics, transitions = update(Batch(*windows))
            return metrics, transitions, tf.distribute.get_replica_context().all_reduce("SUM", tf.identity(stop))

        def step(batch: Batch, stop: Callable[[], bool]) -> StepResult:
            with _naming_lost_workers():
                shares = self._per_replica(lambda i, n: tuple(np.array_split(x, n, axis=1)[i] for x in batch))
                results = on_all_replicas(shares, self._per_replica(lambda i, n: np.float32(stop())))
                metrics, transitions, stops = self._strategy.experimental_local_results(results)[0]
                return StepResult(metrics.numpy(), transitions, bool(stops.numpy() > 0))

        return step

    def agree(self, fingerprint: str, finished: bool) -> bool:
        """Compare fingerprints with all workers."""
        reports = np.zeros((self.workers, len(fingerprint) + 1), np.float32)
        reports[self.index] = [*fingerprint.encode(), finished]
        reports = self._sum(reports)
        others = [i for i in range(self.workers) if (reports[i, :-1] != reports[0, :-1]).any()]
        if others:
            raise SageccError(
                f"worker {others[0]} of {self.workers} has another configuration, seed or pool than worker 0: start "
                "all with the same command, on the same pool"
            )
        return bool(reports[0, -1])

    def broadcast(self, learner: Learner) -> None:
        """Send the chief's variables to all replicas, as a sum with the others' zeros."""
        for variable in learner.state().values():
            value = variable.numpy()
            variable.assign(self._sum(value if self.index == 0 else np.zeros_like(value)))

    def barrier(self) -> None:
        """Wait for all workers in a sum of nothing."""
        self._sum(np.zeros(1, np.float32))

    def _per_replica(self, make: Callable[[int, int], Any]) -> Any:
        """Return a value per replica of this process: what `make` returns for its number and that of all of them."""
        count = self.replicas // self.workers

        def value_of(context: Any) -> Any:
            number = context.replica_id_in_sync_group - self.index * count
            return tf.nest.map_structure(tf.convert_to_tensor, make(number, count))

        return self._strategy.experimental_distribute_values_from_function(value_of)

    def _sum(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the sum of all workers' arrays, element by element."""
        with _naming_lost_workers():
            parts = self._per_replica(lambda number, count: values if number == 0 else np.zeros_like(values))
            total: npt.NDArray[Any] = self._strategy.reduce("SUM", parts, axis=None).numpy()
            return total


@dataclass(frozen=True)
class Cluster:
    """The addresses of a run's workers."""

    workers: tuple[str, ...]
    """`host:port` of each, the chief's first."""
    index: int
    """Which of them this process is."""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Cluster:
        """Read TF_CONFIG or, in its absence, Slurm's variables of a step's tasks.

        Raises:
            SageccError: There is neither, or it cannot be read.
        """
        if "TF_CONFIG" in environment:
            return cls._of_tf_config(environment["TF_CONFIG"])
        if "SLURM_PROCID" in environment:
            return cls._of_slurm(environment)
        raise SageccError(
            "--strategy workers: nothing says where the workers are: set TF_CONFIG, or start them with Slurm's srun "
            "(docs/guide/cluster.md)"
        )

    @classmethod
    def _of_tf_config(cls, text: str) -> Cluster:
        try:
            config = json.loads(text)
            workers, task = config["cluster"]["worker"], config["task"]
            if set(config["cluster"]) != {"worker"} or task["type"] != "worker":
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
                "TF_CONFIG (docs/guide/cluster.md)"
            ) from error
        port = SLURM_PORTS + job % SLURM_PORT_BLOCKS * SLURM_TASKS
        return cls(tuple(f"{h}:{port + i}" for h, n in zip(hosts, tasks, strict=True) for i in range(n)), index)


def expand_hosts(names: str) -> list[str]:
    """Return the hosts of Slurm's short form, in its order: `a[1-2,07],b` is a1, a2, a07, b.

    Raises:
        ValueError: It is no such form.
    """
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
    """Return the tasks on each node from Slurm's short form: `2(x3),1` is 2, 2, 2, 1.

    Raises:
        ValueError: It is no such form.
    """
    tasks: list[int] = []
    for part in counts.split(","):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if match is None:
            raise ValueError(f"no list of tasks per node: {counts!r}")
        tasks += [int(match[1])] * int(match[2] or 1)
    return tasks


def connect(kind: Kind, device: Device, seed: int, tensorfloat32: bool = False) -> Strategy:
    """Set TensorFlow up for a run and return where it computes; wait until all workers are connected.

    Args:
        kind: `one` device; `mirrored`, every GPU of this machine or, without one, every core; `workers`, those of
            TF_CONFIG or of Slurm's step, each with all its GPUs.
        device: `auto` takes GPUs if there are any.
        seed: seed of TensorFlow's random numbers.
        tensorfloat32: whether a GPU may round the factors of float32 products (NetworkSettings.tensorfloat32).

    Raises:
        SageccError: There is no such kind or device, or the workers are not described or do not connect.
    """
    for name, choices in ((kind, get_args(Kind)), (device, get_args(Device))):
        if name not in choices:
            raise SageccError(f"there is no '{name}' to train on: it must be one of {', '.join(choices)}")
    cluster = Cluster.of(os.environ) if kind == "workers" else None
    configure(seed, tensorfloat32)
    gpus = tf.config.list_physical_devices("GPU")
    if device == "gpu" and not gpus:
        raise SageccError(
            "--device gpu: TensorFlow sees no GPU on this machine (a driver is needed, and CUDA's libraries: "
            f"pip install 'tensorflow[and-cuda]'); leave the option out to train on the processor; {SEE_DOCTOR}"
        )
    used = [] if device == "cpu" else gpus[:1] if kind == "one" else gpus
    tf.config.set_visible_devices(used, "GPU")
    if kind == "one":
        return SingleDevice()
    tf.get_logger().setLevel("ERROR")
    if cluster is None:
        if used:
            return Replicated(tf.distribute.MirroredStrategy([f"GPU:{i}" for i in range(len(used))]))
        cores = len(os.sched_getaffinity(0))
        (processor,) = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * cores)
        return Replicated(tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(cores)]))
    count = len(cluster.workers)
    addresses = ", ".join(cluster.workers)
    print(f"worker {cluster.index} of {count}, waiting for all of {addresses}", file=sys.stderr, flush=True)
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": list(cluster.workers)}),
        task_type="worker",
        task_id=cluster.index,
        rpc_layer="grpc",
    )
    with _naming_lost_workers():
        return Replicated(tf.distribute.MultiWorkerMirroredStrategy(resolver), count, cluster.index)


def _own_copy(make: Callable[..., Any], **options: Any) -> Any:
    """Create a variable that each replica reads and writes on its own; all compute the same, so all stay equal."""
    options["synchronization"] = tf.VariableSynchronization.ON_READ
    options["aggregation"] = tf.VariableAggregation.ONLY_FIRST_REPLICA
    return make(**options)


@contextmanager
def _naming_lost_workers() -> Iterator[None]:
    """Turn any of TensorFlow's errors over a lost worker into one SageccError."""
    try:
        yield
    except tf.errors.OpError as error:
        reason = str(error.message).splitlines()[0][:200]
        raise SageccError(
            f"the workers are no longer together ({type(error).__name__}: {reason}): one of them failed or could not "
            "be reached; start all of them again, they go on from the last checkpoint"
        ) from error
