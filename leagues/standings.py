# SPDX-License-Identifier: Apache-2.0
"""Winners, winning rates and their confidence intervals (section 5.1 and appendix D of the Sage paper)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import polars as pl

from sagecc.common.arrays import Doubles, Ints
from sagecc.common.errors import SageccError
from sagecc.leagues.scores import rescore
from sagecc.schemas.environment import Environment
from sagecc.schemas.environment_set import Repeat

FriendlyMargin = Literal["score", "rate"]

BOOTSTRAP_DRAWS = 2000
CONFIDENCE = 0.95
CLASSES = ("window", "bandwidth_mbps", "min_rtt_ms", "queue_bdp", "step")
"""What the breakdown groups environments by."""

STANDINGS_COLUMNS = (
    "set",
    "rank",
    "scheme",
    "wins",
    "windows",
    "winning_rate",
    "low",
    "high",
    "environments",
    "missing",
)

ALPHAS, MARGINS = (2.0, 3.0), (0.1, 0.05)
"""The paper's rules: those of its leagues first, then those by which it checks them (appendix D.1 and D.2)."""


NETWORK, REPEAT = "network", "repeat"
"""Columns of a table of scores with repeats: the id of the network as planned, and the repeat's number, from 0."""


def with_repeats(scores: pl.DataFrame, repeats: Mapping[str, Repeat]) -> pl.DataFrame:
    """Add NETWORK and REPEAT to a table of scores, where there are repeats.

    Args:
        scores: of leagues.scores.SCORE_SCHEMA.
        repeats: by environment id.
    """
    if not repeats:
        return scores
    networks = {environment: each.network for environment, each in repeats.items()}
    numbers = {environment: each.number for environment, each in repeats.items()}
    environment = pl.col("environment_id")
    return scores.with_columns(
        environment.replace(networks).alias(NETWORK),
        environment.replace_strict(numbers, default=0, return_dtype=pl.Int64).alias(REPEAT),
    )


def mark_winners(scores: pl.DataFrame, margin: float = 0.1, friendly_margin: FriendlyMargin = "rate") -> pl.DataFrame:
    """Add `best` (the window's best score) and `win` to a table of scores.

    Power: a scheme wins a window if S_p >= (1 - margin) * best. Friendliness: the goodput lies within the margin around
    the rates whose distance from the fair share f is the best one, (1 - margin) * (f - best) <= r <= (1 + margin) *
    (f + best), as in the authors' public benchmark. Ties all win. A window that is missing or silent is never won.

    Args:
        scores: of leagues.scores.SCORE_SCHEMA.
        margin: by how much a winner's score may be worse than the best, 0 to below 1.
        friendly_margin: `rate` as above; `score` applies the margin to the distance itself, as the paper's text has it:
            S_fr <= best / (1 - margin). A distance has no scale of its own, so that where the best is near 0 that rule
            is close to a lottery.

    Raises:
        SageccError: the margin is out of range.
    """
    if not 0 <= margin < 1:
        raise SageccError(f"league: the margin must be at least 0 and below 1, not {margin:g}")
    window = ["environment_id", "window"]
    power, score, best = pl.col("metric") == "power", pl.col("score"), pl.col("best")
    r, f = pl.col("goodput_mbps"), pl.col("fair_share_mbps")
    friendly = (
        score <= best / (1 - margin)
        if friendly_margin == "score"
        # The nearest wins itself: f - best need not give back its rate to the last digit.
        else (score == best) | (((1 - margin) * (f - best) <= r) & (r <= (1 + margin) * (f + best)))
    )
    return scores.with_columns(
        best=pl.when(power).then(score.max().over(window)).otherwise(score.min().over(window))
    ).with_columns(
        win=(pl.col("status") == "ok")
        & pl.when(power).then((score > 0) & (score >= (1 - margin) * best)).otherwise(friendly)
    )


def standings(wins: pl.DataFrame, seed: int = 0) -> pl.DataFrame:
    """Rank the schemes of every set by winning rate = wins / windows.

    Args:
        wins: the table of `mark_winners`.
        seed: of the bootstrap.

    Returns:
        One row per set and scheme, of STANDINGS_COLUMNS. rank: 1 is best, equal rates share a rank. low and high bound
        the 95 % interval of a bootstrap that draws environments, each with all its windows and repeats, with
        replacement (percentile method). missing: environments in which it lacks an episode; it lost their windows.
    """
    tables, network = [], _network(wins)
    for set_name in sets(wins):
        part = wins.filter(pl.col("set") == set_name)
        schemes = part["scheme"].unique().sort().to_list()
        table = (
            part.group_by("scheme")
            .agg(
                wins=pl.col("win").sum().cast(pl.Int64),
                windows=pl.len().cast(pl.Int64),
                environments=pl.col(network).n_unique().cast(pl.Int64),
                missing=pl.col(network).filter(pl.col("status") == "missing").n_unique().cast(pl.Int64),
            )
            .with_columns(winning_rate=pl.col("wins") / pl.col("windows"))
            .join(_intervals(part, schemes, seed), on="scheme")
            .with_columns(rank=pl.col("winning_rate").rank("min", descending=True).cast(pl.Int64), set=pl.lit(set_name))
            .sort("rank", "scheme")
        )
        tables.append(table)
    return pl.concat(tables).select(STANDINGS_COLUMNS)


