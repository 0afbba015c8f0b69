# SPDX-License-Identifier: Apache-2.0
"""Runs a command under a system-call filter: `python seccomp.py RULE... -- COMMAND`.

A rule is NUMBER[:FIRST][=ERRNO]: that call of x86-64 (with that first argument) fails with ERRNO, EPERM by default.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys

from sagecc.execution.stock.seccomp import ALLOW, REFUSE, Rule, install

PR_SET_NO_NEW_PRIVS = 38

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


def parsed(text: str) -> Rule:
    """Return a rule from its text."""
    found = re.fullmatch(r"(\d+)(?::(\d+))?(?:=(\d+))?", text)
    assert found, text
    number, first, error = (int(part) if part else None for part in found.groups())
    action = REFUSE + (error or 1)
    return Rule(number or 0, action) if first is None else Rule(number or 0, action, 0, (first,))


if __name__ == "__main__":
    end = sys.argv.index("--")
    assert ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    install(map(parsed, sys.argv[1:end]), ALLOW)
    os.execvp(sys.argv[end + 1], sys.argv[end + 1 :])
