# SPDX-License-Identifier: Apache-2.0
"""What a scheme does to the networks that it plays in, which no winning rate shows: losses, starving itself or others.

Only the tested flow's rows are kept, so what its competitors got is not there to be read. What it left them is: the
bottleneck's capacity less what the flow took of it. They got that at most, and just that while its queue is not empty.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from sagecc.leagues.scores import StoredEpisode
from sagecc.leagues.standings import network_of
from sagecc.schemas.environment import MTU_BYTES

FLOOD_LOSS = 0.05
"""Share of a flow's packets lost from which a network counts as flooded."""

STARVED_SHARE = 0.5
"""A scheme that gets less than this share of REFERENCE's goodput in a network starves there."""

REFERENCE = "cubic"

LOSS_FACTOR, LOSS_SPARE = 2.0, 0.01
"""A policy does no harm by its losses where it loses at most so many times what REFERENCE does, and this share more."""

PAYLOAD_BYTES = 1448
"""Of a full packet of MTU_BYTES: IPv4, TCP and its timestamps take 52 (raw column mss_bytes)."""


def harm(episodes: Mapping[tuple[str, str], StoredEpisode], wins: pl.DataFrame) -> pl.DataFrame:
    """Return what each scheme lost, how often it got too little, and what it took from its competitors.

    Losses and goodputs are over whole episodes, what it took over the scoring windows. Of a network with repeats, each
    figure is their mean.

    Args:
        episodes: by (environment id, scheme).
        wins: the table of leagues.standings.mark_winners.

    Returns:
        One row per scheme: `networks`; `loss_mean` and `loss_worst`, shares of the data packets sent that the links
        dropped (None where none was sent), and `worst_environment_id`; `flooded`, the networks with more than
        FLOOD_LOSS; `starved`, those with less than STARVED_SHARE of Cubic's goodput, None where Cubic plays in none of
        them; `beside`, the networks with competitors; `taken_mean` and `taken_worst`, the share of their fair shares
        that its competitors lost to it (0 where it left them theirs), and `taken_environment_id`, None without
        competitors.
    """
    rows = pl.DataFrame(
        [
            {
                "scheme": scheme,
                "environment_id": environment,
                "loss": episode.loss_rate,
                "goodput_mbps": episode.goodput_mbps,
            }
            for (environment, scheme), episode in sorted(episodes.items())
        ],
        schema={"scheme": pl.String, "environment_id": pl.String, "loss": pl.Float64, "goodput_mbps": pl.Float64},
    )
    networks = network_of(wins)
    rows = rows.join(taken(wins), on=["environment_id", "scheme"], how="left")
    if networks:
        rows = (
            rows.with_columns(pl.col("environment_id").replace(networks))
            .group_by("scheme", "environment_id", maintain_order=True)
            .agg(pl.col("loss", "goodput_mbps", "taken").mean())
        )
    reference = rows.filter(pl.col("scheme") == REFERENCE).select(
        "environment_id", reference_mbps=pl.col("goodput_mbps")
    )
    pairs = rows.join(reference, on="environment_id", how="left")
    is_starved = pl.col("goodput_mbps") < STARVED_SHARE * pl.col("reference_mbps")
    return (
        pairs.sort("scheme", "environment_id")
        .group_by("scheme", maintain_order=True)
        .agg(
            networks=pl.len(),
            loss_mean=pl.col("loss").mean(),
            loss_worst=pl.col("loss").max(),
            worst_environment_id=pl.col("environment_id").get(pl.col("loss").arg_max()),
            flooded=(pl.col("loss") > FLOOD_LOSS).sum(),
            starved=pl.when(pl.col("reference_mbps").is_not_null().any()).then(is_starved.sum()),
            beside=pl.col("taken").count(),
            taken_mean=pl.col("taken").mean(),
            taken_worst=pl.col("taken").max(),
            taken_environment_id=pl.col("environment_id").get(pl.col("taken").arg_max()),
        )
    )


def beside_reference(episodes: Mapping[tuple[str, str], StoredEpisode], scheme: str) -> pl.DataFrame:
    """Return what a scheme lost and got in each network where Cubic played, beside Cubic's.

    Args:
        episodes: by (environment id, scheme); where the scheme has none, its episode failed or was given up.
        scheme: the scheme.

    Returns:
        One row per network, by id: `environment_id`; `loss` and `reference_loss`, shares of the data packets sent that
        the links dropped; `goodput_share`, of Cubic's goodput; `floods`, whether it loses more than LOSS_FACTOR times
        Cubic's loss and LOSS_SPARE, or has no episode; `starves`, whether it gets less than STARVED_SHARE.
    """
    rows = []
    for (environment, name), reference in sorted(episodes.items()):
        if name != REFERENCE:
            continue
        own = episodes.get((environment, scheme))
        loss, reference_loss = own.loss_rate if own else None, reference.loss_rate
        share = own.goodput_mbps / reference.goodput_mbps if own and reference.goodput_mbps else None
        rows.append(
            {
                "environment_id": environment,
                "loss": loss,
                "reference_loss": reference_loss,
                "goodput_share": share,
                "floods": own is None or (loss or 0) > LOSS_FACTOR * (reference_loss or 0) + LOSS_SPARE,
                "starves": share is not None and share < STARVED_SHARE,
            }
        )
    numbers = dict.fromkeys(("loss", "reference_loss", "goodput_share"), pl.Float64)
    flags = dict.fromkeys(("floods", "starves"), pl.Boolean)
    return pl.DataFrame(rows, schema={"environment_id": pl.String, **numbers, **flags})


def taken(wins: pl.DataFrame) -> pl.DataFrame:
    """Return what each scheme took from its competitors in each network that has some.

    Over the scoring windows in which it got anything through: 1 - (C - r) / (C - f), at least 0, with C the
    bottleneck's capacity, f the fair share and r the flow's packets there, headers with them.

    Args:
        wins: of leagues.scores.SCORE_SCHEMA.

    Returns:
        Columns environment_id, scheme, taken: the share of the competitors' fair shares that is gone, 0 to 1.
    """
    length_s = pl.col("to_s") - pl.col("from_s")
    on_link_mbps = pl.col("goodput_mbps") * MTU_BYTES / PAYLOAD_BYTES
    rest_mbps, fair = pl.col("capacity_mbps") - on_link_mbps, pl.col("capacity_mbps") - pl.col("fair_share_mbps")
    return (
        wins.filter((pl.col("status") == "ok") & (fair > 1e-9))
        .sort("environment_id", "scheme", "window")
        .group_by("environment_id", "scheme", maintain_order=True)
        .agg(taken=(1 - (rest_mbps * length_s).sum() / (fair * length_s).sum()).clip(0, 1))
    )
