# SPDX-License-Identifier: Apache-2.0
"""What the data dictionary, docs/**/columns.md, is filled with: the schemas' own columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sagecc.pool.view_columns import OF_EPISODES, OF_SAMPLES
from sagecc.schemas.pool import POOL_VERSION, WINDOW_NAMES, description, dictionary

TEMPLATE = Path(__file__).with_name("columns.md.j2")


def context() -> dict[str, Any]:
    """Return what the template is filled with."""
    computed = description({"computed": OF_EPISODES, "samples": OF_SAMPLES}).to_pylist()
    columns = dictionary(disturbed=True).to_pylist() + computed
    return {"columns": columns, "version": POOL_VERSION, "windows": WINDOW_NAMES["all"]}
