# SPDX-License-Identifier: Apache-2.0
# Not followed as an import: where episodes run changes none of them (a test holds it).
"""Where episodes run. An engine takes tasks and gives back their results as they come, in any order."""

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
from typing import Protocol

from sagecc.collector.run.task import Result, Task, attempt
from sagecc.common.errors import SageccError
from sagecc.common.processes import end_with_parent

WORTH_S = 1.0
"""CPU time of episodes that pays for a process of its own, which takes about 0.4 s to start."""

WORKER_KILLED = "a worker was killed; finished episodes are kept: start again to go on"

ASK = "which?"
"""A worker's question for its next task."""


Results = Generator[tuple[Task, Result], None, None]

Numbered = Generator[tuple[int, Result], None, None]
"""Results by the number of their task."""

Play = Callable[[Iterator[int]], Numbered]
"""Runs the tasks of these numbers, each taken when there is room for it; goes to other processes."""


class Engine(Protocol):
    """Runs tasks on the kernel at `kernel`, in about the order given, and gives each task's result once.

    Closing the generator ends what still runs.
    """

    def __call__(self, kernel: Path, tasks: Sequence[Task]) -> Results:
        """Run them."""


def local(jobs: int) -> Engine:
    """Return the engine of this machine: up to `jobs` episodes at a time, each in a process of its own."""

    def run(kernel: Path, tasks: Sequence[Task]) -> Results:
        workers = min(jobs, len(tasks), int(sum(task.cost for task in tasks) / WORTH_S))
        play = _OneByOne(kernel, tasks).play
        results = play(iter(range(len(tasks)))) if workers <= 1 else in_processes(play, len(tasks), [None] * workers)
        with closing(results):
            for number, result in results:
                yield tasks[number], result

    return run


@dataclass(frozen=True)
class _OneByOne:
    """One episode after another."""

    kernel: Path
    tasks: Sequence[Task]

    def play(self, numbers: Iterator[int]) -> Numbered:
        """Run the tasks of these numbers."""
        return ((number, attempt(self.kernel, self.tasks[number])) for number in numbers)


def in_processes(play: Play, tasks: int, cores: Sequence[int | None]) -> Numbered:
    """Let processes play so many tasks, which they ask for one by one; yield each result. Closing it ends what runs.

    cores: one a process, to stay on; None for any. They and this one share pipes and nothing else: a queue or a lock
    has a name in /dev/shm, which would stay there when all of them are killed at once.
    """
    context = multiprocessing.get_context("spawn")
    numbers, pickled = iter(range(tasks)), pickle.dumps(play)  # once, and not once a process
    processes = []
    ends: list[Connection] = []
    try:
        for core in cores:
            end, other = context.Pipe()
            process = context.Process(target=_work, args=(pickled, other, core), daemon=True)
            process.start()
            other.close()
            processes.append(process)
            ends.append(end)
        while ends:
            ready = wait(ends)
            for end in [end for end in ends if end in ready]:
                try:
                    message = end.recv()
                except (EOFError, OSError):  # between two messages, or in the middle of one
                    yield from _received(ends)
                    raise SageccError(WORKER_KILLED) from None
                if message == ASK:
                    with suppress(OSError):  # it was killed: the next look at it says so
                        end.send(next(numbers, None))
                elif message is None:
                    ends.remove(end)
                elif isinstance(message, BaseException):
                    raise message
                else:
                    yield message
    finally:
        for process in processes:
            process.kill()
            process.join()


def _received(ends: Sequence[Connection]) -> Numbered:
    """Yield the results that have come and were not looked at yet."""
    for end in ends:
        with suppress(EOFError, OSError):
            while end.poll():
                message = end.recv()
                if isinstance(message, tuple):
                    yield message


def _work(pickled: bytes, end: Connection, core: int | None) -> None:
    """Play, as it was pickled, in a process of its own; send each result, then None, or the exception that ended it.

    Guests inherit the core: they and the host take turns, and where one has just run the caches are warm.
    """
    _die_with_parent()
    if core is not None:
        os.sched_setaffinity(0, {core})
    try:
        play: Play = pickle.loads(pickled)
        for numbered in play(_asked(end)):
            end.send(numbered)
        end.send(None)
    except Exception as error:  # the collector raises it: there it is seen
        end.send(error)


def _asked(end: Connection) -> Iterator[int]:
    """Ask for the numbers of tasks until there are none left."""
    while True:
        end.send(ASK)
        number = end.recv()
        if number is None:
            return
        yield number


def _die_with_parent() -> None:
    """A worker whose collector was killed, or has been just now, must not go on: nobody would wait for it."""
    end_with_parent(signal.SIGKILL)
    parent = multiprocessing.parent_process()
    if parent is None or parent.pid != os.getppid():
        os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
