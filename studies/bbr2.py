# SPDX-License-Identifier: Apache-2.0
"""BBR v1 and BBRv2 on the same links: measures, and puts the tables into docs/method/schemes.md.

Virtual time: the figures depend on the kernel's bytes and the seed, not on the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from tqdm import tqdm

from sagecc.collector.lab.episode import Episode, FlowSummary, jain_index, run_episode
from sagecc.collector.run.grid import bottleneck
from sagecc.common.files import write_atomically
from sagecc.schemas.environment import CrossFlow, Environment, Link, RateStep, dumbbell

KERNEL = Path("build/sagecc-linux")
PAGE = Path("docs/method/schemes.md")
BEGIN, END = "<!-- studies/bbr2.py begins -->", "<!-- studies/bbr2.py ends -->"
RTT_MS = 40
OWN = "own"
ALONE_S = 30.0
SHARED_S = 60.0
GRAINS_MS = (0, 10, 20, 40)
LATE_S = (3.0, 5.0)
"""The second falls into the other flow's PROBE_RTT, the first between two."""

Cell = Callable[[Episode], str]


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


def queueing_ms(flow: FlowSummary) -> float:
    """Return the mean one-way delay beyond propagation (ms)."""
    return flow.delay_mean_ms - RTT_MS / 2


def run(environment: Environment, scheme: str) -> Episode:
    """Run one episode; cross flows named OWN take the scheme under test."""
    cross = tuple(replace(flow, scheme=scheme) if flow.scheme == OWN else flow for flow in environment.cross)
    return run_episode(KERNEL, replace(environment, cross=cross), scheme)


def table(title: str, cells: Mapping[str, Cell], rows: Mapping[str, Environment]) -> str:
    """Return one table: a row a network, each cell for both schemes."""
    head = " | ".join(f"{name}, {scheme}" for name in cells for scheme in ("v1", "v2"))
    lines = [f"| {title} | {head} |", "|---" + "|---:" * (2 * len(cells)) + "|"]
    for name, environment in tqdm(rows.items(), desc=title):
        one, two = run(environment, "bbr"), run(environment, "bbr2")
        values = " | ".join(cell(episode) for cell in cells.values() for episode in (one, two))
        lines.append(f"| {name} | {values} |")
    return "\n".join(lines)


def tables() -> str:
    """Run every episode and return the page's tables."""
    own: dict[str, Cell] = {
        "Mbps": lambda e: f"{e.flows[0].goodput_mbps:.1f}",
        "queueing ms": lambda e: f"{queueing_ms(e.flows[0]):.1f}",
        "loss %": lambda e: f"{100 * e.flows[0].loss_rate:.2f}",
    }
    alone = {f"{rate:g} Mbps, 1 BDP": flat(rate, 1) for rate in (12, 48, 192)}
    alone |= {f"48 Mbps, {queue:g} BDP": flat(48, queue) for queue in (0.1, 0.25, 0.5, 4, 16)}
    alone |= {f"{a} to {b} Mbps, 1 BDP": stepped(a, b) for a, b in ((48, 24), (24, 48), (24, 96))}
    cubic: dict[str, Cell] = {
        "own Mbps": lambda e: f"{e.flows[0].goodput_mbps:.1f}",
        "Cubic's Mbps": lambda e: f"{e.flows[1].goodput_mbps:.1f}",
        "own loss %": own["loss %"],
    }
    shared: dict[str, Cell] = {
        "Jain": lambda e: f"{jain_index([flow.goodput_mbps for flow in e.flows]):.3f}",
        "first flow's Mbps": own["Mbps"],
        "all Mbps": lambda e: f"{sum(flow.goodput_mbps for flow in e.flows):.1f}",
        "queueing ms": own["queueing ms"],
        "loss %": own["loss %"],
    }
    peers: dict[str, Environment] = {}
    for queue in (0.5, 1, 4):
        link = flat(48, queue)
        peers[f"2 flows, {queue:g} BDP"] = network(link, SHARED_S, (OWN,))
        peers[f"6 flows, {queue:g} BDP"] = network(link, SHARED_S, (OWN,) * 5)
        for late_s in LATE_S:
            peers[f"2 flows, the first {late_s:g} s late, {queue:g} BDP"] = network(link, SHARED_S, (OWN,), late_s)
    against = {f"{queue:g} BDP": network(flat(48, queue), SHARED_S, ("cubic",)) for queue in (0.5, 1, 2, 4, 8)}
    return "\n\n".join(
        (
            table("alone, 30 s", own, {name: network(link, ALONE_S) for name, link in alone.items()}),
            table("ACKs gathered for, 30 s", own, {f"{grain} ms": gathered(grain) for grain in GRAINS_MS}),
            table("with one Cubic, 48 Mbps, 60 s", cubic, against),
            table("among its own, 48 Mbps, 60 s", shared, peers),
        )
    )


def main() -> None:
    """Measure, and replace what stands between the page's two marks."""
    page = PAGE.read_text()
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    with write_atomically(PAGE) as beside:
        beside.write_text(f"{before}{BEGIN}\n\n{tables()}\n\n{END}{after}")


if __name__ == "__main__":
    main()
