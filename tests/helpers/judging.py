# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for what a judge of policies on the way needs from the lab."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from evidence.training import judging
from sagecc.schemas.environment import Environment
from tests.helpers.league_episodes import smoke


def without_a_lab(
    monkeypatch: pytest.MonkeyPatch,
    environments: Iterable[Environment],
    schemes: Iterable[str],
    runner: Any,
    collect: Any,
) -> None:
    """Let `runner` play, `collect` collect, and every league be of these networks and schemes, without a kernel."""
    for name, value in {
        "lab_runner": runner,
        "profile_set": lambda profile: smoke(*environments),
        "SCHEMES": schemes,
        "kernel_identity": lambda kernel, schemes: "linux",
    }.items():
        monkeypatch.setattr(judging, name, value)
    monkeypatch.setattr("evidence.kept.collect", collect)
    monkeypatch.setattr("evidence.kept.kernel_identity", lambda kernel, schemes: "linux")
