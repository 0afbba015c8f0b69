# SPDX-License-Identifier: Apache-2.0
"""What is said of a guest that died, for consoles as they were seen or would be."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from sagecc.collector.lab.crash import Crash, explain, keep_console

TRACE = """
CPU: 0 UID: 0 PID: 1 Comm: init Not tainted 6.12.117 #1
Stack:
 00000000 6082fc30 6049bb3d 6082fd00
 6001e9f0 60659e40 6082fd00 6082fca8
Call Trace:
 [<6001e9f0>] ? 0x000000006001e9f0
 [<603eebd9>] ? panic+0x12/0x34
"""
REGISTERS = """
Stub registers -
	R15	( 0): 6002bba0
	ORIG_AX	(15): b
		(16): 7fbffff05e
"""
STUB = "wait_stub_done : failed to wait for SIGTRAP, pid = 28772, errno = 25"
KILLED_INIT = "Kernel panic - not syncing: Attempted to kill init! exitcode=0x0000000b"

UNKNOWN = {
    "the state of a processor with AMX": (
        f"userspace - ptrace set fp regs failed, errno = 14\n{KILLED_INIT}{TRACE}",
        f"'userspace - ptrace set fp regs failed, errno = 14 (EFAULT)', then '{KILLED_INIT}'",
    ),
    "a stub that was ended": (
        f"{REGISTERS}{STUB}, status = 0xb7f\n{KILLED_INIT}{TRACE}",
        f"'{STUB} (ENOTTY), status = 0xb7f', then '{KILLED_INIT}'",
    ),
    "a panic that says it all": (
        f"<0>[    0.120000] Kernel panic - not syncing: VFS: Unable to mount root fs{TRACE}",
        "'Kernel panic - not syncing: VFS: Unable to mount root fs'",
    ),
    "a guest out of its own memory": (
        "Out of memory: Killed process 21 (init) total-vm:1000kB\n"
        f"Kernel panic - not syncing: System is deadlocked on memory{TRACE}",
        "'Out of memory: Killed process 21 (init) total-vm:1000kB', "
        "then 'Kernel panic - not syncing: System is deadlocked on memory'",
    ),
    "a kernel's bug": (
        f"[ 7.5] BUG: kernel NULL pointer dereference, address: 0000000000000008{TRACE}{KILLED_INIT}\n",
        f"'BUG: kernel NULL pointer dereference, address: 0000000000000008', then '{KILLED_INIT}'",
    ),
    "no panic, a failed call": (
        "make_umid - failed\nepollctl add err fd 6, Operation not permitted\nmapping failed: Cannot allocate memory\n",
        "'mapping failed: Cannot allocate memory'",
    ),
    "words without a failure": ("Rebooting.\n", "'Rebooting.'"),
    "ptrace that was not refused": (
        "check_ptrace : expected SIGSTOP, got status = 256\nptrace: No such process\n",
        "'ptrace: No such process'",
    ),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_the_guests_own_words(case: str) -> None:
    console, words = UNKNOWN[case]
    assert explain(console, 1, "/dev/shm") == Crash(f"the guest died in mid-episode: {words}", known=False)


KNOWN = {
    "ptrace refused": ("ptrace: Operation not permitted\ncheck_ptrace : expected SIGSTOP, got status = 9\n", 1),
    "ptrace refused later": ("check_ptrace: PTRACE_SETOPTIONS failed: Operation not permitted\n", 1),
    "ptrace refused in mid-episode": (f"userspace - ptrace set regs failed, errno = 1\n{KILLED_INIT}", 1),
    "a full folder": ("Bus error - the host /dev/shm or /tmp mount likely just ran out of space\n", 1),
    "a full folder, no words": ("", -signal.SIGBUS),
    "a noexec folder": ("Operation not permitted\n/dev/shm must be not mounted noexec\n", 1),
    "a forbidden call": ("", -signal.SIGSYS),
    "killed": ("", -signal.SIGKILL),
}
SAYS = {
    "ptrace": "the guest may not trace its process here (ptrace is refused)",
    "a full": "/dev/shm became full",
    "a noexec": "the guest's memory cannot be executed in /dev/shm",
    "a forbidden": "the guest was ended for a system call that is forbidden here (seccomp)",
    "killed": "the guest died in mid-episode: it was killed, by somebody or by the system for want of memory",
}


@pytest.mark.parametrize("case", KNOWN)
def test_a_known_cause_has_its_advice(case: str) -> None:
    crash = explain(*KNOWN[case], "/dev/shm")
    assert crash.known
    assert crash.text.startswith(next(text for start, text in SAYS.items() if case.startswith(start)))
    assert "ptrace" not in crash.text or case.startswith("ptrace")


def test_no_words_at_all() -> None:
    assert explain("make_umid - failed\n", 3, "/tmp").text.endswith("it left no message (status 3)")


def test_the_console_is_kept_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = keep_console("some.cubic.0", TRACE)
    assert path.parent == tmp_path
    assert path.read_text() == f"episode some.cubic.0\n{TRACE}"
