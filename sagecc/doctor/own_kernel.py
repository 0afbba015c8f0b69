# SPDX-License-Identifier: Apache-2.0
"""A policy on this machine's own kernel: `sagecc attach` and `sagecc exec`. What leaves no trace is really done."""

from __future__ import annotations

from contextlib import closing
from platform import release

from sagecc.common.errors import SageccError
from sagecc.doctor.extras import run_python
from sagecc.doctor.finding import REPORT, Check, Finding, fails, refuses, unneeded, works
from sagecc.execution.stock import cgroup, kernel_scheme, libbpf

NO_PRIVILEGES, NO_LIBRARY = "not tried: it needs the privileges above", "not tried: it needs libbpf"
AS_ROOT = "run it as root; 'sudo sagecc doctor' then tries what follows"

CONFINED = """
import os
from sagecc.common.errors import SageccError
from sagecc.execution.stock.confinement import confine
try:
    confine(1 << 28)
    os.open("/", os.O_RDONLY)
except SageccError as error:
    raise SystemExit(str(error))
except PermissionError:
    print(os.getuid())
else:
    raise SystemExit("a confined process could open a file")
"""


def checks() -> tuple[Check, ...]:
    """Return the group's checks."""
    return (
        Check("privileges", privileges),
        Check("libbpf", library),
        Check("type information", type_information),
        Check("BPF", bpf),
        Check("BPF file system", bpf_file_system),
        Check("control group", control_group),
        Check("confinement", confinement),
    )


def privileges() -> Finding:
    """Check that this process may load BPF programs and attach them to control groups."""
    missing = kernel_scheme.missing_capabilities(*kernel_scheme.CGROUP_CAPABILITIES)
    if missing:
        return fails(f"{', '.join(missing)} missing", AS_ROOT)
    return works("CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN are held")


def library() -> Finding:
    """Check that libbpf is installed."""
    try:
        loaded = libbpf.library()
    except SageccError as error:
        return refuses(error)
    return works(f"{libbpf.LIBRARY}, {loaded.libbpf_version_string().decode()}")


def type_information() -> Finding:
    """Check that the kernel is new enough, describes its types (BTF), and that an object fits them."""
    if _no_library():
        return unneeded(NO_LIBRARY)
    try:
        path = kernel_scheme.fitting_object()
    except SageccError as error:
        return refuses(error)
    return works(f"Linux {release()} has it (BTF), and {path.name} fits")


def bpf() -> Finding:
    """Check that the kernel takes the scheme: it is loaded and verified, not registered, so no socket can choose it."""
    if _no_library():
        return unneeded(NO_LIBRARY)
    if kernel_scheme.missing_capabilities(*kernel_scheme.CGROUP_CAPABILITIES):
        return unneeded(NO_PRIVILEGES)
    try:
        with closing(kernel_scheme.Scheme(1, kernel_scheme.private_name(), cgroups=True, trials=True)):
            return works("the kernel verified and loaded the scheme, and let go of it again")
    except SageccError as error:
        return fails(error, f"look for what forbids BPF (seccomp, lockdown, a security module); else {REPORT}")


def bpf_file_system() -> Finding:
    """Check that there is a BPF file system where `sagecc attach` can pin its scheme."""
    folder = kernel_scheme.PINS.parent
    if kernel_scheme.is_bpf(folder):
        return works(f"{folder}, where 'attach' keeps its scheme")
    return fails(f"none at {folder}, which 'attach' needs", f"mount -t bpf bpf {folder}, or give it another by --pins")


def control_group() -> Finding:
    """Check that `sagecc exec` can make a control group of version 2: one is made, and removed."""
    try:
        parent = cgroup.current_group()
    except SageccError as error:
        return refuses(error)
    if kernel_scheme.missing_capabilities():
        return unneeded(f"{parent} is there; {NO_PRIVILEGES}")
    with cgroup.new_group():
        return works(f"'exec' can make one in {parent}")


def confinement() -> Finding:
    """Check that an agent can give up its rights before it reads a policy: a process does, and tries to open a file."""
    user, error = run_python(CONFINED)
    if error:
        return fails(error, f"look for what forbids it (seccomp, user namespaces); else {REPORT}")
    return works(f"a process gave up its rights, as user {user}, and could open nothing")


def _no_library() -> bool:
    try:
        libbpf.library()
    except SageccError:
        return True
    return False
