# SPDX-License-Identifier: Apache-2.0
"""Many labs in step: all guests of a process run to their next tick, and one inference gives them all their actions.

A guest's virtual time stands still until it has its action, a flow's bits do not depend on the others of its batch
(policy.exact), and slots are reset between episodes. So an episode is the same alone and among any others.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sagecc.collector.kernel.machine import available_memory_mb
from sagecc.collector.lab.boot import WATCHDOG_S, Guest
from sagecc.collector.lab.episode import episode_from_recording
from sagecc.collector.lab.spec import BASE_MEMORY_MB, EpisodeSpec, episode_spec
from sagecc.collector.run.engines import MIN_WORKER_CPU_S, Engine, NumberedResults, Results, in_processes
from sagecc.collector.run.task import FinishedEpisode, Result, Task, attempt
from sagecc.common.errors import SageccError
from sagecc.execution.agent.policy_agent import PolicyAgent
from sagecc.execution.lab.controllers import policy_controller, random_stream
from sagecc.schemas import wire
from sagecc.schemas.schemes import POLICY_PREFIX

BATCH = 16
"""Guests in step per process: more share an inference and hold memory (docs/measured/benchmarks.md has the gain)."""


def lockstep(jobs: int, batch: int = BATCH, sample: bool = False, watchdog_s: float = WATCHDOG_S) -> Engine:
    """Return the engine of policies on this machine.

    A process and its guests keep about one core busy. Fewer guests run where there is no room for their memory.

    Args:
        jobs: the most processes.
        batch: the most guests in step per process.
        sample: draw actions from the policies' mixtures, instead of taking the mean.
        watchdog_s: how long a guest may be silent, real time.
    """

    def run(kernel: Path, tasks: Sequence[Task]) -> Results:
        workers = max(1, min(jobs, len(tasks), int(sum(task.cost for task in tasks) / MIN_WORKER_CPU_S)))
        # One policy after another, and the longest first: batches stay full.
        ordered = sorted(tasks, key=lambda task: (task.scheme, -task.environment.duration_s))
        guests, memory_mb = min(batch, -(-len(tasks) // workers)), available_memory_mb(BASE_MEMORY_MB) // workers
        runner = BatchRunner(kernel, ordered, guests, memory_mb, sample, watchdog_s)
        if workers == 1:
            results = runner.run(iter(range(len(ordered))))
        else:
            cores = sorted(os.sched_getaffinity(0))
            pinned = [cores[worker % len(cores)] for worker in range(workers)]
            results = in_processes(runner.run, len(ordered), pinned)
        with closing(results):
            for number, result in results:
                yield ordered[number], result

    return run


@dataclass(frozen=True)
class _Running:
    """A task under way."""

    number: int
    """The task's."""
    spec: EpisodeSpec
    guest: Guest


@dataclass(frozen=True)
class BatchRunner:
    """Runs episodes in step, one slot per guest; a slot whose episode ends takes the next."""

    kernel: Path
    tasks: Sequence[Task]
    """Of policies, which drive one flow each."""
    guests: int
    """Number of slots."""
    memory_mb: int
    """What all guests may have together."""
    sample: bool = False
    """Draw actions from the policies' mixtures, instead of taking the mean."""
    watchdog_s: float = WATCHDOG_S
    """How long a guest may be silent, real time."""

    def run(self, numbers: Iterator[int]) -> NumberedResults:
        """Run tasks; closing the generator ends those under way.

        Args:
            numbers: of the tasks to run, each taken when there is room for it.

        Yields:
            Each task's number and result.
        """
        agents: dict[str, PolicyAgent] = {}
        slots: dict[int, _Running] = {}
        pending: int | None = None
        try:
            while True:
                while len(slots) < self.guests:
                    pending = next(numbers, None) if pending is None else pending
                    if pending is None or not self._has_room(pending, slots):
                        break
                    try:
                        self._start(pending, slots, agents)
                    except SageccError as error:
                        yield pending, error
                    pending = None
                if not slots:
                    return
                for slot, result in self._tick(slots, agents):
                    ended = slots.pop(slot)
                    ended.guest.__exit__()
                    yield ended.number, result or self._run_alone(ended.number)
        finally:
            for running in slots.values():
                running.guest.__exit__()

    def _has_room(self, number: int, slots: dict[int, _Running]) -> bool:
        """Tell whether the task's guest may start beside the others; alone it always may."""
        used_mb = sum(running.spec.memory_mb for running in slots.values())
        return not slots or used_mb + self._spec(number).memory_mb <= self.memory_mb

    def _spec(self, number: int) -> EpisodeSpec:
        task = self.tasks[number]
        return episode_spec(task.environment, task.scheme, task.seed, drive=task.drive)

    def _start(self, number: int, slots: dict[int, _Running], agents: dict[str, PolicyAgent]) -> None:
        """Start the task's guest in a free slot, which it has in its policy's agent as well."""
        task, spec = self.tasks[number], self._spec(number)
        if task.scheme not in agents:
            path, seed = task.scheme.removeprefix(POLICY_PREFIX), 0 if self.sample else None
            agents[task.scheme] = PolicyAgent.load(path, self.guests, seed)
        slot = next(slot for slot in range(self.guests) if slot not in slots)
        agents[task.scheme].reset(slot, random_stream(task.id))
        slots[slot] = _Running(number, spec, Guest(self.kernel, spec, self.watchdog_s).__enter__())

    def _tick(self, slots: dict[int, _Running], agents: dict[str, PolicyAgent]) -> list[tuple[int, Result | None]]:
        """Run all guests to their next tick and give them their actions.

        Returns:
            The slots of the episodes that are over, with their results; None stands for one to run again, alone.
        """
        over: list[tuple[int, Result | None]] = []
        waiting: list[tuple[int, npt.NDArray[np.void]]] = []
        for slot, running in slots.items():
            try:
                sample = running.guest.tick()
                if sample is None:
                    over.append((slot, self._finish(running)))
                else:
                    waiting.append((slot, sample))
            except SageccError as error:
                over.append((slot, error))
        waiting.sort(key=lambda item: self.tasks[slots[item[0]].number].scheme)
        for scheme, group in groupby(waiting, key=lambda item: self.tasks[slots[item[0]].number].scheme):
            batch, samples = zip(*group, strict=True)
            try:
                cwnd, pacing = agents[scheme].step(np.frombuffer(b"".join(samples), wire.SAMPLE), np.array(batch))
            except SageccError:  # of one flow, and the others' state is lost with it
                over += [(slot, None) for slot in batch]
                continue
            for slot, window, rate in zip(batch, cwnd.tolist(), pacing.tolist(), strict=True):
                try:
                    slots[slot].guest.act((window,), (rate,))
                except SageccError as error:
                    over.append((slot, error))
        return over

    def _finish(self, running: _Running) -> Result:
        task = self.tasks[running.number]
        episode = episode_from_recording(
            task.environment, task.scheme, task.seed, running.spec, running.guest.recording
        )
        return FinishedEpisode.pack(episode, task.identity)

    def _run_alone(self, number: int) -> Result:
        """Run one episode with no other beside it."""
        task = self.tasks[number]
        episode_id = task.id if self.sample else None
        return attempt(
            self.kernel, replace(task, factory=lambda scheme: policy_controller(scheme, episode_id)), self.watchdog_s
        )
