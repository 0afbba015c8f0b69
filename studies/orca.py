# SPDX-License-Identifier: Apache-2.0
"""Orca's published actor in the lab beside the policies that were trained here: leagues, and against Cubic.

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
from sagecc.collector.run.collect import collect
from sagecc.collector.run.engines import local
from sagecc.collector.run.grid import profile_set
from sagecc.common.errors import SageccError
from sagecc.common.limits import usable_cores
from sagecc.leagues.harm import beside_reference
from sagecc.leagues.league import League, lab_runner, play
from sagecc.leagues.plots import plane_figure, save_png
from sagecc.policy.orca_import import import_checkpoint
from sagecc.schemas.schemes import POLICY_PREFIX, SCHEMES
from studies import RESULTS
from studies.policies import LONG, POLICIES, played

PROFILE, UNSEEN = "small", "heldout"
RAW = {PROFILE: Path("datasets/raw"), UNSEEN: Path(".cache/training/raw")}
"""Where the heuristics' trajectories lie; what is missing there is collected."""
TRAINED = f"{POLICY_PREFIX}models/orca-1"
CACHE = Path(".cache/bench-orca")
AGAINST = "cubic"
PICTURE = Path("docs/img/learned.png")
LATENCIES_MS = (0, 10)


def main() -> None:
    """Measure and save."""
    checkpoint = os.environ.get("SAGECC_ORCA")
    if not checkpoint:
        raise SageccError("SAGECC_ORCA names no checkpoint: set it to the folder of Orca's published actor")
    actor = import_checkpoint(Path(checkpoint), CACHE / "policy").folder
    orca = f"{POLICY_PREFIX}{actor}"
    jobs = usable_cores()
    leagues = {}
    for profile, raw in RAW.items():
        networks = profile_set(profile)
        collect(networks.environments, tuple(SCHEMES), raw, KERNEL, local(jobs))
        runner, schemes = lab_runner(KERNEL, jobs), (*SCHEMES, orca, TRAINED, *POLICIES)
        leagues[profile] = play(networks, schemes, raw, CACHE / profile, runner)
    drawn = leagues[UNSEEN].wins.with_columns(pl.col("scheme").replace({orca: f"{POLICY_PREFIX}published/orca"}))
    save_png(plane_figure(drawn), PICTURE)
    league, networks = leagues[PROFILE], profile_set(PROFILE)
    propagation = pl.DataFrame(
        {
            "environment_id": [e.id for e in networks.environments],
            "propagation_ms": [e.min_rtt_ms / 2 for e in networks.environments],
        }
    )
    names = {orca: "orca"} | {scheme: scheme.removeprefix(POLICY_PREFIX) for scheme in (*POLICIES, TRAINED)}
    windows = league.wins.join(propagation, on="environment_id").with_columns(pl.col("scheme").replace(names))
    save(
        "orca",
        {
            "profile": PROFILE,
            "leagues": {
                profile: of.standings.with_columns(pl.col("scheme").replace(names)).to_dicts()
                for profile, of in leagues.items()
            },
            "goodput": {profile: goodputs(of, TRAINED) for profile, of in leagues.items()},
            "alone": against(windows.filter(pl.col("set") == "I")),
            "shared": shares(windows.filter(pl.col("set") == "II")),
            "latency": [{"latency_ms": late, **played(orca, LONG, latency_ms=late)} for late in LATENCIES_MS],
        },
        RESULTS,
    )


def goodputs(league: League, scheme: str) -> dict[str, dict[str, Any]]:
    """Return by set in how many networks a scheme has less than nine tenths of Cubic's goodput, and the least share."""
    set_of = {environment.id: environment.set for environment in league.environments}
    shares = beside_reference(league.episodes, scheme).with_columns(
        set=pl.col("environment_id").replace_strict(set_of), below=pl.col("goodput_share") < 0.9
    )
    rows = shares.group_by("set").agg(
        networks=pl.len(), below=pl.col("below").sum(), least=pl.col("goodput_share").min()
    )
    return {row.pop("set"): row for row in rows.sort("set").to_dicts()}


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
