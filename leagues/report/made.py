# SPDX-License-Identifier: Apache-2.0
"""By what a page was made. Its date is that of the file: the same league gives the same bytes, on every machine."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version


@dataclass(frozen=True)
class Made:
    """What a page's footer says."""

    version: str
    """Of sagecc."""
    command: str

    @classmethod
    def by(cls, arguments: Sequence[str]) -> Made:
        """Return what makes a page now: `sagecc` with these arguments."""
        return cls(version("sagecc"), shlex.join(["sagecc", *arguments]))
