# SPDX-License-Identifier: Apache-2.0
"""What jitter and an emulator's grain do to a scheme: measures, and puts tables and picture into docs/method/fidelity.md.

48 Mbps, 40 ms, a queue of 1 BDP, one flow, 30 s, three seeds. Virtual time: the figures depend on the kernel's
bytes and the seeds, not on the machine.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from tqdm import tqdm

from benchmarks.machine import save
from sagecc.collector.lab.episode import run_episode
from sagecc.collector.run.grid import bottleneck
from sagecc.common.files import write_atomically
from sagecc.schemas.environment import MTU_BYTES, Environment, Link
from studies import RESULTS

KERNEL = Path("build/sagecc-linux")
PAGE = Path("docs/method/fidelity.md")
PICTURE = Path("docs/img/jitter.png")
MARKS = "<!-- studies/jitter.py: {} begins -->", "<!-- studies/jitter.py: {} ends -->"

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
"""What is done to the path, and to how many milliseconds."""

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
    found = [Case(scheme) for scheme in SCHEMES]
    found += [Case(scheme, kind, size) for scheme in SCHEMES for kind, own in sizes.items() for size in own]
    rtts = [rtt_ms for rtt_ms in RTTS_MS if rtt_ms != RTT_MS]
    found += [Case("bbr", rtt_ms=rtt_ms) for rtt_ms in rtts]
    return found + [Case("bbr", "return", 1, rtt_ms) for rtt_ms in rtts]


def measure() -> Rows:
    """Run every case, one a core."""
    everything = cases()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(tqdm(pool.map(Case.measure, everything), total=len(everything), desc="jitter"))


def select(rows: Rows, scheme: str, kind: str) -> Rows:
    """Return the rows of one scheme and kind on the path of 40 ms, the smallest disturbance first."""
    wanted = (scheme, kind, RTT_MS)
    return [row for row in rows if (row["scheme"], row["kind"], row["rtt_ms"]) == wanted]


def pick(rows: Rows, **fields: object) -> dict[str, Any]:
    """Return the one row with these fields."""
    wanted = {"rtt_ms": RTT_MS} | fields
    (row,) = (row for row in rows if all(row[name] == value for name, value in wanted.items()))
    return row


def table(head: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown, its first column to the left."""
    names = list(head)
    body = [f"| {' | '.join(line)} |" for line in (names, *lines)]
    return "\n".join([body[0], "|---" + "|---:" * (len(names) - 1) + "|", *body[1:]])


def queue(row: Mapping[str, Any]) -> str:
    """Return a row's queueing delay (ms)."""
    return f"{row['queueing_ms']:.1f}"


def causes(rows: Rows) -> str:
    """Return the table of BBR against every disturbance of a millisecond."""
    lines = []
    for kind, name in {NONE: "nothing", **KINDS}.items():
        row = pick(rows, scheme="bbr", kind=kind, size_ms=0.0 if kind == NONE else 1)
        cells = (f"{row['goodput_mbps']:.1f}", queue(row), f"{row['drops']:.0f}", f"{100 * row['pacing_share']:.1f}")
        lines.append((name, *cells))
    return table(("BBR v1, 1 ms of", "Mbps", "queueing ms", "drops", "pacing, % of the link"), lines)


def sizes(rows: Rows) -> str:
    """Return the table of queueing delays: a row a scheme and kind, a column a size."""
    columns = sorted({*JITTERS_MS, *GRAINS_MS})
    lines = []
    for scheme in SCHEMES:
        none = pick(rows, scheme=scheme, kind=NONE)
        for kind, name in KINDS.items():
            own = {row["size_ms"]: queue(row) for row in select(rows, scheme, kind)}
            lines.append((f"{scheme}, {name}", queue(none), *(own.get(size, "") for size in columns)))
    return table(("queueing ms with", "0 ms", *(f"{size:g} ms" for size in columns)), lines)


def rtts(rows: Rows) -> str:
    """Return the table of BBR with a millisecond of jitter on paths of other lengths."""
    lines = []
    for rtt_ms in RTTS_MS:
        none = pick(rows, scheme="bbr", kind=NONE, rtt_ms=rtt_ms)
        one = pick(rows, scheme="bbr", kind="return", size_ms=1, rtt_ms=rtt_ms)
        shares = (f"{100 * row['pacing_share']:.1f}" for row in (none, one))
        lines.append((f"{rtt_ms} ms", queue(none), queue(one), *shares))
    return table(("RTT", "queueing ms, none", "1 ms", "pacing, % of the link, none", "1 ms"), lines)


def picture(rows: Rows) -> None:
    """Draw the queueing delay over the jitter's size: BBR by kind, the schemes by themselves."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (kinds, schemes) = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    lines = [(kinds, kind, "bbr", KINDS[kind]) for kind in KINDS]
    lines += [(schemes, "return", scheme, scheme) for scheme in SCHEMES]
    for axes, kind, scheme, name in lines:
        own = select(rows, scheme, NONE) + select(rows, scheme, kind)
        x, y = [row["size_ms"] for row in own], [row["queueing_ms"] for row in own]
        low, high = zip(*(row["queueing_ms_extremes"] for row in own), strict=True)
        style = "--" if kind.endswith("reorders") else ":" if kind.endswith("grain") else "-"
        (line,) = axes.plot(x, y, style, marker="o", markersize=3, linewidth=1.5, label=name)
        axes.fill_between(x, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
    kinds.set(title="BBR v1", xlabel="jitter (+-) or grain (ms)", ylabel="mean queueing delay (ms)", ylim=(0, None))
    schemes.set(title="jitter on the way back, in order", xlabel="jitter (+-) (ms)")
    for axes in (kinds, schemes):
        axes.grid(alpha=0.2)
        axes.spines[["top", "right"]].set_visible(False)
    kinds.legend(frameon=False, fontsize=7, loc="center right")
    schemes.legend(frameon=False, fontsize=8, loc="lower right")
    with write_atomically(PICTURE) as beside:
        figure.savefig(beside, format="png", dpi=150, facecolor="white", metadata={"Software": None})
    plt.close(figure)


def render(rows: Rows) -> None:
    """Draw the picture and replace what stands between the page's marks."""
    picture(rows)
    text = PAGE.read_text()
    for name, part in (("causes", causes(rows)), ("sizes", sizes(rows)), ("rtts", rtts(rows))):
        begin, end = (mark.format(name) for mark in MARKS)
        text = f"{text.split(begin)[0]}{begin}\n\n{part}\n\n{end}{text.split(end)[1]}"
    with write_atomically(PAGE) as beside:
        beside.write_text(text)


def main() -> None:
    """Measure, keep, and write the page from what is kept."""
    save("jitter", {"rows": measure()}, RESULTS)
    render(json.loads((RESULTS / "jitter.json").read_text())["result"]["rows"])


if __name__ == "__main__":
    main()
