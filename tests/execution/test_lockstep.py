# SPDX-License-Identifier: Apache-2.0
"""Many labs in step: the same bytes as one by one, whatever happens to the others."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from sagecc.collector.lab.boot import Guest
from sagecc.collector.lab.spec import BASE_MEMORY_MB, driven_flows
from sagecc.collector.run.collect import collect
from sagecc.collector.run.engines import Results, local
from sagecc.collector.run.task import FinishedEpisode, Result, Task, attempt
from sagecc.common.errors import SageccError
from sagecc.execution.agent.exploration import Exploration
from sagecc.execution.agent.policy_agent import PolicyAgent
from sagecc.execution.lab import lockstep as module
from sagecc.execution.lab.controllers import Playing, PolicyController, policy_controller, policy_drives
from sagecc.execution.lab.lockstep import BatchRunner, lockstep
from sagecc.policy.artefact import Control, PolicyArtefact, write
from sagecc.schemas.environment import Environment, episode_id
from tests.helpers.files import hashes
from tests.helpers.networks import network
from tests.helpers.policies import save_policy
from tests.helpers.processes import alive, guests

ENVIRONMENTS = (
    network(12, 20, 1, 1),
    network(24, 80, 2, 1.5),
    network(24, 40, 1, 0.8, cross=("cubic",), start_s=0.3),
    network(12, 30, 0.5, 1.2, cross=("reno", "vegas")),
    network(12, 10, 4, 0.7),
)
SAMPLING = Playing(Exploration())
ROOM_MB = 8 * 1024

Answer = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]


@pytest.fixture(scope="module")
def schemes(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Two policies."""
    folder = tmp_path_factory.mktemp("policies")
    for seed in (4, 5):
        policy = PolicyArtefact.load(save_policy(folder / f"whole-{seed}", seed))
        narrow = Control(cwnd_packets=(4, 100))
        write(folder / str(seed), policy.weights, policy.sizes, policy.scaling, policy.observations, {}, control=narrow)
    return f"policy:{folder / '4'}", f"policy:{folder / '5'}"


@pytest.fixture(scope="module")
def tasks(schemes: tuple[str, str]) -> list[Task]:
    """Both policies in every environment."""
    return [Task(environment, scheme, 7, "", policy_controller) for scheme in schemes for environment in ENVIRONMENTS]


@pytest.fixture(scope="module")
def alone(kernel: Path, tasks: list[Task]) -> dict[str, Result]:
    """Every task's result, run one by one."""
    return {task.id: attempt(kernel, task) for task in tasks}


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short episodes are given processes too."""
    monkeypatch.setattr(module, "MIN_WORKER_CPU_S", 0.01)


def of(task: Task) -> Callable[[Guest], bool]:
    return lambda guest: guest._spec.name == task.id


def test_the_same_bytes_in_any_batch_and_order(kernel: Path, tasks: list[Task], alone: dict[str, Result]) -> None:
    assert all(isinstance(result, FinishedEpisode) for result in alone.values())
    orders = [(1, tasks[::-1]), (10, tasks), (4, [*tasks[1::2], *tasks[::2]])]
    for batch, order in orders:
        assert {task.id: result for task, result in lockstep(1, batch)(kernel, order)} == alone


@pytest.mark.usefixtures("processes")
def test_the_same_bytes_from_several_processes(kernel: Path, tasks: list[Task], alone: dict[str, Result]) -> None:
    assert {task.id: result for task, result in lockstep(2, 3)(kernel, tasks)} == alone
    assert not multiprocessing.active_children()


def test_what_was_collected_before_it_was_stopped_is_kept(
    kernel: Path, tmp_path: Path, schemes: tuple[str, str]
) -> None:
    class StoppedError(Exception):
        pass

    begun: list[str] = []

    def stopped(kernel: Path, tasks: Sequence[Task]) -> Results:
        for done, (task, result) in enumerate(lockstep(1, 3)(kernel, tasks)):
            begun.extend(str(pid) for pid in guests(os.getpid()))
            if done == 2:
                raise StoppedError
            yield task, result

    def gather(out: Path, engine: Any) -> None:
        collect(ENVIRONMENTS, schemes, out, kernel, engine, 7, progress=False, controllers=policy_controller)

    gather(tmp_path / "one-by-one", local(1))
    with pytest.raises(StoppedError):
        gather(tmp_path / "in-step", stopped)
    assert begun
    assert not guests(os.getpid())
    assert len(list(tmp_path.glob("in-step/.spool/**/*.arrow"))) == 2
    gather(tmp_path / "in-step", lockstep(1, 4))
    assert hashes(tmp_path / "in-step") == hashes(tmp_path / "one-by-one")


@pytest.mark.usefixtures("processes")
def test_a_killed_worker_is_told_and_takes_its_guests_with_it(kernel: Path, tasks: list[Task]) -> None:
    long = [replace(task, environment=network(12, duration_s=300 + n)) for n, task in enumerate(tasks[:4])]
    short = replace(tasks[0], environment=network(12, duration_s=0.5))
    seen: set[int] = set()

    def kill_one() -> None:
        for task, _ in lockstep(2, 3)(kernel, [*long, short]):
            assert task == short
            children = multiprocessing.active_children()
            seen.update(pid for child in children for pid in guests(child.pid or 0))
            os.kill(children[0].pid or 0, signal.SIGKILL)

    with pytest.raises(SageccError, match="worker was killed"):
        kill_one()
    assert seen
    assert not multiprocessing.active_children()
    for child in seen:
        _wait_for_end(child)


def _wait_for_end(pid: int) -> None:
    for _ in range(100):
        if not alive({pid}):
            return
        time.sleep(0.05)
    raise AssertionError(f"{pid} still runs")


def test_a_guest_that_dies_or_hangs_costs_its_own_episode(
    kernel: Path, tasks: list[Task], alone: dict[str, Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    signals = {tasks[1].id: signal.SIGKILL, tasks[3].id: signal.SIGSTOP}
    act = Guest.act

    def struck(guest: Guest, cwnd_pkts: Sequence[int], pacing_bytes_s: Sequence[int]) -> None:
        if guest._spec.name in signals:
            for pid in guests(os.getpid()):
                if _runs(pid, guest):
                    os.kill(pid, signals[guest._spec.name])
        act(guest, cwnd_pkts, pacing_bytes_s)

    monkeypatch.setattr(Guest, "act", struck)
    results = {task.id: result for task, result in lockstep(1, 5, watchdog_s=1)(kernel, tasks[:5])}
    failed = {name: str(results.pop(name)) for name in signals}
    assert f"episode {tasks[1].id}: the guest died in mid-episode: it was killed" in failed[tasks[1].id]
    assert f"episode {tasks[3].id}: the guest said nothing for 1 s and was ended" in failed[tasks[3].id]
    assert results == {name: alone[name] for name in results}
    assert len(results) == 3


def _runs(pid: int, guest: Guest) -> bool:
    """Say whether a process is one of the guest's: they are of its process group."""
    try:
        return os.getpgid(pid) == guest._process.pid
    except ProcessLookupError:
        return False


