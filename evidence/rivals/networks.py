# SPDX-License-Identifier: Apache-2.0
"""Networks of one bottleneck for the checks, and what an episode in one says from a moment on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from sagecc.collector.lab.episode import Episode
from sagecc.collector.run.grid import bottleneck
from sagecc.common.fairness import jain_index
from sagecc.execution.lab.controllers import play_episode
from sagecc.schemas.environment import MTU_BYTES, CrossFlow, Environment, Flow, Trace, dumbbell

run = cache(play_episode)
"""Each episode once, however many checks look at it."""


def path(
    rate_mbps: float,
    rtt_ms: float,
    queue_bdp: float,
    duration_s: float,
    *,
    cross: tuple[CrossFlow, ...] = (),
    loss: float = 0,
) -> Environment:
    """Return a dumbbell of one rate, with random loss before its queue."""
    link = replace(bottleneck(rate_mbps, 1, rtt_ms, queue_bdp, duration_s), loss=loss)
    return dumbbell("custom", link, rtt_ms / 2, duration_s, ((0, duration_s),), cross=cross)


def others(scheme: str, count: int, gap_s: float = 0) -> tuple[CrossFlow, ...]:
    """Return flows of a scheme that arrive one after another, the first at `gap_s`."""
    return tuple(CrossFlow(scheme, Flow(start_s=gap_s * (number + 1))) for number in range(count))


@dataclass(frozen=True)
class Settled:
    """An episode from a moment on."""

    queue_packets: float
    """Mean queue at the bottleneck, without the packet being sent (packets)."""

    queueing_ms: float
    """Mean wait in it (ms)."""

    goodputs_mbps: tuple[float, ...]
    """Of each flow, the one under test first (Mbps); 0 for one that has no rows then."""

    @property
    def share(self) -> float:
        """Goodput of the flow under test over the flows' mean."""
        return self.goodputs_mbps[0] / (sum(self.goodputs_mbps) / len(self.goodputs_mbps))

    @property
    def jain(self) -> float:
        """Jain's index of the flows."""
        return jain_index(self.goodputs_mbps) or 0.0


def settled(kernel: Path, environment: Environment, scheme: str, from_s: float) -> Settled:
    """Run an episode (seed 0) and return what it is like from `from_s` on."""
    return _settled(run(kernel, environment, scheme, every_flow=True), from_s)


def _settled(episode: Episode, from_s: float) -> Settled:
    assert episode.every_flow is not None
    rows = episode.every_flow
    late = rows["t_s"].to_numpy() >= from_s
    flows, received = (rows[name].to_numpy()[late] for name in ("flow", "received_bytes"))
    seconds = episode.environment.duration_s - from_s
    of_flow = [received[flows == flow].astype(float) for flow in range(len(episode.flows))]
    own = episode.rows["t_s"].to_numpy() >= from_s
    queue = np.maximum(episode.rows["link_queue_bytes"].to_numpy()[own] / MTU_BYTES - 1, 0).mean()
    return Settled(
        queue_packets=float(queue),
        queueing_ms=float(queue) * MTU_BYTES * 8 / 1000 / episode.environment.bandwidth_mbps,
        goodputs_mbps=tuple(float(np.ptp(bytes_)) * 8e-6 / seconds if len(bytes_) else 0.0 for bytes_ in of_flow),
    )


def cellular(seed: int, duration_s: float) -> Trace:
    """Return a downlink as Sprout models one (NSDI 2013, section 3.1), of up to 12 Mbps.

    Opportunities are a Poisson process. Its rate is a Brownian motion of 200 packets/s per root second within 0 and
    1000; at 0 it stays with a mean of 1 s.
    """
    random, step_s = np.random.default_rng(seed), 0.02
    rate, times_ms = 500.0, []
    for number in range(round(duration_s / step_s)):
        if rate > 0 or random.random() < step_s:
            rate = float(np.clip(rate + 200 * np.sqrt(step_s) * random.standard_normal(), 0, 1000))
        count = random.poisson(rate * step_s)
        times_ms.append(np.sort(random.uniform(number * step_s, (number + 1) * step_s, count)) * 1000)
    return Trace(f"cellular-{seed}", (*np.concatenate(times_ms).tolist(), duration_s * 1000))
