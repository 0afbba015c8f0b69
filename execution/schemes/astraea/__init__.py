# SPDX-License-Identifier: Apache-2.0
"""Astraea: "Towards Fair and Efficient Learning-based Congestion Control" (EuroSys 2024).

Its training was never released; sections, equations and tables named here are the paper's.
"""

from __future__ import annotations

from sagecc.execution.flow.reports import Reports
from sagecc.execution.schemes.astraea.control import CONTROL
from sagecc.execution.schemes.astraea.global_state import GLOBAL_STATE, global_state
from sagecc.execution.schemes.astraea.observation import OBSERVATIONS, REPORTING, SOURCE
from sagecc.execution.schemes.astraea.reward import REWARDS
from sagecc.execution.schemes.rival import GlobalState, Observation, Rival

RIVAL = Rival(
    name="astraea",
    observation=Observation(SOURCE, OBSERVATIONS, lambda names, flows, _: Reports(REPORTING, names, flows)),
    control=CONTROL,
    rewards=REWARDS,
    global_state=GlobalState(GLOBAL_STATE, global_state),
)
