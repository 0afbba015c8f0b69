# SPDX-License-Identifier: Apache-2.0
"""What Astraea is as a policy: its observation by name, its action, its period.

Astraea is "Towards Fair and Efficient Learning-based Congestion Control" (EuroSys 2024). Its training was never
released; sections and equations named here are the paper's. execution.agent.astraea makes the observation,
execution.environments.astraea the reward and the global state.
"""

from __future__ import annotations

from sagecc.policy.artefact import ACKED, LINEAR_MAP, Control

SOURCE = ("astraea.tcp", "1.0")
"""The definition of the observations (execution.agent.astraea) and its version."""

STATISTICS = (
    "thr/thr_max",
    "thr_max",
    "lat/lat_min",
    "lat_min",
    "cwnd/(thr_max*lat_min)",
    "loss/thr_max",
    "inflight/cwnd",
    "pacing/thr_max",
    "srtt/min_rtt",
    "retrans/cwnd",
)
"""The values of an MTP (section 3.3; the last two are the public code's); execution.agent.astraea says what each is."""

HISTORY = 5
"""MTPs in an observation, the oldest first (Table 4: w)."""

OBSERVATIONS = tuple(f"{name}@-{back}" for back in range(HISTORY - 1, -1, -1) for name in STATISTICS)

GLOBAL_STATE = (
    "ovr_thr",
    "min_thr",
    "max_thr",
    "avg_lat",
    "min_cwnd",
    "max_cwnd",
    "avg_cwnd",
    "loss_ratio",
    "num_flow",
    "d0",
    "buf",
    "c",
)
"""What the critic sees beside (Table 2), in order; execution.environments.astraea says what each is."""

CONTROL = Control(
    base=1.025,  # 1 + alpha of Eq. 3 (Table 4: the action control coefficient is 0.025)
    limits=(-1.0, 1.0),
    cwnd_packets=(4, 20_000),  # the paper names none: Sage's
    period_ms=30.0,  # Table 4: the monitoring time period
    underlying_scheme="pure",  # section 4: a block of their own in the kernel bypasses TCP's congestion avoidance
    map=LINEAR_MAP,
    slow_start=ACKED,  # the paper says nothing of a flow's first RTTs; by Eq. 3 alone a tenfold window takes 3 s
)
