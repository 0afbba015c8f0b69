# SPDX-License-Identifier: Apache-2.0
"""What is optional: real-time backends, Ray, the tools that rebuild kernel and BPF objects or run all stages."""

from __future__ import annotations

import shutil
from pathlib import Path

from sagecc.collector.kernel.build import missing_packages
from sagecc.collector.realtime import host, mahimahi
from sagecc.common import shipped
from sagecc.common.optional import is_installed
from sagecc.doctor.extras import RAY, check_extra
from sagecc.doctor.finding import Check, Finding, fails, unneeded, works

CHAIN = {"git": "git", "make": "make"}
BPF_TOOLS = {"clang": "clang", "llvm-strip": "llvm"}
"""Programs, and the Debian packages that have them."""


def checks(kernel: Path | None, thorough: bool) -> tuple[Check, ...]:
    """Return the group's checks.

    Args:
        kernel: path of the lab's kernel, which need not exist; None for the checkout's or the installation's.
        thorough: import packages that are only looked for otherwise.
    """
    return (
        Check("real time", real_time),
        Check("Mahimahi", through_mahimahi),
        Check("Ray", lambda: check_extra(RAY, thorough)),
        Check("make repro", chain),
        Check("kernel build", lambda: kernel_tools(kernel or shipped.KERNEL)),
        Check("BPF build", bpf_tools),
    )


def real_time() -> Finding:
    """Check that episodes can run on this machine's own kernel, between network namespaces."""
    reason = host.why_not()
    if reason:
        return unneeded(f"only 'make bench-fidelity' needs it: {reason}")
    return works("network namespaces and their tools")


def through_mahimahi() -> Finding:
    """Check that Mahimahi is installed."""
    reason = mahimahi.why_not()
    if reason is None:
        return works(f"{' and '.join(mahimahi.TOOLS)} are on the PATH")
    problem, _, to_do = reason.partition(": ")
    return unneeded(f"only --backend mahimahi needs it: {problem}", to_do)


def chain() -> Finding:
    """Check that the tools of `make repro` are installed."""
    missing = [name for name in CHAIN if shutil.which(name) is None]
    missing += [] if is_installed("dvc") else ["dvc"]
    if missing:
        return unneeded(f"only the checkout's stages need {', '.join(missing)}, not installed", "make setup")
    return works(f"{', '.join(CHAIN)} and dvc are there")


def kernel_tools(kernel: Path) -> Finding:
    """Check that the tools that build the virtual-time kernel are installed."""
    missing = missing_packages()
    if not missing:
        return works("gcc, make, flex, bison and the rest, for 'sagecc kernel'")
    install = f"apt-get install {' '.join(missing)}"
    if kernel.is_file():
        return unneeded(f"only building another kernel needs {', '.join(missing)}", install)
    return fails(f"building the kernel needs {', '.join(missing)}", install)


def bpf_tools() -> Finding:
    """Check that the tools that compile the BPF scheme are installed."""
    missing = [package for tool, package in BPF_TOOLS.items() if shutil.which(tool) is None]
    if missing:
        return unneeded(f"only 'make bpf' needs {' and '.join(missing)}: the compiled objects are shipped")
    return works("clang and llvm, for 'make bpf'")
