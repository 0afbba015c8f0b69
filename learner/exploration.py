# SPDX-License-Identifier: Apache-2.0
"""How actors leave the policy's own way: to learn what else there is, or to learn from an expert first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sagecc.common.arrays import Floats

HELD = 2
"""Numbers that exploring keeps of an agent, 0 at its start: decisions for which it still holds an action, and that."""


class Exploring(Protocol):
    """What actors do in place of the policy's actions."""

    def explore(
        self, actions: Floats, decisions: int, random: np.random.Generator, states: Floats, held: Floats
    ) -> Floats:
        """Return what to do in place of the policy's actions [B], within -1 and 1.

        Args:
            actions: the policy's.
            decisions: those taken so far.
            random: source of random numbers.
            states: what there is beside the observations [B, G].
            held: what was kept of the agents; changed in place [B, HELD].
        """


@dataclass(frozen=True)
class ExpertFirst:
    """The expert's actions at first, which are the states; then the policy's own: what DAgger labels."""

    warm_up: int
    """Decisions, of all actors together, that are the expert's."""

    def explore(
        self, actions: Floats, decisions: int, random: np.random.Generator, states: Floats, held: Floats
    ) -> Floats:
        """Return what to do [B]; see Exploring."""
        return states[:, 0] if decisions < self.warm_up else actions


@dataclass(frozen=True)
class ActionNoise:
    """Gaussian noise on every action, now and then an action that is uniform over all, and now and then a drop.

    A drop holds the lowest action for many decisions, so that the policy goes on from few packets: exploring starts
    (Sutton & Barto, Reinforcement Learning, section 5.3) within an episode.
    """

    noise: float
    """Standard deviation of the noise; actions reach from -1 to 1. 0 for none."""
    uniform_first: float
    """Probability of a uniform action at the first decision; 0 for never."""
    uniform_last: float
    """The same after `uniform_decisions` decisions; in between it falls linearly."""
    uniform_decisions: int
    """Decisions over which it falls, of all actors together."""
    uniform_hold: int
    """Decisions for which an agent holds a uniform action; the probability is that of a decision to be one of them."""
    warm_up: int
    """First decisions, of all actors together, that are all uniform."""
    drop_every: int = 0
    """Decisions of an agent from the end of a drop to the next, on average; 0 for never."""
    drop_hold: int = 1
    """Most decisions for which a drop holds the lowest action; each number from 1 on is as likely."""

    def probability(self, decisions: int) -> float:
        """Return the probability of a uniform action after so many decisions."""
        if decisions < self.warm_up:
            return 1.0
        passed = min(decisions / self.uniform_decisions, 1.0) if self.uniform_decisions else 1.0
        return self.uniform_first + (self.uniform_last - self.uniform_first) * passed

    def explore(
        self, actions: Floats, decisions: int, random: np.random.Generator, states: Floats, held: Floats
    ) -> Floats:
        """Return what to do [B]; see Exploring."""
        count, probability = len(actions), self.probability(decisions)
        if self.noise:
            actions = actions + self.noise * random.standard_normal(count, np.float32)
        if self.drop_every:
            begins = (random.random(count) < 1 / self.drop_every) & (held[:, 0] == 0)
            held[begins, 0], held[begins, 1] = random.integers(1, self.drop_hold + 1, count)[begins], -1
        if probability or held.any():
            uniform = random.uniform(-1, 1, count)
            begins = (random.random(count) < self._beginning(probability)) & (held[:, 0] == 0)
            held[begins, 0], held[begins, 1] = self.uniform_hold, uniform[begins]
            holding = held[:, 0] > 0
            actions = np.where(holding, held[:, 1], actions)
            held[holding, 0] -= 1
        return np.clip(actions, -1, 1).astype(np.float32)

    def _beginning(self, share: float) -> float:
        """Return the probability to begin to hold an action, with which this share of the decisions is a held one."""
        return share / (share + self.uniform_hold * (1 - share))
