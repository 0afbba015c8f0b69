# SPDX-License-Identifier: Apache-2.0
"""An actor: it plays in its labs with the latest policy, explores, and writes what came of it into its replay ring.

Its labs advance in step, one inference answers all of them, in numpy. All that it does follows from the seed, the
weights that it is given, and when. Its state can be saved between two ticks and taken up again: a lab cannot be saved,
but an episode follows from its seed and its actions, so the ones under way are played again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Floats, Ints
from sagecc.learner.online.exploration import Exploration
from sagecc.learner.online.labs import Labs, Rows
from sagecc.learner.online.replay import Layout, Ring
from sagecc.policy.inference import Architecture, NumpyOps

State = dict[str, npt.NDArray[Any]]


def episode_seed(seed: int, lab: int, number: int) -> int:
    """Return the seed of a lab's episode in a run: 31 bits.

    Args:
        seed: The run's.
        lab: The lab's number among all of the run.
        number: The episode's.
    """
    return int(np.random.SeedSequence((seed, lab, number)).generate_state(1)[0] >> 1)


class Actor:
    """The labs of one process and their agents.

    Args:
        labs: The labs, none of them in an episode.
        network: The policy's kind of network.
        exploration: How to explore.
        layout: What a record holds.
        ring: Where records go.
        seed: The run's seed.
        first_lab: Number of the first lab among all of the run.
        share: This actor's share of the run's labs: others decide meanwhile too.
    """

    def __init__(
        self,
        labs: Labs,
        network: Architecture,
        exploration: Exploration,
        layout: Layout,
        ring: Ring,
        *,
        seed: int,
        first_lab: int = 0,
        share: float = 1.0,
    ) -> None:
        self.weights: dict[str, Floats] = {}
        """The policy's weights by name, to be replaced as a whole."""
        self.decisions = self.episodes = 0
        """Decisions taken and episodes ended so far."""
        self.reward_sum = 0.0
        """Sum of all rewards so far."""
        self.rewards = 0
        """Their number."""
        self.written = 0
        """Records written so far."""
        self.inference_s = self.labs_s = 0.0
        """Time spent in inference and exploration, and in the labs."""
        self._labs, self._network, self._exploration = labs, network, exploration
        self._ring, self._seed, self._first_lab, self._share = ring, seed, first_lab, share
        self._ops = NumpyOps()
        self._random = np.random.default_rng((seed, first_lab))
        self._windows = _Windows(layout, labs.labs * labs.slots_per_lab)
        self._hidden = np.zeros((labs.labs * labs.slots_per_lab, network.state), np.float32)
        self._tick = 0
        self._numbers = np.zeros(labs.labs, np.int64)  # of the labs' episodes
        self._began = np.zeros(labs.labs, np.int64)  # at which tick
        self._taken: list[list[float]] = [[] for _ in range(labs.labs)]  # actions in the labs' episodes
        self._actions = np.zeros(0, np.float32)  # still to be given to the labs

    def begin(self, first: int = 0) -> None:
        """Begin an episode in every lab: its number `first` of the run."""
        self._numbers[:] = first
        for lab in range(self._labs.labs):
            self._begin_episode(lab)

    def play(self, decisions: int) -> None:
        """Play until so many decisions have been taken; those of the last tick may be more."""
        until = self.decisions + decisions
        while self.decisions < until:
            begun = time.perf_counter()
            rows = self._labs.step(self._actions)
            self.labs_s += time.perf_counter() - begun
            self._tick += 1
            self._take(rows)
            begun = time.perf_counter()
            self._decide(rows)
            self.inference_s += time.perf_counter() - begun
            for lab in rows.over.tolist():
                self.episodes += 1
                self._numbers[lab] += 1
                self._begin_episode(lab)

    def state(self) -> State:
        """Return what `restore` needs."""
        numbers = {
            "random": self._random.bit_generator.state,
            "tick": self._tick,
            "decisions": self.decisions,
            "episodes": self.episodes,
            "reward_sum": self.reward_sum,
            "rewards": self.rewards,
            "written": self.written,
        }
        return {
            "numbers": np.frombuffer(json.dumps(numbers).encode(), np.uint8).copy(),
            "episode_numbers": self._numbers.copy(),
            "began": self._began.copy(),
            "taken": np.concatenate([np.array(taken, np.float32) for taken in self._taken]),
            "taken_counts": np.array([len(taken) for taken in self._taken], np.int64),
            "hidden": self._hidden.copy(),
            "actions": self._actions.copy(),
        }

    def restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Go on from a state of the same run: play the episodes that were under way again, up to where they were."""
        numbers = json.loads(state["numbers"].tobytes())
        self._random.bit_generator.state = numbers["random"]
        self.decisions, self.episodes = numbers["decisions"], numbers["episodes"]
        self.reward_sum, self.rewards, self.written = numbers["reward_sum"], numbers["rewards"], numbers["written"]
        self._numbers, self._began = state["episode_numbers"].copy(), state["began"].copy()
        bounds = np.cumsum(state["taken_counts"])[:-1]
        self._taken = [part.tolist() for part in np.split(state["taken"], bounds)]
        self._replay_episodes(numbers["tick"])
        self._hidden, self._actions = state["hidden"].copy(), state["actions"].copy()

    def _replay_episodes(self, tick: int) -> None:
        """Begin each lab's episode at its tick and repeat its actions, up to a tick."""
        given = [0] * self._labs.labs
        actions = np.zeros(0, np.float32)
        for self._tick in range(int(self._began.min()), tick):
            self._begin_at(self._tick)
            rows = self._labs.step(actions)
            self._windows.take(rows)
            slots = rows.slots[~rows.last]
            repeated = []
            for lab in (slots // self._labs.slots_per_lab).tolist():
                repeated.append(self._taken[lab][given[lab]])
                given[lab] += 1
            actions = np.array(repeated, np.float32)
            self._windows.act(slots, actions)
        self._tick = tick
        self._begin_at(tick)

    def _begin_at(self, tick: int) -> None:
        for lab in np.flatnonzero(self._began == tick).tolist():
            self._labs.begin(lab, episode_seed(self._seed, self._first_lab + lab, int(self._numbers[lab])))

    def _begin_episode(self, lab: int) -> None:
        """Begin a lab's episode of its present number."""
        self._began[lab] = self._tick
        self._taken[lab] = []
        self._labs.begin(lab, episode_seed(self._seed, self._first_lab + lab, int(self._numbers[lab])))

    def _take(self, rows: Rows) -> None:
        """Write the records that the rows complete."""
        records = self._windows.take(rows)
        if len(records):
            self._ring.write(self.written, records)
            self.written += len(records)
        rewarded = rows.rewards[~rows.first]
        self.reward_sum += float(rewarded.sum(dtype=np.float64))
        self.rewards += len(rewarded)

    def _decide(self, rows: Rows) -> None:
        """Take an action for every row but the last ones."""
        if not len(rows.slots):
            self._actions = np.zeros(0, np.float32)
            return
        acting = ~rows.last
        slots = rows.slots[acting]
        if len(slots):
            if rows.first.any():
                self._hidden[rows.slots[rows.first]] = 0
            hidden = self._hidden[slots]
            _, loc, _, hidden = self._network.forward(self.weights, self._ops, rows.observations[acting], hidden)
            self._hidden[slots] = hidden
            actions = loc[:, 0]
        else:
            actions = np.zeros(0, np.float32)
        so_far = round(self.decisions / self._share)
        self._actions = self._exploration.explore(actions, so_far, self._random)
        self._windows.act(slots, self._actions)
        self.decisions += len(slots)
        for lab, action in zip((slots // self._labs.slots_per_lab).tolist(), self._actions.tolist(), strict=True):
            self._taken[lab].append(action)


class _Windows:
    """The last rows of every agent, from which records are cut: T rows each, one of them shared with the next.

    An agent's last record is of its last T rows. One that never had T rows leaves none.
    """

    def __init__(self, layout: Layout, slots: int) -> None:
        self._layout = layout
        self._rows = np.zeros((slots, 2 * layout.rows - 1, layout.row), np.float32)
        self._count = np.zeros(slots, np.int64)

    def take(self, rows: Rows) -> Floats:
        """Add rows of agents, with the rewards of the actions before; return the records that they complete."""
        if not len(rows.slots):
            return np.zeros((0, self._layout.size), np.float32)
        layout, slots = self._layout, rows.slots
        d, g, length = layout.observations, layout.states, layout.rows
        self._count[slots[rows.first]] = 0
        at = self._count[slots]
        later = at > 0
        before = slots[later], at[later] - 1
        self._rows[(*before, d + g + 1)] = rows.rewards[later]
        self._rows[(*before, d + g + 2)] = ~rows.terminal[later]
        self._rows[slots, at, :d] = rows.observations
        self._rows[slots, at, d : d + g] = rows.states
        self._rows[slots, at, d + g :] = 0
        at = at + 1
        full = (at == length) | (at == 2 * length - 1)
        tail = rows.last & ~full & (at > length)
        complete = np.flatnonzero(full | tail)
        index = (at[complete] - length)[:, None] + np.arange(length)
        records: Floats = self._rows[slots[complete][:, None], index].reshape(-1, layout.size)
        wrapped = at == 2 * length - 1
        if wrapped.any():
            self._rows[slots[wrapped], :length] = self._rows[slots[wrapped], length - 1 :]
        self._count[slots] = np.where(wrapped, length, at)
        return records

    def act(self, slots: Ints, actions: Floats) -> None:
        """Note the actions that agents take at their latest rows."""
        self._rows[slots, self._count[slots] - 1, self._layout.observations + self._layout.states] = actions
