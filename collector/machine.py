# SPDX-License-Identifier: Apache-2.0
# Not followed as an import: what a machine lacks ends a run, and changes none.
"""What a guest needs of the host: x86-64, room for its memory that may be executed, and leave to trace a process."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

from sagecc.schemas.errors import SageccError

MIB = 1 << 20

ELSEWHERE = (
    "set TMPDIR to a folder on a file system that is mounted exec and has the room "
    "(or mount /dev/shm so: mount -o remount,exec,size=2g /dev/shm; Docker: --tmpfs /dev/shm:exec,size=2g)"
)
"""What to do when no folder can hold a guest's memory."""

NO_PTRACE = (
    "the guest may not trace its process here (ptrace is refused): allow it "
    "(Docker: --cap-add SYS_PTRACE --security-opt seccomp=unconfined; a host: sysctl kernel.yama.ptrace_scope=1)"
)
NO_PERSONALITY = (
    "address randomisation cannot be turned off here (personality is refused), and with it runs would differ: "
    "allow it (Docker: --security-opt seccomp=unconfined)"
)


def check_machine() -> None:
    """Raise SageccError on a machine whose processor cannot run the guest."""
    machine = os.uname().machine
    if machine != "x86_64":
        raise SageccError(f"the lab needs an x86-64 machine, this one is {machine}: run it on one, or in a virtual one")


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
    raise SageccError(f"no folder can hold the guest's memory of {memory_mb} MiB: {', '.join(reasons)}; {ELSEWHERE}")


def room_mb(memory_mb: int) -> int:
    """Return how much memory (MiB) guests can have at once, where one of `memory_mb` would have its own.

    Of what is free there and of what the machine has available, the smaller: /dev/shm is memory too.
    """
    available_kb = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    free_mb = _free_mb(os.statvfs(memory_folder(memory_mb)))
    return min(free_mb, int(available_kb[1]) // 1024) if available_kb else free_mb


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


def obituary(console: str, status: int, folder: str) -> str:
    """Say why a guest ended too soon.

    console: all that it printed. status: its exit status, negative for a signal. folder: where its memory was.
    """
    lines = [line.strip() for line in console.splitlines() if line.strip() and "umid" not in line]  # it has no pid file
    if "Bus error" in console or status == -signal.SIGBUS:
        return f"{folder} became full, and the guest's memory is there: run fewer jobs at a time, or {ELSEWHERE}"
    if "must be not mounted noexec" in console or "PROT_EXEC mmap" in console:
        return f"the guest's memory cannot be executed in {folder}: {ELSEWHERE}"
    if "failed to set personality" in console:
        return NO_PERSONALITY
    if "ptrace" in console:
        return NO_PTRACE
    if lines:
        return f"the guest died in mid-episode; its last words: {lines[-1]}"
    if status == -signal.SIGKILL:
        return "the guest died in mid-episode: it was killed, by somebody or by the system for want of memory"
    return f"the guest died in mid-episode; it left no message (status {status})"