def overall(table: pl.DataFrame) -> pl.DataFrame:
    """Rank schemes over all sets by the mean of their winning rates: rank, scheme, winning_rate, in order of rank."""
    return (
        table.group_by("scheme")
        .agg(winning_rate=pl.col("winning_rate").sort().mean())
        .with_columns(rank=pl.col("winning_rate").rank("min", descending=True).cast(pl.Int64))
        .select("rank", "scheme", "winning_rate")
        .sort("rank", "scheme")
    )


Ranked = tuple[int, str, dict[str, dict[str, Any]]]
"""A scheme's rank and name, and its rows of the standings by set, the sets in the usual order."""


def by_rank(ranking: Sequence[Mapping[str, Any]], table: Sequence[Mapping[str, Any]]) -> list[Ranked]:
    """Return the schemes in order of rank.

    Args:
        ranking: the rows of `overall`.
        table: the rows of `standings`.
    """
    rows = {(row["scheme"], row["set"]): dict(row) for row in table}
    names = sorted({row["set"] for row in table})
    return [(row["rank"], row["scheme"], {name: rows[row["scheme"], name] for name in names}) for row in ranking]


def breakdown(wins: pl.DataFrame, environments: Sequence[Environment]) -> pl.DataFrame:
    """Return winning rates by class of environment.

    Args:
        wins: the table of `mark_winners`.
        environments: those of the table.

    Returns:
        One row per set, class, value and scheme (tidy). class is one of CLASSES; value is the scoring window's index,
        the base bandwidth (Mbps), the minimum RTT (ms), the queue (BDP) or the second rate over the first. low and high
        are as in `standings`, over the class's environments.
    """
    classes = class_tables(wins, environments)
    tables = ((name, table.with_columns(pl.col("value").cast(pl.Float64))) for name, table in classes)
    return _by_class(tables)


def tag_breakdown(wins: pl.DataFrame, tags: Mapping[str, Mapping[str, str]]) -> pl.DataFrame | None:
    """Return winning rates by tag, None without tags.

    Args:
        wins: the table of `mark_winners`.
        tags: by environment id, names and values.

    Returns:
        Rows as those of `breakdown`: class is a tag's name, value its text; a network without that tag is in none.
    """
    return _by_class(_tag_tables(wins, tags)) if tags else None


