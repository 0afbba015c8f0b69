# SPDX-License-Identifier: Apache-2.0
# Not followed as an import: how many at once changes none of them (a test holds it).
"""What this process may use of its machine: a container's share by control groups (v2 and v1), its affinity."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

UNLIMITED_BYTES = 1 << 60
"""cgroup v1 says "no limit" with a number: one above this."""


def usable_cores() -> int:
    """Return how many cores this process may keep busy."""
    allowed, quota = len(os.sched_getaffinity(0)), cpus()
    return allowed if quota is None else max(1, min(allowed, int(quota)))


def cpus(process: Path = Path("/proc/self")) -> float | None:
    """Return how many processors' time this process may use, or None where nothing limits it."""
    found = []
    for folder in _groups(process, "cpu"):
        quota, period = _two(folder / "cpu.max") or (_text(folder / _V1_QUOTA), _text(folder / _V1_PERIOD))
        if quota.isdecimal() and period.isdecimal():  # "max" and -1 are none
            found.append(int(quota) / int(period))
    return min(found, default=None)


def memory_bytes(process: Path = Path("/proc/self")) -> int | None:
    """Return how much memory this process and its neighbours may use, or None where nothing limits it."""
    texts = [
        _text(folder / name)
        for folder in _groups(process, "memory")
        for name in ("memory.max", "memory.limit_in_bytes")
    ]
    return min((int(text) for text in texts if text.isdecimal() and int(text) < UNLIMITED_BYTES), default=None)


_V1_QUOTA, _V1_PERIOD = "cpu.cfs_quota_us", "cpu.cfs_period_us"


def _groups(process: Path, controller: str) -> Iterator[Path]:
    """Yield the groups that this process is in, by version 2 and by a controller's own hierarchy, and those above."""
    paths = {}
    for line in (process / "cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        paths.update(dict.fromkeys(names.split(","), path.lstrip("/")))
    for line in (process / "mounts").read_text().splitlines():
        _, mounted, kind, options, *_ = line.split()
        name = "" if kind == "cgroup2" else controller
        if kind == "cgroup2" or (kind == "cgroup" and controller in options.split(",")):
            # in a container the mount may be the group itself, whatever its path is called outside
            at = Path(paths.get(name, ""))
            yield from (Path(mounted) / folder for folder in (at, *at.parents) if (Path(mounted) / folder).is_dir())


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _two(path: Path) -> tuple[str, str] | None:
    words = _text(path).split()
    return (words[0], words[1]) if len(words) == 2 else None
