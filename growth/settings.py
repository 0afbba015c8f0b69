# SPDX-License-Identifier: Apache-2.0
"""What decides a growing pool.

Round K trains on the pool that the rounds before left, from where round K - 1 stopped, then plays; its episodes join
the pool as the scheme `policy:NAME@K`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sagecc.common.errors import SageccError
from sagecc.learner.specification import RunSpecification
from sagecc.schemas.schemes import grown_scheme

LEAST_REST = 0.2
"""The least share of the windows drawn that the pool's other trajectories, the heuristics', have in every round."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Growth:
    """Every choice of a growing pool but its first pool, how and where the policy plays, and its place on disk."""

    name: str
    """Of the policy, in its rounds' schemes."""
    specification: RunSpecification
    """Of the first round's training, from a pool."""
    round_steps: int
    """Optimiser steps of every later round."""
    seed: int = 0
    """Of training and episodes."""
    own_share: float = 0.3
    """Share of the windows drawn that all of the policy's own rounds have together, from the second round on."""
    decay: float = 0.5
    """Share of a round beside that of the round after it."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise SageccError(f"growing: '{self.name}' is no name: use letters, digits, '.', '_' and '-'")
        if self.round_steps < 1:
            raise SageccError(f"growing: a round of {self.round_steps} steps is none: at least 1")
        if not 0 < self.own_share <= 1 - LEAST_REST:
            raise SageccError(
                f"growing: the policy's own episodes may have above 0 and at most {1 - LEAST_REST:g} of the windows,"
                f" not {self.own_share:g}: the heuristics never drop out"
            )
        if not 0 < self.decay <= 1:
            raise SageccError(
                f"growing: an older round's share beside the next is above 0 and at most 1, not {self.decay:g}"
            )
        if self.specification.data is None:
            raise SageccError("growing: the configuration learns in labs: take one with data, of a pool")
        if self.specification.data.selection.shares:
            raise SageccError("growing: the configuration's data.selection.shares are the rounds' own: leave them out")

    def scheme(self, number: int) -> str:
        """Return the scheme of a round's episodes."""
        return grown_scheme(self.name, number)

    def shares(self, number: int) -> dict[str, float]:
        """Return by scheme which share of a round's windows is drawn from each round before it."""
        relative = {self.scheme(earlier): self.decay ** (number - 1 - earlier) for earlier in range(number)}
        return {scheme: self.own_share * part / sum(relative.values()) for scheme, part in relative.items()}

    def specification_of(self, number: int) -> RunSpecification:
        """Return what a round trains with; its steps are those of all rounds up to it."""
        steps = self.specification.steps + number * self.round_steps
        return self.specification.changed(steps=steps, data={"selection": {"shares": self.shares(number)}})
