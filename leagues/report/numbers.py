# SPDX-License-Identifier: Apache-2.0
"""What each scheme got of the networks and did to them, in the units that they are measured in."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from sagecc.leagues.scores import StoredEpisode


def numbers(wins: pl.DataFrame, episodes: Mapping[tuple[str, str], StoredEpisode]) -> pl.DataFrame:
    """Return each scheme's means in each set.

    Args:
        wins: the table of leagues.standings.mark_winners.
        episodes: by (environment id, scheme), of which the losses are.

    Returns:
        set, scheme, goodput_mbps, used (goodput over the link's capacity) and delay_ms over the scoring windows in
        which something arrived; loss, the mean share of the data packets sent that links dropped. None without any.
    """
    lost = pl.DataFrame(
        [(episode.environment.set, scheme, episode.loss_rate) for (_, scheme), episode in sorted(episodes.items())],
        schema={"set": pl.String, "scheme": pl.String, "loss": pl.Float64},
        orient="row",
    )
    arrived = pl.col("status") == "ok"
    means = wins.group_by("set", "scheme").agg(
        pl.col("goodput_mbps").filter(arrived).sort().mean(),
        used=(pl.col("goodput_mbps") / pl.col("capacity_mbps")).filter(arrived).sort().mean(),
        delay_ms=pl.col("delay_ms").filter(arrived).sort().mean(),
    )
    losses = lost.group_by("set", "scheme").agg(pl.col("loss").sort().mean())
    return means.join(losses, on=["set", "scheme"], how="left").sort("set", "scheme")
