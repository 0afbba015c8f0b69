# SPDX-License-Identifier: Apache-2.0
"""What Orca does: its action, its period, its slow start.

The facts come from its public code, https://github.com/Soheil-ab/Orca: rl-module/envwrapper.py has the action,
src/orca-server-mahimahi.cc the period and the slow start.
"""

from __future__ import annotations

from sagecc.policy.artefact import HUNDREDTHS_MAP, Control

CONTROL = Control(
    base=4.0,  # envwrapper.py, map_action: int(100 * 4**a)
    limits=(-1.0, 1.0),  # the tanh's
    cwnd_packets=(4, 10_000),  # orca-server-mahimahi.cc: MIN_CWND and, named there but not enforced, MAX_CWND
    period_ms=20.0,  # report_period
    underlying_scheme="cubic",  # orca.sh: scheme_
    map=HUNDREDTHS_MAP,
    slow_start=1.1,  # until snd_ssthresh < cwnd (slow_start_passed); Orca checks every 2 ms, the lab's host each tick
)
