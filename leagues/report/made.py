# SPDX-License-Identifier: Apache-2.0
"""When, by which command and on which machine a page was made; the one part of it that no other run repeats."""

from __future__ import annotations

import datetime
import os
import platform
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path


@dataclass(frozen=True)
class Made:
    """What a page's footer says."""

    date: str
    """In UTC, to the minute."""
    version: str
    """Of sagecc."""
    command: str
    machine: str
    """Processor, cores and kernel; no name."""

    @classmethod
    def now(cls, arguments: Sequence[str]) -> Made:
        """Return what made a page just now: `sagecc` with these arguments."""
        model = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        return cls(
            date=f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC",
            version=version("sagecc"),
            command=shlex.join(["sagecc", *arguments]),
            machine=f"{model[1] if model else platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}",
        )
