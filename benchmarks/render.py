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

{against_ns3(result["ns3"])}

- Fixed cost of an episode (0.05 virtual seconds): {result["fixed_s"]:.3f} CPU-seconds.
- The whole grid, {grid["episodes"]:,} episodes, estimated from {grid["sampled"]} of its environments:
  {grid["cpu_hours"]:.1f} CPU-hours.
"""


def against_ns3(result: dict[str, Any]) -> str:
    """Return the comparison with ns-3, or why there is none."""
    if "missing" in result:
        return f"ns-3 was not compared: {result['missing']}."
    rows = "\n".join(
        f"| {r['rate_mbps']} | {r['lab_virtual_s_per_cpu_s']:.0f} | {r['ns3_virtual_s_per_cpu_s']:.1f} "
        f"| {r['ratio']:.1f} | {r['lab_goodput_mbps']:.1f} | {r['ns3_goodput_mbps']:.1f} |"
        for r in result["rows"]
    )
    return f"""The same dumbbell in ns-3 {result["version"]} with its own TCP (Cubic, SACK), in turn with the lab on
the same core. Two nodes and one cable in both; ns-3 samples and stores nothing.

| Mbps | lab, virtual s a CPU-second | ns-3 | times as fast | lab, goodput Mbps | ns-3 |
|---:|---:|---:|---:|---:|---:|
{rows}"""


def memory(result: dict[str, Any]) -> str:
    """Return the section on a running episode's memory."""
    rows = "\n".join(
        f"| {r['environment']} | {r['scheme']} | {r['guest_mb']:.0f} | {r['collector_mb']:.0f} "
        f"| {r['guest_mb'] + r['collector_mb']:.0f} |"
        for r in result["episodes"]
    )
    return f"""## Memory of a running episode (`make bench-memory`)

Peaks in MB (millions of bytes). Guest: the kernel, what it touched of the file that is its memory, and its traced
process, as /proc/PID/smaps_rollup has them. Collector: the resident memory of the Python process that reads, decodes
and stores what the guest sends, libraries that several of them share included.

| environment | scheme | guest | collector | together |
|---|---|---:|---:|---:|
{rows}
"""


SECTIONS: dict[str, Callable[[dict[str, Any]], str]] = {"collect": collect, "memory": memory}


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
