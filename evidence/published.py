# SPDX-License-Identifier: Apache-2.0
"""Models that rivals' authors published: they play where an environment variable names the folder of their files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from sagecc.execution.schemes.orca import checkpoint as orca
from sagecc.execution.schemes.sage import checkpoint as sage
from sagecc.policy.importing import Imported
from sagecc.schemas.schemes import POLICY_PREFIX

ORCA, SAGE = "orca", "sage"
"""By the names that they play under here."""
VARIABLES: Mapping[str, str] = {ORCA: "SAGECC_ORCA", SAGE: "SAGECC_SAGE"}
_IMPORTS: Mapping[str, Callable[[Path, Path], Imported]] = {
    ORCA: orca.import_checkpoint,
    SAGE: sage.import_checkpoint,
}


def published(name: str, out: Path) -> str | None:
    """Import a published model.

    Args:
        name: one of VARIABLES.
        out: where the policy's folder goes.

    Returns:
        How the lab calls it, or None where its variable names no files.

    Raises:
        SageccError: These are no model of its.
    """
    checkpoint = os.environ.get(VARIABLES[name])
    return f"{POLICY_PREFIX}{_IMPORTS[name](Path(checkpoint), out).folder}" if checkpoint else None
