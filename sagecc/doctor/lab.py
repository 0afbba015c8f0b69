# SPDX-License-Identifier: Apache-2.0
"""The lab: what a guest needs of this machine, the kernel, and a golden episode with the bytes it has everywhere."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from sagecc.collector.kernel import identity, machine
from sagecc.collector.lab import crash
from sagecc.common.errors import SageccError
from sagecc.common.files import sha256_file
from sagecc.doctor import tracing
from sagecc.doctor.finding import GOLDEN, REPORT, Check, Finding, fails, plain, refuses, unneeded, works
from sagecc.schemas.schemes import OTHERS, SCHEMES

SCHEME = "cubic"
"""Whose golden episode is replayed, where not all are."""

WATCHDOG_S = 20.0
"""How long a guest may say nothing: it ends within a second."""

GUEST_MB = 192
"""The memory of a guest with one flow on an ordinary link (collector.lab.spec.BASE_MEMORY_MB)."""

EPISODE = re.compile(r"^episode \S+: ")
"""How an error of a guest's begins."""

REBUILD = "run 'sagecc kernel', which builds it anew where it is not that of this version's source"


def checks(kernel: Path, everything: bool) -> tuple[Check, ...]:
    """Return the group's checks. kernel: its file. everything: replay every scheme's golden episode."""
    trial = cache(tracing.trial)
    return (
        Check("processor", lambda: processor(trial())),
        Check("ptrace", lambda: ptrace(trial())),
        Check("guests' memory", memory),
        Check("kernel", lambda: the_kernel(kernel)),
        Check(GOLDEN, lambda: golden(kernel, (*SCHEMES, *OTHERS, identity.POLICY) if everything else (SCHEME,))),
    )


def processor(trial: tracing.Trial) -> Finding:
    """Is it x86-64, and how much state of a process has it?"""
    try:
        machine.check_machine()
    except SageccError as error:
        return refuses(error)
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    name = f"x86-64, {found[1]}" if found else "x86-64"
    state = f"; {trial.state_bytes:,} bytes of registers, any number will do" if trial.state_bytes else ""
    return works(f"{name}{state}")


def ptrace(trial: tracing.Trial) -> Finding:
    """May a process be traced, as the guest's kernel traces its processes?"""
    if os.uname().machine != "x86_64":
        return unneeded("not tried on another processor")
    if not trial.refused:
        return works("a child was stopped, read, set, and caught at a system call")
    scope = _text("/proc/sys/kernel/yama/ptrace_scope")
    said = f"{trial.refused}; kernel.yama.ptrace_scope is {scope}" if scope in ("2", "3") else trial.refused
    if trial.number in (errno.EPERM, errno.EACCES):
        return fails(said, refuses(crash.NO_PTRACE).what_to_do)
    return fails(said, "the lab needs all of Linux's own ptrace: run it outside of this sandbox")


def memory() -> Finding:
    """Is there a folder for guests' memory, and for how many at once?"""
    try:
        folder = machine.memory_folder(GUEST_MB)
        room_mb = machine.available_memory_mb(GUEST_MB)
    except SageccError as error:
        return fails(plain(error).removesuffix(f"; {machine.MEMORY_REMEDY}"), machine.MEMORY_REMEDY)
    return works(f"{folder}, {room_mb:,} MiB: room for {room_mb // GUEST_MB:,} guests at once")


def the_kernel(kernel: Path) -> Finding:
    """Is the virtual-time kernel there, and built from this version's source?"""
    schemes = (*SCHEMES, *OTHERS, identity.POLICY)
    try:
        machine.check_kernel(kernel.absolute())
        its = identity.kernel_identity(kernel, schemes)
    except SageccError as error:
        return refuses(error)
    ours = identity.join_identities(identity.identity_of_source(scheme) for scheme in schemes)
    if its != ours:
        return fails(f"{kernel} is of other source: {its}, not {ours}", REBUILD)
    return works(f"{kernel}: {identity.LAB}, sha256 {sha256_file(kernel)[:12]}")


def golden(kernel: Path, schemes: Sequence[str]) -> Finding:
    """Have these schemes' golden episodes the bytes that are pinned?"""
    # Loads numpy and pyarrow, which may be what is broken.
    from sagecc.collector.run.golden import ENVIRONMENTS, digest, pinned

    began, expected = time.perf_counter(), pinned()["sha256"]
    got = {}
    for scheme in schemes:
        try:
            got[scheme] = digest(kernel, scheme, WATCHDOG_S)
        except (SageccError, OSError) as error:
            return fails(f"{scheme} was not played: {EPISODE.sub('', plain(str(error)))}")
    took_s = time.perf_counter() - began
    wrong = [scheme for scheme in schemes if got[scheme] != expected[scheme]]
    if wrong:
        listed = ", ".join(f"{scheme} {got[scheme][:12]} for {expected[scheme][:12]}" for scheme in wrong)
        return fails(f"not the bytes that are pinned: {listed}", f"{REBUILD}; if that does not help, {REPORT}")
    virtual_s = sum(ENVIRONMENTS[scheme].duration_s for scheme in schemes)
    whose = f"{schemes[0]} {got[schemes[0]][:12]}" if len(schemes) == 1 else f"all {len(schemes)} schemes"
    return works(f"the same bytes as everywhere ({whose}; {virtual_s:,.0f} s in {took_s:.1f} s)")


def _text(path: str) -> str:
    return Path(path).read_text().strip() if os.access(path, os.R_OK) else ""
