# SPDX-License-Identifier: Apache-2.0
"""Find out why a guest ended too soon, from its console and its exit status."""

from __future__ import annotations

import errno
import os
import re
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path

from sagecc.collector.kernel.machine import MEMORY_REMEDY
from sagecc.common.errors import SEE_DOCTOR

NO_PTRACE = (
    "the guest may not trace its process here (ptrace is refused): allow it "
    "(Docker: --cap-add SYS_PTRACE; a host: sysctl kernel.yama.ptrace_scope=1)"
)
NO_SYSCALL = (
    "the guest was ended for a system call that is forbidden here (seccomp): "
    "run it without that filter; Docker's default one is fine"
)

_PRINTK = re.compile(r"^(<\d>)?(\[ *\d+\.\d+\] ?)?")
_HARMLESS = re.compile(r"umid|epollctl add err")
"""Harmless messages: the lab's guests have no pid file; a standard input that is a file cannot be polled."""

_TRACE = re.compile(
    r"^(Call Trace|Stack:|Stub registers|Modules linked in|CPU: \d|Hardware name|Code:|R[A-Z0-9]{1,2}: |EFLAGS|---\[|"
    r"\[<[0-9a-f]+>\]|([0-9a-f]{8,16} ?)+$|\S*\s*\( ?\d+\): [0-9a-f]+$)"
)
"""Lines of a panic's dump: registers, stack, traces."""

_PANIC = "Kernel panic - not syncing"
_FAILURE = re.compile(
    r"fail|errno|\berr(or)?\b|BUG|Oops|unable|cannot|can't|could not|denied|not permitted|no space|"
    r"out of memory|killed|refused|segfault|SIGSEGV",
    re.IGNORECASE,
)
_REFUSED = re.compile(rf"ptrace.*({os.strerror(errno.EPERM)}|errno = {errno.EPERM}\b)", re.IGNORECASE)
_ERRNO = re.compile(r"errno = (\d+)\b")


@dataclass(frozen=True)
class Crash:
    """Why a guest ended."""

    text: str
    """The cause and, where it is known, the remedy, in one line."""

    known: bool
    """Whether the cause is known; otherwise the console is worth a report."""


def explain(console: str, status: int, folder: str) -> Crash:
    """Return why a guest ended too soon.

    Args:
        console: everything that it printed.
        status: its exit status, negative for a signal.
        folder: the folder of its memory.
    """
    if "Bus error" in console or status == -signal.SIGBUS:
        return Crash(
            f"{folder} became full, and the guest's memory is there: run fewer jobs at a time, or {MEMORY_REMEDY}",
            True,
        )
    if "must be not mounted noexec" in console:
        return Crash(f"the guest's memory cannot be executed in {folder}: {MEMORY_REMEDY}", True)
    if _REFUSED.search(console):
        return Crash(f"{NO_PTRACE}; {SEE_DOCTOR}", True)
    if status == -signal.SIGSYS:
        return Crash(f"{NO_SYSCALL}; {SEE_DOCTOR}", True)
    messages = _messages(console)
    if messages:
        return Crash(f"the guest died in mid-episode: {messages}", False)
    if status == -signal.SIGKILL:
        return Crash(
            "the guest died in mid-episode: it was killed, by somebody or by the system for want of memory", True
        )
    return Crash(f"the guest died in mid-episode; it left no message (status {status})", False)


def keep_console(name: str, console: str) -> Path:
    """Write a dead guest's console to a new file among the machine's temporary ones; return its path."""
    descriptor, path = tempfile.mkstemp(prefix="sagecc-console-", suffix=".txt")
    with os.fdopen(descriptor, "w") as file:
        file.write(f"episode {name}\n{console}")
    return Path(path)


def _messages(console: str) -> str:
    """Return the lines that say what went wrong: what failed before a panic, and the panic; empty where none does."""
    texts = (_PRINTK.sub("", line.strip()).strip() for line in console.splitlines())
    lines = [line for line in texts if line and not _HARMLESS.search(line) and not _TRACE.match(line)]
    panic = next((n for n, line in enumerate(lines) if _PANIC in line), None)
    before = lines if panic is None else lines[:panic]
    failures = [line for line in before if _FAILURE.search(line)]
    cause = failures[-1] if failures else lines[-1] if lines and panic is None else None
    messages = [line for line in (cause, None if panic is None else lines[panic]) if line]
    return ", then ".join(f"'{_ERRNO.sub(_with_name, line)}'" for line in messages)


def _with_name(number: re.Match[str]) -> str:
    name = errno.errorcode.get(int(number[1]))
    return f"errno = {number[1]} ({name})" if name else number[0]
