# SPDX-License-Identifier: Apache-2.0
"""What schemes are called in tables."""

from __future__ import annotations

from collections.abc import Sequence

from sagecc.schemas.schemes import POLICY_PREFIX, PYTHON_PREFIX


def short_names(schemes: Sequence[str]) -> dict[str, str]:
    """Return what each scheme is called: of a policy or a class the last part of its path that tells it from others."""
    names = {}
    for scheme in schemes:
        separator = ":" if scheme.startswith(PYTHON_PREFIX) else "/"
        full = scheme.removeprefix(POLICY_PREFIX).removeprefix(PYTHON_PREFIX).rstrip("/")
        short = full.rpartition(separator)[2]
        rivals = [other for other in schemes if other != scheme and other.rstrip("/").endswith(f"{separator}{short}")]
        names[scheme] = full if rivals or f"{POLICY_PREFIX}{short}" in set(schemes) - {scheme} else short
    return names
