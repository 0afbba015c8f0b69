# SPDX-License-Identifier: Apache-2.0
"""What Sage does at run time, by its public code, https://github.com/Soheil-ab/sage (commit eedd281), in sage_rl/."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType

from sagecc.policy.artefact import ACTION_MAP, CEILED_MAP, Control

CONTROL = Control(
    base=2.0,  # rl_module/envwapper.py:178, map_action
    limits=(-2.0, 2.0),  # rl_module/tcpactor_evalcrr.py:100, ClipToSpec; config-rl-eval.yaml:54, action_max
    cwnd_packets=(4, 20_000),  # src/sage.cc:83 and 85, MAX_CWND and MIN_CWND; enforced in 1090 to 1100
    period_ms=10.0,  # src/sage.cc:126, report_period
    underlying_scheme="pure",  # sage.sh: scheme
    map=CEILED_MAP,  # src/sage.cc:48, ROUNT_TYPE; 1062 keeps the fraction, 1069 rounds up
    decimals=3,  # rl_module/envwapper.py:178, in numpy's single precision
)
"""The window starts as Linux's ten packets (src/sage.cc:84, CWND_INIT). An action is the mixture's mean
(rl_module/tcpactor_evalcrr.py:99, StochasticMeanHead): `--sample` draws it instead."""

RULES: Mapping[str, str] = MappingProxyType(
    {
        "thousandths": "an action is rounded to three decimals",
        "ceiling": "a window is rounded up; without, down",
        "pacing": "a flow is paced at one window per sRTT; without, not at all",
    }
)
"""Rules of actions that a policy may be without, by name; `pacing` is src/sage.cc:79 to 81 and 541."""


def control(without: Collection[str] = ()) -> Control:
    """Return CONTROL without some of RULES."""
    return replace(
        CONTROL,
        decimals=None if "thousandths" in without else CONTROL.decimals,
        map=ACTION_MAP if "ceiling" in without else CONTROL.map,
        paced="pacing" not in without,
    )
