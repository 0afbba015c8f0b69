# SPDX-License-Identifier: Apache-2.0
"""`python -m evidence.training.recovery`: why a pool is kicked, in two pictures and their figures.

Two clones of Cubic, of its trajectories as they are and of kicked ones, play beside Cubic in a network that they were
cloned from; and the winning rates of a clone and a learner of both pools, of evidence/runs.jsonl.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from evidence.machine import KERNEL, save
from evidence.training.run import RUNS, policies_of
from evidence.training.runs import read_plan
from evidence.training.table import RESULTS, read_results
from sagecc.cli import errors_in_one_line
from sagecc.collector.run.grid import bottleneck
from sagecc.common.arrays import Doubles
from sagecc.common.errors import SageccError
from sagecc.execution.lab.controllers import play_episode
from sagecc.leagues.plots import GREEN, HEURISTIC, POLICY, save_png, style
from sagecc.schemas.environment import CrossFlow, dumbbell
from sagecc.schemas.schemes import POLICY_PREFIX

WINDOWS_PICTURE, RATES_PICTURE = Path("docs/img/recovery-window.png"), Path("docs/img/recovery-rates.png")
CLONES = {"cubic": "cubic", "clone-cubic": "its clone, from plain trajectories",
          "clone-cubic-kicked": "its clone, from kicked trajectories"}  # fmt: skip
"""What plays, and what the picture calls it."""
RATE_MBPS, RTT_MS, QUEUE_BDP, DURATION_S = 24, 40, 4, 60
COLOURS = (HEURISTIC, "#d62728", GREEN)
RECIPES = {"cloning": ("clone-plain", "clone"), "learning": ("offline-plain", "offline")}
"""Recipes of the plain pool and the kicked one."""
POOLS = ("plain", "kicked")
LEAGUE = "heldout"


def main() -> None:
    """Play, gather, save and draw."""
    folders = policies_of(read_plan(RUNS), [name for name in CLONES if name != "cubic"], KERNEL)
    played = [play(name, folders.get(name)) for name in CLONES]
    rates = {kind: [gathered(recipe) for recipe in recipes] for kind, recipes in RECIPES.items()}
    save("recovery", {"league": LEAGUE, "network": [RATE_MBPS, RTT_MS, QUEUE_BDP, DURATION_S], "played": played,
                      "rates": rates})  # fmt: skip
    save_png(windows_figure(played), WINDOWS_PICTURE)
    save_png(rates_figure(rates), RATES_PICTURE)


def play(name: str, folder: Path | None) -> dict[str, Any]:
    """Return the window of a scheme by second, and what it and the Cubic beside it got."""
    link = bottleneck(RATE_MBPS, 1, RTT_MS, QUEUE_BDP, DURATION_S)
    windows_s = ((0, DURATION_S),)
    environment = dumbbell("II", link, RTT_MS / 2, DURATION_S, windows_s, cross=(CrossFlow("cubic"),))
    episode = play_episode(KERNEL, environment, f"{POLICY_PREFIX}{folder}" if folder else name, 0)
    cwnd: Doubles = np.asarray(episode.rows["cwnd_pkts"], np.float64)
    seconds = cwnd[: len(cwnd) // 100 * 100].reshape(-1, 100).mean(axis=1)
    own, beside = episode.flows
    return {
        "name": name,
        "cwnd_pkts": [round(x, 1) for x in seconds.tolist()],
        "goodput_mbps": own.goodput_mbps,
        "beside_mbps": beside.goodput_mbps,
        "cwnd_median_pkts": float(np.median(cwnd)),
    }


def gathered(recipe: str) -> dict[str, Any]:
    """Return a recipe's winning rates over its seeds, by set, and its networks below half of Cubic's goodput.

    Raises:
        SageccError: None of its runs was done.
    """
    named = read_results(RESULTS).items()
    runs = [run for name, run in named if name == recipe or name.removeprefix(f"{recipe}-").isdigit()]
    if not runs:
        raise SageccError(f"{recipe}: not done yet; run 'make policies ONLY={recipe}' first")
    rates: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        for name, place in run["leagues"][LEAGUE].items():
            rates[name].append(place["policy"]["winning_rate"])
    starves = [len(run["harm"][LEAGUE]["starves"]) for run in runs]
    best = {name: max(run["leagues"][LEAGUE][name]["best_heuristic"]["winning_rate"] for run in runs) for name in rates}
    return {"recipe": recipe, "seeds": len(runs), "rates": dict(rates), "starves": starves, "best": best}


def windows_figure(played: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the windows over time."""
    with style():
        figure = Figure(figsize=(8.5, 3.4), layout="constrained")
        axes = figure.subplots()
        for of, colour in zip(played, COLOURS, strict=True):
            text = f"{CLONES[of['name']]}: {of['goodput_mbps']:.1f} Mbps"
            axes.plot(np.arange(len(of["cwnd_pkts"])) + 0.5, of["cwnd_pkts"], color=colour, label=text)
        axes.set_xlabel("time (s)")
        axes.set_ylabel("cwnd (packets)")
        axes.set_ylim(bottom=0)
        axes.set_title(f"Beside a Cubic flow, {RATE_MBPS} Mbps, {RTT_MS} ms, a queue of {QUEUE_BDP} BDP")
        figure.legend(loc="outside lower center", ncols=1)
    return figure


def rates_figure(rates: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """Draw winning rates against the pool, a panel for each set."""
    with style():
        figure = Figure(figsize=(8.5, 3.4), layout="constrained")
        for axes, name in zip(figure.subplots(1, 2, sharey=True), ("I", "II"), strict=True):
            for (kind, of), colour in zip(rates.items(), (HEURISTIC, POLICY), strict=True):
                means = [float(np.mean(each["rates"][name])) for each in of]
                axes.plot(POOLS, means, color=colour, marker="o", label=kind)
                for pool, each in zip(POOLS, of, strict=True):
                    axes.scatter([pool] * each["seeds"], each["rates"][name], color=colour, alpha=0.4, s=18)
            best = max(each["best"][name] for of in rates.values() for each in of)
            axes.axhline(best, color=HEURISTIC, linestyle="--", linewidth=0.9)
            axes.annotate("best heuristic", (0.02, best), (0, 3), xycoords=axes.get_yaxis_transform(), fontsize=9,
                          textcoords="offset points")  # fmt: skip
            axes.set_ylim(0, 1)
            axes.set_xlim(-0.4, 1.4)
            axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
            axes.set_title(f"Set {name} of {LEAGUE}")
            axes.set_xlabel("trajectories in the pool")
        figure.axes[0].set_ylabel("winning rate (dots: seeds)")
        figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(rates))
    return figure


if __name__ == "__main__":
    with errors_in_one_line("evidence.training.recovery"):
        main()
