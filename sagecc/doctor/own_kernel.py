# SPDX-License-Identifier: Apache-2.0
"""A policy on this machine's own kernel: `sagecc attach` and `sagecc exec`. What needs no trace left is really done."""

from __future__ import annotations

from contextlib import closing
from platform import release

from sagecc.common.errors import SageccError
from sagecc.doctor.finding import REPORT, Check, Finding, fails, refuses, unneeded, works
from sagecc.execution.stock import cgroup, kernel_scheme, libbpf

NO_PRIVILEGES, NO_LIBRARY = ("not tried: it needs " + what for what in ("the privileges above", "libbpf"))
AS_ROOT = "run it as root; 'sudo sagecc doctor' then tries what follows"


def checks() -> tuple[Check, ...]:
    """Return the group's checks."""
    return (
        Check("privileges", privileges),
        Check("libbpf", library),
        Check("type information", type_information),
        Check("BPF", bpf),
        Check("BPF file system", bpf_file_system),
        Check("control group", control_group),
    )


def privileges() -> Finding:
    """May this process load BPF programs and put control groups under them?"""
    missing = kernel_scheme.missing_capabilities(*kernel_scheme.CGROUP_CAPABILITIES)
    if missing:
        return fails(f"{', '.join(missing)} missing", AS_ROOT)
    return works("CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN are held")


def library() -> Finding:
    """Is libbpf installed?"""
    try:
        found = libbpf.library()
    except SageccError as error:
        return refuses(error)
    return works(f"{libbpf.LIBRARY}, {found.libbpf_version_string().decode()}")


def type_information() -> Finding:
    """Is the kernel new enough, does it describe its types (BTF), and is there an object that fits them?"""
    if _no_library():
        return unneeded(NO_LIBRARY)
    try:
        found = kernel_scheme.fitting_object()
    except SageccError as error:
        return refuses(error)
    return works(f"Linux {release()} has it (BTF), and {found.name} fits")


def bpf() -> Finding:
    """Does the kernel take the scheme? It is loaded and verified, not registered: no socket can choose it."""
    if _no_library():
        return unneeded(NO_LIBRARY)
    if kernel_scheme.missing_capabilities(*kernel_scheme.CGROUP_CAPABILITIES):
        return unneeded(NO_PRIVILEGES)
    try:
        with closing(kernel_scheme.Scheme(1, kernel_scheme.private_name(), cgroups=True)):
            return works("the kernel verified and loaded the scheme, and let go of it again")
    except SageccError as error:
        return fails(error, f"look for what forbids BPF (seccomp, lockdown, a security module); else {REPORT}")


def bpf_file_system() -> Finding:
    """Is there a place where `sagecc attach` can keep its scheme?"""
    place = kernel_scheme.PINS.parent
    if kernel_scheme.is_bpf(place):
        return works(f"{place}, where 'attach' keeps its scheme")
    return fails(f"none at {place}, which 'attach' needs", f"mount -t bpf bpf {place}, or give it another by --pins")


def control_group() -> Finding:
    """Can `sagecc exec` make a control group of version 2? One is made, and removed."""
    try:
        own = cgroup.current_group()
    except SageccError as error:
        return refuses(error)
    if kernel_scheme.missing_capabilities():
        return unneeded(f"{own} is there; {NO_PRIVILEGES}")
    with cgroup.new_group():
        return works(f"'exec' can make one in {own}")


def _no_library() -> bool:
    try:
        libbpf.library()
    except SageccError:
        return True
    return False
