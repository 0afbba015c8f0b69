# SPDX-License-Identifier: Apache-2.0
"""What a guest requires of the host: x86-64, a folder for its memory that is mounted exec, and ptrace."""

from __future__ import annotations

import os
from pathlib import Path

from sagecc.common.errors import SEE_DOCTOR, SageccError
from sagecc.common.limits import available_memory_bytes, memory_limit_bytes

MIB = 1 << 20

MEMORY_REMEDY = (
    "set TMPDIR to a folder on a file system that is mounted exec and has the room "
    "(or mount /dev/shm so: mount -o remount,exec,size=2g /dev/shm; Docker: --tmpfs /dev/shm:exec,size=2g)"
)
"""Remedy when no folder can hold a guest's memory."""


def check_machine() -> None:
    """Check that this machine's processor can run a guest.

    Raises:
        SageccError: it cannot.
    """
    machine = os.uname().machine
    if machine != "x86_64":
        raise SageccError(
            f"the lab needs an x86-64 machine, this one is {machine}: run it on one, or in a virtual one; {SEE_DOCTOR}"
        )


def check_kernel(kernel: Path) -> None:
    """Check that there is a kernel at `kernel`.

    Raises:
        SageccError: there is none.
    """
    if not kernel.is_file():
        raise SageccError(f"no kernel at {kernel}: run 'sagecc kernel' first")


def memory_folder(memory_mb: int) -> str:
    """Return the folder for a guest's memory, which is a mapped file: /dev/shm, else TMPDIR, else /tmp.

    The guest's programs run from this memory, so the file system must be mounted exec; a page for which
    there is no space when it is first touched ends the guest.

    Args:
        memory_mb: size of the guest's memory (MiB).

    Raises:
        SageccError: no folder is fit.
    """
    faults = []
    for folder in dict.fromkeys(("/dev/shm", os.environ.get("TMPDIR") or "/tmp", "/tmp")):
        fault = _fault(folder, memory_mb)
        if fault is None:
            return folder
        faults.append(f"{folder} {fault}")
    raise SageccError(
        f"no folder can hold the guest's memory of {memory_mb} MiB: {', '.join(faults)}; {MEMORY_REMEDY}; {SEE_DOCTOR}"
    )


def available_memory_mb(memory_mb: int) -> int:
    """Return how much memory all guests together can have (MiB).

    The least of the free space in the guests' folder, the machine's available memory (/dev/shm is memory too) and this
    process's memory limit.

    Args:
        memory_mb: memory of one guest (MiB), which determines the folder.
    """
    limits_bytes = (available_memory_bytes(), memory_limit_bytes())
    limits_mb = [limit // MIB for limit in limits_bytes if limit is not None]
    return min(_free_mb(os.statvfs(memory_folder(memory_mb))), *limits_mb)


def _free_mb(file_system: os.statvfs_result) -> int:
    return file_system.f_bavail * file_system.f_frsize // MIB


def _fault(folder: str, memory_mb: int) -> str | None:
    """Return why a folder cannot hold a guest's memory (MiB), or None."""
    try:
        file_system = os.statvfs(folder)
    except OSError as error:
        return f"cannot be used ({error.strerror})"
    if not Path(folder).is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        return "is not a folder to write into"
    if file_system.f_flag & os.ST_NOEXEC:
        return "is mounted noexec"
    free_mb = _free_mb(file_system)
    return None if free_mb >= memory_mb else f"has {free_mb} MiB free"
