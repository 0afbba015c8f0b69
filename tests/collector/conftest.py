# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from sagecc.collector.lab.episode import Episode, run_episode
from sagecc.collector.run.grid import bottleneck
from sagecc.schemas.environment import CrossFlow, Environment, dumbbell

Run = Callable[..., Episode]
Play = Callable[[Environment, str], Episode]


def network(
    bandwidth_mbps: float = 48,
    rtt_ms: float = 40,
    queue_bdp: float = 1,
    duration_s: float = 10,
    step: float = 1,
    cross: tuple[str, ...] = (),
    start_s: float = 0.0,
) -> Environment:
    return dumbbell(
        "custom",
        bottleneck(bandwidth_mbps, step, rtt_ms, queue_bdp, duration_s),
        return_delay_ms=rtt_ms / 2,
        duration_s=duration_s,
        windows_s=((start_s, duration_s),),
        cross=tuple(CrossFlow(name) for name in cross),
        start_s=start_s,
    )


@pytest.fixture(scope="module")
def play(kernel: Path) -> Play:
    """Run an episode once for all tests that look at it."""
    return cache(lambda environment, scheme: run_episode(kernel, environment, scheme))


@pytest.fixture
def run(kernel: Path) -> Run:
    def run_one(scheme: str = "cubic", seed: int = 0, controller: object = None, **fields: object) -> Episode:
        return run_episode(kernel, network(**fields), scheme, seed, controller)  # type: ignore[arg-type]

    return run_one
