# SPDX-License-Identifier: Apache-2.0
"""Exploration: actions that differ from the mean of a policy's mixture, drawn the same on every machine.

A stream of random numbers per flow, of which only uniform ones are taken: these are whole numbers times 2**-53, and
sums and polynomials of them have the same bits everywhere, which a library's normal numbers (its exp and log) have not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sagecc.common.errors import SageccError
from sagecc.policy import exact

UNIFORMS = 12
"""Uniform numbers whose sum, less half of them, stands for a normal one: mean 0, deviation 1, within 6 deviations."""


@dataclass(frozen=True)
class Exploration:
    """How a policy's actions are drawn while it plays."""

    sample: bool = True
    """Draw each action from the policy's mixture; else take the mixture's mean."""
    noise: float = 0.0
    """Deviation of normal noise that is added to each action (in log2 of the window's ratio, once per decision)."""
    seed: int = 0
    """Seed of all that is drawn; each flow of each episode has a stream of its own."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.noise) and 0 <= self.noise <= 1):
            raise SageccError(f"exploration: noise must be 0 to 1 (a factor of two), not {self.noise:g}")
        if not (self.sample or self.noise):
            raise SageccError("exploration: without drawing from the mixture and without noise there is none")

    def stream(self, number: int) -> np.random.Generator:
        """Return the random numbers of a flow."""
        return np.random.default_rng((self.seed, number))

    def draw(self, random: np.random.Generator, logits: Any, loc: Any, scale: Any) -> float:
        """Return an action from a mixture of K normal distributions.

        Args:
            random: the flow's random numbers.
            logits: logits of their weights [K].
            loc: means [K].
            scale: deviations [K].
        """
        if self.sample:
            weights = np.cumsum(exact.exp((logits - logits.max()).astype(np.float64)))
            part = min(int(np.searchsorted(weights, random.random() * weights[-1], side="right")), len(weights) - 1)
            action = float(loc[part]) + float(scale[part]) * _normal(random)
        else:
            action = float(exact.mean(logits[None], loc[None])[0])
        return action + self.noise * _normal(random) if self.noise else action


def _normal(random: np.random.Generator) -> float:
    return math.fsum(random.random(UNIFORMS).tolist()) - UNIFORMS / 2
