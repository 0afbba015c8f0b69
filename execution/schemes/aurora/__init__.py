# SPDX-License-Identifier: Apache-2.0
"""Aurora: "A Deep Reinforcement Learning Perspective on Internet Congestion Control" (ICML 2019)."""

from __future__ import annotations

from sagecc.execution.flow.reports import Reports
from sagecc.execution.schemes.aurora.control import CONTROL
from sagecc.execution.schemes.aurora.observation import OBSERVATIONS, REPORTING, SOURCE
from sagecc.execution.schemes.aurora.reward import REWARDS
from sagecc.execution.schemes.rival import Observation, Rival

RIVAL = Rival(
    name="aurora",
    observation=Observation(SOURCE, OBSERVATIONS, lambda names, flows, _: Reports(REPORTING, names, flows)),
    control=CONTROL,
    rewards=REWARDS,
)
