# SPDX-License-Identifier: Apache-2.0
# Not followed as an import: what a machine lacks ends a run, and changes none.
"""What a guest needs of the host: x86-64, room for its memory that may be executed, and leave to trace a process."""

from __future__ import annotations

import os
import re
from pathlib import Path

from sagecc.common.errors import SEE_DOCTOR, SageccError
from sagecc.common.limits import memory_limit_bytes

MIB = 1 << 20

ELSEWHERE = (
    "set TMPDIR to a folder on a file system that is mounted exec and has the room "
    "(or mount /dev/shm so: mount -o remount,exec,size=2g /dev/shm; Docker: --tmpfs /dev/shm:exec,size=2g)"
)
"""What to do when no folder can hold a guest's memory."""


def check_machine() -> None:
    """Raise SageccError on a machine whose processor cannot run the guest."""
    machine = os.uname().machine
    if machine != "x86_64":
        raise SageccError(
            f"the lab needs an x86-64 machine, this one is {machine}: run it on one, or in a virtual one; {SEE_DOCTOR}"
        )


def check_kernel(kernel: Path) -> None:
    """Raise SageccError where no kernel lies."""
    if not kernel.is_file():
        raise SageccError(f"no kernel at {kernel}: run 'sagecc kernel' first")


def memory_folder(memory_mb: int) -> str:
    """Return the folder for a guest's memory (MiB), which is a mapped file: /dev/shm, else TMPDIR, else /tmp.

    The guest's programs run from this memory, so the file system must be mounted exec; a page for which
    there is no room when it is first touched ends the guest. Raises SageccError if none will do.
    """
    reasons = []
    for folder in dict.fromkeys(("/dev/shm", os.environ.get("TMPDIR") or "/tmp", "/tmp")):
        reason = _unfit(folder, memory_mb)
        if reason is None:
            return folder
        reasons.append(f"{folder} {reason}")
    raise SageccError(
        f"no folder can hold the guest's memory of {memory_mb} MiB: {', '.join(reasons)}; {ELSEWHERE}; {SEE_DOCTOR}"
    )


def room_mb(memory_mb: int) -> int:
    """Return how much memory (MiB) guests can have at once, where one of `memory_mb` would have its own.

    Of what is free there, what the machine has available and what this process may use: /dev/shm is memory too.
    """
    available_kb = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    found = [_free_mb(os.statvfs(memory_folder(memory_mb)))]
    if available_kb:
        found.append(int(available_kb[1]) // 1024)
    if (limit_bytes := memory_limit_bytes()) is not None:
        found.append(limit_bytes // MIB)
    return min(found)


def _free_mb(found: os.statvfs_result) -> int:
    return found.f_bavail * found.f_frsize // MIB


def _unfit(folder: str, memory_mb: int) -> str | None:
    try:
        found = os.statvfs(folder)
    except OSError as error:
        return f"cannot be used ({error.strerror})"
    if not Path(folder).is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        return "is not a folder to write into"
    if found.f_flag & os.ST_NOEXEC:
        return "is mounted noexec"
    free_mb = _free_mb(found)
    return None if free_mb >= memory_mb else f"has {free_mb} MiB free"
