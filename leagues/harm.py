# SPDX-License-Identifier: Apache-2.0
"""What a scheme does to the networks that it plays in, which no winning rate shows: losses, and starving itself."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from sagecc.leagues.scores import StoredEpisode

FLOOD_LOSS = 0.05
"""Share of a flow's packets lost from which a network counts as flooded."""

STARVED_SHARE = 0.5
"""A scheme that gets less than this share of REFERENCE's goodput in a network starves there."""

REFERENCE = "cubic"


def harm(episodes: Mapping[tuple[str, str], StoredEpisode]) -> pl.DataFrame:
    """Return what each scheme lost and how often it got too little, over its whole episodes.

    Args:
        episodes: by (environment id, scheme).

    Returns:
        One row per scheme: `networks`; `loss_mean` and `loss_worst`, shares of the data packets sent that the links
        dropped, and `worst_environment_id`; `flooded`, the networks with more than FLOOD_LOSS; `starved`, those with
        less than STARVED_SHARE of Cubic's goodput, None where Cubic plays in none of them.
    """
    rows = pl.DataFrame(
        [
            {
                "scheme": scheme,
                "environment_id": environment,
                "loss": episode.lost_packets / max(episode.sent_packets, 1),
                "goodput_mbps": episode.goodput_mbps,
            }
            for (environment, scheme), episode in sorted(episodes.items())
        ],
        schema={"scheme": pl.String, "environment_id": pl.String, "loss": pl.Float64, "goodput_mbps": pl.Float64},
    )
    reference = rows.filter(pl.col("scheme") == REFERENCE).select(
        "environment_id", reference_mbps=pl.col("goodput_mbps")
    )
    beside = rows.join(reference, on="environment_id", how="left")
    starved = pl.col("goodput_mbps") < STARVED_SHARE * pl.col("reference_mbps")
    return (
        beside.sort("scheme", "environment_id")
        .group_by("scheme", maintain_order=True)
        .agg(
            networks=pl.len(),
            loss_mean=pl.col("loss").mean(),
            loss_worst=pl.col("loss").max(),
            worst_environment_id=pl.col("environment_id").get(pl.col("loss").arg_max()),
            flooded=(pl.col("loss") > FLOOD_LOSS).sum(),
            starved=pl.when(pl.col("reference_mbps").is_not_null().any()).then(starved.sum()),
        )
    )
