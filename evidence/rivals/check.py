# SPDX-License-Identifier: Apache-2.0
"""A number of a publication, and the same number here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RivalCheck:
    """One figure or number of a scheme's own publication."""

    scheme: str
    """The scheme's name here."""
    source: str
    """Where the number stands, such as "Copa (NSDI 2018), section 2.2"."""
    says: str
    """What is measured, in which network: a sentence."""
    unit: str
    """Of the number; "" for a ratio."""
    published: float
    """The number there."""
    low: float
    """From which ours agrees with it."""
    high: float
    """Up to which ours does."""
    measure: Callable[[Path], float]
    """Takes the lab's kernel; returns the number here."""
    why: str = ""
    """Where ours cannot agree, the reason."""
