# SPDX-License-Identifier: Apache-2.0
"""The simulation of more cores, by hand."""

from __future__ import annotations

import pytest

from evidence.speed.scale import episode_s, makespan
from tests.helpers.networks import network

MEASURED = {
    "fixed_s": 0.1,
    "episodes": [
        {"rate_mbps": rate, "virtual_s_per_cpu_s": speed} for rate, speed in ((12, 200), (12, 200), (48, 50), (48, 100))
    ],
}


@pytest.mark.parametrize(("workers", "ends_s"), [(1, 14), (2, 9), (3, 8), (9, 6)])
def test_tasks_start_in_order(workers: int, ends_s: float) -> None:
    assert makespan([3, 2, 3, 6], workers) == ends_s


def test_an_episode_takes_its_boot_and_its_seconds() -> None:
    assert episode_s(network(12, 40, 1, duration_s=20), MEASURED) == pytest.approx(0.1 + 20 / 200)
    assert episode_s(network(48, 40, 1, duration_s=20), MEASURED) == pytest.approx(0.1 + 20 * 0.015)
    assert episode_s(network(30, 40, 1, duration_s=20), MEASURED) == pytest.approx(0.1 + 20 * 0.010)
    assert episode_s(network(96, 40, 1, duration_s=20), MEASURED) == pytest.approx(0.1 + 40 * 0.015)
