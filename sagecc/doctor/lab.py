# SPDX-License-Identifier: Apache-2.0
"""The lab: what a guest needs of this machine, the kernel, and a golden episode that has the same bytes everywhere."""

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
"""The scheme whose golden episode is replayed, where not all are."""

WATCHDOG_S = 20.0
"""How long a guest may be silent: it ends within a second."""

GUEST_MB = 192
"""The memory of a guest with one flow on an ordinary link (collector.lab.spec.BASE_MEMORY_MB)."""

EPISODE = re.compile(r"^episode \S+: ")
"""How a guest's error begins."""

REBUILD = "run 'sagecc kernel', which builds it anew where it is not that of this version's source"


def checks(kernel: Path | None, thorough: bool) -> tuple[Check, ...]:
    """Return the group's checks.

    Args:
        kernel: path of the lab's kernel; None for the checkout's or the installation's.
        thorough: replay every scheme's golden episode.
    """
    trial = cache(tracing.trial)
    return (
        Check("processor", lambda: processor(trial())),
        Check("ptrace", lambda: ptrace(trial())),
        Check("guests' memory", memory),
        Check("kernel", lambda: virtual_time_kernel(kernel)),
        Check(GOLDEN, lambda: golden(kernel, () if thorough else (SCHEME,))),
    )


def processor(trial: tracing.PtraceTrial) -> Finding:
    """Check that the processor is x86-64; name it and the size of a process's state."""
    try:
        machine.check_machine()
    except SageccError as error:
        return refuses(error)
    model = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    name = f"x86-64, {model[1]}" if model else "x86-64"
    state = f"; {trial.state_bytes:,} bytes of registers, any number will do" if trial.state_bytes else ""
    return works(f"{name}{state}")


def ptrace(trial: tracing.PtraceTrial) -> Finding:
    """Check that a process may be traced, as the guest's kernel traces its processes."""
    if os.uname().machine != "x86_64":
        return unneeded("not tried on another processor")
    if not trial.refused:
        return works("a child was stopped, read, set, and caught at a system call")
    scope = _text("/proc/sys/kernel/yama/ptrace_scope")
    problem = f"{trial.refused}; kernel.yama.ptrace_scope is {scope}" if scope in ("2", "3") else trial.refused
    if trial.number in (errno.EPERM, errno.EACCES):
        return fails(problem, refuses(crash.NO_PTRACE).what_to_do)
    return fails(problem, "the lab needs all of Linux's own ptrace: run it outside of this sandbox")


def memory() -> Finding:
    """Check that there is a folder for guests' memory; count the guests that it has room for."""
    try:
        folder = machine.memory_folder(GUEST_MB)
        room_mb = machine.available_memory_mb(GUEST_MB)
    except SageccError as error:
        return fails(plain(error).removesuffix(f"; {machine.MEMORY_REMEDY}"), machine.MEMORY_REMEDY)
    return works(f"{folder}, {room_mb:,} MiB: room for {room_mb // GUEST_MB:,} guests at once")


def virtual_time_kernel(named: Path | None) -> Finding:
    """Check that the virtual-time kernel exists and was built from this version's source."""
    schemes = (*SCHEMES, *OTHERS, identity.POLICY)
    try:
        kernel = named or identity.own_kernel()
        machine.check_kernel(kernel.absolute())
        here = identity.kernel_identity(kernel, schemes)
    except SageccError as error:
        return refuses(error)
    expected = identity.join_identities(identity.identity_of_source(scheme) for scheme in schemes)
    if here != expected:
        return fails(f"{kernel} is of other source: {here}, not {expected}", REBUILD)
    return works(f"{kernel}: {identity.LAB}, sha256 {sha256_file(kernel)[:12]}")


def golden(named: Path | None, schemes: Sequence[str]) -> Finding:
    """Check that these schemes' golden episodes, or all if there are none, have the bytes that are pinned."""
    # Imports numpy and pyarrow, which may be what is broken.
    from sagecc.collector.run.golden import ENVIRONMENTS, digest, pinned

    schemes = schemes or tuple(ENVIRONMENTS)
    began_s, pins = time.perf_counter(), pinned()["sha256"]
    digests = {}
    for scheme in schemes:
        try:
            digests[scheme] = digest(named or identity.own_kernel(), scheme, WATCHDOG_S)
        except (SageccError, OSError) as error:
            return fails(f"{scheme} was not played: {EPISODE.sub('', plain(str(error)))}")
    took_s = time.perf_counter() - began_s
    wrong = [scheme for scheme in schemes if digests[scheme] != pins[scheme]]
    if wrong:
        differences = ", ".join(f"{scheme} {digests[scheme][:12]} for {pins[scheme][:12]}" for scheme in wrong)
        return fails(f"not the bytes that are pinned: {differences}", f"{REBUILD}; if that does not help, {REPORT}")
    virtual_s = sum(ENVIRONMENTS[scheme].duration_s for scheme in schemes)
    extent = f"{schemes[0]} {digests[schemes[0]][:12]}" if len(schemes) == 1 else f"all {len(schemes)} schemes"
    return works(f"the same bytes as everywhere ({extent}; {virtual_s:,.0f} s in {took_s:.1f} s)")


def _text(path: str) -> str:
    return Path(path).read_text().strip() if os.access(path, os.R_OK) else ""
