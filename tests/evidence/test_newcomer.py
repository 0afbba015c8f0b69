# SPDX-License-Identifier: Apache-2.0
"""The first commands of newcomers: what they type is what the pages show, and a failure is one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from evidence.speed import newcomer
from sagecc.common.errors import SageccError


def test_the_scheme_is_readme_s() -> None:
    space: dict[str, type] = {}
    exec(newcomer.readme_scheme(), space)
    assert hasattr(space["Gentle"], "on_tick")


def test_a_command_is_shown_as_typed_with_its_output(tmp_path: Path) -> None:
    found = newcomer.timed(tmp_path, ("sql", "SELECT 1 AS one", "--format", "csv", "--pool", "none"), may_fail=True)
    assert found["command"] == 'sagecc sql "SELECT 1 AS one" --format csv --pool none'
    assert found["status"] == 2
    with pytest.raises(SageccError, match=r"sagecc sql: .*none"):
        newcomer.timed(tmp_path, ("sql", "SELECT 1 AS one", "--pool", "none"))
