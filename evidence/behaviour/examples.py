# SPDX-License-Identifier: Apache-2.0
"""What Cubic does in every example of schemas/environments, and in those with jitter without it.

Virtual time: the figures hang on the kernel's bytes, not on the machine.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from evidence.machine import KERNEL, save
from sagecc.cli import errors_in_one_line
from sagecc.collector.lab.episode import run_episode
from sagecc.schemas.environment import Environment
from sagecc.schemas.environment_file import load_environment

EXAMPLES = Path("schemas/environments")
SCHEME = "cubic"


def main() -> None:
    """Measure and save."""
    cases = []
    for path in sorted(EXAMPLES.glob("*.yaml")):
        environment = load_environment(path)
        cases.append((path.stem, True, environment))
        if any(link.jitter_ms for link in environment.return_links):
            cases.append((path.stem, False, still(environment)))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        rows = list(tqdm(pool.map(measure, *zip(*cases, strict=True)), total=len(cases), desc="examples"))
    save("examples", {"scheme": SCHEME, "rows": rows})


def still(environment: Environment) -> Environment:
    """Return the environment without jitter on the way back."""
    links = tuple(replace(link, jitter_ms=0.0, jitter_reorders=False) for link in environment.return_links)
    return replace(environment, return_links=links)


def measure(example: str, as_is: bool, environment: Environment) -> dict[str, Any]:
    """Run one; as_is: with what jitter its file asks for."""
    episode = run_episode(KERNEL, environment, SCHEME)
    own = episode.flows[0]
    return {
        "example": example,
        "as_is": as_is,
        "flows": len(episode.flows),
        "goodput_mbps": own.goodput_mbps,
        "all_mbps": [flow.goodput_mbps for flow in episode.flows],
        "delay_mean_ms": own.delay_mean_ms,
        "delay_p95_ms": own.delay_p95_ms,
        "loss": own.loss_rate,
        "jain_index": episode.jain_index,
    }


if __name__ == "__main__":
    with errors_in_one_line("evidence.behaviour.examples"):
        main()
