# SPDX-License-Identifier: Apache-2.0
"""Writes docs/benchmarks.md from benchmarks/results/*.json: no figure there is typed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.machine import RESULTS
from schemas.files import write_atomically

PAGE = Path("docs/benchmarks.md")
HEAD = """# Benchmarks

Made by `make bench` (`benchmarks/`): every figure comes from a file under `benchmarks/results/`.
Absolute figures hold for the machine named with them.
"""


def collect(result: dict[str, Any]) -> str:
    """Return the collector's section."""
    rows = "\n".join(
        f"| {r['scheme']} | {r['rate_mbps']} | {r['virtual_s_per_cpu_s']:.0f} | {r['us_per_packet']:.2f} |"
        for r in result["episodes"]
    )
    grid = result["grid"]
    return f"""## Collecting (`make bench-collect`)

One pinned core; flat link, 40 ms, 1 BDP, 30 virtual seconds; CPU time of guest and host side together.

| scheme | Mbps | virtual s a CPU-second | microseconds a data packet |
|---|---:|---:|---:|
{rows}

- Fixed cost of an episode (0.05 virtual seconds): {result["fixed_s"]:.3f} CPU-seconds.
- The whole grid, {grid["episodes"]:,} episodes, estimated from {grid["sampled"]} of its environments:
  {grid["cpu_hours"]:.1f} CPU-hours.
"""


SECTIONS: dict[str, Callable[[dict[str, Any]], str]] = {"collect": collect}


def main() -> None:
    """Write the page."""
    parts = [HEAD]
    for name, section in SECTIONS.items():
        path = RESULTS / f"{name}.json"
        if path.exists():
            saved = json.loads(path.read_text())
            m = saved["machine"]
            where = f"{m['cpu']}, {m['cores']} cores, {m['memory_gib']} GiB, Linux {m['kernel']}, {m['date']}"
            parts.append(section(saved["result"]) + f"\nMeasured on {where}.\n")
    with write_atomically(PAGE) as beside:
        beside.write_text("\n".join(parts))


if __name__ == "__main__":
    main()
