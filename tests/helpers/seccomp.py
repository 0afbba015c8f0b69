# SPDX-License-Identifier: Apache-2.0
"""Runs a command under a system-call filter: `python seccomp.py RULE... -- COMMAND`.

A rule is NUMBER[:FIRST][=ERRNO]: that call of x86-64 (with that first argument) fails with ERRNO, EPERM by default.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
import sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
"""Of classic BPF: load a word, jump if equal, return."""

NUMBER, FIRST_ARGUMENT = 0, 16
"""Where struct seccomp_data holds them."""

ALLOW, REFUSE = 0x7FFF0000, 0x00050000

PTRACE, PERSONALITY = 101, 135
PTRACE_SETREGSET = 0x4205

SECCOMP = (sys.executable, __file__)
"""Before rules, `--` and a command: runs it under them."""

DOCKER = (
    *(134, 135, 136, 139, 153, 155, 156, 161, 163, 164, 165, 166, 167, 168, 169, 170, 171, 172, 173, 174, 175, 176),
    *(177, 178, 179, 180, 103, 212, 227, 237, 238, 239, 246, 248, 249, 250, 256, 272, 279, 298, 300, 304, 308, 312),
    *(313, 320, 321, 323, 425, 426, 427, 428, 429, 430, 431, 432, 433, 438, 440, 442, 443, 450),
)
"""What Docker's default profile (moby, profiles/seccomp/default_linux.go) refuses a container without capabilities,
whatever the arguments: personality, and from mount to bpf; clone3 besides, with ENOSYS."""

DOCKER_RULES = (*map(str, DOCKER), "435=38")


def steps(rule: str) -> list[tuple[int, int, int, int]]:
    """Return the filter's steps for one rule; each begins with the call's number loaded."""
    found = re.fullmatch(r"(\d+)(?::(\d+))?(?:=(\d+))?", rule)
    assert found, rule
    number, first, error = (int(text) if text else None for text in found.groups())
    refuse = [(RETURN, 0, 0, REFUSE | (error or 1))]
    if first is not None:
        reload = (LOAD, 0, 0, NUMBER)
        refuse = [(LOAD, 0, 0, FIRST_ARGUMENT), (EQUAL, 0, 1, first), *refuse, reload]
    return [(EQUAL, 0, len(refuse), number or 0), *refuse]


def install(rules: list[str]) -> None:
    """Filter this process and all that it starts."""
    program = [(LOAD, 0, 0, NUMBER), *(step for rule in rules for step in steps(rule)), (RETURN, 0, 0, ALLOW)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
    header = struct.pack("HxxxxxxQ", len(program), ctypes.addressof(code))
    libc = ctypes.CDLL(None)
    assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, header, 0, 0) == 0


if __name__ == "__main__":
    end = sys.argv.index("--")
    install(sys.argv[1:end])
    os.execvp(sys.argv[end + 1], sys.argv[end + 1 :])
