# SPDX-License-Identifier: Apache-2.0
"""Tries the lab's use of ptrace on a process, and measures the size of the processor's state.

The trial is this file as a program of its own, which needs nothing but Python's library: it forks and stops, and a
process with threads should not. It stops a child, reads and sets its registers, and catches one of its system calls.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass

PTRACE_TRACEME, PTRACE_GETREGS, PTRACE_SETREGS, PTRACE_SYSEMU = 0, 12, 13, 31
PTRACE_SETOPTIONS, PTRACE_GETREGSET = 0x4200, 0x4204
PTRACE_O_TRACESYSGOOD, PTRACE_O_EXITKILL = 1, 1 << 20
NT_X86_XSTATE = 0x202
SYSTEM_CALL_STOP = signal.SIGTRAP | 0x80
REGISTERS_BYTES, STATE_BYTES = 512, 1 << 16
"""Room for a process's registers (216 bytes), and for its extended state."""

LIMIT_S = 5


@dataclass(frozen=True)
class PtraceTrial:
    """The trial's result."""

    refused: str = ""
    """The step that did not work and why, "" where all did."""
    number: int = 0
    """Its errno, or 0."""
    state_bytes: int | None = None
    """Size of NT_X86_XSTATE (SSE, AVX, AMX) by PTRACE_GETREGSET; None where that was not reached or does not work."""


def trial() -> PtraceTrial:
    """Run the trial in a process of its own."""
    command = [sys.executable, "-I", __file__]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=2 * LIMIT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return PtraceTrial(f"the trial could not be made: {error}")
    if process.returncode:
        last = (process.stderr.strip() or "without a word").splitlines()[-1]
        return PtraceTrial(f"the trial ended with status {process.returncode}: {last}")
    return PtraceTrial(**json.loads(process.stdout))


class _Vector(ctypes.Structure):
    """struct iovec."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def _ptrace(request: int, pid: int, address: int = 0, data: object = None) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    library.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    library.ptrace.restype = ctypes.c_long
    if library.ptrace(request, pid, address, data) == -1:
        raise OSError(ctypes.get_errno(), "")


def _child() -> None:
    try:
        _ptrace(PTRACE_TRACEME, 0)
    except OSError as error:
        os._exit(error.errno or 1)
    os.kill(os.getpid(), signal.SIGSTOP)
    os.getppid()
    os._exit(0)


def _try() -> PtraceTrial:
    """Trace a child, which ends with this process whatever happens."""
    signal.alarm(LIMIT_S)
    pid = os.fork()
    if pid == 0:
        _child()
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return PtraceTrial(
            f"PTRACE_TRACEME: the process that asked was killed by {signal.Signals(os.WTERMSIG(status)).name}"
        )
    if not os.WIFSTOPPED(status):
        return _refused("PTRACE_TRACEME", os.WEXITSTATUS(status))
    registers, state = ctypes.create_string_buffer(REGISTERS_BYTES), ctypes.create_string_buffer(STATE_BYTES)
    vector = _Vector(ctypes.addressof(state), STATE_BYTES)
    state_bytes: int | None = None
    steps = (
        ("PTRACE_SETOPTIONS", PTRACE_SETOPTIONS, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL),
        ("PTRACE_GETREGS", PTRACE_GETREGS, 0, ctypes.addressof(registers)),
        ("PTRACE_SETREGS", PTRACE_SETREGS, 0, ctypes.addressof(registers)),
        ("PTRACE_GETREGSET", PTRACE_GETREGSET, NT_X86_XSTATE, ctypes.addressof(vector)),
        ("PTRACE_SYSEMU", PTRACE_SYSEMU, 0, 0),
    )
    try:
        for name, request, address, data in steps:
            try:
                _ptrace(request, pid, address, data)
            except OSError as error:
                if request != PTRACE_GETREGSET:  # the kernel has another way
                    return _refused(name, error.errno or 0)
            else:
                state_bytes = vector.length if request == PTRACE_GETREGSET else state_bytes
        _, status = os.waitpid(pid, 0)
        if not os.WIFSTOPPED(status) or os.WSTOPSIG(status) != SYSTEM_CALL_STOP:
            return PtraceTrial("PTRACE_SYSEMU did not stop at a system call", 0, state_bytes)
        return PtraceTrial(state_bytes=state_bytes)
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _refused(name: str, number: int) -> PtraceTrial:
    return PtraceTrial(f"{name}: {os.strerror(number)} ({errno.errorcode.get(number, number)})", number)


if __name__ == "__main__":
    print(json.dumps(vars(_try())))
