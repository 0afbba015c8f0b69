# SPDX-License-Identifier: Apache-2.0
"""Astraea's reward, of all flows of a network together (section 3.3 of its paper)."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from sagecc.common.arrays import Doubles
from sagecc.common.errors import SageccError
from sagecc.execution.flow.competition import Flows, shares
from sagecc.pool.reward import Reward

BOUND = 0.1
"""A reward is within plus and minus this (section 3.3)."""

LATENCY_DEAD_BAND = 0.25
"""Beta of Eq. 5, which the paper leaves open: that of Orca, whose idea the term takes up ([3]: up to 1.25 d_min)."""


@dataclass(frozen=True)
class AstraeaWeights:
    """c0 to c4 of the terms of Astraea's reward (Eq. 8)."""

    throughput: float = 0.1
    latency: float = 0.02
    loss: float = 1.0
    fairness: float = 0.02
    stability: float = 0.01

    def __post_init__(self) -> None:
        for name, weight in vars(self).items():
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < inf:
                raise SageccError(f"task: reward_weights.{name} must be a number from 0, not {weight!r}")


PAPERS_WEIGHTS = AstraeaWeights()
"""Those of Table 4."""


def astraea(flows: Flows, capacity: Doubles, weights: AstraeaWeights = PAPERS_WEIGHTS) -> Doubles:
    """Return the rewards of networks, each the same for all of its flows (Eq. 4 to 8), within BOUND [L].

    R = c0 R_thr - c1 R_lat - c2 R_loss - c3 R_fair - c4 R_stab, with thr_i flow i's throughput of the last MTP, a_i its
    mean over the last w MTPs, and

    - R_thr = sum_i thr_i / c;
    - R_loss = 1/n sum_i loss_i / thr_i; a flow without throughput counts 0;
    - R_lat = (1/n sum_i lat_i - (1 + beta) d0) p_rate above the dead-band, 0 within. Its unit is not given: here the
      latency is in units of d0 and p_rate, the sum of all pacing rates, in units of c, so that it is of the order of
      R_thr, as the paper says of all terms. d0 is the mean of the flows' base RTTs;
    - R_fair = sqrt(sum_i (a_i - mean a)^2 / (n (sum_i a_i)^2));
    - R_stab = 1/n sum_i sqrt(sum_j (thr_i,t-j - a_i)^2 / (w a_i^2)).

    Args:
        flows: the networks' flows.
        capacity: the bottlenecks' rates c [L] (bytes/s).
        weights: c0 to c4.
    """
    samples = ~np.isnan(flows.throughput)
    count = np.maximum(samples.sum(axis=-1), 1)
    average = np.where(samples, flows.throughput, 0.0).sum(axis=-1) / count
    deviation = np.where(samples, flows.throughput - average[..., None], 0.0)
    unfair = flows.mean((average - flows.mean(average)[..., None]) ** 2)
    inflation = shares(flows.mean(flows.latency), flows.mean(flows.base_rtt)) - (1 + LATENCY_DEAD_BAND)
    throughput_term = shares(flows.sum(flows.now), capacity)
    latency_term = np.maximum(inflation, 0.0) * shares(flows.sum(flows.pacing), capacity)
    loss_term = flows.mean(shares(flows.lost, flows.now))
    fairness_term = shares(np.sqrt(unfair), flows.sum(average))
    stability_term = flows.mean(shares(np.sqrt((deviation**2).sum(axis=-1) / count), average))
    costs = weights.latency * latency_term + weights.loss * loss_term
    costs += weights.fairness * fairness_term + weights.stability * stability_term
    total = weights.throughput * throughput_term - costs
    return np.asarray(np.clip(total, -BOUND, BOUND))


REWARDS = (
    Reward(
        "astraea",
        "c0 R_thr - c1 R_lat - c2 R_loss - c3 R_fair - c4 R_stab",
        "Astraea, Eq. 4 to 8",
        astraea,
        "network",
        PAPERS_WEIGHTS,
    ),
)
