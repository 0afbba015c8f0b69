# SPDX-License-Identifier: Apache-2.0
"""Processes of this machine that tests start, watch and end."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def guests(runner: int) -> set[int]:
    """The guest that `runner` started and its processes; other runners' guests are none of our business."""
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and b"time-travel=inf-cpu" in (entry / "cmdline").read_bytes():
                pid = int(entry.name)
                if runner in (parent(pid), parent(parent(pid))):
                    found.add(pid)
        except (OSError, ValueError):
            continue
    return found


def alive(pids: Iterable[int]) -> set[int]:
    """Those that still run; one that has ended may wait for its new parent to take note (state Z)."""
    found = set()
    for pid in pids:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.add(pid)
        except OSError:
            continue
    return found
