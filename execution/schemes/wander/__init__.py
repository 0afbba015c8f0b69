# SPDX-License-Identifier: Apache-2.0
"""A scheme that wanders, for pools: no published scheme, and none to carry traffic with."""

from __future__ import annotations

from sagecc.execution.schemes.rival import Rival
from sagecc.execution.schemes.wander.scheme import Wander

RIVAL = Rival("wander", schemes={"wander": Wander})
