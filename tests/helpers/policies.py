# SPDX-License-Identifier: Apache-2.0
"""Small policies, and one that is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sagecc.collector.lab.boot import Controller
from sagecc.common.errors import SageccError
from sagecc.policy.artefact import Control, write
from sagecc.policy.sage import NetworkSizes
from sagecc.policy.scaling import Scaling
from sagecc.schemas.environment import Environment
from sagecc.schemas.pool import FEATURE_NAMES


def save_policy(folder: Path, seed: int = 0, provenance: dict[str, Any] | None = None) -> Path:
    """Write a policy of random weights."""
    sizes = NetworkSizes(inputs=len(FEATURE_NAMES), width=8, gru=6, residual_blocks=1, mixture=3, min_scale=0.01)
    random = np.random.default_rng(seed)
    weights = {name: random.normal(0, 0.3, shape).astype(np.float32) for name, shape in sizes.shapes().items()}
    ones = np.ones(len(FEATURE_NAMES), np.float32)
    write(folder, weights, sizes, Scaling("none", 0 * ones, ones, 10.0), FEATURE_NAMES, provenance or {})
    return folder


def save_still_policy(folder: Path, log2_ratio: float = 0.0) -> Path:
    """Write a policy that multiplies the window by the same ratio at each tick: 1, unless told."""
    sizes = NetworkSizes(inputs=len(FEATURE_NAMES), width=4, gru=4, residual_blocks=1, mixture=1, min_scale=0.01)
    weights = {name: np.zeros(shape, np.float32) for name, shape in sizes.shapes().items()}
    weights["head.loc.b"][:] = log2_ratio
    ones = np.ones(len(FEATURE_NAMES), np.float32)
    write(folder, weights, sizes, Scaling("none", 0 * ones, ones, 10.0), FEATURE_NAMES, {}, control=Control())
    return folder


def broken_policy(environment: Environment, scheme: str) -> Controller:
    raise SageccError(f"{scheme}: cannot be loaded")
