# SPDX-License-Identifier: Apache-2.0
# Not followed as an import: where episodes run changes none of them (a test holds it).
"""Where episodes run. An engine takes tasks and gives back their results as they come, in any order."""

from __future__ import annotations

import ctypes
import multiprocessing
import signal
from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from pathlib import Path
from typing import Protocol

from sagecc.collector.task import Result, Task, attempt
from sagecc.schemas.errors import SageccError

AHEAD = 2
"""Tasks handed out per worker: one runs, one waits. Not all of them, so that results never pile up."""

WORTH_S = 1.0
"""CPU time of episodes that pays for a process of its own, which takes about 0.4 s to start."""

WORKER_KILLED = "a worker was killed; finished episodes are kept: start again to go on"

PR_SET_PDEATHSIG = 1


Results = Generator[tuple[Task, Result], None, None]


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
        if workers <= 1:
            return ((task, attempt(kernel, task)) for task in tasks)
        return _run_in_pool(kernel, tasks, workers)

    return run


def _run_in_pool(kernel: Path, tasks: Sequence[Task], workers: int) -> Results:
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=die_with_parent)
    waiting = iter(tasks)
    pending = {pool.submit(attempt, kernel, task): task for task in islice(waiting, AHEAD * workers)}
    try:
        while pending:
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                result = future.result()
                task = pending.pop(future)
                for following in islice(waiting, 1):
                    pending[pool.submit(attempt, kernel, following)] = following
                yield task, result
        pool.shutdown()
    except BrokenProcessPool:
        for future, task in pending.items():
            if future.done() and not future.exception():
                yield task, future.result()
        raise SageccError(WORKER_KILLED) from None
    except BaseException:
        for worker in multiprocessing.active_children():  # a polite shutdown can wait for ever for one that is starting
            worker.kill()
        raise


def die_with_parent() -> None:
    """A worker whose collector was killed must not go on: nobody would wait for it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
