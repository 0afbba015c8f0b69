# SPDX-License-Identifier: Apache-2.0
"""Sprout: "Stochastic Forecasts Achieve High Throughput and Low Delay over Cellular Networks" (NSDI 2013)."""

from __future__ import annotations

from sagecc.execution.schemes.rival import Rival
from sagecc.execution.schemes.sprout.scheme import sprout, sprout_ewma

RIVAL = Rival("sprout", schemes={"sprout": sprout, "sprout-ewma": sprout_ewma})
