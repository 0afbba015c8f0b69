# SPDX-License-Identifier: Apache-2.0
"""What a guest leaves on the host that is killed at the worst moment: nothing, at none."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.processes import alive

TRACEME, CONT, DETACH, SETOPTIONS, GETEVENTMSG = 0, 7, 17, 0x4200, 0x4201
TRACE_FORKS, EVENT_FORK = 0x2, 1
WALL = 0x40000000

ptrace = ctypes.CDLL(None, use_errno=True).ptrace
ptrace.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
ptrace.restype = ctypes.c_long


def held_at_fork(kernel: Path, which: int) -> tuple[int, int]:
    """Start a guest and hold it where it forks for the `which`th time; return it and its child, which is held too."""
    guest = os.fork()
    if not guest:
        ptrace(TRACEME, 0, None, None)
        os.kill(os.getpid(), signal.SIGSTOP)
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        os.execve(kernel, [str(kernel), "mem=64M", "uml_dir=/dev/null/"], {})
    _, status = os.waitpid(guest, 0)
    ptrace(SETOPTIONS, guest, None, TRACE_FORKS)
    while which:
        ptrace(CONT, guest, None, passed_on(status))
        _, status = os.waitpid(guest, 0)
        assert os.WIFSTOPPED(status), "the guest has ended"
        if status >> 8 == signal.SIGTRAP | EVENT_FORK << 8:
            which -= 1
            child = ctypes.c_ulong()
            ptrace(GETEVENTMSG, guest, None, ctypes.addressof(child))
            os.waitpid(child.value, WALL)
            if which:
                ptrace(DETACH, child.value, None, None)
    return guest, child.value


def passed_on(status: int) -> int:
    """The signal that a stop was for; those of ours are not passed on."""
    number = os.WSTOPSIG(status)
    return 0 if number in (signal.SIGTRAP, signal.SIGSTOP) else number


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def before_it_is_traced(guest: int, child: int) -> None:
    os.kill(guest, signal.SIGKILL)
    os.waitpid(guest, 0)
    ptrace(DETACH, child, None, None)


def while_it_is_traced(guest: int, child: int) -> None:
    ptrace(DETACH, child, None, None)
    until = time.monotonic() + 10
    while state(child) != "t" and time.monotonic() < until:
        time.sleep(0.001)
    assert state(child) == "t"
    os.kill(guest, signal.SIGKILL)
    os.waitpid(guest, 0)


@pytest.mark.parametrize("killed", [before_it_is_traced, while_it_is_traced])
@pytest.mark.parametrize("which", [1, 2, 3])
def test_a_child_of_the_start_up_checks_dies_with_the_kernel(
    kernel: Path, which: int, killed: Callable[[int, int], None]
) -> None:
    guest, child = held_at_fork(kernel, which)
    try:
        killed(guest, child)
        until = time.monotonic() + 10
        while alive({child}) and time.monotonic() < until:
            time.sleep(0.01)
        assert not alive({child}), f"it is left in state {state(child)}"
    finally:
        for pid in alive({child}):
            os.kill(pid, signal.SIGKILL)
