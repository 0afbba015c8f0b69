# SPDX-License-Identifier: Apache-2.0
"""What Orca's published actor does in the lab: a league of `small`, held against Cubic window by window.

The checkpoint is its authors'; SAGECC_ORCA names its folder (docs/guide/your-own-scheme.md). Virtual time: the figures
hang on the kernel's bytes and the policies' files, not on the machine. What was played is kept, a killed run goes on.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.collect import KERNEL
from benchmarks.machine import save
from sagecc.collector.run.sets import profile_set
from sagecc.common.errors import SageccError
from sagecc.leagues.league import lab_runner, play
from sagecc.policy.orca_import import import_checkpoint
from sagecc.schemas.schemes import POLICY_PREFIX, SCHEMES
from studies import RESULTS
from studies.policies import LONG, SHIPPED, played

PROFILE = "small"
RAW = Path("datasets/raw")
CACHE = Path(".cache/bench-orca")
AGAINST = "cubic"
LATENCIES_MS = (0, 10)


def main() -> None:
    """Measure and save."""
    checkpoint = os.environ.get("SAGECC_ORCA")
    if not checkpoint:
        raise SageccError("SAGECC_ORCA names no checkpoint: set it to the folder of Orca's published actor")
    actor = import_checkpoint(Path(checkpoint), CACHE / "policy").folder
    orca = f"{POLICY_PREFIX}{actor}"
    networks = profile_set(PROFILE)
    runner = lab_runner(KERNEL, len(os.sched_getaffinity(0)))
    league = play(networks, (*SCHEMES, orca, SHIPPED), RAW, CACHE / "league", runner)
    propagation = pl.DataFrame(
        {
            "environment_id": [e.id for e in networks.environments],
            "propagation_ms": [e.min_rtt_ms / 2 for e in networks.environments],
        }
    )
    names = {orca: "orca", SHIPPED: SHIPPED.removeprefix(POLICY_PREFIX)}
    windows = league.wins.join(propagation, on="environment_id").with_columns(pl.col("scheme").replace(names))
    save(
        "orca",
        {
            "profile": PROFILE,
            "standings": league.standings.with_columns(pl.col("scheme").replace(names)).to_dicts(),
            "alone": against(windows.filter(pl.col("set") == "I")),
            "shared": shares(windows.filter(pl.col("set") == "II")),
            "latency": [{"latency_ms": late, **played(orca, LONG, latency_ms=late)} for late in LATENCIES_MS],
        },
        RESULTS,
    )


def against(windows: pl.DataFrame) -> dict[str, Any]:
    """Hold Orca against AGAINST in the same windows: capacity, queueing delay, and how often it has more or less."""
    both = windows.filter(pl.col("scheme").is_in(["orca", AGAINST])).with_columns(
        share=pl.col("goodput_mbps") / pl.col("capacity_mbps"),
        queueing_ms=pl.col("delay_ms") - pl.col("propagation_ms"),
    )
    means = both.group_by("scheme").agg(
        pl.col("share").mean(), pl.col("queueing_ms").mean(), median_queueing_ms=pl.col("queueing_ms").median()
    )
    pairs = both.pivot("scheme", index=["environment_id", "window"], values=["goodput_mbps", "queueing_ms"])
    return {
        "windows": pairs.height,
        "schemes": {row.pop("scheme"): row for row in means.sort("scheme").to_dicts()},
        "as_fast": pairs.select((pl.col("goodput_mbps_orca") >= 0.9 * pl.col(f"goodput_mbps_{AGAINST}")).mean()).item(),
        "less_delay": pairs.select((pl.col("queueing_ms_orca") < pl.col(f"queueing_ms_{AGAINST}")).mean()).item(),
    }


def shares(windows: pl.DataFrame) -> dict[str, float]:
    """Return the mean of each scheme's goodput over its fair share beside a Cubic flow."""
    means = windows.group_by("scheme").agg((pl.col("goodput_mbps") / pl.col("fair_share_mbps")).mean().alias("share"))
    return {row["scheme"]: row["share"] for row in means.sort("scheme").to_dicts()}


if __name__ == "__main__":
    main()
