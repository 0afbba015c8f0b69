# SPDX-License-Identifier: Apache-2.0
"""The grid of environments: Set I and Set II of the paper (section 5, appendix C), and its profiles."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import pairwise, product, zip_longest

from sagecc.common.errors import SageccError
from sagecc.schemas.environment import CrossFlow, Environment, Link, dumbbell, queue_bytes, step_rates
from sagecc.schemas.environment_set import EnvironmentSet

PROFILES = ("smoke", "small", "spread", "full", "heldout", "bench-1")

RTTS_MS = (10, 20, 40, 60, 80, 120, 160)
QUEUES_BDP = (0.5, 1, 2, 4, 8, 16)
STEPS = {
    12: (1, 2, 4, 0.5, 0.25),
    24: (1, 2, 4, 0.5, 0.25),
    48: (1, 2, 4, 0.5, 0.25),
    96: (1, 2, 0.5, 0.25),
    192: (1, 0.5, 0.25),
}
SHAPES = tuple((mbps, step) for mbps, steps in STEPS.items() for step in steps)
"""The 22 pairs of base rate (Mbps) and step factor of Set I."""

SET_I_MAX_MBPS = 192
"""Greatest rate of Set I, after a step too (Mbps)."""

SET_I_DURATION_S = 34.0
SET_I_WINDOWS_S = ((10.0, 13.0), (13.0, 20.0), (20.0, 27.0), (27.0, 34.0))
SET_II_START_S = 5.0
SET_II_DURATION_S = 125.0
SET_II_WINDOWS_S = ((5.0, 35.0), (35.0, 65.0), (65.0, 95.0), (95.0, 125.0))


def bottleneck(bandwidth_mbps: float, step: float, rtt_ms: float, queue_bdp: float, duration_s: float) -> Link:
    """Return a dumbbell's bottleneck.

    Args:
        bandwidth_mbps: base rate (Mbps).
        step: ratio of the second rate to the base rate; 1 for a constant rate.
        rtt_ms: minimum RTT (ms), half of which is the link's propagation delay.
        queue_bdp: queue limit, in BDPs at the base rate.
        duration_s: length of the episode (s).
    """
    limit = queue_bytes(bandwidth_mbps, rtt_ms, queue_bdp)
    return Link(step_rates(bandwidth_mbps, step, duration_s), rtt_ms / 2, limit)


def set_one(bandwidth_mbps: float, step: float, rtt_ms: float, queue_bdp: float) -> Environment:
    """Return an environment of Set I: a single flow for 34 s, of which the first 10 are not scored."""
    return dumbbell(
        "I",
        bottleneck(bandwidth_mbps, step, rtt_ms, queue_bdp, SET_I_DURATION_S),
        return_delay_ms=rtt_ms / 2,
        duration_s=SET_I_DURATION_S,
        windows_s=SET_I_WINDOWS_S,
    )


def set_two(bandwidth_mbps: float, rtt_ms: float, queue_bdp: float) -> Environment:
    """Return an environment of Set II: Cubic from 0 s, the scheme under test from 5 s to 125 s."""
    return dumbbell(
        "II",
        bottleneck(bandwidth_mbps, 1, rtt_ms, queue_bdp, SET_II_DURATION_S),
        return_delay_ms=rtt_ms / 2,
        duration_s=SET_II_DURATION_S,
        windows_s=SET_II_WINDOWS_S,
        reward="friendliness",
        cross=(CrossFlow("cubic"),),
        start_s=SET_II_START_S,
    )


def profile_environments(profile: str) -> tuple[Environment, ...]:
    """Return the environments of a profile.

    They are `smoke` (3), `small` (90), `spread` (66 + 25), `full` (924 + 175), `heldout` (24 + 12) and `bench-1`
    (40 + 20).

    Raises:
        SageccError: there is no such profile.
    """
    if profile == "smoke":
        return _grid(((24, 1), (12, 2)), (20,), (1,), (12,), (1,))
    if profile == "small":
        shapes = ((12, 1), (24, 1), (48, 1), (96, 1), (24, 2), (24, 4), (48, 0.5), (96, 0.25))
        return _grid(shapes, (20, 40, 80), (1, 4, 16), (12, 24, 48), (1, 4))
    if profile == "spread":
        return spread()
    if profile == "full":
        return _grid(SHAPES, RTTS_MS, QUEUES_BDP, tuple(STEPS), QUEUES_BDP[1:])
    if profile == "heldout":
        return held_out()
    if profile == "bench-1":
        return bench()
    raise SageccError(f"unknown profile '{profile}': use one of {', '.join(PROFILES)}")


def profile_set(profile: str) -> EnvironmentSet:
    """Return a profile's environments under its name; raises SageccError where there is no such profile."""
    return EnvironmentSet(profile, f"--profile {profile}", profile_environments(profile))