def class_tables(
    wins: pl.DataFrame,
    environments: Sequence[Environment],
    tags: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> list[tuple[str, pl.DataFrame]]:
    """Return the table with the column `value` for each of CLASSES and each tag, by its name; for a tag, what has it.

    Args:
        wins: the table of `mark_winners`.
        environments: those of the table.
        tags: by environment id, names and values.
    """
    values: Mapping[str, list[object]] = {
        "environment_id": [e.id for e in environments],
        "bandwidth_mbps": [e.bandwidth_mbps for e in environments],
        "min_rtt_ms": [e.min_rtt_ms for e in environments],
        "queue_bdp": [round(e.queue_bdp, 2) for e in environments],
        "step": [e.step for e in environments],
    }
    rows = wins.join(pl.DataFrame(values), on="environment_id", how="left")
    return [*((name, rows.with_columns(value=pl.col(name))) for name in CLASSES), *_tag_tables(wins, tags)]


def _tag_tables(wins: pl.DataFrame, tags: Mapping[str, Mapping[str, str]]) -> list[tuple[str, pl.DataFrame]]:
    environment, tables = pl.col("environment_id"), []
    for name in sorted({name for of in tags.values() for name in of}):
        values = {each: of[name] for each, of in tags.items() if name in of}
        value = environment.replace_strict(values, default=None, return_dtype=pl.String)
        tables.append((name, wins.with_columns(value=value).drop_nulls("value")))
    return tables


def _by_class(classes: Iterable[tuple[str, pl.DataFrame]]) -> pl.DataFrame:
    """Return winning rates by set, class, `value` and scheme, of the classes' names and tables with that column."""
    keys = ["set", "value"]
    tables = [
        part.group_by(*keys, "scheme")
        .agg(wins=pl.col("win").sum().cast(pl.Int64), windows=pl.len().cast(pl.Int64))
        .with_columns(pl.lit(name).alias("class"), winning_rate=pl.col("wins") / pl.col("windows"))
        .join(_intervals(part, part["scheme"].unique().sort().to_list(), 0), on="scheme")
        for name, table in classes
        for _, part in table.group_by(keys, maintain_order=True)
    ]
    columns = ["set", "class", "value", "scheme", "wins", "windows", "winning_rate", "low", "high"]
    return pl.concat(tables).select(columns).sort("set", "class", "value", "scheme")


def robustness(
    scores: pl.DataFrame,
    friendly_margin: FriendlyMargin = "rate",
    league_rule: tuple[float, float] = (ALPHAS[0], MARGINS[0]),
) -> pl.DataFrame:
    """Return the standings under every combination of ALPHAS and MARGINS, and under the league's own rule.

    Args:
        scores: of leagues.scores.SCORE_SCHEMA.
        friendly_margin: as for `mark_winners`.
        league_rule: the league's alpha and margin.

    Returns:
        Columns alpha, margin, STANDINGS_COLUMNS, and `overall`, the scheme's rank over all sets by that rule. alpha
        does not matter where the score is friendliness.
    """
    tables = []
    for alpha, margin in dict.fromkeys((league_rule, *product(ALPHAS, MARGINS))):
        table = standings(mark_winners(rescore(scores, alpha), margin, friendly_margin))
        ranks = overall(table).select("scheme", overall="rank")
        tables.append(table.with_columns(alpha=pl.lit(alpha), margin=pl.lit(margin)).join(ranks, on="scheme"))
    return (
        pl.concat(tables)
        .select("alpha", "margin", *STANDINGS_COLUMNS, "overall")
        .sort("alpha", pl.col("margin").neg(), "set", "rank", "scheme")
    )


def missing(scores: pl.DataFrame) -> dict[str, list[str]]:
    """Return the ids of the environments in which a scheme has no episode, by scheme."""
    rows = scores.filter(pl.col("status") == "missing").select("scheme", "environment_id").unique().sort("*")
    return {
        str(scheme[0]): part["environment_id"].to_list()
        for scheme, part in rows.group_by("scheme", maintain_order=True)
    }


def lost_windows(scores: pl.DataFrame) -> pl.DataFrame:
    """Return the windows lost without being played, counted by set, environment_id, scheme and status.

    status is `missing` (no episode, all windows lost) or `silent` (nothing arrived in these windows, or the trajectory
    had ended).
    """
    keys = ["set", "environment_id", "scheme", "status"]
    return scores.filter(pl.col("status") != "ok").group_by(keys).agg(windows=pl.len().cast(pl.Int64)).sort(keys)


def sets(table: pl.DataFrame) -> list[str]:
    """Return the names of the sets in a table, in the usual order: I, II, then others."""
    return sorted(table["set"].unique().to_list())


def network_of(wins: pl.DataFrame) -> dict[str, str]:
    """Return by environment id the network that it is a repeat of, nothing without repeats."""
    return dict(wins.select("environment_id", NETWORK).unique().iter_rows()) if NETWORK in wins.columns else {}


def _network(table: pl.DataFrame) -> str:
    """Return the column of what a bootstrap draws: networks, with their repeats where there are some."""
    return NETWORK if NETWORK in table.columns else "environment_id"


def _intervals(part: pl.DataFrame, schemes: list[str], seed: int) -> pl.DataFrame:
    """Bootstrap one set: scheme, low, high. Integer arithmetic up to the last division: the same bytes everywhere."""
    network = _network(part)
    counts = (
        part.group_by(network, "scheme")
        .agg(wins=pl.col("win").sum().cast(pl.Int64), windows=pl.len().cast(pl.Int64))
        .sort(network, "scheme")
    )
    shape = (counts[network].n_unique(), len(schemes))
    wins = counts["wins"].to_numpy().reshape(shape)
    windows = counts["windows"].to_numpy().reshape(shape)
    low, high = bounds(drawn_rates(np.random.default_rng(seed), wins, windows))
    return pl.DataFrame({"scheme": schemes, "low": low, "high": high})


def drawn_rates(random: np.random.Generator, wins: Ints, windows: Ints) -> Doubles:
    """Return the winning rates of each draw of a bootstrap, which draws networks with replacement [draws, ...].

    Args:
        random: what draws.
        wins: scoring windows won in each network [networks, ...].
        windows: scoring windows in each network, as `wins`.
    """
    draws = random.multinomial(len(wins), np.full(len(wins), 1 / len(wins)), size=BOOTSTRAP_DRAWS)
    return np.asarray((draws @ wins) / (draws @ windows))


def bounds(rates: Doubles) -> Doubles:
    """Return the ends of the interval of drawn rates (percentile method) [2, ...]."""
    tail = (1 - CONFIDENCE) / 2
    return np.asarray(np.quantile(rates, [tail, 1 - tail], axis=0))
