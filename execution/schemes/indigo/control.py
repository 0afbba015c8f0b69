# SPDX-License-Identifier: Apache-2.0
"""What Indigo does: one of five steps of its window, every 10 ms.

The facts are those of its public code, https://github.com/StanfordSNR/indigo: env/sender.py has actions and period.
"""

from __future__ import annotations

from sagecc.policy.artefact import STEPS_MAP, Control

CONTROL = Control(
    limits=(-1.0, 1.0),
    cwnd_packets=(2, 20_000),  # take_action: at least 2; it has no largest: Sage's
    period_ms=10.0,  # step_len_ms
    underlying_scheme="pure",
    map=STEPS_MAP,
)
