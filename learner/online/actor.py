# SPDX-License-Identifier: Apache-2.0
"""An actor: it plays in its labs with the latest policy, explores, and writes what came of it into its replay ring.

Its labs advance in step, one inference answers all of them, in numpy. All that it does follows from the seed, the
weights that it is given, and when. Its state can be saved between two steps and taken up again: a lab cannot be saved,
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
from sagecc.learner.exploration import HELD, Exploring
from sagecc.learner.online.labs import Labs, Rows
from sagecc.learner.online.replay import Layout, Ring
from sagecc.policy.inference import Architecture, NumpyOps
from sagecc.policy.scaling import Scaling

State = dict[str, npt.NDArray[Any]]


def episode_seed(seed: int, lab: int, number: int) -> int:
    """Return the seed of a lab's episode in a run: 31 bits.

    Args:
        seed: the run's.
        lab: the lab's number among all of the run.
        number: the episode's.
    """
    return int(np.random.SeedSequence((seed, lab, number)).generate_state(1)[0] >> 1)


class Actor:
    """The labs of one process and their agents.

    Args:
        labs: the labs, none of them in an episode.
        count: their number.
        network: the policy's kind of network.
        scaling: what is done to observations before it.
        exploration: how to explore.
        layout: what a record holds.
        ring: where records go.
        seed: the run's seed.
        first_lab: number of the first lab among all of the run.
        share: this actor's share of the run's labs: others decide meanwhile too.
    """

    def __init__(
        self,
        labs: Labs,
        count: int,
        network: Architecture,
        scaling: Scaling,
        exploration: Exploring,
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
        self.given_up = 0
        """Episodes of these that were given up."""
        self.reward_sum = 0.0
        """Sum of all rewards so far."""
        self.rewards = 0
        """Their number."""
        self.written = 0
        """Records written so far."""
        self.inference_s = self.labs_s = 0.0
        """Time spent in inference and exploration, and in the labs."""
        self._labs, self._count, self._network = labs, count, network
        self._scaling, self._exploration = scaling, exploration
        self._ring, self._seed, self._first_lab, self._share = ring, seed, first_lab, share
        self._ops = NumpyOps()
        self._random = np.random.default_rng((seed, first_lab))
        self._windows = _Windows(layout, count, labs.per_lab)
        self._hidden = np.zeros((count * labs.per_lab, network.state), np.float32)
        self._held = np.zeros((count * labs.per_lab, HELD), np.float32)
        self._tick = 0  # steps of the labs
        self._numbers = np.zeros(count, np.int64)  # of the labs' episodes
        self._began = np.zeros(count, np.int64)  # after which step
        self._taken: list[list[float]] = [[] for _ in range(count)]  # actions in the labs' episodes
        self._actions = np.zeros(0, np.float32)  # still to be given to the labs

    def begin(self, first: int = 0) -> None:
        """Begin an episode in every lab: its number `first` of the run."""
        self._numbers[:] = first
        labs = list(range(self._count))
        self._began[:] = self._tick
        self._decide([self._begin_episodes(labs)])

    def play(self, decisions: int) -> None:
        """Play until so many decisions have been taken; those of the last step may be more."""
        until = self.decisions + decisions
        while self.decisions < until:
            begun = time.perf_counter()
            rows = [self._labs.step(self._actions, renew=False)]
            self._tick += 1
            self._take(rows[0])
            self.given_up += len(np.unique(rows[0].labs[rows[0].given_up]))
            if over := np.flatnonzero(~self._labs.running).tolist():
                self.episodes += len(over)
                self._numbers[over] += 1
                self._began[over] = self._tick
                for lab in over:
                    self._taken[lab] = []
                rows.append(self._begin_episodes(over))
            now = time.perf_counter()
            self.labs_s += now - begun
            self._decide(rows)
            self.inference_s += time.perf_counter() - now

    def state(self) -> State:
        """Return what `restore` needs."""
        numbers = {
            "random": self._random.bit_generator.state,
            "tick": self._tick,
            "decisions": self.decisions,
            "episodes": self.episodes,
            "given_up": self.given_up,
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
            "held": self._held.copy(),
            "actions": self._actions.copy(),
        }

    def restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Go on from a state of the same run: play the episodes that were under way again, up to where they were."""
        numbers = json.loads(state["numbers"].tobytes())
        self._random.bit_generator.state = numbers["random"]
        self.decisions, self.episodes = numbers["decisions"], numbers["episodes"]
        self.given_up = numbers["given_up"]
        self.reward_sum, self.rewards, self.written = numbers["reward_sum"], numbers["rewards"], numbers["written"]
        self._numbers, self._began = state["episode_numbers"].copy(), state["began"].copy()
        bounds = np.cumsum(state["taken_counts"])[:-1]
        self._taken = [part.tolist() for part in np.split(state["taken"], bounds)]
        self._replay_episodes(numbers["tick"])
        self._hidden, self._held = state["hidden"].copy(), state["held"].copy()
        self._actions = state["actions"].copy()

    def _replay_episodes(self, tick: int) -> None:
        """Begin each lab's episode at its step and repeat its actions, up to a step."""
        given = [0] * self._count
        actions = np.zeros(0, np.float32)
        for now in range(int(self._began.min()), tick + 1):
            rows: list[Rows] = []
            if self._labs.running.any():
                rows.append(self._labs.step(actions, renew=False))
                self._windows.take(rows[0], self._observed(rows[0]))
            if labs := np.flatnonzero(self._began == now).tolist():
                rows.append(self._begin_episodes(labs))
            slots, _, _ = self._acting(rows)
            repeated = []
            for lab in (slots // self._labs.per_lab).tolist():
                repeated.append(self._taken[lab][given[lab]])
                given[lab] += 1
            actions = np.array(repeated, np.float32)
            self._windows.act(slots, actions)
        self._tick = tick

    def _begin_episodes(self, labs: list[int]) -> Rows:
        """Begin the labs' episodes of their present numbers; return the first rows."""
        seeds = [episode_seed(self._seed, self._first_lab + lab, int(self._numbers[lab])) for lab in labs]
        rows = self._labs.reset(seeds, labs)
        self._take(rows)
        return rows

    def _observed(self, rows: Rows) -> Floats:
        """Return what the networks see of rows' observations."""
        return np.asarray(self._scaling(rows.observations), np.float32)

    def _acting(self, parts: list[Rows]) -> tuple[Ints, Floats, Floats]:
        """Return the slots of all agents that wait for an action, ascending, what they observe, and the states."""
        slots = np.concatenate([self._windows.slots(rows)[~rows.over] for rows in parts])
        seen = np.concatenate([self._observed(rows)[~rows.over] for rows in parts])
        states = np.concatenate([rows.states[~rows.over] for rows in parts])
        if len(parts) > 1:
            order = np.argsort(slots)
            slots, seen, states = slots[order], seen[order], states[order]
        return slots, seen, states

    def _take(self, rows: Rows) -> None:
        """Write the records that the rows complete."""
        records = self._windows.take(rows, self._observed(rows))
        if len(records):
            self._ring.write(self.written, records)
            self.written += len(records)
        rewarded = rows.rewards[~rows.first]
        self.reward_sum += float(rewarded.sum())
        self.rewards += len(rewarded)
        began = self._windows.slots(rows)[rows.first]
        self._hidden[began], self._held[began] = 0, 0

    def _decide(self, parts: list[Rows]) -> None:
        """Take an action for every agent that waits for one."""
        slots, seen, states = self._acting(parts)
        actions = np.zeros(0, np.float32)
        if len(slots):
            _, loc, _, hidden = self._network.forward(self.weights, self._ops, seen, self._hidden[slots])
            self._hidden[slots] = hidden
            actions = loc[:, 0]
        so_far = round(self.decisions / self._share)
        held = self._held[slots]
        self._actions = self._exploration.explore(actions, so_far, self._random, states, held)
        self._held[slots] = held
        self._windows.act(slots, self._actions)
        self.decisions += len(slots)
        for lab, action in zip((slots // self._labs.per_lab).tolist(), self._actions.tolist(), strict=True):
            self._taken[lab].append(action)


class _Windows:
    """The last rows of every agent, from which records are cut: T rows each, one of them shared with the next.

    An agent's last record is of its last T rows. One that never had T rows leaves none.
    """

    def __init__(self, layout: Layout, labs: int, per_lab: int) -> None:
        self._layout, self._per_lab = layout, per_lab
        self._rows = np.zeros((labs * per_lab, 2 * layout.rows - 1, layout.row), np.float32)
        self._count = np.zeros(labs * per_lab, np.int64)

    def slots(self, rows: Rows) -> Ints:
        """Return the slot of each row's agent [R]."""
        return rows.labs * self._per_lab + rows.flows

    def take(self, rows: Rows, observed: Floats) -> Floats:
        """Add rows of agents, with the rewards of the actions before; return the records that they complete."""
        if not len(rows.labs):
            return np.zeros((0, self._layout.size), np.float32)
        layout, slots = self._layout, self.slots(rows)
        d, g, length = layout.observations, layout.states, layout.rows
        self._count[slots[rows.first]] = 0
        at = self._count[slots]
        later = at > 0
        before = slots[later], at[later] - 1
        self._rows[(*before, d + g + 1)] = rows.rewards[later]
        self._rows[slots, at, :d] = observed
        self._rows[slots, at, d : d + g] = rows.states
        self._rows[slots, at, d + g :] = 0
        at = at + 1
        full = (at == length) | (at == 2 * length - 1)
        tail = rows.over & ~full & (at > length)
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
