# SPDX-License-Identifier: Apache-2.0
"""Orca's published actor in the lab beside the policies that were trained here: leagues, and against Cubic.

The checkpoint is its authors'; SAGECC_ORCA names its folder (docs/guide/your-own-scheme.md). Virtual time: the figures
hang on the kernel's bytes and the policies' files, not on the machine. What was played is kept (evidence/kept.py), a
killed run goes on.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import polars as pl

from evidence.kept import Contest, contest
from evidence.machine import KERNEL, save
from sagecc.cli import errors_in_one_line
from sagecc.collector.run.grid import profile_set
from sagecc.common.errors import SageccError
from sagecc.common.limits import usable_cores
from sagecc.common.shipped import BEST_POLICY, POOL_POLICY
from sagecc.execution.schemes.orca.checkpoint import import_checkpoint
from sagecc.leagues.harm import beside_reference
from sagecc.leagues.plots import plane_figure, save_figure
from sagecc.schemas.schemes import POLICY_PREFIX, SCHEMES

PROFILE, UNSEEN = "small", "heldout"
RAW = {PROFILE: Path("datasets/raw"), UNSEEN: Path(".cache/training/raw")}
"""Where the heuristics' trajectories lie; what is missing there is collected."""
PUBLISHED, TRAINED = "orca", "models/orca-1"
"""Orca's published actor, by the name that it plays under here, and the one that was trained here."""
OURS = (f"models/{POOL_POLICY}", f"models/{BEST_POLICY}")
CACHE = Path(".cache/bench-orca")
AGAINST = "cubic"
PICTURE = Path("docs/img/learned.svg")


def main() -> None:
    """Measure and save."""
    checkpoint = os.environ.get("SAGECC_ORCA")
    if not checkpoint:
        raise SageccError("SAGECC_ORCA names no checkpoint: set it to the folder of Orca's published actor")
    actor = import_checkpoint(Path(checkpoint), CACHE / "policy").folder
    orca, learned = f"{POLICY_PREFIX}{actor}", (TRAINED, *OURS)
    players = {name: name for name in SCHEMES} | {PUBLISHED: orca} | {name: POLICY_PREFIX + name for name in learned}
    leagues = {
        profile: contest(profile, profile_set(profile), players, raw, KERNEL, usable_cores())
        for profile, raw in RAW.items()
    }
    stand_out = {name: POLICY_PREFIX + name for name in learned} | {PUBLISHED: f"{POLICY_PREFIX}published/orca"}
    points = leagues[UNSEEN].wins().with_columns(pl.col("scheme").replace(stand_out))
    save_figure(plane_figure(points, stacked=True), PICTURE)
    league, networks = leagues[PROFILE], profile_set(PROFILE)
    propagation = pl.DataFrame(
        {
            "environment_id": [e.id for e in networks.environments],
            "propagation_ms": [e.min_rtt_ms / 2 for e in networks.environments],
        }
    )
    windows = league.wins().join(propagation, on="environment_id")
    save(
        "orca",
        {
            "profile": PROFILE,
            "leagues": {profile: of.standings().to_dicts() for profile, of in leagues.items()},
            "goodput": {profile: goodputs(of, TRAINED) for profile, of in leagues.items()},
            "alone": against(windows.filter(pl.col("set") == "I")),
            "shared": shares(windows.filter(pl.col("set") == "II")),
        },
    )


def goodputs(league: Contest, scheme: str) -> dict[str, dict[str, Any]]:
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
    with errors_in_one_line("evidence.leagues.orca"):
        main()
