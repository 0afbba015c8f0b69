# SPDX-License-Identifier: Apache-2.0
"""`make bench-heuristics`: plays the 13 heuristics in the networks of `sagecc bench` (leagues/bench-1.parquet)."""

from __future__ import annotations

from sagecc.common.limits import usable_cores
from sagecc.leagues.bench import PLAYS, write_plays
from scripts.wheel import KERNEL, ROOT


def main() -> None:
    """Write the file; episodes that were played stay."""
    write_plays(ROOT / "build" / KERNEL, ROOT / ".cache" / "bench-1" / "raw", usable_cores())
    print(f"{PLAYS}: {PLAYS.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
