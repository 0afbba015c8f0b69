# SPDX-License-Identifier: Apache-2.0
"""Intervals over repeats: Student's t, two-sided, 95 %; a few repeats are too few for a bootstrap to draw from."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sagecc.common.arrays import Doubles

_STUDENT_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""97.5 % quantiles for 1 to 30 degrees of freedom."""


@dataclass(frozen=True)
class Interval:
    """A mean over repeats and its 95 % interval."""

    count: int
    mean: float | None
    """None without repeats."""
    low: float | None
    """None for fewer than two repeats."""
    high: float | None


def student_t(degrees: int) -> float:
    """Return the 97.5 % quantile of Student's t; beyond 30 degrees by the first terms of Cornish and Fisher."""
    if degrees <= len(_STUDENT_T):
        return _STUDENT_T[degrees - 1]
    z = 1.959964
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def interval(values: Doubles) -> Interval:
    """Return the mean of repeats with Student's interval."""
    count = len(values)
    if not count:
        return Interval(0, None, None, None)
    mean = float(values.mean())
    if count == 1:
        return Interval(1, mean, None, None)
    half = student_t(count - 1) * float(values.std(ddof=1)) / math.sqrt(count)
    return Interval(count, mean, mean - half, mean + half)