def held_out() -> tuple[Environment, ...]:
    """Return 24 environments of Set I and 12 of Set II, none with a bandwidth, RTT, queue or rate change of the grid.

    Every value lies midway between two neighbours of the full grid: 18, 36, 72, 144 Mbps; 15, 30, 50, 70, 100, 140 ms;
    3/4, 3/2, 3, 6, 12 BDP; steps x 3/8, 3/4, 3/2, 3. Set I is each bandwidth at each RTT; from one RTT to the next, the
    step moves on by one among those (and the flat link) that stay within 192 Mbps, and the queue by two. Set II is
    flat, beside Cubic as in the grid: each bandwidth at every other RTT, with queues of 3/2 BDP and more in turn.
    """
    rates_mbps, rtts_ms, queues_bdp = midway(tuple(STEPS)), midway(RTTS_MS), midway(QUEUES_BDP)
    factors = (1, *midway(sorted({step for steps in STEPS.values() for step in steps})))
    set_i, set_ii = [], []
    for (i, rate), (j, rtt_ms) in product(enumerate(rates_mbps), enumerate(rtts_ms)):
        steps = [factor for factor in factors if factor * rate <= SET_I_MAX_MBPS]
        set_i.append(set_one(rate, steps[(i + j) % len(steps)], rtt_ms, queues_bdp[(i + 2 * j) % len(queues_bdp)]))
        if (i + j) % 2 == 0:
            deep_bdp = queues_bdp[1:]
            set_ii.append(set_two(rate, rtt_ms, deep_bdp[(i + j // 2) % len(deep_bdp)]))
    return (*set_i, *set_ii)


def spread() -> tuple[Environment, ...]:
    """Return 66 environments of Set I and 25 of Set II of the full grid, spread over all of it.

    Set I is each shape three times, Set II each bandwidth with each queue. From one to the next, RTTs and queues move
    by steps that share no factor with their numbers: each value comes about as often, with every other.
    """
    set_i = (
        set_one(*shape, RTTS_MS[(3 * i + 2 * j) % len(RTTS_MS)], QUEUES_BDP[(i + i // 6 + 2 * j) % len(QUEUES_BDP)])
        for i, shape in enumerate(SHAPES)
        for j in range(3)
    )
    set_ii = (
        set_two(rate, RTTS_MS[(3 * i + 2 * j) % len(RTTS_MS)], queue)
        for i, rate in enumerate(STEPS)
        for j, queue in enumerate(QUEUES_BDP[1:])
    )
    return (*set_i, *set_ii)


def bench() -> tuple[Environment, ...]:
    """Return 40 environments of Set I and 20 of Set II, the networks of sagecc-bench-1 (leagues.bench).

    Seven tenths are of the full grid and in no smaller profile, the others of `held_out`. They are drawn by a hash of
    their ids, from each base rate in turn. They are frozen: another draw would be another benchmark.
    """
    used = {e.id for profile in ("smoke", "small", "spread") for e in profile_environments(profile)}
    grid = [e for e in profile_environments("full") if e.id not in used]
    held = held_out()
    drawn = (_drawn(grid, "I", 28), _drawn(held, "I", 12), _drawn(grid, "II", 14), _drawn(held, "II", 6))
    return tuple(environment for part in drawn for environment in part)


def _drawn(environments: Iterable[Environment], set_name: str, count: int) -> list[Environment]:
    by_rate: dict[float, list[Environment]] = {}
    for environment in sorted(environments, key=lambda e: hashlib.sha256(f"sagecc-bench-1 {e.id}".encode()).digest()):
        if environment.set == set_name:
            by_rate.setdefault(environment.bandwidth_mbps, []).append(environment)
    rounds = zip_longest(*(by_rate[rate] for rate in sorted(by_rate)))
    return [environment for turn in rounds for environment in turn if environment is not None][:count]


def midway(values: Sequence[float]) -> tuple[float, ...]:
    """Return the arithmetic means of neighbouring values."""
    return tuple((low + high) / 2 for low, high in pairwise(values))


def _grid(
    shapes: Iterable[tuple[float, float]],
    rtts_ms: tuple[float, ...],
    queues_bdp: tuple[float, ...],
    set_ii_mbps: tuple[float, ...],
    set_ii_queues_bdp: tuple[float, ...],
) -> tuple[Environment, ...]:
    set_i = (set_one(mbps, step, rtt, queue) for (mbps, step), rtt, queue in product(shapes, rtts_ms, queues_bdp))
    set_ii = (set_two(mbps, rtt, queue) for mbps, rtt, queue in product(set_ii_mbps, rtts_ms, set_ii_queues_bdp))
    return (*set_i, *set_ii)
