# SPDX-License-Identifier: Apache-2.0
"""The pool's card, datasets/README.md: its figures come from files that stages and measurements wrote."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sagecc.pool.exports.about import CITATION, PAPER, SUMMARY, TITLE
from sagecc.pool.exports.to_huggingface import header
from sagecc.schemas.partitions import EPISODES_FILE, PARTS
from sagecc.schemas.pool import COLUMNS_FILE, FEATURE_NAMES, POOL_VERSION, WINDOWS_TICKS
from sagecc.schemas.schemes import SCHEMES
from scripts.templates import ROOT, whole

TEMPLATE = Path(__file__).with_name("dataset_card.md.j2")
FOLDER = ROOT / "datasets"
PAGE = FOLDER / "README.md"

LICENCE_URL = "https://www.apache.org/licenses/LICENSE-2.0"

USES = (
    "Offline reinforcement learning and imitation of congestion control; long sequences with real dynamics.",
    "Analysis of what the schemes of the Linux kernel do on the same networks, row by row.",
)
LIMITS = (
    "Emulated networks with one bottleneck, tail-drop queues and no random loss; at most one flow next to the observed"
    " one. Policies that saw nothing else should not be trusted on the Internet without more tests.",
    "Time is virtual: the data has no jitter of a busy machine, which some schemes, BBR above all, feel on real paths.",
    "A row is what the kernel's socket reports every 10 ms; what happens between two rows is seen only in sums.",
    "The state after an episode's last action is not in the pool. Episodes end by their clock, never in a terminal"
    " state.",
    "Linux 6.12 and its TCP; BBRv2 is no part of it and was written for this project from its specification.",
    "It follows the paper's description; the paper's own data was not published.",
)


@dataclass(frozen=True)
class Figures:
    """What was measured of the full grid. environments: by set. date: of the measurement, as ISO has it."""

    environments: dict[str, int]
    episodes: int
    rows: int
    raw_rows: int
    pool_bytes: int
    raw_bytes: int
    date: str


def measured() -> Figures:
    """Read the figures: sizes from the stages' lock file, counts from the benchmark and the league of the full grid."""
    lock = yaml.safe_load((FOLDER / "full" / "dvc.lock").read_text())["stages"]
    sizes = {out["path"]: out["size"] for stage in lock.values() for out in stage["outs"]}
    bench = json.loads((ROOT / "evidence" / "results" / "full.json").read_text())
    grid = json.loads((ROOT / "evidence" / "training" / "full-grid.json").read_text())
    result = bench["result"]
    return Figures(
        environments=grid["environments"],
        episodes=result["pool"]["episodes"],
        rows=result["pool"]["rows"],
        raw_rows=result["raw"]["rows"],
        pool_bytes=sizes["datasets/full/pool"],
        raw_bytes=sum(size for path, size in sizes.items() if path.startswith("datasets/full/raw/")),
        date=bench["machine"]["date"],
    )


def page() -> str:
    """Return the card."""
    figures = measured()
    configs: list[dict[str, Any]] = [
        {"config_name": "transitions", "data_files": f"full/pool/{PARTS}", "default": True},
        {"config_name": "episodes", "data_files": f"full/pool/{EPISODES_FILE}"},
        {"config_name": "columns", "data_files": f"full/pool/{COLUMNS_FILE}"},
        {"config_name": "small-transitions", "data_files": f"pool/{PARTS}"},
        {"config_name": "small-episodes", "data_files": f"pool/{EPISODES_FILE}"},
    ]
    return whole(
        TEMPLATE,
        {
            "header": header(figures.rows, configs),
            "title": TITLE,
            "summary": SUMMARY,
            "schemes": SCHEMES,
            "figures": figures,
            "version": POOL_VERSION,
            "features": FEATURE_NAMES,
            "windows_s": [ticks / 100 for ticks in WINDOWS_TICKS.values()],
            "uses": USES,
            "limits": LIMITS,
            "paper": PAPER,
            "citation": CITATION,
        },
    )
