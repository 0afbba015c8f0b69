# SPDX-License-Identifier: Apache-2.0
"""Orca: "Classic Meets Modern: A Pragmatic Learning-Based Congestion Control for the Internet" (SIGCOMM 2020)."""

from __future__ import annotations

from sagecc.execution.flow.reports import Reports
from sagecc.execution.schemes.orca.control import CONTROL
from sagecc.execution.schemes.orca.observation import OBSERVATIONS, REPORTING, SOURCE
from sagecc.execution.schemes.orca.reward import REWARDS
from sagecc.execution.schemes.rival import Observation, Rival

RIVAL = Rival(
    name="orca",
    observation=Observation(SOURCE, OBSERVATIONS, lambda names, flows, _: Reports(REPORTING, names, flows)),
    control=CONTROL,
    rewards=REWARDS,
)
