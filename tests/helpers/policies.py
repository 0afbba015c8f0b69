# SPDX-License-Identifier: Apache-2.0
"""Small policies, and one that is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from sagecc.collector.lab.boot import Controller
from sagecc.common.errors import SageccError
from sagecc.policy.artefact import OBSERVATION_SOURCE, Control, write
from sagecc.policy.residual import NetworkSizes
from sagecc.policy.scaling import Scaling
from sagecc.schemas.environment import Environment
from sagecc.schemas.pool import FEATURE_NAMES, POOL_VERSION

Floats = npt.NDArray[np.float32]


def save_policy(folder: Path, seed: int = 0, provenance: dict[str, Any] | None = None) -> Path:
    """Write a policy of random weights."""
    sizes = NetworkSizes(inputs=len(FEATURE_NAMES), width=8, gru=6, residual_blocks=1, mixture=3, min_scale=0.01)
    random = np.random.default_rng(seed)
    weights = {name: random.normal(0, 0.3, shape).astype(np.float32) for name, shape in sizes.shapes().items()}
    ones = np.ones(len(FEATURE_NAMES), np.float32)
    write(folder, weights, sizes, Scaling("none", 0 * ones, ones, 10.0), FEATURE_NAMES, provenance or {})
    return folder


def save_still_policy(folder: Path, log2_ratio: float = 0.0, control: Control | None = None) -> Path:
    """Write a policy that multiplies the window by the same ratio at each tick: 1, unless told.

    With a ratio above 1 it floods every link.
    """
    sizes = NetworkSizes(inputs=len(FEATURE_NAMES), width=4, gru=4, residual_blocks=1, mixture=1, min_scale=0.01)
    weights = {name: np.zeros(shape, np.float32) for name, shape in sizes.shapes().items()}
    weights["head.loc.b"][:] = log2_ratio
    ones = np.ones(len(FEATURE_NAMES), np.float32)
    write(folder, weights, sizes, Scaling("none", 0 * ones, ones, 10.0), FEATURE_NAMES, {}, control=control)
    return folder


class Fixed:
    """Stands in for an artefact: answers what it is told and keeps what it saw."""

    def __init__(self, actions: list[float], observations: tuple[str, ...] = FEATURE_NAMES) -> None:
        self.path, self.card = Path("models/fixed"), cast("dict[str, Any]", {})
        self.source, self.observations, self.control = (OBSERVATION_SOURCE, POOL_VERSION), observations, Control()
        self.without: tuple[str, ...] = ()
        self.actions, self.seen = list(actions), cast("list[Floats]", [])

    def initial_state(self, batch: int = 1) -> Floats:
        return np.zeros((batch, 2), np.float32)

    def step(self, observation: Floats, hidden: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        self.seen.append(observation)
        value = np.full((len(observation), 1), self.actions.pop(0), np.float32)
        return np.zeros_like(value), value, np.ones_like(value), hidden + 1


def broken_policy(environment: Environment, scheme: str, seed: int) -> Controller:
    raise SageccError(f"{scheme}: cannot be loaded")
