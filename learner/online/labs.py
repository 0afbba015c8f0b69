# SPDX-License-Identifier: Apache-2.0
"""What a learner asks of the labs that it acts in (execution.environments.rollouts has them); it knows no kernel.

Several labs advance together, each from one decision of its agents, flows under the policy, to the next. The same seeds
and actions give the same rows, so that an episode can be played again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sagecc.common.arrays import Bools, Doubles, Floats, Ints
from sagecc.policy.artefact import Control


class Rows(Protocol):
    """What the agents see that decide now or end here, R of them, by lab and flow."""

    @property
    def labs(self) -> Ints:
        """Each row's lab [R]."""

    @property
    def flows(self) -> Ints:
        """The agent's number in its lab [R]."""

    @property
    def observations(self) -> Floats:
        """What the policy sees, before scaling [R, D]."""

    @property
    def states(self) -> Floats:
        """What the critics see beside it, the global state [R, G]."""

    @property
    def rewards(self) -> Doubles:
        """What the agent earned since its last row [R]; of no meaning in its first."""

    @property
    def first(self) -> Bools:
        """Whether this is the agent's first row [R]."""

    @property
    def over(self) -> Bools:
        """Whether this is its last [R]; it takes no action here."""

    @property
    def given_up(self) -> Bools:
        """Whether it is the last because the episode is given up [R]."""


class Labs(Protocol):
    """Labs side by side."""

    per_lab: int
    """Most agents in one lab."""

    @property
    def running(self) -> Bools:
        """Which labs are in an episode [labs]."""

    def reset(self, seeds: Sequence[int | None], labs: Sequence[int]) -> Rows:
        """Begin an episode in some labs.

        Args:
            seeds: of the episodes; each decides everything in its episode but the actions: the network too.
            labs: which.

        Returns:
            Their first rows.
        """

    def step(self, actions: Floats, renew: bool = True) -> Rows:
        """Run the labs that are in an episode to their next rows.

        Args:
            actions: of all agents that wait for one, by lab and flow, from -1 to 1.
            renew: whether labs whose episodes are over begin another of their own accord.
        """

    def close(self) -> None:
        """End all episodes."""


class MakeLabs(Protocol):
    """Makes labs; to be pickled."""

    def __call__(self, *, labs: int) -> Labs:
        """Make so many."""


@dataclass(frozen=True)
class OnlineTask:
    """What is learned, and what the policy's artefact says of it."""

    identity: str
    """What decides rows and rewards beside seeds and actions, as text: choices, networks, kernel."""
    observations: tuple[str, ...]
    """Names of what the policy sees, in order."""
    states: int
    """Numbers in the global state."""
    source: tuple[str, str]
    """The definition of the observations and its version."""
    control: Control
    """What the policy's actions do; their limits are -1 and 1."""
    make_labs: MakeLabs
    """Makes labs."""
