# SPDX-License-Identifier: Apache-2.0
"""PCC Vivace held against its own paper (NSDI 2018), and the numbers that Astraea's (EuroSys 2024) prints of it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from evidence.rivals.check import Number
from evidence.rivals.networks import path
from sagecc.collector.lab.episode import FlowSummary
from sagecc.execution.lab.controllers import play_episode
from sagecc.leagues.claims import Bounds, Claim
from sagecc.leagues.flow_metrics import flow_series
from sagecc.leagues.study.catalogue import experiment

SCHEME = "vivace"
RATE_MBPS, RTT_MS, SECONDS = 100.0, 30.0, 60.0
LOSSES_PERCENT = (1, 2, 3, 4, 5, 6, 7, 8)
HALF = 0.5
"""Of the link: with less, a loss counts as no longer tolerated."""
REPEATS = 3
"""Runs of the flows that come and go; all but the first shift their starts."""


def alone(kernel: Path, queue_bdp: float, loss: float = 0.0) -> FlowSummary:
    """Return what one flow has on a link of 100 Mbps and 30 ms."""
    return play_episode(kernel, path(RATE_MBPS, RTT_MS, queue_bdp, SECONDS, loss=loss), SCHEME).flows[0]


@cache
def come_and_go(kernel: Path) -> dict[str, float]:
    """Return the measures of Astraea's three flows that come and go, the mean of some runs."""
    plan = experiment("astraea-6")
    rows = []
    for run in plan.runs((SCHEME,), REPEATS):
        episode = play_episode(kernel, run.environment, SCHEME, run.seed, every_flow=True)
        rows.append(plan.measure(flow_series(episode.every_flow, run.interval_s), run.environment, run.interval_s))
    return {name: sum(one[name] or 0.0 for one in rows) / len(rows) for name in rows[0]}


def tolerated_percent(kernel: Path) -> float:
    """Return the highest random loss at which a flow alone still has half of the link (%)."""
    losses = [percent for percent in LOSSES_PERCENT if alone(kernel, 1, percent / 100).goodput_mbps > HALF * RATE_MBPS]
    return float(max(losses, default=0))


def inflation(kernel: Path) -> float:
    """Return the one-way delay with a queue of 8 BDPs over that with 1 BDP."""
    return alone(kernel, 8).delay_mean_ms / alone(kernel, 1).delay_mean_ms


CHECKS = (
    Claim(
        "Astraea (EuroSys 2024), section 5.2, Fig. 12",
        "Three flows, 40 s apart, on 100 Mbps, 30 ms, 1 BDP: mean time from a start or a stop until a flow is within "
        "10 % of its fair share",
        Number(SCHEME, "s", 3.438, lambda kernel: come_and_go(kernel)["convergence_s"]),
        Bounds(1.7, 6.9),
    ),
    Claim(
        "Astraea (EuroSys 2024), section 5.2, Fig. 12",
        "The same flows: standard deviation of the goodput after that",
        Number(SCHEME, "Mbps", 6.016, lambda kernel: come_and_go(kernel)["stability_mbps"]),
        Bounds(3.0, 9.0),
    ),
    Claim(
        "Vivace (NSDI 2018), section 3: the coefficient 11.35 of the loss",
        "One flow on 100 Mbps, 30 ms, 1 BDP: highest random loss, in whole percent, at which it has half of the link; "
        "Eq. 1 has its maximum at 100 Mbps with 5.0 %, at half of that with 5.4 %",
        Number(SCHEME, "%", 5.0, tolerated_percent),
        Bounds(4.0, 6.0),
    ),
    Claim(
        "Astraea (EuroSys 2024), appendix B.1, Fig. 19b: low latency inflation whatever the size of the buffer",
        "One flow on 100 Mbps, 30 ms: mean delay with a queue of 8 BDPs over that with 1 BDP",
        Number(SCHEME, "", 1.0, inflation),
        Bounds(0.9, 1.1),
    ),
)
