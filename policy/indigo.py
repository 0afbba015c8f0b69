# SPDX-License-Identifier: Apache-2.0
"""What Indigo is as a policy: its observation by name, its five actions, its period.

Indigo is section 5 of "Pantheon: the training ground for Internet congestion-control research" (USENIX ATC 2018). The
facts here are those of its public code, https://github.com/StanfordSNR/indigo: env/sender.py has the state, the actions
and the period, helpers/helpers.py the units (normalize), dagger/experts.py the expert. execution.agent.indigo makes
the observation, execution.environments.indigo asks the expert.
"""

from __future__ import annotations

import numpy as np

from sagecc.common.arrays import Doubles, Ints
from sagecc.policy.artefact import STEPS_MAP, Control

SOURCE = ("indigo.dagger", "1.0")
"""The definition of the observations (execution.agent.indigo) and its version."""

ACTIONS = (-1.0, -0.5, 0.0, 0.5, 1.0)
"""The answers that stand for the five actions, in the code's order: halve, less 10 packets, stay, 10 more, double."""

STATISTICS = ("queueing_delay", "delivery_rate", "send_rate", "cwnd")
"""The state; execution.agent.indigo says what each is."""

OBSERVATIONS = (*STATISTICS, "halved", "less", "stayed", "more", "doubled")
"""The state, and which action was the last."""

EXPERT = ("expert_action",)
"""What the expert would do, beside an observation."""

STEP_PACKETS = 10

CONTROL = Control(
    limits=(-1.0, 1.0),
    cwnd_packets=(2, 20_000),  # take_action: at least 2; it has no largest: Sage's
    period_ms=10.0,  # step_len_ms
    underlying_scheme="pure",
    map=STEPS_MAP,
)


def indices(actions: Doubles) -> Ints:
    """Return which of ACTIONS answers from -1 to 1 are nearest to [B]."""
    return np.rint((np.asarray(actions, np.float64) + 1) * 2).astype(np.int64)


def candidates(cwnd: Ints) -> Ints:
    """Return what each action makes of windows, in whole packets [B, 5]."""
    return np.stack([cwnd // 2, cwnd - STEP_PACKETS, cwnd, cwnd + STEP_PACKETS, 2 * cwnd], axis=-1)


def expert(cwnd: Ints, ideal: Doubles) -> Doubles:
    """Return the action that leads nearest to the ideal window, the first of several (get_best_action).

    Args:
        cwnd: windows [B] (packets).
        ideal: what they should be [B] (packets).
    """
    reached = np.clip(candidates(cwnd), *CONTROL.cwnd_packets)
    nearest: Ints = np.abs(reached - ideal[:, None]).argmin(axis=1)
    return np.array(ACTIONS, np.float64)[nearest]
