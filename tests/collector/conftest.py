# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from sagecc.collector.lab.boot import FlowController, per_flow
from sagecc.collector.lab.episode import Episode, run_episode
from sagecc.schemas.environment import Environment
from tests.helpers.networks import network

Run = Callable[..., Episode]
Play = Callable[[Environment, str], Episode]


@pytest.fixture(scope="module")
def play(kernel: Path) -> Play:
    """Run an episode once for all tests that look at it."""
    return cache(lambda environment, scheme: run_episode(kernel, environment, scheme))


@pytest.fixture
def run(kernel: Path) -> Run:
    def run_one(
        scheme: str = "cubic", seed: int = 0, controller: FlowController | None = None, **fields: object
    ) -> Episode:
        driver = per_flow(controller) if controller else None
        return run_episode(kernel, network(**fields), scheme, seed, driver)  # type: ignore[arg-type]

    return run_one
