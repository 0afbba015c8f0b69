# SPDX-License-Identifier: Apache-2.0
"""Mounts that only one command sees."""

from __future__ import annotations

import os
import subprocess

import pytest


def mounted(*mounts: str) -> tuple[str, ...]:
    """Return what runs a command with these mounts, seen by nobody else."""
    if os.getuid() != 0 or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode:
        pytest.skip("only root may mount")
    script = " && ".join((*(f"mount -t tmpfs {mount}" for mount in mounts), 'exec "$@"'))
    return "unshare", "-m", "sh", "-c", script, "sh"
