# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sagecc.common.arrays import Floats
from sagecc.learner.exploration import HELD, ActionNoise, ExpertFirst
from sagecc.learner.online.actor import Actor, episode_seed
from sagecc.learner.online.replay import Layout, Ring
from sagecc.policy.mlp import Mlp
from sagecc.policy.recurrent import Recurrent
from sagecc.policy.scaling import Scaling
from tests.helpers.fake_labs import NAMES, FakeLabs, FakeRows

NO_ACTIONS = np.zeros(0, np.float32)
NOISY = ActionNoise(noise=0.2, uniform_first=0.5, uniform_last=0.0, uniform_decisions=400, uniform_hold=3, warm_up=0)
NETWORKS: dict[str, Any] = {"dense": Mlp(3, (8,), 0.2), "recurrent": Recurrent(3, 8, 6, 1)}


def weights(network: Any) -> dict[str, Floats]:
    random = np.random.default_rng(0)
    return {k: random.normal(size=s).astype(np.float32) * np.float32(0.5) for k, s in network.shapes().items()}


class Recorded(FakeLabs):
    """Remembers what went in and out."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.log: list[tuple[Floats, FakeRows]] = []

    def reset(self, seeds: Sequence[int | None], labs: Sequence[int]) -> FakeRows:
        rows = super().reset(seeds, labs)
        self.log.append((NO_ACTIONS, rows))
        return rows

    def step(self, actions: Floats, renew: bool = True) -> FakeRows:
        rows = super().step(actions, renew)
        self.log.append((actions.copy(), rows))
        return rows


def actor(path: Path, labs: FakeLabs, network: Any, rows: int, exploration: ActionNoise = NOISY) -> Actor:
    layout = Layout(rows, len(NAMES), 1)
    scaling = Scaling("none", np.zeros(3, np.float32), np.ones(3, np.float32), 0.0)
    ring, count = Ring(path, layout.size, 5000), len(labs.running)
    made = Actor(labs, count, network, scaling, exploration, layout, ring, seed=7)
    made.weights = weights(network)
    return made


@dataclass
class History:
    """An agent's life."""

    rows: list[list[float]] = field(default_factory=list)
    """Observation, state, action, reward after it."""
    ended: bool = False


def histories(log: list[tuple[Floats, FakeRows]]) -> list[History]:
    """Return what every agent saw and did, one by one."""
    running: dict[tuple[int, int], History] = {}
    found = []
    waiting: dict[tuple[int, int], list[float]] = {}
    for actions, rows in log:
        if len(actions):
            for (_, row), action in zip(sorted(waiting.items()), actions.tolist(), strict=True):
                row[4] = action
            waiting = {}
        for i, agent in enumerate(zip(rows.labs.tolist(), rows.flows.tolist(), strict=True)):
            if rows.first[i]:
                running[agent] = History()
                found.append(running[agent])
            else:
                running[agent].rows[-1][5] = rows.rewards[i]
            running[agent].rows.append([*rows.observations[i], *rows.states[i], 0, 0])
            running[agent].ended = bool(rows.over[i])
            if not rows.over[i]:
                waiting[agent] = running[agent].rows[-1]
    return found


def records_of(history: History, rows: int) -> list[bytes]:
    """Cut an agent's rows into records: each shares a row with the next, the last is of the last rows."""
    count = len(history.rows)
    starts = list(range(0, count - rows + 1, rows - 1))
    if history.ended and starts and starts[-1] + rows < count:
        starts.append(count - rows)
    cut = []
    for start in starts:
        part = np.array(history.rows[start : start + rows], np.float32)
        part[-1, 4:] = 0
        cut.append(part.tobytes())
    return cut


@pytest.mark.parametrize("rows", [2, 3, 5])
def test_records_are_what_happened(tmp_path: Path, rows: int) -> None:
    labs = Recorded(3, 2)
    played = actor(tmp_path / "ring", labs, NETWORKS["dense"], rows)
    played.begin()
    played.play(900)
    kept = [record.tobytes() for record in played._ring.read(np.arange(played.written))]
    found = histories(labs.log)
    assert sum(history.ended for history in found) > 10
    assert sorted(kept) == sorted(record for history in found for record in records_of(history, rows))


def test_episodes_that_were_given_up_are_counted(tmp_path: Path) -> None:
    played = actor(tmp_path / "ring", FakeLabs(2, 1, True), NETWORKS["dense"], 2)
    played.begin()
    played.play(500)
    assert played.given_up == played.episodes > 3


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("slots", [1, 2])
def test_a_restored_actor_goes_on_bit_for_bit(tmp_path: Path, kind: str, slots: int) -> None:
    network, rows = NETWORKS[kind], 2 if kind == "dense" else 4
    given_up = slots == 2
    whole = actor(tmp_path / "whole", FakeLabs(3, slots, given_up), network, rows)
    whole.begin()
    killed = actor(tmp_path / "killed", FakeLabs(3, slots, given_up), network, rows)
    killed.begin()
    for part in (37, 200, 41):
        whole.play(part)
        killed.play(part)
        state = killed.state()
        killed.play(150)  # lost
        killed = actor(tmp_path / "killed", FakeLabs(3, slots, given_up), network, rows)
        killed.restore(state)
    whole.play(300)
    killed.play(300)
    assert whole.written == killed.written > 0
    positions = np.arange(whole.written)
    assert whole._ring.read(positions).tobytes() == killed._ring.read(positions).tobytes()
    assert (whole.decisions, whole.episodes, whole.reward_sum) == (killed.decisions, killed.episodes, killed.reward_sum)
    assert whole.given_up == killed.given_up == (whole.episodes if given_up else 0)
    assert all(np.array_equal(a, killed.state()[name]) for name, a in whole.state().items())


