# SPDX-License-Identifier: Apache-2.0
"""What an agent's process gives up before it looks into a policy, which may be crafted to take the process over.

Left are memory, the descriptors that it holds, and the time. Nothing but the standard library is imported here, so that
the first step comes before any library starts a thread.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import resource
from pathlib import Path

from sagecc.common.errors import SEE_DOCTOR, SageccError
from sagecc.common.processes import end_with_parent
from sagecc.execution.stock.seccomp import KILL, REFUSE, Rule, install

NOBODY = 65534
"""The user and group without rights: Debian's and Fedora's `nobody`."""

DESCRIPTORS = 32
"""Most that it may open: it has a dozen, and opens one for each walk over the sockets."""

_CAP_KILL, _CAP_SETGID, _CAP_SETUID = 5, 6, 7
_PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 4, 24, 38
_CAPABILITY_VERSION_3 = 0x20080522

_CALLS = {
    "read": 0,
    "write": 1,
    "close": 3,
    "fstat": 5,
    "mmap": 9,
    "mprotect": 10,
    "munmap": 11,
    "brk": 12,
    "rt_sigaction": 13,
    "rt_sigprocmask": 14,
    "rt_sigreturn": 15,
    "sched_yield": 24,
    "mremap": 25,
    "madvise": 28,
    "nanosleep": 35,
    "getpid": 39,
    "sendto": 44,
    "recvmsg": 47,
    "exit": 60,
    "getuid": 102,
    "getgid": 104,
    "geteuid": 107,
    "getegid": 108,
    "getppid": 110,
    "gettid": 186,
    "futex": 202,
    "restart_syscall": 219,
    "clock_gettime": 228,
    "clock_nanosleep": 230,
    "exit_group": 231,
    "getrandom": 318,
}
"""The calls that it may make, whatever their arguments; numbers from Linux's syscall_64.tbl."""

_INTRUSIONS = {
    "socket": 41,
    "connect": 42,
    "bind": 49,
    "listen": 50,
    "fork": 57,
    "vfork": 58,
    "execve": 59,
    "kill": 62,
    "ptrace": 101,
    "mount": 165,
    "tkill": 200,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
    "execveat": 322,
    "io_uring_setup": 425,
    "pidfd_open": 434,
}
"""Calls that kill it: no library makes them for an agent. All others fail with EPERM, for libraries do try them."""

_TGKILL, _FCNTL, _FSTATAT, _BPF = 234, 72, 262, 321
_F_GETFD, _F_SETFD, _F_GETFL, _F_DUPFD_CLOEXEC = 1, 2, 3, 1030
_AT_EMPTY_PATH = 0x1000
_BPF_OBJ_GET_INFO_BY_FD, _BPF_ITER_CREATE = 15, 33


def held_capabilities() -> int:
    """Return this process's effective capabilities, one bit per capability."""
    return _capabilities(Path("/proc/self"), "CapEff")


def may_change_user() -> bool:
    """Tell whether this process can become another user that its parent, with the same rights, can still end."""
    capabilities = held_capabilities()
    return os.geteuid() == 0 and all(capabilities >> bit & 1 for bit in (_CAP_KILL, _CAP_SETGID, _CAP_SETUID))


def shed() -> None:
    """Give up capabilities early, where nothing needs them: a thread that a library starts keeps what there is then."""
    if not may_change_user():
        _drop_capabilities()


def confine(growth_bytes: int) -> None:
    """Give up for good, for every thread, what nobody needs who computes and holds its descriptors already.

    The process becomes NOBODY where it may change user, and has no capability. It may allocate `growth_bytes` more. It
    opens no file and no socket, starts nothing, sends a signal to nobody else, and ends with its parent. What is still
    to be imported, opened or compiled has to be so before.

    Raises:
        SageccError: the kernel does not confine it.
    """
    try:
        _drop_bounds()
        if may_change_user():
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)  # every thread loses its capabilities
        _drop_capabilities()
        if any(_capabilities(thread, "CapPrm") for thread in Path("/proc/self/task").iterdir()):
            raise OSError(errno.EPERM, "a thread keeps capabilities")
        _prctl(_PR_SET_DUMPABLE, 0)  # another process of the same user neither traces it nor reads its memory
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
        end_with_parent()  # the kernel forgot it with the change of user
        _limit(growth_bytes)
        install(_rules(), REFUSE + errno.EPERM)
    except OSError as error:
        raise SageccError(
            f"an agent cannot be confined here ({error.strerror}): the kernel needs CONFIG_SECCOMP_FILTER, and a"
            f" user {NOBODY} where root starts it; {SEE_DOCTOR}"
        ) from None


def _rules() -> list[Rule]:
    return [
        *(Rule(number) for number in _CALLS.values()),
        *(Rule(number, KILL) for number in _INTRUSIONS.values()),
        Rule(_BPF, argument=0, values=(_BPF_ITER_CREATE, _BPF_OBJ_GET_INFO_BY_FD)),
        Rule(_FCNTL, argument=1, values=(_F_GETFD, _F_SETFD, _F_GETFL, _F_DUPFD_CLOEXEC)),
        Rule(_FSTATAT, argument=3, values=(_AT_EMPTY_PATH,)),  # glibc's fstat
        Rule(_TGKILL, argument=0, values=(os.getpid(),)),  # abort(3)
    ]


def _limit(growth_bytes: int) -> None:
    size_pages = int(Path("/proc/self/statm").read_text().split()[0])
    limits = {
        resource.RLIMIT_AS: size_pages * resource.getpagesize() + growth_bytes,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_NOFILE: DESCRIPTORS,
        resource.RLIMIT_NPROC: 0,
    }
    for limit, value in limits.items():
        hard = resource.getrlimit(limit)[1]
        least = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (least, least))


def _drop_bounds() -> None:
    """Give up what an executed file could give; without the right to (CAP_SETPCAP) no_new_privs alone sees to it."""
    libc = ctypes.CDLL(None)
    for capability in range(64):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)


def _drop_capabilities() -> None:
    """Give up every capability of this thread."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, none = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    if libc.capset(header, none):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _capabilities(process: Path, kind: str) -> int:
    match = re.search(rf"^{kind}:\s*([0-9a-f]+)$", (process / "status").read_text(), re.MULTILINE)
    return int(match[1], 16) if match else 0
