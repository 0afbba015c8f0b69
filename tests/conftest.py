# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def kernel() -> Path:
    """The built kernel; `make test` builds it first."""
    path = ROOT / "build" / "sagecc-linux"
    assert path.is_file(), "no kernel: run 'make test', or 'sagecc kernel' before pytest"
    return path
