# SPDX-License-Identifier: Apache-2.0
"""Schemes in one network, each in runs of its own: what each made of the link, and what it left to competitors."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sagecc.collector.lab.episode import Episode, ReceiverCounts
from sagecc.collector.run.engines import in_processes, worker_count
from sagecc.collector.run.task import Task
from sagecc.common.arrays import Doubles
from sagecc.common.errors import SageccError
from sagecc.execution.lab.controllers import play_episode
from sagecc.leagues.intervals import Interval, interval
from sagecc.schemas.environment import BYTES_S_PER_MBPS, Environment


@dataclass(frozen=True)
class Played:
    """One scheme's run in the network."""

    environment: Environment
    """The network, or a repeat of it."""
    scheme: str
    seed: int
    goodput_mbps: float
    """In-order bytes at the receiver over the flow's life."""
    capacity_mbps: float
    """What the bottleneck could send over that time; NaN of a single row."""
    utilisation: float
    """Goodput of all flows through the bottleneck over its capacity; headers let it reach 96.5 % of full packets."""
    queueing_mean_ms: float
    """Mean one-way delay of data packets beyond their path's least propagation delay; NaN where none got through."""
    queueing_p95_ms: float
    loss_rate: float
    """Share of the data packets sent that links dropped; NaN where none was sent."""
    competitors_mbps: tuple[float, ...]
    """Goodput of each competitor over its life."""
    completion_s: float | None
    """Time of its transfer; None where the flow has no end, or did not reach it."""
    competitors_completion_s: tuple[float | None, ...]
    """The same of each competitor."""
    jain_index: float | None
    """Of the flows on the path while all run; None without another."""
    sha256: str
    """Of the samples of the flow under test."""
    rows: pa.Table
    """Its raw trajectory (schemas.raw.RAW_SCHEMA)."""
    competitors_bytes: Doubles | None
    """In-order bytes that all competitors together have got by each row [rows]; None without competitors."""


MEASURES: Mapping[str, Callable[[Played], float]] = {
    "goodput_mbps": lambda run: run.goodput_mbps,
    "utilisation": lambda run: run.utilisation,
    "queueing_mean_ms": lambda run: run.queueing_mean_ms,
    "queueing_p95_ms": lambda run: run.queueing_p95_ms,
    "loss_rate": lambda run: run.loss_rate,
    "competitor_mbps": lambda run: float(np.mean(run.competitors_mbps)) if run.competitors_mbps else math.nan,
    "completion_s": lambda run: math.nan if run.completion_s is None else run.completion_s,
    "competitor_completion_s": lambda run: _mean(run.competitors_completion_s),
}
"""Numbers of a run; competitors' are means over them, completion times over the transfers that ended."""


def _mean(known: Sequence[float | None]) -> float:
    values = [value for value in known if value is not None]
    return float(np.mean(values)) if values else math.nan


@dataclass(frozen=True)
class Summary:
    """A scheme's runs."""

    scheme: str
    runs: tuple[Played, ...]

    @cached_property
    def measures(self) -> Mapping[str, Interval]:
        """Each of MEASURES over the runs that have it, with Student's 95 % interval."""
        values = {name: np.array([measure(run) for run in self.runs]) for name, measure in MEASURES.items()}
        return {name: interval(of[np.isfinite(of)]) for name, of in values.items()}


def compare(
    kernel: Path, environments: Sequence[Environment], schemes: Sequence[str], seed: int, jobs: int
) -> Generator[Played, None, None]:
    """Let every scheme play alone in every network, whatever drives its flows.

    Args:
        kernel: path of the lab's kernel.
        environments: the network and its repeats; each has the seed after the one before it.
        schemes: the schemes under test.
        seed: seed of the first network's random numbers.
        jobs: the most processes.

    Yields:
        The runs, as they end.

    Raises:
        SageccError: an episode yields no complete trajectory; those under way are ended.
    """
    tasks = [
        Task(environment, scheme, seed + number, identity="")
        for number, environment in enumerate(environments)
        for scheme in schemes
    ]
    player = _Player(kernel, tasks)
    with closing(player.run(worker_count(tasks, jobs), jobs)) as played:
        for _, outcome in played:
            if isinstance(outcome, SageccError):
                raise outcome
            yield outcome


def summaries(runs: Sequence[Played], schemes: Sequence[str]) -> list[Summary]:
    """Return each scheme's runs by their seeds."""
    ordered = sorted(runs, key=lambda run: run.seed)
    return [Summary(scheme, tuple(run for run in ordered if run.scheme == scheme)) for scheme in schemes]


