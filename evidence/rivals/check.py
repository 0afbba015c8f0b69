# SPDX-License-Identifier: Apache-2.0
"""A number of a publication, and the same number here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sagecc.leagues.claims import Measurement, exact


@dataclass(frozen=True)
class Number:
    """What a claim is about that prints a number: it holds where ours lies in the claim's bounds."""

    scheme: str
    """The scheme's name here."""
    unit: str
    """"" for a ratio."""
    published: float
    """The number there."""
    ours: Callable[[Path], float]
    """Takes the lab's kernel; returns the number here."""
    why: str = ""
    """Where ours cannot agree, the reason."""

    def __call__(self, kernel: Path) -> list[Measurement]:
        """Measure it."""
        ours = self.ours(kernel)
        return [Measurement(exact(ours), figures={"ours": ours})]
