# SPDX-License-Identifier: Apache-2.0
"""The lab beside real Mahimahi: the networks of evidence/results/mahimahi.json, in the lab and through the tools.

Where mm-delay and mm-link are on the PATH (run it as another user than root), what they give is measured anew;
elsewhere the file's figures of them stay, and it says whose they are. The networks are the file's rows.
"""

from __future__ import annotations

import json
import shutil
from typing import Any

from tqdm import tqdm

from evidence.behaviour.fidelity import network, tell
from evidence.machine import KERNEL, RESULTS, describe, save
from sagecc.cli import errors_in_one_line
from sagecc.collector.lab.episode import Episode, run_episode
from sagecc.collector.realtime.mahimahi import TOOLS, run_mahimahi
from sagecc.schemas.environment import Environment

Row = dict[str, Any]


def environment_of(row: Row, duration_s: float) -> Environment:
    """Return the network of a row."""
    return network(float(row["rate_mbps"]), float(row["rtt_ms"]), float(row["queue_bdp"]), duration_s)


def figures(episode: Episode) -> Row:
    """Return goodput (Mbps) and mean one-way delay (ms)."""
    flow = episode.flows[0]
    return {"goodput_mbps": flow.goodput_mbps, "delay_ms": flow.delay_mean_ms}


def main() -> None:
    """Measure and save."""
    result: dict[str, Any] = json.loads((RESULTS / "mahimahi.json").read_text())["result"]
    installed = all(shutil.which(tool) for tool in TOOLS)
    for row in tqdm(result["rows"], desc="mahimahi"):
        environment = environment_of(row, result["duration_s"])
        row["lab"] = figures(run_episode(KERNEL, environment, row["scheme"]))
        if installed:
            episode = run_mahimahi(environment, row["scheme"])
            tell(episode)
            row["mahimahi"] = figures(episode)
    if installed:
        machine = describe()
        result["origin"] = f"`make bench-mahimahi` on {machine['cpu']}, Linux {machine['kernel']}, {machine['date']}"
    save("mahimahi", result)


if __name__ == "__main__":
    with errors_in_one_line("evidence.behaviour.mahimahi"):
        main()
