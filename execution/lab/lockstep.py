# SPDX-License-Identifier: Apache-2.0
"""Many labs in step: all guests of a process run to their next tick, and one inference gives them all their actions.

A guest's virtual time stands still until it has its action, a flow's bits do not depend on the others of its batch
(policy.exact), and slots are reset between episodes. So an episode is the same alone and among any others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from sagecc.collector.kernel.machine import available_memory_mb
from sagecc.collector.lab.boot import WATCHDOG_S, Guest, Recording
from sagecc.collector.lab.episode import Episode, episode_from_recording
from sagecc.collector.lab.spec import BASE_MEMORY_MB, EpisodeSpec, driven_flows
from sagecc.collector.run.engines import MIN_WORKER_CPU_S, Engine, Results, core_per_worker, in_processes
from sagecc.collector.run.task import FinishedEpisode, Task
from sagecc.common.arrays import Ints
from sagecc.common.errors import SageccError
from sagecc.execution.lab.controllers import AS_NAMED, Agent, Playing, random_stream
from sagecc.execution.lab.giving_up import GivenUpError, LossWatch
from sagecc.schemas import wire

BATCH = 16
"""Guests in step per process: more share an inference and hold memory (docs/measured/benchmarks.md has the gain)."""


R = TypeVar("R")
"""What is made of an episode."""


def lockstep(jobs: int, batch: int = BATCH, playing: Playing = AS_NAMED, watchdog_s: float = WATCHDOG_S) -> Engine:
    """Return the engine of policies on this machine.

    A process and its guests keep about one core busy. Fewer guests run where there is no room for their memory.

    Args:
        jobs: the most processes.
        batch: the most guests in step per process.
        playing: how the policies play.
        watchdog_s: how long a guest may be silent, real time.
    """

    def run(kernel: Path, tasks: Sequence[Task]) -> Results:
        results = in_step(
            kernel, tasks, jobs, FinishedEpisode.pack, batch=batch, playing=playing, watchdog_s=watchdog_s
        )
        with closing(results):
            for number, result in results:
                yield tasks[number], result

    return run


def in_step(
    kernel: Path,
    tasks: Sequence[Task],
    jobs: int,
    finish: Callable[[Episode, Task], R],
    *,
    every_flow: bool = False,
    batch: int = BATCH,
    playing: Playing = AS_NAMED,
    watchdog_s: float = WATCHDOG_S,
) -> Generator[tuple[int, R | SageccError], None, None]:
    """Run episodes in which policies drive flows, at least one in each.

    Args:
        kernel: path of the kernel.
        tasks: the episodes.
        jobs: the most processes.
        finish: what is made of an episode, where it was run; a module's function, or else what can be pickled.
        every_flow: whether that gets the rows of every flow.
        batch: the most guests in step per process.
        playing: how the policies play.
        watchdog_s: how long a guest may be silent, real time.

    Yields:
        Each task's number and what was made of its episode, or why it has none; closing ends those under way.
    """
    workers = max(1, min(jobs, len(tasks), int(sum(task.cost for task in tasks) / MIN_WORKER_CPU_S)))
    # One policy after another, and the longest first: batches stay full.
    order = sorted(range(len(tasks)), key=lambda i: (tasks[i].scheme, -tasks[i].environment.duration_s))
    guests, memory_mb = min(batch, -(-len(tasks) // workers)), available_memory_mb(BASE_MEMORY_MB) // workers
    ordered = [tasks[i] for i in order]
    runner = BatchRunner(kernel, ordered, guests, memory_mb, finish, every_flow, playing, watchdog_s)
    if workers == 1:
        results = runner.run(iter(range(len(order))))
    else:
        results = in_processes(runner.run, len(order), core_per_worker(workers))
    with closing(results):
        for number, result in results:
            yield order[number], result


@dataclass(frozen=True)
class _Running:
    """A task under way."""

    number: int
    """The task's."""
    spec: EpisodeSpec
    guest: Guest
    places: Mapping[int, tuple[str, int]]
    """The policy of each driven flow, and its slot in the policy's agent."""
    watch: LossWatch | None
    """Gives the episode up."""


