# SPDX-License-Identifier: Apache-2.0
"""What Astraea does: its action, its period. Sections, equations and tables are those of its paper."""

from __future__ import annotations

from sagecc.policy.artefact import ACKED, LINEAR_MAP, Control

CONTROL = Control(
    base=1.025,  # 1 + alpha of Eq. 3 (Table 4: the action control coefficient is 0.025)
    limits=(-1.0, 1.0),
    cwnd_packets=(4, 20_000),  # the paper names none: Sage's
    period_ms=30.0,  # Table 4: the monitoring time period
    underlying_scheme="pure",  # section 4: a block of their own in the kernel bypasses TCP's congestion avoidance
    map=LINEAR_MAP,
    slow_start=ACKED,  # the paper says nothing of a flow's first RTTs; by Eq. 3 alone a tenfold window takes 3 s
)
