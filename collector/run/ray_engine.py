# SPDX-License-Identifier: Apache-2.0
"""Engine of a Ray cluster, whose nodes have the same version of sagecc installed."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import chdir, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sagecc.collector.run.engines import Engine, Results
from sagecc.collector.run.task import Task, attempt
from sagecc.common.errors import SageccError
from sagecc.common.files import sha256_file, write_atomically
from sagecc.common.optional import requires_extra

RETRIES = 5
"""Number of times that a task is done again after its worker or node has died."""

TASKS_PER_CPU = 2
"""Tasks submitted at a time per CPU: one runs, one waits. A limit, so that results do not pile up."""

CONNECT_TIMEOUT_S = 10.0


class Named(Protocol):
    """What runs on a cluster: a value that can be pickled and says its name."""

    @property
    def id(self) -> str:
        """Its name, for messages."""


T = TypeVar("T", bound=Named)
R = TypeVar("R")


def on_ray(address: str = "auto") -> Engine:
    """Return the engine of a Ray cluster, which runs as many episodes at a time as the cluster has CPUs.

    Args:
        address: HOST:PORT of the cluster, or `auto`.

    Raises:
        SageccError: Ray is not installed; from the engine, there is no such cluster.
    """
    on_cluster = each_on_ray(attempt, address)

    def run(kernel: Path, tasks: Sequence[Task]) -> Results:
        return on_cluster(kernel, tasks)

    return run


def each_on_ray(
    work: Callable[[Path, T], R], address: str = "auto"
) -> Callable[[Path, Sequence[T]], Generator[tuple[T, R | SageccError], None, None]]:
    """Return what does tasks on a Ray cluster, which does as many at a time as it has CPUs.

    Args:
        work: from the kernel's path on the node and a task to its result; a module's function.
        address: HOST:PORT of the cluster, or `auto`.

    Raises:
        SageccError: Ray is not installed; from what is returned, there is no such cluster.
    """
    with requires_extra("ray"):
        import ray  # slow to import, and in an extra that few install

    def run(kernel: Path, tasks: Sequence[T]) -> Generator[tuple[T, R | SageccError], None, None]:
        if tasks:
            with _connected(ray, address):
                yield from _run_on_cluster(ray, work, kernel, tasks)

    return run


@contextmanager
def _connected(ray: Any, address: str) -> Iterator[None]:
    if address != "auto":
        _check_reachable(address)
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with chdir("/"):  # the cluster's workers look for modules where the driver is
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", configure_logging=True)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise SageccError(f"no Ray cluster at '{address}' ({str(error).splitlines()[0]}): see 'ray start'") from None
    signal.signal(signal.SIGTERM, handler)  # Ray has replaced it by its own
    try:
        yield
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Raise SageccError where nothing listens at `address`: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S).close()
    except (OSError, ValueError) as error:
        raise SageccError(f"no Ray cluster at '{address}' ({error}): --ray-address takes HOST:PORT") from None


def _run_on_cluster(
    ray: Any, work: Callable[[Path, T], R], kernel: Path, tasks: Sequence[T]
) -> Generator[tuple[T, R | SageccError], None, None]:
    binary = kernel.read_bytes()
    sha256 = hashlib.sha256(binary).hexdigest()
    binary_reference = ray.put(binary)
    remote = ray.remote(num_cpus=1, max_retries=RETRIES)(_attempt_here)
    queue = iter(tasks)
    futures: dict[Any, T] = {}
    while True:
        capacity = TASKS_PER_CPU * max(1, int(ray.cluster_resources().get("CPU", 1))) - len(
            futures
        )  # nodes come and go
        for task in islice(queue, max(capacity, 0)):
            futures[remote.remote(work, sha256, [binary_reference], task)] = task
        if not futures:
            return
        for reference in ray.wait(list(futures), num_returns=1)[0]:
            task = futures.pop(reference)
            yield task, _result(ray, reference, task)


def _result(ray: Any, reference: Any, task: Named) -> Any:
    try:
        result = ray.get(reference)
    except ray.exceptions.RayTaskError:
        raise  # a bug, with the node's traceback
    except ray.exceptions.RayError as error:
        reason = str(error).strip().splitlines()[0]
        return SageccError(f"{task.id}: lost with its worker, {RETRIES + 1} times ({type(error).__name__}: {reason})")
    return result


def _attempt_here(work: Callable[[Path, T], R], sha256: str, shared: Sequence[Any], task: T) -> R | SageccError:
    """Do one task on this node.

    Args:
        work: what to do with the kernel and the task.
        sha256: SHA-256 of the kernel, in hex.
        shared: a reference to the kernel's bytes, in a sequence so that Ray does not fetch them in advance.
        task: an episode, say.
    """
    try:
        return work(_kernel_here(sha256, shared[0]), task)
    except OSError as error:
        return SageccError(f"{task.id}: node {socket.gethostname()}: {error}")


def _kernel_here(sha256: str, reference: Any) -> Path:
    """Return the path of this node's copy of the kernel, written once under its SHA-256."""
    with requires_extra("ray"):
        import ray

    folder = Path(tempfile.gettempdir()) / f"sagecc-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise SageccError(f"node {socket.gethostname()}: {folder} belongs to another user; remove it or set TMPDIR")
    path = folder / f"linux-{sha256}"
    if not path.is_file() or sha256_file(path) != sha256:
        with write_atomically(path) as file:
            file.write_bytes(ray.get(reference))
            file.chmod(0o755)
    if not os.access(path, os.X_OK):
        raise SageccError(f"node {socket.gethostname()}: nothing in {folder} can be executed; set TMPDIR elsewhere")
    return path