@dataclass(frozen=True)
class BatchRunner(Generic[R]):
    """Runs episodes in step; a guest whose episode ends is followed by the next."""

    kernel: Path
    tasks: Sequence[Task]
    """In whose episodes a policy drives a flow, at least."""
    guests: int
    """The most at once."""
    memory_mb: int
    """What all guests may have together."""
    finish: Callable[[Episode, Task], R]
    """What is made of an episode."""
    every_flow: bool = False
    """Whether that gets the rows of every flow."""
    playing: Playing = AS_NAMED
    """How the policies play."""
    watchdog_s: float = WATCHDOG_S
    """How long a guest may be silent, real time."""

    def run(self, numbers: Iterator[int]) -> Generator[tuple[int, R | SageccError], None, None]:
        """Run tasks; closing the generator ends those under way.

        Args:
            numbers: of the tasks to run, each taken when there is room for it.

        Yields:
            Each task's number and result.
        """
        agents = _Agents(self.tasks, self.guests, self.playing)
        running: dict[int, _Running] = {}
        pending: int | None = None
        try:
            while True:
                while len(running) < self.guests:
                    pending = next(numbers, None) if pending is None else pending
                    if pending is None or not self._has_room(pending, running):
                        break
                    try:
                        running[pending] = self._start(pending, agents)
                    except SageccError as error:
                        yield pending, error
                    pending = None
                if not running:
                    return
                for number, result in self._tick(running, agents):
                    ended = running.pop(number)
                    agents.release(ended.places.values())
                    ended.guest.__exit__()
                    yield number, result or self._run_alone(number)
        finally:
            for task in running.values():
                task.guest.__exit__()

    def _has_room(self, number: int, running: Mapping[int, _Running]) -> bool:
        """Tell whether the task's guest may start beside the others; alone it always may."""
        used_mb = sum(task.spec.memory_mb for task in running.values())
        return not running or used_mb + self.tasks[number].spec.memory_mb <= self.memory_mb

    def _start(self, number: int, agents: _Agents) -> _Running:
        """Start the task's guest; each of its driven flows has a slot in its policy's agent."""
        task, spec = self.tasks[number], self.tasks[number].spec
        places = agents.take(driven_flows(task.environment, task.scheme), task.id)
        try:
            watch = LossWatch(task.id, self.playing.give_up) if self.playing.give_up else None
            return _Running(number, spec, Guest(self.kernel, spec, self.watchdog_s).__enter__(), places, watch)
        except BaseException:
            agents.release(places.values())
            raise

    def _tick(self, running: Mapping[int, _Running], agents: _Agents) -> list[tuple[int, R | SageccError | None]]:
        """Run all guests to their next tick and give them their actions.

        Returns:
            The numbers of the tasks that are over, with their results; None stands for one to run again, alone.
        """
        over: dict[int, R | SageccError | None] = {}
        waiting: list[tuple[str, int, int, npt.NDArray[np.void]]] = []  # policy, its slot, task, sample
        for number, task in running.items():
            try:
                samples = task.guest.tick()
                if samples is None:
                    over[number] = self._finish(task, task.guest.recording)
                    continue
                if task.watch:
                    task.watch.check(samples)
                places = (task.places[int(flow)] for flow in samples["flow"])
                waiting += [(name, slot, number, samples[row : row + 1]) for row, (name, slot) in enumerate(places)]
            except GivenUpError as error:
                over[number] = self._break_off(task) if self.playing.keep else error
            except SageccError as error:
                over[number] = error
        actions: dict[int, list[tuple[int, tuple[int, int]]]] = {}
        # A stable sort: a task's flows of one policy stay in their order, and each policy is asked once.
        for name, group in groupby(sorted(waiting, key=itemgetter(0)), key=itemgetter(0)):
            _, slots, numbers, rows = zip(*group, strict=True)
            batch = np.frombuffer(b"".join(rows), wire.SAMPLE)  # a concatenation of records takes 400 times as long
            try:
                windows, rates = agents.step(name, batch, np.array(slots))
            except SageccError as error:  # of one flow, and the others' state is lost with it
                over |= dict.fromkeys(numbers, None if len(running) > 1 else error)
                continue
            orders = zip(batch["flow"].tolist(), zip(windows, rates, strict=True), strict=True)
            for number, action in zip(numbers, orders, strict=True):
                actions.setdefault(number, []).append(action)
        for number, of_lab in actions.items():
            if number in over:
                continue
            try:
                running[number].guest.act(*zip(*(action for _, action in sorted(of_lab)), strict=True))
            except SageccError as error:
                over[number] = error
        return list(over.items())

    def _break_off(self, running: _Running) -> R:
        """Return the episode as it is at its last tick."""
        recording = running.guest.recording_so_far
        return self._finish(running, recording, float(recording.samples["t_ns"][-1]) / 1e9)

    def _finish(self, running: _Running, recording: Recording, stopped_s: float = math.inf) -> R:
        task = self.tasks[running.number]
        episode = episode_from_recording(
            task.environment,
            task.scheme,
            task.seed,
            running.spec,
            recording,
            stopped_s=stopped_s,
            every_flow=self.every_flow,
        )
        return self.finish(episode, task)

    def _run_alone(self, number: int) -> R | SageccError:
        """Run one episode with no other beside it."""
        [(_, result)] = replace(self, tasks=[self.tasks[number]], guests=1).run(iter([0]))
        return result


class _Agents:
    """The policies' agents, with a slot for each flow that one may drive at once."""

    def __init__(self, tasks: Sequence[Task], guests: int, playing: Playing) -> None:
        flows = [Counter(driven_flows(task.environment, task.scheme).values()) for task in tasks]
        self._slots = {name: guests * max(count[name] for count in flows) for name in set().union(*flows)}
        self._playing = playing
        self._agents: dict[str, Agent] = {}
        self._free: dict[str, list[int]] = {}

    def take(self, scheme_of: Mapping[int, str], episode: str) -> dict[int, tuple[str, int]]:
        """Return by flow its policy's scheme and a fresh slot; raises SageccError where a policy cannot be run."""
        for name in scheme_of.values():
            if name not in self._agents:
                self._agents[name] = self._playing.agent(name, self._slots[name])
                self._free[name] = list(range(self._slots[name]))[::-1]
        places = {}
        for flow, name in scheme_of.items():
            slot = self._free[name].pop()
            self._agents[name].reset(slot, random_stream(episode, flow))
            places[flow] = name, slot
        return places

    def release(self, places: Iterable[tuple[str, int]]) -> None:
        """Give slots back."""
        for name, slot in places:
            self._free[name].append(slot)

    def step(self, name: str, samples: npt.NDArray[np.void], slots: Ints) -> tuple[list[int], list[int]]:
        """Return windows (packets) and pacing rates (bytes/s) for samples [B] of the flows in `slots` [B]."""
        windows, rates = self._agents[name].step(samples, slots)
        return windows.tolist(), rates.tolist()
