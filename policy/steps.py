# SPDX-License-Identifier: Apache-2.0
"""Five steps of a window, as actions of a policy: those of Indigo's public code (env/sender.py)."""

from __future__ import annotations

import numpy as np

from sagecc.common.arrays import Doubles, Ints

ACTIONS = (-1.0, -0.5, 0.0, 0.5, 1.0)
"""What stands for the steps: halve, less 10 packets, stay, 10 more, double."""

STEP_PACKETS = 10


def indices(actions: Doubles) -> Ints:
    """Return which of ACTIONS numbers from -1 to 1 are nearest to [B]."""
    return np.rint((np.asarray(actions, np.float64) + 1) * 2).astype(np.int64)


def candidates(cwnd: Ints) -> Ints:
    """Return what each action makes of windows, in whole packets [B, 5]."""
    return np.stack([cwnd // 2, cwnd - STEP_PACKETS, cwnd, cwnd + STEP_PACKETS, 2 * cwnd], axis=-1)
