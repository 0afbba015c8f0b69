# SPDX-License-Identifier: Apache-2.0
"""A league over repeats: each number's mean, deviation and interval, where networks were played several times."""

from __future__ import annotations

import math
from collections.abc import Mapping

import polars as pl

from sagecc.leagues.harm import harm
from sagecc.leagues.intervals import student_t
from sagecc.leagues.scores import StoredEpisode
from sagecc.leagues.standings import REPEAT, class_tables
from sagecc.schemas.environment_set import EnvironmentSet

ALL = "all"
"""The class of what is over all networks."""

RATE = "winning_rate"
HARMS = ("loss_mean", "loss_worst", "flooded", "starved", "taken_mean", "taken_worst")
COUNTS = ("flooded", "starved")
"""Of HARMS, what is a number of networks and no share."""

_KEYS = ("set", "class", "value", "scheme", "quantity")


def over_repeats(
    wins: pl.DataFrame,
    episodes: Mapping[tuple[str, str], StoredEpisode],
    networks: EnvironmentSet,
) -> pl.DataFrame:
    """Return winning rates and harm over repeats: each repeat is a league of its own, and these are its figures.

    Args:
        wins: the table of leagues.standings.mark_winners, with the columns of leagues.standings.with_repeats.
        episodes: by (environment id, scheme).
        networks: those of the table.

    Returns:
        One row per set, class, value, scheme and quantity: `repeats`, `mean`, `deviation` (of one repeat), `low` and
        `high` (the mean's 95 % interval, Student's). quantity is RATE, or one of HARMS: those are of no set. class is
        ALL, one of leagues.standings.CLASSES or a tag, value its text.
    """
    rates = [wins.with_columns(value=pl.lit(""), **{"class": pl.lit(ALL)})]
    for name, table in class_tables(wins, networks.environments, networks.tags):
        rates.append(table.with_columns(pl.col("value").cast(pl.String), **{"class": pl.lit(name)}))
    keys = [name for name in _KEYS if name != "quantity"]
    parts = [
        table.group_by(*keys, REPEAT).agg(number=pl.col("win").mean()).with_columns(quantity=pl.lit(RATE))
        for table in rates
    ]
    for (number,), part in wins.group_by(REPEAT):
        ids = set(part["environment_id"])
        table = harm({key: episode for key, episode in episodes.items() if key[0] in ids}, part)
        long = table.unpivot(HARMS, index="scheme", variable_name="quantity", value_name="number")
        parts.append(
            long.with_columns(
                pl.lit(number).cast(pl.Int64).alias(REPEAT), set=pl.lit(""), value=pl.lit("")
            ).with_columns(pl.lit(ALL).alias("class"), pl.col("number").cast(pl.Float64))
        )
    return _summarised(pl.concat([part.select(*_KEYS, REPEAT, "number") for part in parts]))


def _summarised(numbers: pl.DataFrame) -> pl.DataFrame:
    """Return Student's interval of each number over its repeats, cut where the number itself ends."""
    count = pl.col("repeats")
    factors = {n: student_t(n - 1) / math.sqrt(n) for n in range(2, numbers[REPEAT].n_unique() + 1)}
    half = pl.col("deviation") * count.replace_strict(factors, default=None, return_dtype=pl.Float64)
    top = pl.when(pl.col("quantity").is_in(COUNTS)).then(math.inf).otherwise(1.0)
    return (
        numbers.drop_nulls("number")
        .sort(*_KEYS, REPEAT)
        .group_by(*_KEYS, maintain_order=True)
        .agg(
            repeats=pl.len().cast(pl.Int64),
            mean=pl.col("number").mean(),
            deviation=pl.col("number").std(ddof=1),
        )
        .with_columns(low=(pl.col("mean") - half).clip(0), high=pl.min_horizontal(pl.col("mean") + half, top))
    )
