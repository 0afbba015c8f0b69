# SPDX-License-Identifier: Apache-2.0
"""Collects episodes: what is finished is durable, what is done is not done again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from itertools import groupby, product
from pathlib import Path
from types import MappingProxyType

from sagecc.collector.kernel.identity import kernel_identity
from sagecc.collector.lab.spec import Drive
from sagecc.collector.run.engines import Engine
from sagecc.collector.run.progress import Progress
from sagecc.collector.run.store import Partition
from sagecc.collector.run.task import ControllerFactory, Task
from sagecc.common.errors import SageccError
from sagecc.schemas.environment import Environment
from sagecc.schemas.schemes import POLICY_PREFIX, check_scheme


class EpisodesFailedError(SageccError):
    """Some episodes failed, all others are kept. failures: why, by episode id."""

    def __init__(self, failures: Mapping[str, str]) -> None:
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        super().__init__(f"{next(iter(failures.values()))}{more}")
        self.failures = failures


def collect(
    environments: Sequence[Environment],
    schemes: Sequence[str],
    out: Path,
    kernel: Path,
    engine: Engine,
    seed: int = 0,
    progress: bool = True,
    controllers: ControllerFactory | None = None,
    prune: bool = False,
    drives: Mapping[str, Drive] = MappingProxyType({}),
) -> None:
    """Run every scheme in every environment that `out` does not hold yet, and store the trajectories.

    The same call gives the same files, whatever the engine and whatever was done before. prune: drop other episodes
    of the sets and schemes asked for (else they stay). controllers, drives: what runs policies, and how each drives its
    flow where that is not as by default.
    Raises EpisodesFailedError after all the others have run if an episode failed; its partition stays unassembled.
    """
    for scheme in schemes:
        check_scheme(scheme)
        if scheme.startswith(POLICY_PREFIX) and controllers is None:
            raise SageccError(f"'{scheme}' needs something to run it; use 'sagecc run' or 'sagecc league'")
    out.mkdir(parents=True, exist_ok=True)
    by_set = [list(group) for _, group in groupby(sorted(environments, key=_set), key=_set)]
    with ExitStack() as held:
        todo: list[Task] = []
        plans: dict[tuple[str, str], tuple[Partition, set[str]]] = {}
        for group, scheme in product(by_set, dict.fromkeys(schemes)):
            drive = drives.get(scheme)
            own = drive.underlying if drive else scheme
            identity = kernel_identity(kernel, {own, *(cross.scheme for e in group for cross in e.cross)})
            target = held.enter_context(Partition(out, group[0].set, scheme, identity))
            tasks = [Task(environment, scheme, seed, identity, controllers, drive) for environment in group]
            kept = target.kept()
            wanted = {task.id for task in tasks}
            todo += [task for task in tasks if kept.get(task.id) != task.spec_sha256]
            plans[group[0].set, scheme] = target, wanted if prune else wanted | kept.keys()
        todo.sort(key=lambda task: -task.cost)  # a long one must not be left for the end, alone
        partitions = {key: target for key, (target, _) in plans.items()}
        failures = _run(kernel, engine, todo, partitions, progress)
        for target, wanted in plans.values():
            if not wanted & failures.keys():
                target.assemble(wanted)
    if failures:
        raise EpisodesFailedError(failures)


def _run(
    kernel: Path,
    engine: Engine,
    tasks: Sequence[Task],
    partitions: Mapping[tuple[str, str], Partition],
    progress: bool,
) -> dict[str, str]:
    """Run the tasks and make each durable as it comes; return id -> reason of those that failed."""
    failures: dict[str, str] = {}
    with Progress(tasks, progress) as shown, closing(engine(kernel, tasks)) as results:
        for task, result in results:
            if isinstance(result, SageccError):
                failures[task.id] = str(result)
                shown.add(task, rows=0)
                continue
            if result.spec_sha256 != task.spec_sha256:
                raise SageccError(
                    f"episode {task.id}: came from another version of sagecc; install one on all machines"
                )
            partitions[task.environment.set, task.scheme].add(task.id, result.file)
            shown.add(task, result.rows)
    return failures


def _set(environment: Environment) -> str:
    return environment.set
