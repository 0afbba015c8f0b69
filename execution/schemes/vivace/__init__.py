# SPDX-License-Identifier: Apache-2.0
"""PCC Vivace: "PCC Vivace: Online-Learning Congestion Control" (NSDI 2018)."""

from __future__ import annotations

from sagecc.execution.schemes.rival import Rival
from sagecc.execution.schemes.vivace.scheme import Vivace

RIVAL = Rival("vivace", schemes={"vivace": Vivace})
