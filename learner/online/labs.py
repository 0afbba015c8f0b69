# SPDX-License-Identifier: Apache-2.0
"""What a learner asks of the labs that it acts in; it knows no kernel, so that its actors can be tried on anything.

Several labs advance together, a tick at a time. Each has slots for agents (flows under the policy); a slot serves one
agent after another. The same seeds and actions give the same rows, so that an episode can be played again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from sagecc.common.arrays import Bools, Floats, Ints
from sagecc.policy.artefact import Control
from sagecc.policy.scaling import Scaling


class Rows(NamedTuple):
    """What the agents that decide at a tick observe, B of them; often none do."""

    slots: Ints
    """The agents' slots [B], ascending: those of lab l are l * slots_per_lab to (l + 1) * slots_per_lab - 1."""
    observations: Floats
    """What the policy sees [B, D], float32."""
    states: Floats
    """What the critics see beside it, the global state [B, G], float32."""
    rewards: Floats
    """Reward of each agent's last action [B]; of no meaning in its first row."""
    first: Bools
    """Whether this is the agent's first row [B]."""
    last: Bools
    """Whether this is the agent's last row [B]; it takes no action here."""
    terminal: Bools
    """Whether nothing is to be expected after the last row [B]; False where a clock has cut the episode short."""
    over: Ints
    """Numbers of the labs whose episodes have ended; they stand still until they begin another."""


class Labs(Protocol):
    """Labs in step; use it up with `close`."""

    labs: int
    """Number of labs."""
    slots_per_lab: int
    """Most agents at a time in one lab."""
    observations: int
    """Numbers D in an observation."""
    states: int
    """Numbers G in a global state."""

    def begin(self, lab: int, seed: int) -> None:
        """Begin an episode in a lab; its first tick is the next `step`'s.

        Args:
            lab: The lab's number.
            seed: Decides everything in the episode but the actions: the network too.
        """

    def step(self, actions: Floats) -> Rows:
        """Run all labs that are in an episode to their next tick.

        Args:
            actions: Those of the last step's rows but for last ones, in their order, from -1 to 1.
        """

    def close(self) -> None:
        """End all episodes."""


MakeLabs = Callable[[int, int], Labs]
"""Makes some of a run's labs: the number of the first of them, and how many. To be pickled."""


@dataclass(frozen=True)
class Task:
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
    scaling: Scaling
    """What the labs do to the named observations before the policy sees them."""
