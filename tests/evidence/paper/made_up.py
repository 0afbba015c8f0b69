# SPDX-License-Identifier: Apache-2.0
"""Results that nobody measured, of the figures and of the runs behind them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evidence.paper.learning import IN_LABS
from evidence.training.runs import seed_name
from evidence.training.table import RESULT_VERSION
from sagecc.common.shipped import BEST_POLICY

MACHINE = {"cpu": "Z80", "cores": 1, "memory_gib": 0.1, "kernel": "6.12", "python": "3.11", "date": "2026-01-01"}


def keep(path: Path, result: Mapping[str, Any]) -> None:
    """Write a figure's result as evidence.machine.save does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": MACHINE, "result": result}))


def write_runs(path: Path, *results: Mapping[str, Any]) -> None:
    """Add runs' results to a file."""
    with path.open("a") as file:
        file.writelines(f"{json.dumps(result)}\n" for result in results)


def keep_runs(path: Path, recipe: str, first: Sequence[float], second: Sequence[float]) -> None:
    """Add the results of a recipe's seeds, by their winning rates in the two sets of `heldout`."""
    for seed, rates in enumerate(zip(first, second, strict=True)):
        sets = {name: {"policy": {"winning_rate": rate}} for name, rate in zip(("I", "II"), rates, strict=True)}
        result = {
            "version": RESULT_VERSION,
            "name": seed_name(recipe, seed),
            "seed": seed,
            "training": {"cpu_h": 0.05},
            "leagues": {"heldout": sets},
        }
        write_runs(path, result)


def training(recipe: str, seed: int, points: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Return a training of Fig. 7 by its winning rates; Vegas has 40 % in Set I, NewReno 10 % in Set II."""
    return {
        "name": seed_name(recipe, seed),
        "recipe": recipe,
        "seed": seed,
        "fingerprint": "f",
        "steps": 100 * len(points),
        "points": [
            {
                "step": 100 * number,
                "cpu_h": 0.1 * number,
                "rates": {
                    "I": {"policy": one, "vegas": 0.4, "reno": 0.1},
                    "II": {"policy": two, "vegas": 0.0, "reno": 0.1},
                },
            }
            for number, (one, two) in enumerate(points, 1)
        ],
    }


FIG_7 = {
    "league": "heldout",
    "runs": [
        training("small", 0, [(0.1, 0.05), (0.3, 0.2), (0.5, 0.0), (0.7, 0.2)]),
        training("small", 1, [(0.1, 0.05), (0.3, 0.2), (0.5, 0.0), (0.7, 0.2)]),
        training(IN_LABS, 0, [(0.1, 0.0), (0.2, 0.0), (0.3, 0.0), (0.2, 0.05)]),
    ],
}


def trajectory(name: str, percentile_65: float, goodput_mbps: float, delay_ms: float) -> dict[str, Any]:
    """Return a row of Fig. 11."""
    quantiles = {"0.5": percentile_65 / 2, "0.65": percentile_65, "0.95": 2 * percentile_65}
    return {
        "name": name,
        "transitions": 100,
        "quantiles": quantiles,
        "goodput_mbps": goodput_mbps,
        "delay_ms": delay_ms,
    }


FIG_11 = {
    "title": "Set I: 24 x 4 Mbps",
    "duration_s": 34.0,
    "pool_transitions": 6_000_000,
    "search": "pool",
    "scaling": "symlog",
    "every": 4,
    "rows": [
        trajectory("sagecc-1", 0.03, 30.0, 50.0),
        trajectory(BEST_POLICY, 0.01, 60.0, 40.0),
        trajectory("bc", 0.02, 10.0, 30.0),
        trajectory("vegas", 0.001, 36.0, 45.0),
    ],
}


def alike(network: str, **index: float) -> list[dict[str, Any]]:
    """Return a network's rows of Fig. 13."""
    return [{"network": network, "other": other, "index": value, "nearest": 1.0} for other, value in index.items()]


FIG_13 = {
    "networks": {"a": "Set I: 12 Mbps", "b": "Set I: 24 Mbps", "c": "Set II: 12 Mbps"},
    "policies": {
        "sagecc-1": [*alike("a", vegas=0.9, cubic=0.1), *alike("b", vegas=0.75), *alike("c", vegas=0.85)],
        BEST_POLICY: [*alike("a", vegas=0.9, cubic=0.1), *alike("b", vegas=0.1, cubic=0.2), *alike("c", bic=0.3)],
    },
}

FIG_16: dict[str, Any] = {
    "networks": {"c": "Set II: 12 Mbps"},
    "rows": [
        {"recipe": recipe, "seed": seed, "points": 2100, "apart": apart + seed / 100, "by_chance": 0.14}
        for seed in (0, 1, 2)
        for recipe, apart in (("window-s", 0.3), ("window-m", 0.5), ("window-l", 0.9))
    ],
}
