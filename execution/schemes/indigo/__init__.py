# SPDX-License-Identifier: Apache-2.0
"""Indigo: section 5 of "Pantheon: the training ground for Internet congestion-control research" (USENIX ATC 2018)."""

from __future__ import annotations

from sagecc.execution.schemes.indigo.control import CONTROL
from sagecc.execution.schemes.indigo.expert import EXPERT, IndigoExpert
from sagecc.execution.schemes.indigo.observation import OBSERVATIONS, SOURCE, IndigoStates
from sagecc.execution.schemes.rival import Expert, Observation, Rival

RIVAL = Rival(
    name="indigo",
    observation=Observation(SOURCE, OBSERVATIONS, lambda names, flows, _: IndigoStates(names, flows)),
    control=CONTROL,
    expert=Expert(EXPERT, IndigoExpert),
)
