# SPDX-License-Identifier: Apache-2.0
"""What jitter and an emulator's grain do to a scheme: measures, and draws docs/img/jitter.svg.

48 Mbps, 40 ms, a queue of 1 BDP, one flow, 30 s, three seeds. Virtual time: the figures depend on the kernel's
bytes and the seeds, not on the machine.
"""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from tqdm import tqdm

from evidence.machine import KERNEL, RESULTS, save
from sagecc.cli import errors_in_one_line
from sagecc.collector.lab.episode import run_episode
from sagecc.collector.run.grid import bottleneck
from sagecc.leagues.colours import PALETTE, Stroke, strokes
from sagecc.leagues.plots import save_figure, style
from sagecc.schemas.environment import MTU_BYTES, Environment, Link

PICTURE = Path("docs/img/jitter.svg")

RATE_MBPS = 48
RTT_MS = 40
DURATION_S = 30
SETTLED_S = 5
PAYLOAD_BYTES = 1448
SCHEMES = ("bbr", "bbr2", "cubic", "reno")
PACED_BY_A_MODEL = ("bbr", "bbr2")
SEEDS = (0, 1, 2)
JITTERS_MS = (0.25, 0.5, 1, 2, 4)
GRAINS_MS = (1, 2, 4)
RTTS_MS = (10, 20, 40, 80, 160)
NONE = "none"
KINDS = {
    "return": "jitter on the way back, in order",
    "return-reorders": "jitter on the way back, reordering",
    "data": "jitter on the way there, in order",
    "data-reorders": "jitter on the way there, reordering",
    "return-grain": "ACKs leave in grains",
    "data-grain": "packets leave the bottleneck in grains",
}
"""What is done to the path."""

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Case:
    """One network and scheme: the kind of disturbance and its size."""

    scheme: str
    kind: str = NONE
    size_ms: float = 0.0
    rtt_ms: float = RTT_MS

    def environment(self) -> Environment:
        """Return the dumbbell with this disturbance."""
        there = bottleneck(RATE_MBPS, 1, self.rtt_ms, 1, DURATION_S)
        back = Link(delay_ms=self.rtt_ms / 2)
        where, _, how = self.kind.partition("-")
        link = there if where == "data" else back
        if how == "grain":
            disturbed = replace(link, grain_ms=self.size_ms)
        else:
            disturbed = replace(link, jitter_ms=self.size_ms, jitter_reorders=how == "reorders")
        links = (disturbed, back) if where == "data" else (there, disturbed)
        return Environment("custom", links[:1], links[1:], DURATION_S, ((0, DURATION_S),))

    def measure(self) -> dict[str, Any]:
        """Run every seed; return means over the seeds, and the extremes of the queueing delay.

        pacing_share: the pacing rate's median after start-up, over what the link delivers of payload: the gains
        of 1.25 and 0.75 are as frequent, so it is that of gain 1.
        """
        episodes = [run_episode(KERNEL, self.environment(), self.scheme, seed) for seed in SEEDS]
        flows = [episode.flows[0] for episode in episodes]
        transmission_ms = MTU_BYTES * 8 / RATE_MBPS / 1000
        queueing_ms = [flow.delay_mean_ms - self.rtt_ms / 2 - transmission_ms for flow in flows]
        row = asdict(self) | {
            "goodput_mbps": mean(flow.goodput_mbps for flow in flows),
            "queueing_ms": mean(queueing_ms),
            "queueing_ms_extremes": [min(queueing_ms), max(queueing_ms)],
            "drops": mean(flow.lost_packets for flow in flows),
            "retransmits": mean(int(episode.rows["retrans_total_pkts"][-1].as_py()) for episode in episodes),
        }
        if self.scheme in PACED_BY_A_MODEL:
            pacing = np.concatenate([episode.rows["pacing_rate_bytes_s"][SETTLED_S * 100 :] for episode in episodes])
            row["pacing_share"] = float(np.median(pacing)) * 8e-6 / (RATE_MBPS * PAYLOAD_BYTES / MTU_BYTES)
        return row


def cases() -> list[Case]:
    """Return every network and scheme, the undisturbed ones first."""
    sizes = {kind: GRAINS_MS if kind.endswith("grain") else JITTERS_MS for kind in KINDS}
    all_cases = [Case(scheme) for scheme in SCHEMES]
    all_cases += [Case(scheme, kind, size) for scheme in SCHEMES for kind, own in sizes.items() for size in own]
    rtts = [rtt_ms for rtt_ms in RTTS_MS if rtt_ms != RTT_MS]
    all_cases += [Case("bbr", rtt_ms=rtt_ms) for rtt_ms in rtts]
    return all_cases + [Case("bbr", "return", 1, rtt_ms) for rtt_ms in rtts]


def measure() -> Rows:
    """Run every case, one a core."""
    everything = cases()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(tqdm(pool.map(Case.measure, everything), total=len(everything), desc="jitter"))


def select(rows: Rows, scheme: str, kind: str) -> Rows:
    """Return the rows of one scheme and kind on the path of 40 ms, the smallest disturbance first."""
    key = (scheme, kind, RTT_MS)
    return [row for row in rows if (row["scheme"], row["kind"], row["rtt_ms"]) == key]


def picture(rows: Rows) -> Figure:
    """Draw the queueing delay over the jitter's size: BBR by kind, the schemes by themselves."""
    with style():
        figure = Figure(figsize=(9.5, 4.6), layout="constrained")
        kinds, schemes = figure.subplots(1, 2, sharey=True)
        for (kind, title), colour, mark in zip(KINDS.items(), PALETTE, "osD^vP", strict=False):
            _line(kinds, select(rows, "bbr", NONE) + select(rows, "bbr", kind), title, Stroke(colour, "-"), mark)
        for (scheme, own), mark in zip(strokes(SCHEMES).items(), "osD^", strict=True):
            _line(schemes, select(rows, scheme, NONE) + select(rows, scheme, "return"), scheme, own, mark)
        kinds.set(title="BBR v1", xlabel="jitter (+-) or grain (ms)", ylabel="mean queueing delay (ms)", ylim=(0, None))
        schemes.set(title="jitter on the way back, in order", xlabel="jitter (+-) (ms)")
        for axes, columns in ((kinds, 1), (schemes, 4)):
            axes.legend(fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=columns)
    return figure


def _line(axes: Axes, rows: Rows, name: str, stroke: Stroke, mark: str) -> None:
    """Draw means over the seeds, and their extremes as a band."""
    x, y = [row["size_ms"] for row in rows], [row["queueing_ms"] for row in rows]
    low, high = zip(*(row["queueing_ms_extremes"] for row in rows), strict=True)
    axes.plot(x, y, color=stroke.colour, linestyle=stroke.dashes, marker=mark, markersize=5, linewidth=1.5, label=name)
    axes.fill_between(x, low, high, color=stroke.colour, alpha=0.15, linewidth=0)


def main() -> None:
    """Measure, keep, and draw what is kept."""
    save("jitter", {"kinds": KINDS, "rows": measure()})
    save_figure(picture(json.loads((RESULTS / "jitter.json").read_text())["result"]["rows"]), PICTURE)


if __name__ == "__main__":
    with errors_in_one_line("evidence.behaviour.jitter"):
        main()
