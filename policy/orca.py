# SPDX-License-Identifier: Apache-2.0
"""What Orca is as a policy: its observation by name, its action, its period.

Orca is "Classic Meets Modern: A Pragmatic Learning-Based Congestion Control for the Internet" (SIGCOMM 2020). The facts
here come from its public code, https://github.com/Soheil-ab/Orca, from the files named: rl-module/
envwrapper.py has the observation and the action, rl-module/d5.py the history, rl-module/params.json the sizes,
src/orca-server-mahimahi.cc the period and the slow start. execution.agent.orca makes the observation,
policy.orca_import the network.
"""

from __future__ import annotations

from sagecc.policy.artefact import HUNDREDTHS_MAP, Control

SOURCE = ("orca.tcp", "1.0")
"""The definition of the observations (execution.agent.orca) and its version."""

STATISTICS = (
    "thr/max",
    "pacing/max",
    "5*loss/max",
    "acks/cwnd",
    "interval_s",
    "min_rtt/srtt",
    "delay_metric",
)
"""The values of a report (envwrapper.py, get_state), in order; execution.agent.orca says what each is."""

HISTORY = 10
"""Reports in an observation, the oldest first (d5.py; `rec_dim` of params.json)."""

DELAY_MARGIN = 1.25
"""Beta of Eq. 2 (params.json, delay_margin_coef): up to so many lowest RTTs a delay costs nothing."""

LOSS_FACTOR = 5.0
"""Zeta of Eq. 1: what a lost byte costs in delivered ones."""

OBSERVATIONS = tuple(f"{name}@-{back}" for back in range(HISTORY - 1, -1, -1) for name in STATISTICS)

CONTROL = Control(
    base=4.0,  # envwrapper.py, map_action: int(100 * 4**a)
    limits=(-1.0, 1.0),  # the tanh's
    cwnd_packets=(4, 10_000),  # orca-server-mahimahi.cc: MIN_CWND and, named there but not enforced, MAX_CWND
    period_ms=20.0,  # report_period
    underlying_scheme="cubic",  # orca.sh: scheme_
    map=HUNDREDTHS_MAP,
    slow_start=1.1,  # until snd_ssthresh < cwnd (slow_start_passed); Orca checks every 2 ms, the lab's host each tick
)