def propagation_ms(environment: Environment) -> float:
    """Return the least propagation delay of the links on the path of the flow under test, one way (ms)."""
    links = (environment.links[index] for index in environment.path(environment.flow))
    return sum(min(link.delay_ms, *(step.delay_ms for step in link.delays), math.inf) for link in links)


def measured(episode: Episode) -> Played:
    """Return what a scheme made of the network in an episode, which has every flow's rows where it has competitors."""
    environment, tested = episode.environment, episode.flows[0]
    t_s, capacity = (episode.rows[name].to_numpy() for name in ("t_s", "link_capacity_bytes"))
    seconds = float(t_s[-1] - t_s[0])
    capacity_mbps = float(capacity[-1] - capacity[0]) / seconds / BYTES_S_PER_MBPS if seconds else math.nan
    stop_s = environment.stop_s if tested.completion_s is None else environment.start_s + tested.completion_s
    life_s = np.array([environment.start_s, stop_s])
    bottleneck, through_mbps = environment.narrowest(environment.flow), 0.0
    for number, flow in enumerate(environment.all_flows):
        if bottleneck in environment.path(flow):
            got = float(np.diff(_counts(episode, number).bytes_at(life_s))[0])
            through_mbps += got / BYTES_S_PER_MBPS / float(np.ptp(life_s))
    least_ms = propagation_ms(environment)
    beside = [_counts(episode, number).bytes_at(t_s) for number in range(1, len(episode.flows))]
    return Played(
        environment=environment,
        scheme=episode.scheme,
        seed=episode.seed,
        goodput_mbps=tested.goodput_mbps,
        capacity_mbps=capacity_mbps,
        utilisation=through_mbps / capacity_mbps if capacity_mbps else math.nan,
        queueing_mean_ms=max(tested.delay_mean_ms - least_ms, 0.0),
        queueing_p95_ms=max(tested.delay_p95_ms - least_ms, 0.0),
        loss_rate=tested.loss_rate,
        competitors_mbps=tuple(flow.goodput_mbps for flow in episode.flows[1:]),
        completion_s=tested.completion_s,
        competitors_completion_s=tuple(flow.completion_s for flow in episode.flows[1:]),
        jain_index=episode.jain_index,
        sha256=episode.sha256,
        rows=episode.rows,
        competitors_bytes=np.sum(beside, axis=0) if beside else None,
    )


def _counts(episode: Episode, flow: int) -> ReceiverCounts:
    """Return what a flow's receiver has got over time."""
    rows = episode.rows
    if episode.every_flow is not None:
        rows = episode.every_flow.filter(pc.field("flow") == flow)
    t_ns = np.rint(rows["t_s"].to_numpy() * 1e9).astype(np.int64)
    return ReceiverCounts(t_ns, rows["received_bytes"].to_numpy())


Outcome = Played | SageccError
"""A run, or why there is none."""


@dataclass(frozen=True)
class _Player:
    """What each process does: the tasks whose numbers it is given."""

    kernel: Path
    tasks: Sequence[Task]

    def run(self, workers: int, jobs: int) -> Generator[tuple[int, Outcome], None, None]:
        """Run all tasks in so many processes; few and short ones in this one, `jobs` at a time."""
        if workers > 1:
            return in_processes(self, len(self.tasks), [None] * workers)
        threads = min(jobs, len(self.tasks))  # one is not worth it: a thread cannot be interrupted
        return self._in_threads(threads) if threads > 1 else self(iter(range(len(self.tasks))))

    def __call__(self, numbers: Iterator[int]) -> Generator[tuple[int, Outcome], None, None]:
        """Run tasks one after another."""
        for number in numbers:
            yield number, self._play(self.tasks[number])

    def _in_threads(self, jobs: int) -> Generator[tuple[int, Outcome], None, None]:
        """Run all tasks side by side: while one compiles what runs a policy, the guests of others run."""
        with ThreadPoolExecutor(jobs) as pool:
            futures = {pool.submit(self._play, task): number for number, task in enumerate(self.tasks)}
            try:
                for future in as_completed(futures):
                    yield futures[future], future.result()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def _play(self, task: Task) -> Outcome:
        every_flow = bool(task.environment.cross)
        try:
            episode = play_episode(self.kernel, task.environment, task.scheme, task.seed, every_flow=every_flow)
        except SageccError as error:
            return error
        return measured(episode)
