# SPDX-License-Identifier: Apache-2.0
"""Labs in step for whoever learns: what was trained is what runs, labs do not see each other, rows come and go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest

import sagecc.execution.environments  # noqa: F401 - registers ENVIRONMENT
from sagecc.common.errors import SageccError
from sagecc.execution.environments.parallel import CongestionParallelEnv
from sagecc.execution.environments.rollouts import Rollouts, Step
from sagecc.execution.environments.task import LearningTask
from sagecc.execution.lab.controllers import play_episode
from sagecc.execution.lab.giving_up import GiveUp
from sagecc.policy import artefact, exact, runtime
from sagecc.policy.artefact import PolicyArtefact
from sagecc.policy.mlp import Mlp
from sagecc.policy.scaling import Scaling
from sagecc.pool.spaces import ENVIRONMENT
from sagecc.schemas.environment import CrossFlow, Environment, Flow
from tests.helpers.networks import network

ORCA = LearningTask.of({"observation": "orca", "control": "orca", "reward": "orca"})
ASTRAEA = LearningTask.of({"observation": "astraea", "control": "astraea", "reward": "astraea", "global_state": True})
AURORA = LearningTask.of({"observation": "aurora", "control": "aurora", "reward": "aurora"})
HALF_RTT = LearningTask.of({"control": {"period_min_rtts": 0.5, "map": "spread"}, "reward": "power"})
DRAWN = {"rate_mbps": {"uniform": [6, 12]}, "rtt_ms": 20, "queue_bdp": 1, "duration_s": 1.5}

Act = Callable[[Step], npt.NDArray[np.float64]]


@pytest.fixture(autouse=True)
def needs_a_kernel(kernel: Path) -> None:
    """The labs look for it themselves, where this finds it."""


def save(folder: Path, task: LearningTask) -> Path:
    """Write a policy of random weights that has a task's choices."""
    count = len(task.observations)
    sizes, random = Mlp(count, (16, 8), 0.2), np.random.default_rng(3)
    weights = {name: random.normal(0, 0.3, shape).astype(np.float32) for name, shape in sizes.shapes().items()}
    scaling = Scaling("symlog", np.zeros(count, np.float32), np.ones(count, np.float32), 5.0)
    artefact.write(folder, weights, sizes, scaling, task.observations, {}, control=task.control, source=task.source)
    return folder


def acting(policy: Path) -> Act:
    """Return what a policy without memory does."""
    step = runtime.load(PolicyArtefact.load(policy))

    def act(shown: Step) -> npt.NDArray[np.float64]:
        logits, loc, _, _ = step(shown.observations[~shown.over], np.zeros((int((~shown.over).sum()), 0), np.float32))
        return exact.mean(logits, loc)

    return act


def episode(rollouts: Rollouts, act: Act, seed: int) -> list[Step]:
    """Play an episode in the only lab."""
    steps = [rollouts.reset([seed])]
    while rollouts.running[0]:
        steps.append(rollouts.step(act(steps[-1]) if not steps[-1].over.all() else np.zeros(0)))
    return steps


def two_flows(duration_s: float = 3.0, scheme: str = "pure") -> Environment:
    """Two flows, the second from 0.5 s on and with twice the RTT."""
    base = network(12, 20, duration_s=duration_s)
    return replace(base, cross=(CrossFlow(scheme, Flow(start_s=0.5, extra_rtt_ms=20)),))


@pytest.mark.parametrize("task", [ORCA, ASTRAEA, AURORA, HALF_RTT], ids=["orca", "astraea", "aurora", "half-rtt"])
def test_what_was_trained_is_what_runs(kernel: Path, tmp_path: Path, task: LearningTask) -> None:
    """The flow's counters at every decision are those of the artefact's episode in the lab, with the same seed."""
    policy, environment = save(tmp_path / "policy", task), network(12, 20, duration_s=3)
    rows = play_episode(kernel, environment, f"policy:{policy}", 5).rows
    steps = episode(Rollouts(task, environment), acting(policy), 5)
    ticks = np.rint(rows["t_s"].to_numpy() * 100).astype(int)
    at = np.searchsorted(ticks, [round(int(step.samples["t_ns"][0]) / 1e7) for step in steps])
    assert len(at) > 50
    for name in ("cwnd_pkts", "srtt_us", "delivered_pkts", "pacing_rate_bytes_s", "bytes_sent"):
        expected = rows[name].to_numpy()[at]
        np.testing.assert_array_equal([step.samples[name][0] for step in steps], expected)
        assert len(set(expected.tolist())) > 5
    assert [bool(step.first[0]) for step in steps] == [True] + [False] * (len(steps) - 1)
    assert [bool(step.over[0]) for step in steps] == [False] * (len(steps) - 1) + [True]
    assert all(np.isfinite(step.rewards).all() for step in steps)


