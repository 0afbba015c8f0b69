# SPDX-License-Identifier: Apache-2.0
"""Networks of one bottleneck, and a link of one rate."""

from __future__ import annotations

from sagecc.collector.run.grid import bottleneck
from sagecc.schemas.environment import CrossFlow, Environment, Link, RateStep, dumbbell


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


def rate(mbps: float, **rest: object) -> Link:
    return Link((RateStep(0, mbps),), **rest)  # type: ignore[arg-type]
