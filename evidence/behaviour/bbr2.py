# SPDX-License-Identifier: Apache-2.0
"""BBR v1 and BBRv2 on the same links.

Virtual time: the figures depend on the kernel's bytes and the seed, not on the machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tqdm import tqdm

from evidence.machine import KERNEL, save
from sagecc.cli import errors_in_one_line
from sagecc.collector.lab.episode import run_episode
from sagecc.collector.run.grid import bottleneck
from sagecc.common.fairness import jain_index
from sagecc.schemas.environment import CrossFlow, Environment, Link, RateStep, dumbbell

SCHEMES = {"v1": "bbr", "v2": "bbr2"}
RTT_MS = 40
OWN = "own"
ALONE_S = 30.0
SHARED_S = 60.0
GRAINS_MS = (0, 10, 20, 40)
LATE_S = (3.0, 5.0)
"""The second falls into the other flow's PROBE_RTT, the first between two."""


def network(link: Link, duration_s: float, cross: tuple[str, ...] = (), start_s: float = 0) -> Environment:
    """Return a dumbbell of 40 ms round `link`."""
    flows = tuple(CrossFlow(scheme) for scheme in cross)
    return dumbbell("custom", link, RTT_MS / 2, duration_s, ((start_s, duration_s),), cross=flows, start_s=start_s)


def gathered(grain_ms: float) -> Environment:
    """Return 48 Mbps, 1 BDP, whose ACKs come in grains."""
    smooth = network(flat(48, 1), ALONE_S)
    return replace(smooth, return_links=(replace(smooth.return_links[0], grain_ms=grain_ms),))


def flat(rate_mbps: float, queue_bdp: float) -> Link:
    """Return a link of one rate."""
    return bottleneck(rate_mbps, 1, RTT_MS, queue_bdp, SHARED_S)


def stepped(first_mbps: float, second_mbps: float) -> Link:
    """Return a link that changes its rate at half of the time; 1 BDP of queue at the first rate."""
    steps = (RateStep(0, first_mbps), RateStep(ALONE_S / 2, second_mbps))
    return Link(steps, RTT_MS / 2, round(first_mbps * RTT_MS * 125))


def run(environment: Environment, scheme: str) -> dict[str, Any]:
    """Run one episode; cross flows named OWN take the scheme under test. Delay and loss are the first flow's."""
    cross = tuple(replace(flow, scheme=scheme) if flow.scheme == OWN else flow for flow in environment.cross)
    flows = run_episode(KERNEL, replace(environment, cross=cross), scheme).flows
    goodputs_mbps = [flow.goodput_mbps for flow in flows]
    return {
        "goodputs_mbps": goodputs_mbps,
        "jain": jain_index(goodputs_mbps),
        "queueing_ms": flows[0].delay_mean_ms - RTT_MS / 2,
        "loss": flows[0].loss_rate,
    }


def measure(title: str, networks: Mapping[str, Environment]) -> list[dict[str, Any]]:
    """Run both schemes in each network; return a row a network."""
    return [
        {"network": name} | {version: run(environment, scheme) for version, scheme in SCHEMES.items()}
        for name, environment in tqdm(networks.items(), desc=title)
    ]


def main() -> None:
    """Measure and save."""
    alone = {f"{rate:g} Mbps, 1 BDP": flat(rate, 1) for rate in (12, 48, 192)}
    alone |= {f"48 Mbps, {queue:g} BDP": flat(48, queue) for queue in (0.1, 0.25, 0.5, 4, 16)}
    alone |= {f"{a} to {b} Mbps, 1 BDP": stepped(a, b) for a, b in ((48, 24), (24, 48), (24, 96))}
    peers: dict[str, Environment] = {}
    for queue in (0.5, 1, 4):
        link = flat(48, queue)
        peers[f"2 flows, {queue:g} BDP"] = network(link, SHARED_S, (OWN,))
        peers[f"6 flows, {queue:g} BDP"] = network(link, SHARED_S, (OWN,) * 5)
        for late_s in LATE_S:
            peers[f"2 flows, the first {late_s:g} s late, {queue:g} BDP"] = network(link, SHARED_S, (OWN,), late_s)
    against = {f"{queue:g} BDP": network(flat(48, queue), SHARED_S, ("cubic",)) for queue in (0.5, 1, 2, 4, 8)}
    save(
        "bbr2",
        {
            "alone": measure("alone", {name: network(link, ALONE_S) for name, link in alone.items()}),
            "gathered": measure("ACKs gathered", {f"{grain} ms": gathered(grain) for grain in GRAINS_MS}),
            "against": measure("with one Cubic", against),
            "peers": measure("among its own", peers),
        },
    )


if __name__ == "__main__":
    with errors_in_one_line("evidence.behaviour.bbr2"):
        main()