def test_flows_that_share_a_network_are_rows_of_one_policy(kernel: Path, tmp_path: Path) -> None:
    """Each row is of the lab's episode in which the policy drives both; the reward is all flows' and bounded."""
    policy, environment = save(tmp_path / "policy", ASTRAEA), two_flows()
    scheme = f"policy:{policy}"
    both = replace(environment, cross=tuple(CrossFlow(scheme, cross.flow) for cross in environment.cross))
    every = play_episode(kernel, both, scheme, 5, every_flow=True).every_flow
    assert every is not None
    steps = episode(Rollouts(ASTRAEA, environment), acting(policy), 5)
    windows = {
        (flow, round(t_s * 100)): cwnd
        for flow, t_s, cwnd in zip(*(every[n].to_pylist() for n in ("flow", "t_s", "cwnd_pkts")), strict=True)
    }
    seen: dict[int, int] = {}
    for step in steps:
        for flow, sample in zip(step.flows.tolist(), step.samples, strict=True):
            assert windows[flow, round(int(sample["t_ns"]) / 1e7)] == sample["cwnd_pkts"]
            seen[flow] = seen.get(flow, 0) + 1
        assert (np.abs(step.rewards) <= 0.1).all()
        if len(step.flows) == 2:
            np.testing.assert_array_equal(step.states[0], step.states[1])
    assert seen[0] > seen[1] > 50
    last = steps[-1].states[-1]
    assert (last[8], last[9]) == (2, pytest.approx(0.3))  # two flows; 20 and 40 ms, on average 30
    assert last[11] == pytest.approx(0.12, rel=1e-3)  # 12 Mbps


def test_its_own_kind_decides_and_others_keep_their_schemes(tmp_path: Path) -> None:
    """Beside a Cubic and one of its own kind, the flow under test and the latter decide."""
    act = acting(save(tmp_path / "policy", ORCA))
    base = network(12, 20, duration_s=2)
    environment = replace(base, cross=(CrossFlow("cubic", Flow(start_s=0.5)), CrossFlow("pure", Flow())))
    steps = episode(Rollouts(ORCA, environment, flows="own"), act, 5)
    assert {int(flow) for step in steps for flow in step.flows} == {0, 2}
    last = steps[-1].samples[-1]
    assert int(last["link_bytes"]) < 0.9 * int(last["link_capacity_bytes"])  # the Cubic has its part
    both = Rollouts(ORCA, [environment, base], 2, "own")
    assert both.per_lab == 3
    both.close()


@pytest.mark.parametrize("task", [ORCA, ASTRAEA], ids=["orca", "astraea"])
def test_labs_do_not_see_each_other(tmp_path: Path, task: LearningTask) -> None:
    """Three labs side by side over several episodes: each has the rows that it has alone."""
    flows = (0,) if task is ORCA else None
    networks = [network(12, 20, duration_s=0.7), two_flows(1, "cubic" if flows else "pure")]
    act = acting(save(tmp_path / "policy", task))

    def rows(labs: int, seeds: list[int]) -> dict[int, list[tuple[Any, ...]]]:
        rollouts = Rollouts(task, networks, labs, flows)
        step, found = rollouts.reset(seeds), {lab: list[tuple[Any, ...]]() for lab in range(labs)}
        for _ in range(80):
            for row, lab in enumerate(step.labs.tolist()):
                values = (step.observations[row].tobytes(), step.rewards[row], step.over[row], step.first[row])
                found[lab].append((int(step.flows[row]), *values, step.states[row].tobytes()))
            step = rollouts.step(act(step) if not step.over.all() else np.zeros(0))
        rollouts.close()
        return found

    together = rows(3, [1, 2, 3])
    for lab, seed in enumerate((1, 2, 3)):
        alone = rows(1, [seed])[0]
        assert min(len(alone), len(together[lab])) > 50
        assert sum(over for _, _, _, over, *_ in alone) >= 2
        for one, other in zip(alone, together[lab], strict=False):
            assert one == other


def test_networks_are_drawn_from_a_distribution() -> None:
    task = replace(ORCA, networks=LearningTask.of({"networks": DRAWN}).networks)
    rollouts = Rollouts(task, labs=2)
    rollouts.reset([7, 8])
    drawn = [rollouts.episodes[lab] for lab in range(2)]
    assert [seed for _, seed in drawn] == [7, 8]
    assert drawn[0][0] != drawn[1][0]
    assert all(6 <= environment.bandwidth_mbps <= 12 for environment, _ in drawn)
    rollouts.reset([8, 7])
    assert [rollouts.episodes[lab] for lab in (1, 0)] == drawn
    rollouts.close()


