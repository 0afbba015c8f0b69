# SPDX-License-Identifier: Apache-2.0
"""Collect episodes: each is durable as soon as it is finished, and is not run again."""

from __future__ import annotations

import hashlib
import math
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
from sagecc.schemas.schemes import check_scheme, is_driven


class EpisodesFailedError(SageccError):
    """Some episodes failed; all others are stored, and each partition's FAILED_FILE names those of its own.

    Args:
        failures: the reason by episode id.
    """

    def __init__(self, failures: Mapping[str, str]) -> None:
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        super().__init__(f"{next(iter(failures.values()))}{more}")
        self.failures = failures


def drawn(environments: Sequence[Environment], scheme: str, share: float) -> list[Environment]:
    """Return the environments that a scheme plays in, in their order: a share of each set, at least one.

    They are drawn by a hash of both names: a greater share has them too, and other schemes' are others.
    """
    if share >= 1:
        return list(environments)
    chosen: set[str] = set()
    for group in _by_set(environments):
        by_hash = sorted((hashlib.sha256(f"{scheme} {each.id}".encode()).digest(), each.id) for each in group)
        chosen |= {name for _, name in by_hash[: math.ceil(round(share * len(group), 6))]}
    return [each for each in environments if each.id in chosen]


def collect(
    environments: Sequence[Environment],
    schemes: Sequence[str],
    out: Path,
    kernel: Path,
    engine: Engine,
    seed: int = 0,
    *,
    share: float = 1,
    progress: bool = True,
    controllers: ControllerFactory | None = None,
    prune: bool = False,
    drives: Mapping[str, Drive] = MappingProxyType({}),
    seeds: Mapping[str, int] = MappingProxyType({}),
    players: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Run schemes in environments, except episodes that `out` has already, and store the trajectories.

    Equal calls give equal files, whatever the engine and whatever `out` held before. An episode that failed is run
    again by the next call.

    Args:
        environments: the environments.
        schemes: kernel schemes, schemes in user space and policies.
        out: the folder of raw trajectories.
        kernel: path of the kernel.
        engine: runs the episodes.
        seed: seed of every episode whose environment is not in `seeds`.
        share: of each set's environments that a scheme plays in (`drawn`).
        progress: whether to show progress.
        controllers: makes the controller of the flows that the host drives; required for those.
        prune: whether to drop other episodes of these sets and schemes, which otherwise stay.
        drives: by scheme, how the controller drives its flows, where that differs from the default.
        seeds: by environment id, seeds of episodes (EnvironmentSet.seeds).
        players: by scheme, what decides its rows beside networks and kernel, which its partitions then say; episodes
            of another player are run again.

    Raises:
        SageccError: a scheme is unknown, or one that the host is to drive has no controller.
        EpisodesFailedError: an episode failed; all others have run and are in their partitions.
    """
    for scheme in schemes:
        check_scheme(scheme)
    user_space = [name for name in _all_schemes(environments, schemes) if is_driven(name)]
    if user_space and controllers is None:
        raise SageccError(f"'{user_space[0]}' needs something to run it; use 'sagecc run' or 'sagecc league'")
    out.mkdir(parents=True, exist_ok=True)
    playing = {scheme: {each.id for each in drawn(environments, scheme, share)} for scheme in schemes}
    with ExitStack() as locks:
        todo: list[Task] = []
        plans: dict[tuple[str, str], tuple[Partition, set[str], dict[str, str]]] = {}
        for group, scheme in product(_by_set(environments), dict.fromkeys(schemes)):
            names = _all_schemes(group, (scheme,))
            identity = kernel_identity(kernel, {drives[n].underlying if n in drives else n for n in names})
            player = players.get(scheme, "")
            partition = locks.enter_context(Partition(out, group[0].set, scheme, identity, player))
            tasks = [
                Task(each, scheme, seeds.get(each.id, seed), identity, controllers, dict(drives), player)
                for each in group
                if each.id in playing[scheme]
            ]
            old_rows = partition.kept()
            ids = {task.id for task in tasks}
            todo += [task for task in tasks if old_rows.get(task.id) != task.spec_sha256]
            result_ids = ids if prune else ids | old_rows.keys()
            others = (
                {} if prune else {name: reason for name, reason in partition.failed().items() if name not in result_ids}
            )
            plans[group[0].set, scheme] = partition, result_ids, others
        todo.sort(key=lambda task: -task.cost)  # no long episode may be left to run alone at the end
        partitions = {key: partition for key, (partition, _, _) in plans.items()}
        failures = _run(kernel, engine, todo, partitions, progress)
        for partition, result_ids, others in plans.values():
            failed = {name: failures[name].removeprefix(f"episode {name}: ") for name in result_ids & failures.keys()}
            partition.assemble(result_ids - failed.keys(), others | failed)
    if failures:
        raise EpisodesFailedError(failures)


def _run(
    kernel: Path,
    engine: Engine,
    tasks: Sequence[Task],
    partitions: Mapping[tuple[str, str], Partition],
    progress: bool,
) -> dict[str, str]:
    """Run the tasks and make each result durable as it arrives; return the reasons of those that failed, by id."""
    failures: dict[str, str] = {}
    with Progress(tasks, progress) as progress_bar, closing(engine(kernel, tasks)) as results:
        for task, result in results:
            if isinstance(result, SageccError):
                failures[task.id] = str(result)
                progress_bar.add(task, rows=0)
                continue
            if result.spec_sha256 != task.spec_sha256:
                raise SageccError(
                    f"episode {task.id}: came from another version of sagecc; install one on all machines"
                )
            partitions[task.environment.set, task.scheme].add(task.id, result.file)
            progress_bar.add(task, result.rows)
    return failures


def _all_schemes(environments: Sequence[Environment], schemes: Sequence[str]) -> list[str]:
    """Return the schemes and those of all competitors, in a fixed order."""
    return sorted({*schemes, *(cross.scheme for environment in environments for cross in environment.cross)})


def _by_set(environments: Sequence[Environment]) -> list[list[Environment]]:
    return [list(group) for _, group in groupby(sorted(environments, key=_set), key=_set)]


def _set(environment: Environment) -> str:
    return environment.set
