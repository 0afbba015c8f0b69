# SPDX-License-Identifier: Apache-2.0
"""Many labs in step: all guests of a process run to their next tick, and one inference answers them all.

A guest's virtual time stands still until it is answered, a flow's bits do not depend on the others of its batch
(policy.exact), and slots are wiped between episodes. So an episode is the same alone and among any others.
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
from sagecc.execution.agent.policy_agent import PolicyAgent, policy_controller, stream_of
from sagecc.schemas import wire
from sagecc.schemas.schemes import POLICY_PREFIX

BATCH = 16
"""Guests in step in a process: more share an inference and hold memory (docs/benchmarks.md has the gain)."""


def lockstep(jobs: int, batch: int = BATCH, sample: bool = False, watchdog_s: float = WATCHDOG_S) -> Engine:
    """Return the engine of policies on this machine: up to `jobs` processes, each with up to `batch` guests in step.

    A process and its guests keep about one core busy. Fewer guests run where there is no room for their memory.
    sample: draw actions from the policies' mixtures, instead of taking the mean.
    """

    def run(kernel: Path, tasks: Sequence[Task]) -> Results:
        workers = max(1, min(jobs, len(tasks), int(sum(task.cost for task in tasks) / MIN_WORKER_CPU_S)))
        # One policy after another, and the longest first: batches stay full.
        ordered = sorted(tasks, key=lambda task: (task.scheme, -task.environment.duration_s))
        guests, memory_mb = min(batch, -(-len(tasks) // workers)), available_memory_mb(BASE_MEMORY_MB) // workers
        table = Table(kernel, ordered, guests, memory_mb, sample, watchdog_s)
        if workers == 1:
            results = table.play(iter(range(len(ordered))))
        else:
            cores = sorted(os.sched_getaffinity(0))
            results = in_processes(table.play, len(ordered), [cores[at % len(cores)] for at in range(workers)])
        with closing(results):
            for number, result in results:
                yield ordered[number], result

    return run


@dataclass(frozen=True)
class _Seat:
    """A guest at a table; `number` is its task's."""

    number: int
    spec: EpisodeSpec
    guest: Guest


@dataclass(frozen=True)
class Table:
    """Where up to `guests` sit in step; one that ends makes room for the next.

    tasks: of policies, which drive one flow each. memory_mb: what all guests may have together. sample: see `lockstep`.
    """

    kernel: Path
    tasks: Sequence[Task]
    guests: int
    memory_mb: int
    sample: bool = False
    watchdog_s: float = WATCHDOG_S

    def play(self, numbers: Iterator[int]) -> NumberedResults:
        """Run the tasks of these numbers; yield each one's result. Closing the generator ends what still runs."""
        agents: dict[str, PolicyAgent] = {}
        seats: dict[int, _Seat] = {}
        waiting: int | None = None
        try:
            while True:
                while len(seats) < self.guests:
                    waiting = next(numbers, None) if waiting is None else waiting
                    if waiting is None or not self._has_room(waiting, seats):
                        break
                    try:
                        self._sit_down(waiting, seats, agents)
                    except SageccError as error:
                        yield waiting, error
                    waiting = None
                if not seats:
                    return
                for slot, result in self._round(seats, agents):
                    seat = seats.pop(slot)
                    seat.guest.__exit__()
                    yield seat.number, result or self._alone(seat.number)
        finally:
            for seat in seats.values():
                seat.guest.__exit__()

    def _has_room(self, number: int, seats: dict[int, _Seat]) -> bool:
        """Say whether the task's guest may start beside the others; alone it always may."""
        taken_mb = sum(seat.spec.memory_mb for seat in seats.values())
        return not seats or taken_mb + self._spec(number).memory_mb <= self.memory_mb

    def _spec(self, number: int) -> EpisodeSpec:
        task = self.tasks[number]
        return episode_spec(task.environment, task.scheme, task.seed, drive=task.drive)

    def _sit_down(self, number: int, seats: dict[int, _Seat], agents: dict[str, PolicyAgent]) -> None:
        """Start the task's guest, in a slot of its policy's agent that no other has."""
        task, spec = self.tasks[number], self._spec(number)
        if task.scheme not in agents:
            path, seed = task.scheme.removeprefix(POLICY_PREFIX), 0 if self.sample else None
            agents[task.scheme] = PolicyAgent.load(path, self.guests, seed)
        slot = next(slot for slot in range(self.guests) if slot not in seats)
        agents[task.scheme].reset(slot, stream_of(task.id))
        seats[slot] = _Seat(number, spec, Guest(self.kernel, spec, self.watchdog_s).__enter__())

    def _round(self, seats: dict[int, _Seat], agents: dict[str, PolicyAgent]) -> list[tuple[int, Result | None]]:
        """Take all guests to their next tick and answer it; return the slots of those that are over, with results.

        None stands for an episode that is to run again, alone.
        """
        over: list[tuple[int, Result | None]] = []
        asked: list[tuple[int, npt.NDArray[np.void]]] = []
        for slot, seat in seats.items():
            try:
                now = seat.guest.tick()
                if now is None:
                    over.append((slot, self._finish(seat)))
                else:
                    asked.append((slot, now))
            except SageccError as error:
                over.append((slot, error))
        asked.sort(key=lambda item: self.tasks[seats[item[0]].number].scheme)
        for scheme, group in groupby(asked, key=lambda item: self.tasks[seats[item[0]].number].scheme):
            slots, samples = zip(*group, strict=True)
            try:
                cwnd, pacing = agents[scheme].step(np.frombuffer(b"".join(samples), wire.SAMPLE), np.array(slots))
            except SageccError:  # of one flow, and the others' state is lost with it
                over += [(slot, None) for slot in slots]
                continue
            for slot, window, rate in zip(slots, cwnd.tolist(), pacing.tolist(), strict=True):
                try:
                    seats[slot].guest.act((window,), (rate,))
                except SageccError as error:
                    over.append((slot, error))
        return over

    def _finish(self, seat: _Seat) -> Result:
        task = self.tasks[seat.number]
        episode = episode_from_recording(task.environment, task.scheme, task.seed, seat.spec, seat.guest.recording)
        return FinishedEpisode.pack(episode, task.identity)

    def _alone(self, number: int) -> Result:
        """Run one episode with nobody beside it."""
        task = self.tasks[number]
        drawn = task.id if self.sample else None
        return attempt(
            self.kernel, replace(task, factory=lambda scheme: policy_controller(scheme, drawn)), self.watchdog_s
        )
