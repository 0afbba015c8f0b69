# SPDX-License-Identifier: Apache-2.0
"""Labs without kernels, for online learners: what is best to do is known."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sagecc.common.arrays import Floats
from sagecc.learner.online.labs import Rows, Task
from sagecc.policy.artefact import Control
from sagecc.policy.scaling import Scaling

NAMES = ("where", "noise", "bias")
TICKS = (20, 60)
"""Fewest and most ticks of an episode, which its seed decides."""


@dataclass
class FakeLabs:
    """Each agent is at a place from -1 to 1, and its reward is the nearer to 0 the nearer its action is to minus that.

    Where it is next is random. Flow f of a lab begins at tick 3 f and decides at every (f + 1)th tick; the global state
    is the number of flows. With `remembered` an agent sees where it is only at its first tick, and stays there.
    """

    labs: int
    slots_per_lab: int = 1
    remembered: bool = False
    observations: int = len(NAMES)
    states: int = 1
    began: list[tuple[int, int]] = field(default_factory=list)
    """Every episode's lab and seed, in the order in which they began."""

    def __post_init__(self) -> None:
        self._running: dict[int, dict[str, Any]] = {}
        self._places = np.zeros(self.labs * self.slots_per_lab)
        self._acting = np.zeros(0, np.int64)

    def begin(self, lab: int, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.began.append((lab, seed))
        self._running[lab] = {"random": random, "tick": 0, "last": int(random.integers(*TICKS))}

    def step(self, actions: Floats) -> Rows:
        assert actions.shape == self._acting.shape
        assert (abs(actions) <= 1).all()
        taken = dict(zip(self._acting.tolist(), actions.tolist(), strict=True))
        slots, observations, rewards, first, last, over = [], [], [], [], [], []
        for lab, run in sorted(self._running.items()):
            for flow in range(self.slots_per_lab):
                tick = run["tick"] - 3 * flow
                if tick < 0 or (tick % (flow + 1) and run["tick"] < run["last"]):
                    continue
                slot = lab * self.slots_per_lab + flow
                reward = -((taken.get(slot, 0.0) + self._places[slot]) ** 2)
                if tick == 0 or not self.remembered:
                    self._places[slot] = run["random"].uniform(-0.8, 0.8)
                seen = self._places[slot] if tick == 0 or not self.remembered else 0.0
                slots.append(slot)
                observations.append([seen, run["random"].normal(), 1.0])
                rewards.append(reward)
                first.append(tick == 0)
                last.append(run["tick"] >= run["last"])
            if run["tick"] >= run["last"]:
                over.append(lab)
            run["tick"] += 1
        for lab in over:
            del self._running[lab]
        rows = Rows(
            np.array(slots, np.int64),
            np.array(observations, np.float32).reshape(-1, self.observations),
            np.full((len(slots), 1), self.slots_per_lab, np.float32),
            np.array(rewards, np.float32),
            np.array(first, bool),
            np.array(last, bool),
            np.zeros(len(slots), bool),
            np.array(over, np.int64),
        )
        self._acting = rows.slots[~rows.last]
        return rows

    def close(self) -> None:
        self._running.clear()


@dataclass(frozen=True)
class MakeFake:
    """Makes FakeLabs in a process."""

    slots_per_lab: int = 1
    remembered: bool = False

    def __call__(self, first: int, count: int) -> FakeLabs:
        return FakeLabs(count, self.slots_per_lab, self.remembered)


def fake_task(slots_per_lab: int = 1, remembered: bool = False) -> Task:
    zeros, ones = np.zeros(len(NAMES), np.float32), np.ones(len(NAMES), np.float32)
    return Task(
        identity=f"fake {slots_per_lab} {remembered}",
        observations=NAMES,
        states=1,
        source=("fake", "1.0"),
        control=Control(limits=(-1.0, 1.0)),
        make_labs=MakeFake(slots_per_lab, remembered),
        scaling=Scaling("none", zeros, ones, 0.0),
    )
