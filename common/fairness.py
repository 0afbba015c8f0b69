# SPDX-License-Identifier: Apache-2.0
"""Jain's fairness index (Jain, Chiu and Hawe, DEC-TR-301, 1984)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def jain_index(rates: Sequence[float]) -> float | None:
    """Return the index of some rates, or None where no rate is above 0.

    It is 1 for equal rates and 1/n where one flow takes all.
    """
    squares = sum(rate * rate for rate in rates)
    return float(jain_of_sums(sum(rates), squares, len(rates))) if squares else None


def jain_of_sums(total: Any, squares: Any, count: Any) -> Any:
    """Return the index, (sum x)^2 / (n sum x^2), of sums, be they numbers or Polars' expressions.

    Args:
        total: sum of the rates.
        squares: sum of their squares, above 0.
        count: how many there are.
    """
    return total**2 / (count * squares)
