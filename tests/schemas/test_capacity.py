# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np

from sagecc.schemas.capacity import capacity_bytes
from sagecc.schemas.environment import Link, RateStep, Trace


def test_capacity_is_whole_bytes_of_each_step_and_a_trace_goes_on_after_its_end() -> None:
    steps = Link((RateStep(0, 8), RateStep(1, 0), RateStep(2, 10_000)))
    times = np.array([0, 1_500, 10**9, 2 * 10**9, 2 * 10**9 + 7, 80_000 * 10**9])
    expected = [0, 1, 10**6, 10**6, 10**6 + 8, 10**6 + 79_998 * 1_250_000_000]
    assert capacity_bytes(steps, times).tolist() == expected
    trace = Link(trace=Trace("two", (0.5, 2)))
    times = np.array([0, 500_000, 1_999_999, 2_000_000, 2_500_000, 4_000_000])
    assert (capacity_bytes(trace, times) // 1500).tolist() == [0, 1, 1, 2, 3, 4]
