# SPDX-License-Identifier: Apache-2.0
"""Engines that run episodes: an engine takes tasks and yields their results as they arrive, in any order."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sagecc.collector.run.task import Result, Task, attempt
from sagecc.common.errors import SageccError
from sagecc.common.processes import end_with_parent, starting_python

R = TypeVar("R")

MIN_WORKER_CPU_S = 1.0
"""Least CPU time of episodes for which another process is started, which takes about 0.4 s (s)."""

WORKER_KILLED = "a worker was killed; finished episodes are kept: start again to go on"

TASK_REQUEST = "next task"
"""A worker's message that requests the number of its next task."""


Results = Generator[tuple[Task, Result], None, None]

NumberedResults = Generator[tuple[int, Result], None, None]
"""Results with the number of their task."""

RunTasks = Callable[[Iterator[int]], NumberedResults]
"""Runs the tasks of these numbers, taking the next when it has room for it; must be picklable."""


class Engine(Protocol):
    """Runs tasks."""

    def __call__(self, kernel: Path, tasks: Sequence[Task]) -> Results:
        """Run tasks in about the order given.

        Args:
            kernel: path of the kernel.
            tasks: the tasks.

        Yields:
            Each task with its result, once; closing the generator ends those that still run.
        """


def local(jobs: int) -> Engine:
    """Return the engine of this machine, which runs up to `jobs` episodes at a time, each in a process of its own."""

    def run(kernel: Path, tasks: Sequence[Task]) -> Results:
        workers = worker_count(tasks, jobs)
        run_tasks = _Sequential(kernel, tasks).run
        if workers == 1:
            results = run_tasks(iter(range(len(tasks))))
        else:
            results = in_processes(run_tasks, len(tasks), [None] * workers)
        with closing(results):
            for number, result in results:
                yield tasks[number], result

    return run


def worker_count(tasks: Sequence[Task], jobs: int) -> int:
    """Return in how many processes tasks are done soonest: one, this one, where they take little time.

    Args:
        tasks: the tasks.
        jobs: the most processes.
    """
    return max(1, min(jobs, len(tasks), int(sum(task.cost for task in tasks) / MIN_WORKER_CPU_S)))


@dataclass(frozen=True)
class _Sequential:
    """Runs one episode after another."""

    kernel: Path
    """Path of the kernel."""

    tasks: Sequence[Task]
    """All tasks, by number."""

    def run(self, numbers: Iterator[int]) -> NumberedResults:
        """Run the tasks of these numbers."""
        return ((number, attempt(self.kernel, self.tasks[number])) for number in numbers)


def in_processes(
    run_tasks: Callable[[Iterator[int]], Iterator[tuple[int, R]]], task_count: int, cores: Sequence[int | None]
) -> Generator[tuple[int, R], None, None]:
    """Run tasks in processes, which request the tasks one by one.

    The processes share only pipes with this one: a queue or a lock has a name in /dev/shm, which would stay there when
    all of them are killed at once.

    Args:
        run_tasks: runs the tasks in each process.
        task_count: number of tasks.
        cores: for each process, the core to which it is bound, or None for any.

    Yields:
        Each task's number and result; closing the generator ends those that still run.

    Raises:
        SageccError: a process was killed.
    """
    context = multiprocessing.get_context("spawn")
    numbers, work = iter(range(task_count)), pickle.dumps(run_tasks)  # once, not once per process
    processes = []
    connections: list[Connection] = []
    try:
        for core in cores:
            connection, worker_connection = context.Pipe()
            process = context.Process(target=_work, args=(work, worker_connection, core), daemon=True)
            with starting_python():
                process.start()
            worker_connection.close()
            processes.append(process)
            connections.append(connection)
        while connections:
            ready = wait(connections)
            for connection in [connection for connection in connections if connection in ready]:
                try:
                    message = connection.recv()
                except (EOFError, OSError):  # between two messages, or in the middle of one
                    yield from _received(connections)
                    raise SageccError(WORKER_KILLED) from None
                if message == TASK_REQUEST:
                    with suppress(OSError):  # the worker was killed: the next recv() reports it
                        connection.send(next(numbers, None))
                elif message is None:
                    connections.remove(connection)
                elif isinstance(message, BaseException):
                    raise message
                else:
                    yield message
    finally:
        for process in processes:
            process.kill()
            process.join()


def core_per_worker(workers: int) -> list[int]:
    """Return a core for each of so many processes to be bound to, in turn those that this process may use."""
    cores = sorted(os.sched_getaffinity(0))
    return [cores[worker % len(cores)] for worker in range(workers)]


def _received(connections: Sequence[Connection]) -> Generator[tuple[int, Any], None, None]:
    """Yield the results that have arrived but have not been read yet."""
    for connection in connections:
        with suppress(EOFError, OSError):
            while connection.poll():
                message = connection.recv()
                if isinstance(message, tuple):
                    yield message


def _work(pickled: bytes, connection: Connection, core: int | None) -> None:
    """Run a worker process: send each result, then None, or the exception that ended it.

    Args:
        pickled: the pickled RunTasks.
        connection: pipe to the collector.
        core: core to which this process and its guests are bound, or None. They take turns on it with warm caches.
    """
    _die_with_parent()
    if core is not None:
        os.sched_setaffinity(0, {core})
    try:
        run_tasks: RunTasks = pickle.loads(pickled)
        for numbered_result in run_tasks(_requested_numbers(connection)):
            connection.send(numbered_result)
        connection.send(None)
    except Exception as error:  # the collector raises it, where it is seen
        connection.send(error)


def _requested_numbers(connection: Connection) -> Iterator[int]:
    """Yield the numbers of tasks, each requested when it is needed, until there are none left."""
    while True:
        connection.send(TASK_REQUEST)
        number = connection.recv()
        if number is None:
            return
        yield number


def _die_with_parent() -> None:
    """End this worker when its collector ends, also if that has happened already."""
    end_with_parent(signal.SIGKILL)
    parent = multiprocessing.parent_process()
    if parent is None or parent.pid != os.getppid():
        os._exit(1)
    for number in (signal.SIGINT, signal.SIGHUP):  # those are the parent's to act on
        signal.signal(number, signal.SIG_IGN)
