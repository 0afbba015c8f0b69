# SPDX-License-Identifier: Apache-2.0
"""Runs of the study in the lab, in several processes on this machine or on a Ray cluster.

On this machine runs that a policy plays in go in step, many to a process, with one inference for all of them; the
series are those of a run alone (execution.lab.lockstep).
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from sagecc.collector.lab.episode import Episode
from sagecc.collector.run.engines import core_per_worker, in_processes
from sagecc.collector.run.ray_engine import each_on_ray
from sagecc.collector.run.task import Task
from sagecc.common.errors import SageccError
from sagecc.execution.lab.controllers import AS_NAMED, play_episode, policy_drives
from sagecc.execution.lab.lockstep import in_step
from sagecc.execution.schemes.registry import driver_sha256
from sagecc.leagues.flow_metrics import flow_series, to_arrow
from sagecc.leagues.study.collect import Outcome, Runner
from sagecc.leagues.study.experiments import StudyRun
from sagecc.schemas.schemes import is_driven


def lab_runner(kernel: Path, jobs: int) -> Runner:
    """Return what plays runs in the lab, each in a guest of its own, whatever drives its flows.

    Args:
        kernel: path of the lab's kernel.
        jobs: how many processes.
    """

    def run(runs: Sequence[StudyRun]) -> Iterator[tuple[StudyRun, Outcome]]:
        yield from _alone(kernel, [each for each in runs if not _is_driven(each)], jobs)
        yield from in_batches(kernel, [each for each in runs if _is_driven(each)], jobs)

    return run


def _is_driven(run: StudyRun) -> bool:
    """Tell whether the host drives a flow of a run."""
    return any(map(is_driven, run.schemes))


def _alone(kernel: Path, runs: Sequence[StudyRun], jobs: int) -> Iterator[tuple[StudyRun, Outcome]]:
    """Play runs one after another in each process."""
    if jobs == 1 or len(runs) <= 1:
        yield from ((each, play(kernel, each)) for each in runs)
        return
    cores = core_per_worker(min(jobs, len(runs)))
    with closing(in_processes(_Player(kernel, tuple(runs)), len(runs), cores)) as results:
        for number, outcome in results:
            yield runs[number], outcome


def in_batches(kernel: Path, runs: Sequence[StudyRun], jobs: int) -> Iterator[tuple[StudyRun, Outcome]]:
    """Play runs in which policies drive flows, many in step in each process.

    Args:
        kernel: path of the lab's kernel.
        runs: no two of one network.
        jobs: how many processes.
    """
    for interval_s, latency_us in dict.fromkeys((run.interval_s, run.latency_us) for run in runs):
        alike = [run for run in runs if (run.interval_s, run.latency_us) == (interval_s, latency_us)]
        drives = policy_drives((scheme for run in alike for scheme in run.schemes), latency_us)
        tasks = [Task(run.environment, run.scheme, run.seed, "", drives=drives) for run in alike]
        with closing(in_step(kernel, tasks, jobs, _Series(interval_s), every_flow=True)) as results:
            for number, outcome in results:
                yield alike[number], outcome


def ray_runner(kernel: Path, address: str, schemes: Iterable[str]) -> Runner:
    """Return what plays runs in the lab on a Ray cluster.

    Args:
        kernel: path of the lab's kernel, which travels to the nodes.
        address: HOST:PORT of the cluster, or `auto`.
        schemes: those under test; policies among them must lie on every node, at the same paths.

    Raises:
        SageccError: Ray is not installed, or there is no such policy.
    """
    policies = {scheme: driver_sha256(scheme) for scheme in schemes if is_driven(scheme)}
    on_cluster = each_on_ray(_OnNode(policies), address)
    return lambda runs: on_cluster(kernel, runs)


def check_policies(schemes: Iterable[str]) -> None:
    """Raise SageccError where a policy or a scheme in user space is missing or cannot drive a flow."""
    for scheme in schemes:
        if is_driven(scheme):
            AS_NAMED.agent(scheme)


def play(kernel: Path, run: StudyRun) -> Outcome:
    """Play a run and return its series, or why it has none."""
    try:
        episode = play_episode(
            kernel, run.environment, run.scheme, run.seed, latency_us=run.latency_us, every_flow=True
        )
        return to_arrow(flow_series(episode.every_flow, run.interval_s))
    except SageccError as error:
        return error


@dataclass(frozen=True)
class _Series:
    """What is made of an episode: its flows' series."""

    interval_s: float
    """Theirs."""

    def __call__(self, episode: Episode, task: Task) -> pa.Table:
        return to_arrow(flow_series(episode.every_flow, self.interval_s))


@dataclass(frozen=True)
class _Player:
    """What each process does: the runs whose numbers it is given, in their order."""

    kernel: Path
    runs: Sequence[StudyRun]

    def __call__(self, numbers: Iterator[int]) -> Iterator[tuple[int, Outcome]]:
        for number in numbers:
            yield number, play(self.kernel, self.runs[number])


@dataclass(frozen=True)
class _OnNode:
    """What a node does: play a run, with the same policies as where it was planned."""

    policies: Mapping[str, str]
    """By scheme, the digest of its files or code."""

    def __call__(self, kernel: Path, run: StudyRun) -> Outcome:
        try:
            for scheme in set(run.schemes) & self.policies.keys():
                if driver_sha256(scheme) != self.policies[scheme]:
                    raise SageccError(f"{scheme}: node {socket.gethostname()} has other files there; copy them anew")
        except SageccError as error:
            return error
        return play(kernel, run)
