# SPDX-License-Identifier: Apache-2.0
"""Sage: "Computers Can Learn from the Heuristic Designs and Master Internet Congestion Control" (SIGCOMM 2023).

As its public code runs the model that its authors trained. The pool that it learned from was not published; sagecc's
own pool, features and learner follow the paper (schemas/, pool/, learner/).
"""

from __future__ import annotations

from sagecc.execution.schemes.rival import Observation, Rival
from sagecc.execution.schemes.sage.control import CONTROL
from sagecc.execution.schemes.sage.observation import OBSERVATIONS, RULES, SOURCE, PublicReports

RIVAL = Rival(
    name="sage",
    observation=Observation(SOURCE, OBSERVATIONS, PublicReports, RULES),
    control=CONTROL,
)
