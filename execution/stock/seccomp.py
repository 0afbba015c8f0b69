# SPDX-License-Identifier: Apache-2.0
"""Filters of system calls on x86-64 (seccomp(2)), as programs of classic BPF."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass

ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050000, 0x80000000
"""What becomes of a call: it is made; it fails with the error number that is added; its process dies of SIGSYS."""

_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06  # load a word, jump if it is equal, return
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # where struct seccomp_data has them
_X86_64 = 0xC000003E  # AUDIT_ARCH_X86_64
_SECCOMP, _SET_MODE_FILTER, _EVERY_THREAD = 317, 1, 1

_Step = tuple[int, int, int, int]


@dataclass(frozen=True)
class Rule:
    """What becomes of a system call."""

    call: int
    """Its number."""
    action: int = ALLOW
    """ALLOW, REFUSE + an error number, or KILL."""
    argument: int | None = None
    """The argument, from 0 on, that decides whether the rule holds; None: it always holds."""
    values: tuple[int, ...] = ()
    """The values for which it holds, of 32 bits: the kernel takes no more of a descriptor, a command or flags."""

    def steps(self) -> list[_Step]:
        """Return the rule's program, which goes on behind its last step where the rule does not hold."""
        body: list[_Step] = [(_RETURN, 0, 0, self.action)]
        if self.argument is not None:
            last = len(self.values) - 1
            tests = [(_EQUAL, last - i, int(i == last), value) for i, value in enumerate(self.values)]
            body = [(_LOAD, 0, 0, _ARGUMENTS + 8 * self.argument), *tests, *body, (_LOAD, 0, 0, _NUMBER)]
        return [(_EQUAL, 0, len(body), self.call), *body]


def install(rules: Iterable[Rule], otherwise: int) -> None:
    """Filter the calls of every thread of this process, and of all that it starts, for good.

    The process has no_new_privs or CAP_SYS_ADMIN. Calls of another architecture kill it.

    Args:
        rules: the first that holds decides.
        otherwise: what becomes of all other calls, as Rule.action.

    Raises:
        OSError: the kernel has no such filters, or refuses.
    """
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, _X86_64),
        (_RETURN, 0, 0, KILL),
        (_LOAD, 0, 0, _NUMBER),
        *(step for rule in rules for step in rule.steps()),
        (_RETURN, 0, 0, otherwise),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
    header = struct.pack("HxxxxxxQ", len(program), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(ctypes.c_long(_SECCOMP), _SET_MODE_FILTER, _EVERY_THREAD, header):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