def test_no_two_episodes_of_a_run_have_the_same_seed(tmp_path: Path) -> None:
    seeds = [episode_seed(seed, lab, number) for seed in (0, 1) for lab in range(20) for number in range(50)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**31 for seed in seeds)
    labs = FakeLabs(2)
    played = actor(tmp_path / "ring", labs, NETWORKS["dense"], 2)
    played.begin()
    played.play(300)
    numbers = {0: 0, 1: 0}
    for lab, seed in labs.began:
        assert seed == episode_seed(7, lab, numbers[lab])
        numbers[lab] += 1


NOTHING = np.zeros((0, 0), np.float32)


def test_the_experts_actions_come_first() -> None:
    random, policys = np.random.default_rng(0), np.array([0.5, -1], np.float32)
    experts = np.array([[-0.5], [1]], np.float32)
    taken = [
        ExpertFirst(100).explore(policys, so_far, random, experts, nothing_held(2)).tolist() for so_far in (0, 99, 100)
    ]
    assert taken == [[-0.5, 1], [-0.5, 1], [0.5, -1]]


def noise(**changes: Any) -> ActionNoise:
    never = ActionNoise(noise=0.0, uniform_first=0.0, uniform_last=0.0, uniform_decisions=0, uniform_hold=1, warm_up=0)
    return replace(never, **changes)


def nothing_held(agents: int) -> Floats:
    return np.zeros((agents, HELD), np.float32)


def test_exploration_by_hand() -> None:
    falling = noise(uniform_first=1.0, uniform_last=0.05, uniform_decisions=1000, warm_up=10)
    assert [falling.probability(n) for n in (0, 9, 10, 500, 1000, 5000)] == pytest.approx(
        [1, 1, 0.9905, 0.525, 0.05, 0.05]
    )
    random = np.random.default_rng(0)
    uniform = falling.explore(np.full(20_000, 5, np.float32), 0, random, NOTHING, nothing_held(20_000))
    assert abs(uniform).max() <= 1
    assert abs(uniform.mean()) < 0.02
    assert abs(uniform.std() - 1 / np.sqrt(3)) < 0.01
    explored = noise().explore(np.array([0.25, -3], np.float32), 5, random, NOTHING, nothing_held(2))
    assert explored.tolist() == [0.25, -1]
    drawn = noise(noise=0.1).explore(np.zeros(20_000, np.float32), 5, random, NOTHING, nothing_held(20_000))
    assert drawn.dtype == np.float32
    assert abs(drawn.std() - 0.1) < 0.005


def test_uniform_actions_are_held_and_as_many_decisions_as_told_are() -> None:
    exploring, random = noise(uniform_first=0.4, uniform_last=0.4, uniform_hold=5), np.random.default_rng(0)
    held, policys = nothing_held(2_000), np.full(2_000, 0.123, np.float32)
    taken = np.array([exploring.explore(policys, 0, random, NOTHING, held) for _ in range(60)])
    uniform = taken[10:] != policys
    assert abs(uniform.mean() - 0.4) < 0.02
    runs = [len(list(run)) for agent in taken.T for value, run in groupby(agent.tolist()) if abs(value - 0.123) > 1e-6]
    assert set(runs) <= {1, 2, 3, 4, 5}
    assert runs.count(5) > 0.9 * len(runs)  # but for those that the end cuts


def test_drops_hold_the_lowest_action_and_come_as_often_as_told() -> None:
    exploring, random = noise(drop_every=40, drop_hold=6), np.random.default_rng(0)
    held, policys = nothing_held(2_000), np.full(2_000, 0.123, np.float32)
    taken = np.array([exploring.explore(policys, 10**6, random, NOTHING, held) for _ in range(400)])
    assert set(np.unique(taken).tolist()) == {-1.0, policys[0].item()}
    dropping = (taken == -1).mean()
    assert abs(dropping - 3.5 / (3.5 + 39)) < 0.003  # a drop of 3.5 on average, 39 others before the next begins
    runs = [len(list(run)) for agent in taken.T for value, run in groupby(agent.tolist()) if value == -1]
    shares = np.bincount(runs, minlength=7)[1:7] / len(runs)
    assert abs(shares - 1 / 6).max() < 0.02
    assert sum(length > 6 for length in runs) < 0.04 * len(runs)  # one may follow another at once
