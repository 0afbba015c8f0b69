# SPDX-License-Identifier: Apache-2.0
"""What Aurora does: its action, its period.

Where the paper is silent, the facts are those of its public simulator, https://github.com/PCCproject/PCC-RL:
src/gym/network_sim.py has the action.
"""

from __future__ import annotations

from sagecc.policy.artefact import ACKED, RATE_MAP, Control

ALPHA = 0.025
"""What an action of 1 adds to the rate, as a share of it (network_sim.py, apply_rate_delta; config.DELTA_SCALE)."""

MAX_ACTION = 10
"""Largest action here, for which an action of 1 stands: a rate grows by a quarter at most. Aurora's own has no bound,
and PPO explores by 1 at first; this learner's actions are bounded, and exploring by a tenth of that is the same."""

CONTROL = Control(
    base=1 + ALPHA * MAX_ACTION,
    limits=(-1.0, 1.0),
    cwnd_packets=(4, 20_000),  # a rate without a window of its own has none: Sage's
    period_ms=10.0,
    period_min_rtts=1.0,  # a monitor interval: the paper leaves it to PCC, whose last an RTT; network_sim.py's half one
    underlying_scheme="pure",  # a rate of its own (PCC's UDP sender), and no other congestion control
    map=RATE_MAP,
    slow_start=ACKED,  # the simulator's senders begin at 0.3 to 1.5 of the link, which no flow knows
)
