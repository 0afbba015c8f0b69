# SPDX-License-Identifier: Apache-2.0
"""Processors and memory that this process may use: its affinity and its control groups (v2 and v1)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

UNLIMITED_BYTES = 1 << 60
"""Control groups v1 express "no limit" as a number of at least this."""


def available_memory_bytes() -> int | None:
    """Return the machine's memory that is available without swapping, or None where the kernel does not say."""
    match = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    return int(match[1]) * 1024 if match else None


def usable_cores() -> int:
    """Return how many cores this process may keep busy, by affinity and quota."""
    affine, quota = len(os.sched_getaffinity(0)), cpu_quota()
    return affine if quota is None else max(1, min(affine, int(quota)))


def cpu_quota(process: Path = Path("/proc/self")) -> float | None:
    """Return the CPU quota of a process's control groups, or None where nothing limits it.

    Args:
        process: its folder in /proc.

    Returns:
        CPU-seconds per second, the least of all groups.
    """
    quotas = []
    for folder in _groups(process, "cpu"):
        quota, period = _word_pair(folder / "cpu.max") or (_text(folder / _V1_QUOTA), _text(folder / _V1_PERIOD))
        if quota.isdecimal() and period.isdecimal():  # "max" and -1 mean no limit
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def memory_limit_bytes(process: Path = Path("/proc/self")) -> int | None:
    """Return the memory limit of a process's control groups (bytes), or None where nothing limits it.

    Args:
        process: its folder in /proc.

    Returns:
        The least limit of all groups; other processes in a group share it.
    """
    texts = [
        _text(folder / name)
        for folder in _groups(process, "memory")
        for name in ("memory.max", "memory.limit_in_bytes")
    ]
    return min((int(text) for text in texts if text.isdecimal() and int(text) < UNLIMITED_BYTES), default=None)


_V1_QUOTA, _V1_PERIOD = "cpu.cfs_quota_us", "cpu.cfs_period_us"


def _groups(process: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of a process's control groups and of their parents, in v2 and in a v1 controller's tree."""
    paths = {}
    for line in (process / "cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        paths.update(dict.fromkeys(names.split(","), path.lstrip("/")))
    for line in (process / "mounts").read_text().splitlines():
        _, mount_point, kind, options, *_ = line.split()
        name = "" if kind == "cgroup2" else controller
        if kind == "cgroup2" or (kind == "cgroup" and controller in options.split(",")):
            # in a container the mount may be the group itself, whatever its path is called outside
            group = Path(paths.get(name, ""))
            folders = (Path(mount_point) / folder for folder in (group, *group.parents))
            yield from (folder for folder in folders if folder.is_dir())


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _word_pair(path: Path) -> tuple[str, str] | None:
    words = _text(path).split()
    return (words[0], words[1]) if len(words) == 2 else None
