# SPDX-License-Identifier: Apache-2.0
"""The same policy on the same links, in the lab and on the host's own kernel (root only): goodput, and the window.

Ten minutes; each run in real time is kept under build/policy-fidelity/POLICY as it ends, so that a killed one goes on.
`--again` measures everything anew. Draws docs/img/policy-host.png.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from tqdm import tqdm

from evidence.behaviour.fidelity import network, queueing_ms, tell
from evidence.machine import KERNEL, save
from sagecc.cli import errors_in_one_line
from sagecc.collector.lab.episode import Episode
from sagecc.collector.realtime import host
from sagecc.common.files import write_atomically
from sagecc.common.shipped import BEST_POLICY
from sagecc.execution.lab.controllers import play_episode
from sagecc.execution.stock import kernel_scheme
from sagecc.execution.stock.kernel_scheme import private_name
from sagecc.execution.stock.shared import Shared
from sagecc.execution.stock.supervisor import Supervisor, driving
from sagecc.leagues.colours import stroke
from sagecc.leagues.plots import INK, SHADE, save_figure
from sagecc.policy import runtime

MODEL = Path("models") / BEST_POLICY
KEPT = Path("build/policy-fidelity") / MODEL.name
PICTURE = Path("docs/img/policy-host.png")
NETWORKS = tuple(product((12.0, 24.0, 48.0), (20.0, 40.0), (1.0, 2.0)))
"""Mbps, ms, BDP."""
DRAWN = ((12.0, 40.0, 1.0), (24.0, 40.0, 2.0), (48.0, 20.0, 1.0))
DURATION_S = 20.0
REPEATS = 3
EVERY = 5
"""Ticks from one point of a curve to the next: the policy's period."""

Run = dict[str, Any]
Case = tuple[float, float, float]


def curve(episode: Episode) -> list[list[float]]:
    """Return the window over time: seconds and packets."""
    return [[round(float(x), 3) for x in episode.rows[name].to_numpy()[::EVERY]] for name in ("t_s", "cwnd_pkts")]


def in_real_time(supervisor: Supervisor, shared: Shared, case: Case, repeat: int) -> Run:
    """Run one episode on the host's kernel under the agent, or return it as it was kept."""
    path = KEPT / f"{'-'.join(f'{x:g}' for x in case)}.{repeat}.json"
    if path.exists():
        earlier: Run = json.loads(path.read_text())
        return earlier
    load, fell_back = os.getloadavg()[0], shared.count("fell_back")
    supervisor.report()
    run = host.run_on_host(network(*case, DURATION_S), private_name(), repeat)
    timing = supervisor.report()
    tell(run.episode)
    result: Run = {
        "goodput_mbps": run.episode.flows[0].goodput_mbps,
        "queueing_ms": run.queueing_ms,
        "drops": run.episode.flows[0].lost_packets,
        "cwnd_mean": run.episode.flows[0].cwnd_mean,
        "notice": run.episode.flows[0].notice,
        "stalled_ms": run.stalled_ms,
        "met": timing.met / timing.ticks,
        "fell_back": shared.count("fell_back") - fell_back,
        "load": load,
        "curve": curve(run.episode),
    }
    with write_atomically(path) as temporary:
        temporary.write_text(json.dumps(result))
    return result


def in_virtual_time(case: Case) -> Run:
    """Run one episode in the lab."""
    scheme = f"policy:{MODEL}"
    episode = play_episode(KERNEL, network(*case, DURATION_S), scheme)
    return {
        "goodput_mbps": episode.flows[0].goodput_mbps,
        "queueing_ms": queueing_ms(episode),
        "drops": episode.flows[0].lost_packets,
        "cwnd_mean": episode.flows[0].cwnd_mean,
        "curve": curve(episode),
    }


