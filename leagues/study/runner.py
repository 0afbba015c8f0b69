# SPDX-License-Identifier: Apache-2.0
"""Runs of the study in the lab, in several processes on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from sagecc.collector.run.engines import core_per_worker, in_processes
from sagecc.common.errors import SageccError
from sagecc.execution.lab.controllers import play_episode
from sagecc.leagues.flow_metrics import flow_series, to_arrow
from sagecc.leagues.study.collect import Outcome, Runner
from sagecc.leagues.study.experiments import StudyRun


def lab_runner(kernel: Path, jobs: int) -> Runner:
    """Return what plays runs in the lab, each in a guest of its own, whatever drives its flows.

    Args:
        kernel: path of the lab's kernel.
        jobs: how many runs at a time.
    """

    def run(runs: Sequence[StudyRun]) -> Iterator[tuple[StudyRun, Outcome]]:
        if jobs == 1 or len(runs) == 1:
            yield from ((each, play(kernel, each)) for each in runs)
            return
        cores = core_per_worker(min(jobs, len(runs)))
        with closing(in_processes(_Player(kernel, tuple(runs)), len(runs), cores)) as results:
            for number, outcome in results:
                yield runs[number], outcome

    return run


def play(kernel: Path, run: StudyRun) -> Outcome:
    """Play a run and return its series, or why it has none."""
    try:
        episode = play_episode(kernel, run.environment, run.scheme, run.seed, every_flow=True)
        return to_arrow(flow_series(episode.every_flow, run.interval_s))
    except SageccError as error:
        return error


@dataclass(frozen=True)
class _Player:
    """What each process does: the runs whose numbers it is given, in their order."""

    kernel: Path
    runs: Sequence[StudyRun]

    def __call__(self, numbers: Iterator[int]) -> Iterator[tuple[int, Outcome]]:
        for number in numbers:
            yield number, play(self.kernel, self.runs[number])
