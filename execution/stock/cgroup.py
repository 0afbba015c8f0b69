# SPDX-License-Identifier: Apache-2.0
"""A new control group for one program and all that it starts (cgroup v2)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sagecc.common.errors import SEE_DOCTOR, SageccError

PREFIX = "sagecc-exec-"
PROCESSES = "cgroup.procs"


def current_group() -> Path:
    """Return this process's group; raises SageccError where there is no cgroup v2."""
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    mount_point = next((Path(mount[1]) for mount in mounts if mount[2] == "cgroup2"), None)
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    path = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)
    if mount_point is None or path is None:
        raise SageccError(
            f"no cgroup v2 is mounted: mount one with 'mount -t cgroup2 cgroup2 /sys/fs/cgroup'; {SEE_DOCTOR}"
        )
    return mount_point / path.lstrip("/")


@contextmanager
def new_group() -> Iterator[Path]:
    """Make a group below this process's; at the end processes that are still in it are moved up.

    Raises:
        SageccError: there is no cgroup v2, or no group can be made.
    """
    parent = current_group()
    group = parent / f"{PREFIX}{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        raise SageccError(f"{group}: no control group can be made there: {error.strerror}; {SEE_DOCTOR}") from None
    try:
        yield group
    finally:
        _remove(group, parent)


def _remove(group: Path, parent: Path) -> None:
    for process in (group / PROCESSES).read_text().split():
        with contextlib.suppress(OSError):  # it has ended
            (parent / PROCESSES).write_text(process)
    with contextlib.suppress(OSError):
        group.rmdir()


def remove_leftovers() -> list[str]:
    """Remove groups whose `sagecc exec` was killed; return their paths. Where there is no cgroup v2 there are none."""
    with contextlib.suppress(SageccError):
        groups = current_group().rglob(f"{PREFIX}*")
        leftovers = [group for group in groups if not Path("/proc", group.name.removeprefix(PREFIX)).exists()]
        for group in leftovers:
            _remove(group, group.parent)
        return [str(group) for group in leftovers if not group.exists()]
    return []