def panel(axes: Axes, title: str, runs: Sequence[Run], colour: str, case: Case) -> None:
    """Draw the windows of runs on one network."""
    rate, rtt, queue = case
    bdp = rate * rtt / 12
    axes.axhspan(bdp, (1 + queue) * bdp, color=SHADE, alpha=0.22, linewidth=0)
    for run in runs:
        axes.plot(*run["curve"], color=colour, linewidth=1.2, alpha=0.8)
    axes.set_title(title, loc="left", fontsize=10.5, fontweight="bold", color=INK)
    goodput = ", ".join(f"{run['goodput_mbps']:.2f}" for run in runs)
    axes.set_title(f"{goodput} Mbps", loc="right", fontsize=9.5, color=INK)
    axes.set_xlim(0, DURATION_S)
    axes.set_ylim(0, (1.4 + queue) * bdp)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9, colors=INK)


def picture(cases: Sequence[Case], lab: Sequence[Run], real: Sequence[Sequence[Run]]) -> Figure:
    """Return the lab's windows beside the host's: a network a row."""
    figure = Figure(figsize=(10, 2.5 * len(cases) + 0.5), layout="constrained")
    grid = figure.subplots(len(cases), 2, squeeze=False)
    colour = stroke(BEST_POLICY).colour
    for axes, case, virtual, runs in zip(grid, cases, lab, real, strict=True):
        name = f"{case[0]:g} Mbps, {case[1]:g} ms, {case[2]:g} BDP"
        panel(axes[0], f"lab: {name}", [virtual], colour, case)
        panel(axes[1], "this machine's kernel", runs, colour, case)
        axes[0].set_ylabel("window, packets", fontsize=9.5, color=INK)
    for axes in grid[-1]:
        axes.set_xlabel("seconds (shaded: beyond the BDP, in the queue)", fontsize=9.5, color=INK)
    return figure


def without_curve(run: Run) -> Run:
    """Return a run's figures."""
    return {name: value for name, value in run.items() if name != "curve"}


def main() -> None:
    """Measure, save and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--again", action="store_true")
    again = parser.parse_args().again
    reason = kernel_scheme.why_not() or host.why_not()
    if reason:
        sys.exit(f"this machine cannot run a policy on its own kernel: {reason}")
    if again:
        shutil.rmtree(KEPT, ignore_errors=True)
    KEPT.mkdir(parents=True, exist_ok=True)
    real: dict[Case, list[Run]] = {case: [] for case in NETWORKS}
    with ExitStack() as stack:
        supervisor, _, shared = stack.enter_context(driving(MODEL, runtime.DEFAULT, 16))
        # as the ends of the flow are: on a busy machine it would be late otherwise, which the lab's never is
        os.sched_setscheduler(supervisor.pid, os.SCHED_FIFO, os.sched_param(host.PRIORITY))
        for repeat, case in tqdm(tuple(product(range(REPEATS), NETWORKS)), desc="real time"):
            real[case].append(in_real_time(supervisor, shared, case, repeat))
    lab = {case: in_virtual_time(case) for case in tqdm(NETWORKS, desc="virtual time")}
    rows = [
        {
            **dict(zip(("rate_mbps", "rtt_ms", "queue_bdp"), case, strict=True)),
            "lab": without_curve(lab[case]),
            "host": [without_curve(run) for run in runs],
            "goodput_apart": lab[case]["goodput_mbps"] / median(run["goodput_mbps"] for run in runs) - 1,
            "cwnd_apart": lab[case]["cwnd_mean"] / float(np.median([run["cwnd_mean"] for run in runs])) - 1,
        }
        for case, runs in real.items()
    ]
    save(
        "policy_fidelity",
        {"policy": str(MODEL), "duration_s": DURATION_S, "repeats": REPEATS, "networks": rows},
    )
    save_figure(picture(DRAWN, [lab[case] for case in DRAWN], [real[case] for case in DRAWN]), PICTURE)


if __name__ == "__main__":
    with errors_in_one_line("evidence.behaviour.policy_fidelity"):
        main()
