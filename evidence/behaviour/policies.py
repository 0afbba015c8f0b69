# SPDX-License-Identifier: Apache-2.0
"""What the documents say of policies in the lab beyond `sagecc vet`: jitter, cellular links, windows far too large.

Virtual time: all but the CPU seconds hang on the kernel's bytes, the policy's files and the seeds alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tqdm import tqdm

from evidence.machine import KERNEL, CpuTime, save
from evidence.rivals.networks import cellular
from sagecc.cli import errors_in_one_line
from sagecc.collector.lab.boot import per_flow
from sagecc.collector.lab.episode import Episode, run_episode
from sagecc.collector.run.grid import bottleneck
from sagecc.common.shipped import SHIPPED
from sagecc.execution.flow.window import UNLIMITED, pacing_rates
from sagecc.execution.lab.controllers import play_episode
from sagecc.schemas.environment import Environment, Link, dumbbell
from sagecc.schemas.schemes import POLICY_PREFIX

POLICIES = tuple(f"{POLICY_PREFIX}models/{name}" for name in SHIPPED)
JITTERS_MS = (0, 0.25, 0.5, 1)
SEEDS = range(8)
CELLULAR_S, CELLULAR_SEEDS, CELLULAR_QUEUE_PACKETS = 60, range(3), 100
CELLULAR_SCHEMES = ("cubic", "bbr2", "sprout")
"""What plays on cellular links beside the policies."""
FLOODS = ((240, True), (1_000, True), (20_000, True), (20_000, False))
FLOOD_S = 6
DURATION_S = 20
SETTLED_S = 5


@dataclass(frozen=True)
class Network:
    """A flat link with a queue of 1 BDP; jitter on the way back, in order."""

    rate_mbps: float
    rtt_ms: float
    duration_s: float = DURATION_S
    jitter_ms: float = 0.0

    def environment(self) -> Environment:
        """Return it."""
        link = bottleneck(self.rate_mbps, 1, self.rtt_ms, 1, self.duration_s)
        back = Link(delay_ms=self.rtt_ms / 2, jitter_ms=self.jitter_ms)
        windows_s = ((0, self.duration_s),)
        return Environment("custom", (link,), (back,), self.duration_s, windows_s)


SHORT, LONG = Network(24, 20), Network(48, 40)
"""SHORT: where `sagecc-1` has two moods."""


def main() -> None:
    """Measure and save."""
    save(
        "policies",
        {
            "duration_s": DURATION_S,
            "settled_s": SETTLED_S,
            "policies": [
                {
                    "policy": scheme.removeprefix(POLICY_PREFIX),
                    "jitter": list(jitter(scheme)),
                }
                for scheme in POLICIES
            ],
            "cellular_s": CELLULAR_S,
            "cellular_queue_packets": CELLULAR_QUEUE_PACKETS,
            "cellular": list(cellular_links()),
            "flood_s": FLOOD_S,
            "floods": list(floods()),
        },
    )


def jitter(scheme: str) -> Iterable[dict[str, Any]]:
    """Run a policy on SHORT with each jitter and seed."""
    for jitter_ms in tqdm(JITTERS_MS, desc="jitter"):
        for seed in SEEDS if jitter_ms else (0,):
            yield {"jitter_ms": jitter_ms, "seed": seed, **played(scheme, replace(SHORT, jitter_ms=jitter_ms), seed)}


def cellular_links() -> Iterable[dict[str, Any]]:
    """Run policies and schemes alone on cellular downlinks; `used` is the goodput's share of what a link can carry."""
    for seed in tqdm(CELLULAR_SEEDS, desc="cellular links"):
        trace = cellular(seed, CELLULAR_S)
        link = Link(delay_ms=LONG.rtt_ms / 2, queue_packets=CELLULAR_QUEUE_PACKETS, trace=trace)
        environment = dumbbell("custom", link, LONG.rtt_ms / 2, CELLULAR_S, ((0, CELLULAR_S),))
        for scheme in (*POLICIES, *CELLULAR_SCHEMES):
            flow = play_episode(KERNEL, environment, scheme, seed).flows[0]
            yield {
                "scheme": scheme.removeprefix(POLICY_PREFIX),
                "seed": seed,
                "used": flow.goodput_mbps / trace.mean_mbps,
                "queueing_ms": flow.delay_mean_ms - LONG.rtt_ms / 2,
                "queueing_p95_ms": flow.delay_p95_ms - LONG.rtt_ms / 2,
                "loss": flow.loss_rate,
            }


def played(scheme: str, network: Network, seed: int = 0, latency_ms: float = 0) -> dict[str, float]:
    """Run a policy, with decisions that come so late; return its figures."""
    latency_us = round(latency_ms * 1000)
    return figures(play_episode(KERNEL, network.environment(), scheme, seed, latency_us=latency_us))


def figures(episode: Episode) -> dict[str, float]:
    """Return what the tables show of an episode; cwnd_mean_pkts is that of its rows from SETTLED_S on."""
    flow, propagation_ms = episode.flows[0], episode.environment.min_rtt_ms / 2
    return {
        "goodput_mbps": flow.goodput_mbps,
        "queueing_ms": flow.delay_mean_ms - propagation_ms,
        "loss": flow.loss_rate,
        "cwnd_mean_pkts": float(np.mean(episode.rows["cwnd_pkts"].to_numpy()[SETTLED_S * 100 :])),
    }


def fixed(window: int, paced: bool) -> Callable[[np.void], tuple[int, int]]:
    """Return a controller that always asks for one window."""

    def act(sample: np.void) -> tuple[int, int]:
        rate = pacing_rates(np.atleast_1d(np.asarray(sample)), np.array([window]))[0] if paced else UNLIMITED
        return window, int(rate)

    return act


def floods() -> Iterable[dict[str, Any]]:
    """Run fixed windows on LONG; CPU seconds of the guest and of the host."""
    environment = replace(LONG, duration_s=FLOOD_S).environment()
    for window, paced in tqdm(FLOODS, desc="floods"):
        begun = CpuTime.now()
        episode = run_episode(KERNEL, environment, f"{POLICY_PREFIX}fixed", 0, per_flow(fixed(window, paced)))
        ended = CpuTime.now()
        yield {
            "window_pkts": window,
            "paced": paced,
            "dropped_pkts": episode.flows[0].lost_packets,
            "guest_cpu_s": ended.children_s - begun.children_s,
            "host_cpu_s": ended.own_s - begun.own_s,
        }


if __name__ == "__main__":
    with errors_in_one_line("evidence.behaviour.policies"):
        main()
