# SPDX-License-Identifier: Apache-2.0
"""Collects episodes in parallel: what is finished is durable, what is done is not done again."""

from __future__ import annotations

import ctypes
import multiprocessing
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from tqdm import tqdm

from collector.episode import run_episode
from collector.lab import Controller
from collector.schemes import POLICY_PREFIX, check_scheme
from collector.spec import episode_spec
from collector.store import SPOOL, Partition, partition
from schemas.environment import Environment
from schemas.errors import SageccError
from schemas.files import sha256_file

ControllerFactory = Callable[[str], Controller]
"""Makes the controller of a policy from its scheme name; a module-level function, for it goes to other processes."""

PR_SET_PDEATHSIG = 1
BAR_FORMAT = "{desc}: {percentage:3.0f}% |{bar}| {n:.0f}/{total} virtual s [{elapsed}<{remaining}, {rate_fmt}{postfix}]"


@dataclass(frozen=True)
class Task:
    """One episode to run and where it goes."""

    environment: Environment
    scheme: str
    seed: int
    out: Path
    kernel: Path
    kernel_sha256: str
    factory: ControllerFactory | None

    @property
    def episode_id(self) -> str:
        """Environment, scheme and seed."""
        return f"{self.environment.id}.{self.scheme}.{self.seed}"

    @property
    def spec_sha256(self) -> str:
        """What the guest would be started with."""
        return episode_spec(self.environment, self.scheme, self.seed).sha256

    @property
    def cost(self) -> float:
        """About proportional to the CPU time it takes: packets, and a fixed part."""
        steps = self.environment.bottleneck.rates
        mean_mbps = sum(step.rate_mbps for step in steps) / len(steps)
        return 0.1 + self.environment.duration_s * (2 + mean_mbps) / 4000

    def partition(self) -> Partition:
        """Return where the episode is stored."""
        return Partition(self.out, self.environment.set, self.scheme, self.kernel_sha256)


def collect(
    environments: Sequence[Environment],
    schemes: Sequence[str],
    out: Path,
    kernel: Path,
    jobs: int,
    seed: int = 0,
    progress: bool = True,
    controllers: ControllerFactory | None = None,
    prune: bool = False,
) -> None:
    """Run every scheme in every environment that `out` does not hold yet, and store the trajectories.

    prune: drop episodes and partitions that were not asked for (else they stay).
    Raises SageccError after all the others have run if an episode failed; its partition stays unassembled.
    """
    for scheme in schemes:
        check_scheme(scheme)
        if scheme.startswith(POLICY_PREFIX) and controllers is None:
            raise SageccError(f"'{scheme}' needs something to run it; use 'sagecc run' or 'sagecc league'")
    if not kernel.is_file():
        raise SageccError(f"no kernel at {kernel}: run 'sagecc kernel' first")
    sha256 = sha256_file(kernel)
    tasks = [Task(e, s, seed, out, kernel, sha256, controllers) for s in schemes for e in environments]
    out.mkdir(parents=True, exist_ok=True)
    groups = [list(group) for _, group in groupby(sorted(tasks, key=_partition_key), key=_partition_key)]
    todo, plans = [], []
    for group in groups:
        target = group[0].partition()
        stored, spooled = target.stored(), target.spooled()
        kept = stored | spooled
        wanted = {task.episode_id for task in group}
        todo += [task for task in group if kept.get(task.episode_id) != task.spec_sha256]
        plans.append((target, wanted if prune else wanted | kept.keys()))
    failures = _run_all(sorted(todo, key=lambda task: -task.cost), jobs, progress)
    failed = {episode for episode, _ in failures}
    for target, wanted in plans:
        if not wanted & failed:
            target.assemble(wanted)
    if failures:
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        raise SageccError(f"{failures[0][1]}{more}")
    if prune:
        _prune(out, {partition(out, group[0].environment.set, group[0].scheme) for group in groups})


def _partition_key(task: Task) -> tuple[str, str]:
    return task.environment.set, task.scheme


def _prune(out: Path, keep: set[Path]) -> None:
    for found in out.glob("set=*/scheme=*"):
        if found not in keep:
            shutil.rmtree(found)
    for parent in out.glob("set=*"):
        if not any(parent.iterdir()):
            parent.rmdir()
    shutil.rmtree(out / SPOOL, ignore_errors=True)


def _die_with_parent() -> None:
    """A worker whose collector was killed must not go on: nobody would wait for it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run_one(task: Task) -> int:
    controller = task.factory(task.scheme) if task.factory and task.scheme.startswith(POLICY_PREFIX) else None
    episode = run_episode(task.kernel, task.environment, task.scheme, task.seed, controller)
    task.partition().add(episode)
    return int(episode.rows.num_rows)


def _run_all(tasks: Sequence[Task], jobs: int, progress: bool) -> list[tuple[str, str]]:
    """Run the tasks; return (episode id, reason) of those that failed."""
    failures: list[tuple[str, str]] = []
    if not tasks:
        return failures
    virtual_s = sum(task.environment.duration_s for task in tasks)
    bar = tqdm(
        total=round(virtual_s),
        desc="collect",
        unit="s",
        disable=None if progress else True,  # None: only where somebody watches
        bar_format=BAR_FORMAT,
    )
    rows = done = 0
    with bar:
        for task, result in _results(tasks, jobs):
            done += 1
            if isinstance(result, SageccError):
                failures.append((task.episode_id, str(result)))
            else:
                rows += result
            bar.set_postfix_str(f"{done}/{len(tasks)} episodes, {rows:,} rows", refresh=False)
            bar.update(task.environment.duration_s)
    return failures


def _results(tasks: Sequence[Task], jobs: int) -> Iterator[tuple[Task, int | SageccError]]:
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(min(jobs, len(tasks)), mp_context=context, initializer=_die_with_parent)
    try:
        pending = {pool.submit(_run_one, task): task for task in tasks}
        while pending:
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                task = pending.pop(future)
                try:
                    yield task, future.result()
                except SageccError as error:
                    yield task, error
        pool.shutdown()
    except BrokenProcessPool:
        raise SageccError("a worker was killed; finished episodes are kept: start again to go on") from None
    except BaseException:
        for worker in multiprocessing.active_children():  # a polite shutdown can wait for ever for one that is starting
            worker.kill()
        raise