def test_gymnasiums_forms_take_a_task() -> None:
    """One environment, as a vector, and of several flows: the same rows."""
    actions = np.random.default_rng(0).uniform(-0.2, 0.2, 60)
    single = gymnasium.make(ENVIRONMENT.id, environment=two_flows(1.2, "cubic"), task=ASTRAEA)
    assert single.observation_space.shape == (50,)
    assert (single.action_space.low, single.action_space.high) == (-1, 1)  # type: ignore[attr-defined]
    vector = gymnasium.make_vec(ENVIRONMENT.id, num_envs=1, environment=two_flows(1.2, "cubic"), task=ASTRAEA)
    parallel = CongestionParallelEnv(two_flows(1.2, "cubic"), flows=[0], task=ASTRAEA)
    one, info = single.reset(seed=3)
    (other,), infos = vector.reset(seed=3)
    third, _ = parallel.reset(seed=3)
    for action in actions:
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(one, third["flow_0"])
        np.testing.assert_array_equal(info["global_state"], infos["global_state"][0])
        np.testing.assert_array_equal(info["global_state"], parallel.state())
        one, reward, _, over, info = single.step(np.array([action]))
        (other,), rewards, _, overs, infos = vector.step(np.array([[action]]))
        third, earned, _, ended, _ = parallel.step({"flow_0": np.array([action])})
        assert (reward, over) == (rewards[0], overs[0]) == (earned["flow_0"], ended["flow_0"])
        if over:
            break
    assert over
    assert 1.17 < info["t_s"] <= 1.2
    for env in single, vector, parallel:
        env.close()


def test_agents_of_several_flows_decide_each_in_its_own_time() -> None:
    env = CongestionParallelEnv(two_flows(1.5), task=ASTRAEA)
    _, infos = env.reset(seed=0)
    times: dict[str, list[float]] = {"flow_0": [], "flow_1": []}
    while env.agents:
        for agent in env.agents:
            times[agent].append(infos[agent]["t_s"])
        _, _, _, _, infos = env.step(dict.fromkeys(env.agents, np.zeros(1)))
    for decided in times.values():
        assert np.diff(decided) == pytest.approx(0.03)
    assert min(map(len, times.values())) > 25


def one_floods(give_up: GiveUp | None) -> list[list[tuple[int, bool, bool, bytes]]]:
    """Play an episode of two flows in each of two labs, whose windows rise to 200 packets in the first and stay in the
    other; return by lab of each row flow, whether it is over and given up, and what the kernel said."""
    task = LearningTask.of({"control": {"cwnd_packets": [4, 200]}, "reward": "power"})
    environment = replace(network(12, 20, duration_s=3), cross=(CrossFlow("pure", Flow(extra_rtt_ms=5)),))
    rollouts = Rollouts(task, environment, 2, give_up=give_up)
    step = rollouts.reset([1, 2])
    found: list[list[tuple[int, bool, bool, bytes]]] = [[], []]
    while True:
        columns = (step.flows.tolist(), step.over.tolist(), step.given_up.tolist(), step.samples)
        for lab, flow, over, given_up, sample in zip(step.labs.tolist(), *columns, strict=True):
            found[lab].append((flow, over, given_up, sample.tobytes()))
        if not rollouts.running.any():
            return found
        step = rollouts.step(np.where(step.labs == 0, 1.0, 0.0)[~step.over], renew=False)


def test_an_episode_that_floods_ends_early() -> None:
    """All of its flows end at once, like the whole episode till then; the other lab does not notice."""
    (flood, still), (whole, same) = one_floods(GiveUp(0.3, 1.0)), one_floods(None)
    assert still == same
    assert not any(given_up for _, _, given_up, _ in (*still, *whole))
    assert [(flow, over, given_up) for flow, over, given_up, _ in flood[-2:]] == [(0, True, True), (1, True, True)]
    assert not any(over or given_up for _, over, given_up, _ in flood[:-2])
    assert 100 < len(flood) < len(whole) / 2
    assert [(flow, sample) for flow, _, _, sample in flood] == [(row[0], row[3]) for row in whole[: len(flood)]]
    assert one_floods(GiveUp(0.3, 1.0))[0] == flood


def test_bad_input_is_refused_in_one_line() -> None:
    with pytest.raises(SageccError, match="the task decides every 15 ms; only multiples of 10 ms"):
        Rollouts(LearningTask.of({"control": {"period_ms": 15}}))
    with pytest.raises(SageccError, match="the task acts on top of 'tahoe'"):
        Rollouts(LearningTask.of({"control": {"underlying_scheme": "tahoe"}}))
    rollouts = Rollouts(ORCA, network(12, 20, duration_s=1))
    with pytest.raises(SageccError, match="has flows 0 to 1, and this has room for 1"):
        rollouts.reset([0], environment=(two_flows(),))
    rollouts.reset([0])
    for bad in (np.zeros(2), np.array([np.nan]), 0.5):
        with pytest.raises(SageccError, match="actions must be 1 finite numbers"):
            rollouts.step(bad)
    rollouts.step([0.0])
    rollouts.close()
