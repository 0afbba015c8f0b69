# SPDX-License-Identifier: Apache-2.0
# Not followed as an import: where episodes run changes none of them (a test holds it).
"""The engine of many machines: episodes as tasks of a Ray cluster, whose nodes have the same sagecc installed."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from sagecc.collector.run.engines import Engine, Results
from sagecc.collector.run.task import Result, Task, attempt
from sagecc.common.errors import SageccError
from sagecc.common.files import sha256_file, write_atomically
from sagecc.common.optional import requires_extra

RETRIES = 5
"""How often an episode is run again after the worker or the node under it has died."""

AHEAD = 2
"""Tasks handed out per CPU: one runs, one waits. Not all of them, so that results never pile up."""

KNOCK_S = 10.0


def on_ray(address: str = "auto") -> Engine:
    """Return the engine of the Ray cluster at `address`; as many episodes at a time as the cluster has CPUs.

    Raises SageccError if Ray is not installed; running it does if there is no such cluster.
    """
    with requires_extra("ray"):
        import ray  # heavy, and an extra that most do without

    def run(kernel: Path, tasks: Sequence[Task]) -> Results:
        if tasks:
            with _connected(ray, address):
                yield from _run_on_cluster(ray, kernel, tasks)

    return run


@contextmanager
def _connected(ray: Any, address: str) -> Iterator[None]:
    if address != "auto":
        _knock(address)
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", configure_logging=True)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise SageccError(f"no Ray cluster at '{address}' ({str(error).splitlines()[0]}): see 'ray start'") from None
    signal.signal(signal.SIGTERM, handler)  # Ray puts its own in place
    try:
        yield
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Raise SageccError if nothing listens there: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=KNOCK_S).close()
    except (OSError, ValueError) as error:
        raise SageccError(f"no Ray cluster at '{address}' ({error}): --ray-address takes HOST:PORT") from None


def _run_on_cluster(ray: Any, kernel: Path, tasks: Sequence[Task]) -> Results:
    binary = kernel.read_bytes()
    sha256 = hashlib.sha256(binary).hexdigest()
    shared = ray.put(binary)
    remote = ray.remote(num_cpus=1, max_retries=RETRIES)(_attempt_here)
    waiting = iter(tasks)
    pending: dict[Any, Task] = {}
    while True:
        room = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1))) - len(pending)  # nodes come and go
        for task in islice(waiting, max(room, 0)):
            pending[remote.remote(sha256, [shared], task)] = task
        if not pending:
            return
        for done in ray.wait(list(pending), num_returns=1)[0]:
            task = pending.pop(done)
            yield task, _result(ray, done, task)


def _result(ray: Any, reference: Any, task: Task) -> Result:
    try:
        result: Result = ray.get(reference)
    except ray.exceptions.RayTaskError:
        raise  # a bug, with the node's traceback
    except ray.exceptions.RayError as error:
        why = str(error).strip().splitlines()[0]
        return SageccError(
            f"episode {task.id}: lost with its worker, {RETRIES + 1} times ({type(error).__name__}: {why})"
        )
    return result


def _attempt_here(sha256: str, shared: Sequence[Any], task: Task) -> Result:
    """Run one episode on this node. `shared` holds a reference to the kernel's bytes, fetched only where needed."""
    try:
        return attempt(_kernel_here(sha256, shared[0]), task)
    except OSError as error:
        return SageccError(f"episode {task.id}: node {socket.gethostname()}: {error}")


def _kernel_here(sha256: str, reference: Any) -> Path:
    """Return this node's copy of the kernel, written once under its SHA-256."""
    with requires_extra("ray"):
        import ray

    folder = Path(tempfile.gettempdir()) / f"sagecc-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise SageccError(f"node {socket.gethostname()}: {folder} belongs to another user; remove it or set TMPDIR")
    path = folder / f"linux-{sha256}"
    if not path.is_file() or sha256_file(path) != sha256:
        with write_atomically(path) as beside:
            beside.write_bytes(ray.get(reference))
            beside.chmod(0o755)
    if not os.access(path, os.X_OK):
        raise SageccError(f"node {socket.gethostname()}: nothing in {folder} can be executed; set TMPDIR elsewhere")
    return path
