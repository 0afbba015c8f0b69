# SPDX-License-Identifier: Apache-2.0
"""Labs without kernels, for online learners: what is best to do is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from sagecc.common.arrays import Bools, Doubles, Floats, Ints
from sagecc.learner.online.labs import OnlineTask
from sagecc.policy.artefact import Control

NAMES = ("where", "noise", "bias")
TICKS = (20, 60)
"""Fewest and most ticks of an episode, which its seed decides."""


@dataclass(frozen=True)
class FakeRows:
    """Rows."""

    labs: Ints
    flows: Ints
    observations: Floats
    states: Floats
    rewards: Doubles
    first: Bools
    over: Bools
    given_up: Bools


class FakeLabs:
    """Each agent is at a place from -1 to 1, and its reward is the nearer to 0 the nearer its action is to minus that.

    Where it is next is random. Flow f of a lab begins at tick 3 f and decides at every (f + 1)th tick; the global state
    is the number of flows. With `given_up` all episodes are.
    """

    def __init__(self, labs: int, per_lab: int = 1, given_up: bool = False) -> None:
        self.per_lab, self._given_up = per_lab, given_up
        self.began: list[tuple[int, int]] = []
        self._episodes: list[dict[str, Any] | None] = [None] * labs
        self._places = np.zeros(labs * per_lab)
        self._acting: list[int] = []

    @property
    def running(self) -> Bools:
        return np.array([episode is not None for episode in self._episodes])

    def reset(self, seeds: Sequence[int | None], labs: Sequence[int]) -> FakeRows:
        for lab, seed in zip(labs, seeds, strict=True):
            random = np.random.default_rng(seed)
            self.began.append((lab, int(seed or 0)))
            self._episodes[lab] = {"random": random, "tick": 0, "last": int(random.integers(*TICKS))}
        self._acting = [slot for slot in self._acting if slot // self.per_lab not in labs]
        return self._run(labs, {})

    def step(self, actions: Floats, renew: bool = True) -> FakeRows:
        assert not renew
        assert actions.shape == (len(self._acting),)
        assert (abs(actions) <= 1).all()
        taken = dict(zip(self._acting, actions.tolist(), strict=True))
        self._acting = []
        return self._run(np.flatnonzero(self.running).tolist(), taken)

    def _run(self, labs: Sequence[int], taken: dict[int, float]) -> FakeRows:
        found: list[tuple[Any, ...]] = []
        for lab in labs:
            run = self._episodes[lab]
            assert run is not None
            last = run["tick"] >= run["last"]
            for flow in range(self.per_lab):
                tick = run["tick"] - 3 * flow
                if tick < 0 or (tick % (flow + 1) and not last):
                    continue
                slot = lab * self.per_lab + flow
                reward = -((taken.get(slot, 0.0) + self._places[slot]) ** 2)
                self._places[slot] = run["random"].uniform(-0.8, 0.8)
                seen = [self._places[slot], run["random"].normal(), 1.0]
                found.append((lab, flow, seen, reward, tick == 0, last))
                if not last:
                    self._acting.append(slot)
            run["tick"] += 1
            if last:
                self._episodes[lab] = None
        self._acting.sort()
        columns = list(zip(*found, strict=True)) if found else [()] * 6
        over = np.array(columns[5], bool)
        return FakeRows(
            labs=np.array(columns[0], np.int64),
            flows=np.array(columns[1], np.int64),
            observations=np.array(columns[2], np.float32).reshape(-1, len(NAMES)),
            states=np.full((len(found), 1), self.per_lab, np.float32),
            rewards=np.array(columns[3], np.float64),
            first=np.array(columns[4], bool),
            over=over,
            given_up=over & self._given_up,
        )

    def close(self) -> None:
        self._episodes = [None] * len(self._episodes)


def fake_task(per_lab: int = 1) -> OnlineTask:
    return OnlineTask(
        identity=f"fake {per_lab}",
        observations=NAMES,
        states=1,
        source=("fake", "1.0"),
        control=Control(limits=(-1.0, 1.0)),
        make_labs=partial(FakeLabs, per_lab=per_lab),
    )
