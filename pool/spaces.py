# SPDX-License-Identifier: Apache-2.0
"""The pool's observations as a Gymnasium space, and the environment that gives them: data sets name both."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from sagecc.schemas.pool import FEATURES

ENVIRONMENT = EnvSpec(
    "sagecc/Congestion-v0",
    entry_point="sagecc.execution.environments.congestion:CongestionEnv",
    vector_entry_point="sagecc.execution.environments.vector:CongestionVectorEnv",
)
"""The environment that execution.environments registers with Gymnasium."""


def observation_space() -> spaces.Box:
    """Return the space of the 69 features, in the order of schemas.pool.FEATURES and with their bounds."""
    low = [-np.inf if column.low is None else column.low for column in FEATURES]
    high = [np.inf if column.high is None else column.high for column in FEATURES]
    return spaces.Box(np.array(low, np.float32), np.array(high, np.float32), dtype=np.float32)
