# SPDX-License-Identifier: Apache-2.0
"""C2TCP against its paper (S. Abbasloo, Y. Xu, H. J. Chao, JSAC 2019), with a target of twice the lowest RTT.

The paper's networks are traces of cellular links, which the project does not copy: a model of such links stands in.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from evidence.rivals.check import Number
from evidence.rivals.networks import cellular, path, run
from sagecc.collector.lab.episode import FlowSummary
from sagecc.leagues.claims import Bounds, Claim
from sagecc.schemas.environment import Environment, Link, dumbbell

SEEDS = range(3)
DURATION_S = 60.0
RTT_MS = 20.0
QUEUE_PACKETS = 100
PAPER = "C2TCP (JSAC 2019), "


def downlink(seed: int) -> Environment:
    """Return a cellular downlink with a queue as in the authors' scripts."""
    link = Link(delay_ms=RTT_MS / 2, queue_packets=QUEUE_PACKETS, trace=cellular(seed, DURATION_S))
    return dumbbell("custom", link, RTT_MS / 2, DURATION_S, ((0, DURATION_S),))


def to_cubic(kernel: Path, of: Callable[[FlowSummary], float]) -> float:
    """Return C2TCP's number over Cubic's, the geometric mean of the links."""
    ratios = [
        of(run(kernel, downlink(s), "c2tcp").flows[0]) / of(run(kernel, downlink(s), "cubic").flows[0]) for s in SEEDS
    ]
    return float(np.exp(np.mean(np.log(ratios))))


def rtt_of_target(kernel: Path) -> float:
    """Return the mean RTT over the target."""
    rows = run(kernel, path(48, 40, 8, 30), "c2tcp").rows
    late = rows["t_s"].to_numpy() > 5
    return float(rows["srtt_us"].to_numpy()[late].mean()) / (2 * 40_000)


CHECKS = (
    Claim(
        PAPER + "evaluation",
        "Mean one-way delay, Cubic's over C2TCP's: up to tenfold; three cellular links, 20 ms",
        Number("c2tcp", "", 10, lambda kernel: 1 / to_cubic(kernel, lambda flow: flow.delay_mean_ms)),
        Bounds(3, 20),
    ),
    Claim(
        PAPER + "evaluation",
        "95th percentile of the same delay, Cubic's over C2TCP's",
        Number(
            "c2tcp",
            "",
            10,
            lambda kernel: 1 / to_cubic(kernel, lambda flow: flow.delay_p95_ms),
            "two of the three model links stand still for seconds; measured links seldom do",
        ),
        Bounds(3, 30),
    ),
    Claim(
        PAPER + "evaluation",
        "What that costs: goodput over Cubic's on the same links",
        Number("c2tcp", "", 0.85, lambda kernel: to_cubic(kernel, lambda flow: flow.goodput_mbps)),
        Bounds(0.75, 1),
    ),
    Claim(
        PAPER + "the tuner of alpha",
        "Alpha keeps the mean RTT between 85 % and all of the target; 48 Mbps, 40 ms, 8 BDP",
        Number("c2tcp", "", 0.925, rtt_of_target),
        Bounds(0.85, 1),
    ),
)