def test_an_answer_that_is_no_number_costs_its_own_episode(
    kernel: Path, tasks: list[Task], alone: dict[str, Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A policy that fails where the RTT is long: the others of its batch are run again, alone."""
    step = PolicyAgent.step

    def fails(agent: PolicyAgent, samples: npt.NDArray[np.void], slots: npt.NDArray[np.int64]) -> Answer:
        if ((samples["min_rtt_us"] > 75_000) & (samples["min_rtt_us"] < 1_000_000)).any():
            raise SageccError("no number")
        return step(agent, samples, slots)

    monkeypatch.setattr(PolicyAgent, "step", fails)
    results = {task.id: result for task, result in lockstep(1, 4)(kernel, tasks[:5])}
    assert str(results.pop(tasks[1].id)) == "no number"
    assert results == {name: alone[name] for name in results}
    assert len(results) == 4


def test_no_more_guests_than_there_is_memory_for(
    kernel: Path, tasks: list[Task], alone: dict[str, Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    running, most = 0, 0
    enter, leave = Guest.__enter__, Guest.__exit__

    def entered(guest: Guest) -> Guest:
        nonlocal running, most
        running += 1
        most = max(most, running)
        return enter(guest)

    def left(guest: Guest, *problem: object) -> None:
        nonlocal running
        running -= 1
        leave(guest, *problem)

    monkeypatch.setattr(Guest, "__enter__", entered)
    monkeypatch.setattr(Guest, "__exit__", left)
    for room_mb, expected in ((0, 1), (2 * BASE_MEMORY_MB + 60, 2), (ROOM_MB, 3)):
        most = 0
        runner = BatchRunner(kernel, tasks[:3], 3, room_mb, FinishedEpisode.pack)
        results = {tasks[number].id: result for number, result in runner.run(iter(range(3)))}
        assert results == {task.id: alone[task.id] for task in tasks[:3]}
        assert (most, running) == (expected, 0)
    monkeypatch.setattr(module, "available_memory_mb", lambda memory_mb: 0)
    assert all(isinstance(result, FinishedEpisode) for _, result in lockstep(1, 3)(kernel, tasks[:2]))


def sampling(environment: Environment, scheme: str, seed: int) -> PolicyController:
    episode = episode_id(environment.id, scheme, seed)
    return PolicyController(driven_flows(environment, scheme), episode, SAMPLING)


def test_drawn_actions_are_the_episodes_own(kernel: Path, tasks: list[Task], alone: dict[str, Result]) -> None:
    drawn = [
        {task.id: result for task, result in lockstep(1, batch, playing=SAMPLING)(kernel, order)}
        for batch, order in ((1, tasks[:4]), (3, tasks[3::-1]))
    ]
    assert drawn[0] == drawn[1]
    assert not any(drawn[0][name] == alone[name] for name in drawn[0])
    assert attempt(kernel, replace(tasks[0], factory=sampling)) == drawn[0][tasks[0].id]
    other = replace(tasks[0], seed=8)  # the network has no randomness of its own
    assert next(iter(lockstep(1, 1, playing=SAMPLING)(kernel, [other])))[1] != drawn[0][tasks[0].id]


def test_a_damaged_policy_costs_its_episodes(kernel: Path, tasks: list[Task], alone: dict[str, Result]) -> None:
    none = replace(tasks[0], scheme="policy:nowhere")
    results = {task.id: result for task, result in lockstep(1, 2)(kernel, [none, tasks[0]])}
    assert "no policy at nowhere" in str(results[none.id])
    assert results[tasks[0].id] == alone[tasks[0].id]


def test_a_late_host_is_another_episode(kernel: Path, tasks: list[Task], alone: dict[str, Result]) -> None:
    late = [replace(task, drives=policy_drives([task.scheme], latency_us=5000)) for task in tasks[:3]]
    assert {task.spec_sha256 for task in late}.isdisjoint({task.spec_sha256 for task in tasks})
    in_step = {task.id: result for task, result in lockstep(1, 3)(kernel, late)}
    assert in_step == {task.id: attempt(kernel, task) for task in late}
    assert not any(in_step[name] == alone[name] for name in in_step)
