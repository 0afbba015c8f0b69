# SPDX-License-Identifier: Apache-2.0
"""Writes datasets/README.md, the pool's card: its figures come from files that stages and measurements wrote."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sagecc.common.files import write_atomically
from sagecc.pool.exports.about import CITATION, PAPER, SUMMARY, TITLE
from sagecc.pool.exports.to_huggingface import header
from sagecc.schemas.pool import COLUMNS_FILE, EPISODES_FILE, FEATURE_NAMES, PARTS, POOL_VERSION, WINDOWS_TICKS
from sagecc.schemas.schemes import SCHEMES

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "datasets"
PAGE = FOLDER / "README.md"

LICENCE_URL = "https://www.apache.org/licenses/LICENSE-2.0"

USES = (
    "Offline reinforcement learning and imitation of congestion control; long sequences with real dynamics.",
    "Analysis of what the schemes of the Linux kernel do on the same networks, row by row.",
)
LIMITS = (
    "Emulated networks with one bottleneck, tail-drop queues and no random loss; at most one flow beside the observed"
    " one. Policies that saw nothing else should not be trusted on the Internet without more tests.",
    "Time is virtual: the data has no jitter of a busy machine, which some schemes, BBR above all, feel on real paths.",
    "A row is what the kernel's socket reports every 10 ms; what happens between two rows is seen only in sums.",
    "The state after an episode's last action is not in the pool. Episodes end by their clock, never in a terminal"
    " state.",
    "Linux 6.12 and its TCP; BBRv2 is no part of it and was written for this project from its specification.",
    "It is a pool made anew after the paper's description, not the data of the paper, which was not published.",
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
    bench = json.loads((ROOT / "benchmarks" / "results" / "full.json").read_text())
    grid = json.loads((ROOT / "studies" / "training" / "full-grid.json").read_text())
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
    sets = " and ".join(f"{count} of Set {name}" for name, count in figures.environments.items())
    windows = ", ".join(f"{ticks / 100:g} s" for ticks in WINDOWS_TICKS.values())
    return f"""{header(figures.rows, configs)}
<!-- Written by `make card` (scripts/dataset_card.py): change that, not this. -->

# {TITLE}

{SUMMARY}

| | |
|---|---|
| schemes | {len(SCHEMES)}: {", ".join(SCHEMES)} |
| networks | {sum(figures.environments.values()):,}: {sets} |
| episodes | {figures.episodes:,} |
| rows, one each 10 ms | {figures.rows:,} |
| virtual time | {figures.rows / 100 / 3600:.0f} hours |
| the pool | {figures.pool_bytes / 1e9:.2f} GB of Parquet |
| the raw counters it is derived from | {figures.raw_rows:,} rows, {figures.raw_bytes / 1e9:.2f} GB |
| version of the format | {POOL_VERSION} |

That is the paper's grid (`full`). A coarse grid, `small`, is what `make repro` collects.

## Getting it

The data is not in Git; its hashes are. Whoever has the repository can make the same bytes:

```sh
make repro                      # datasets/pool, the small grid
make full                       # datasets/full/pool, the whole grid
dvc pull datasets/pool          # where a team keeps a remote: docs/guide/collect.md
```

```python
import datasets

rows = datasets.load_dataset("./datasets", "small-transitions", split="train", streaming=True)
```

DuckDB, Polars and Arrow read the Parquet files as they lie ([query](../docs/guide/query.md)).
`sagecc pool export` writes Minari, RLDS and Hugging Face datasets with one observation vector per row
([export](../docs/guide/query.md#export-to-other-libraries)). [croissant.json](croissant.json) describes files and
columns for machines.

## What a row is

- State: {len(FEATURE_NAMES)} features of the socket (smoothed RTT, delivery rate, losses, packets in flight, their
  averages and extremes over {windows}), the input of the paper's Table 1. Action: the ratio of the congestion window
  a tick later to the one now. Reward: R1, rate against delay and loss, for a flow alone (Set I); R2, a fair share of
  the bottleneck, for a flow beside Cubic (Set II).
- [Every column](../docs/reference/columns.md) with type, unit, formula and bounds; the files carry them too.
- `episodes.parquet` has a row for each episode: the network with all its parameters, scheme, seed, goodput, delay,
  losses, return. Rows of the pool have its `episode_id`; `set` and `scheme` are in the folders' names.
- No split is prescribed. Networks that no training should see: `sagecc environments --profile heldout`.

## How it was made

Each episode is one run of a real Linux kernel (6.12, user mode) in virtual time: a flow under the scheme's control over
a bottleneck whose rate, delay and queue are set, sampled every 10 ms. The same specification and seed give the same
bytes on any x86-64 Linux. Features and rewards are derived from the raw counters, with the constants of Sage's public
code. The details: [collect](../docs/guide/collect.md),
[the virtual-time kernel](../docs/method/virtual-time-kernel.md), [fidelity](../docs/method/fidelity.md),
[the pool](../docs/reference/formats.md#the-pool). `sagecc pool check` verifies every file, row and episode.

## Uses

{_list(USES)}

## Limits

{_list(LIMITS)}

## People and privacy

None are in it: every packet was generated, between a sender and a receiver of the emulation, and carries no content.
No scheme was judged by a person. A policy learned from it can crowd out other people's traffic: measure its fairness
(Set II, `sagecc league`) before it meets a shared network.

## Licence and citation

Apache-2.0, as the rest of the repository. After {PAPER}

```bibtex
{CITATION}
```
"""


def _list(items: tuple[str, ...]) -> str:
    return "\n".join(f"- {item}" for item in items)


if __name__ == "__main__":
    with write_atomically(PAGE) as beside:
        beside.write_text(page())
