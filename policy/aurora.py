# SPDX-License-Identifier: Apache-2.0
"""What Aurora is as a policy: its observation by name, its action, its period.

Aurora is "A Deep Reinforcement Learning Perspective on Internet Congestion Control" (ICML 2019). Where the paper is
silent, the facts are those of its public simulator, https://github.com/PCCproject/PCC-RL: src/common/sender_obs.py has
the statistics, src/gym/network_sim.py the action, the reward and the networks. execution.agent.aurora makes the
observation.
"""

from __future__ import annotations

from sagecc.policy.artefact import ACKED, RATE_MAP, Control

SOURCE = ("aurora.pcc", "1.0")
"""The definition of the observations (execution.agent.aurora) and its version."""

STATISTICS = ("latency_gradient", "latency_ratio", "sending_ratio")
"""The values of a monitor interval; execution.agent.aurora says what each is."""

HISTORY = 10
"""Monitor intervals in an observation, the oldest first (the paper's k; network_sim.py, `--history-len`)."""

OBSERVATIONS = tuple(f"{name}@-{back}" for back in range(HISTORY - 1, -1, -1) for name in STATISTICS)

ALPHA = 0.025
"""What an action of 1 adds to the rate, as a share of it (network_sim.py, apply_rate_delta; config.DELTA_SCALE)."""

MAX_ACTION = 10
"""Largest action here, for which an answer of 1 stands: a rate grows by a quarter at most. Aurora's own has no bound,
and PPO explores by 1 at first; this learner's answers are bounded, and exploring by a tenth of that is the same."""

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
