# SPDX-License-Identifier: Apache-2.0
"""Whether files that somebody else may have written hold what the page needs, before anything is made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sagecc.leagues.scores import SCORE_SCHEMA
from sagecc.leagues.standings import NETWORK, REPEAT, FriendlyMargin, sets
from sagecc.schemas.environment_file import Flag, Name, Number, Text

Count = Annotated[int, Field(strict=True, ge=0, lt=2**53)]
Share = Annotated[float, Field(strict=True, ge=0, le=1)]
SetName = Name | Literal[""]
"""A set's name, which stands in files' names too; "" for what is of no set."""


class _Part(BaseModel):
    """What is needed of an object, which may hold more."""

    model_config = ConfigDict(frozen=True)


class _Rules(_Part):
    alpha: Number
    margin: Share
    friendly_margin: FriendlyMargin
    confidence: Share
    bootstrap_draws: Count


class _GiveUp(_Part):
    share: Number
    time_s: Number


class _Terms(_Part):
    decision_latency_ms: Number
    sample: Flag
    give_up: _GiveUp | None = None


class _Ranked(_Part):
    rank: Count
    scheme: Text


class _Standing(_Part):
    set: Name
    rank: Count
    scheme: Text
    winning_rate: Share
    low: Share
    high: Share


class _Robust(_Part):
    alpha: Number
    margin: Number
    scheme: Text
    overall: Count


class _Lost(_Part):
    environment_id: Text
    scheme: Text
    status: Literal["missing", "silent"]
    windows: Count
    reason: Text


class _Harm(_Part):
    scheme: Text
    networks: Count
    loss_mean: Share
    loss_worst: Share
    flooded: Count
    starved: Count | None
    beside: Count | None = None
    taken_mean: Number | None = None
    taken_worst: Number | None = None


class _Repeated(_Part):
    set: SetName
    scheme: Text
    quantity: Text
    repeats: Count
    mean: Number
    deviation: Number | None
    low: Number | None
    high: Number | None


class _League(_Part):
    version: Text
    profile: Text
    rules: _Rules
    kernel: Text
    policies: dict[str, Text]
    terms: _Terms
    environments: dict[Name, Count]
    windows: dict[Name, Count]
    ranking: Annotated[list[_Ranked], Field(min_length=1)]
    standings: list[_Standing]
    robustness: list[_Robust]
    lost: list[_Lost]
    harm: list[_Harm] = []
    repeats: list[_Repeated] = []
    tags: dict[str, dict[str, Text]] = {}
    files: dict[str, Text] = {}


class _Analysis(_Part):
    environments: dict[str, Text]


class _Distance(_Analysis):
    searched: Count
    pool_transitions: Count


class _Map(_Part):
    policy: Text
    apart: Share
    by_chance: Share


class _Tsne(_Analysis):
    maps: Annotated[list[_Map], Field(min_length=1)]


_ANALYSES: Mapping[str, type[_Analysis]] = {"distance": _Distance, "similarity": _Analysis, "tsne": _Tsne}

_CLASSES = {"set": pl.String, "class": pl.String, "scheme": pl.String, "winning_rate": pl.Float64}
TABLES: Mapping[str, Mapping[str, type[pl.DataType]]] = {
    "scores": SCORE_SCHEMA | {"best": pl.Float64, "win": pl.Boolean},
    "breakdown": _CLASSES | {"value": pl.Float64},
    "tags": _CLASSES | {"value": pl.String},
    "distance": {"environment_id": pl.String, "scheme": pl.String, "distance": pl.Float64},
    "similarity": {
        **dict.fromkeys(("environment_id", "scheme", "other"), pl.String),
        **dict.fromkeys(("index", "nearest"), pl.Float64),
    },
    "tsne": {**dict.fromkeys(("policy", "environment_id"), pl.String), **dict.fromkeys("xy", pl.Float64)},
}
"""The columns that the page needs, by table."""


def league_fault(summary: Mapping[str, Any]) -> str | None:
    """Return what is wrong with league.json's content, or None."""
    if fault := _fault(_League, summary):
        return fault
    schemes, names = [row["scheme"] for row in summary["ranking"]], summary["environments"].keys()
    if summary["windows"].keys() != names:
        return "windows: are not of the sets of environments"
    if {(row["set"], row["scheme"]) for row in summary["standings"]} != {(n, s) for n in names for s in schemes}:
        return "standings: are not one of each set and scheme"
    rules = {(row["alpha"], row["margin"]) for row in summary["robustness"]}
    entries = {(row["alpha"], row["margin"], row["scheme"]) for row in summary["robustness"]}
    return None if entries == {(*rule, s) for rule in rules for s in schemes} else "robustness: lacks a scheme"


def analysis_fault(name: str, summary: Mapping[str, Any], table: pl.DataFrame) -> str | None:
    """Return what is wrong with an analysis, or None.

    Args:
        name: of the command that made it.
        summary: its JSON file's content.
        table: its table, which has the columns of TABLES.
    """
    if fault := _fault(_ANALYSES[name], summary):
        return fault
    if table.is_empty():
        return "its table is empty"
    if unknown := set(table["environment_id"]) - summary["environments"].keys():
        return f"environments: lacks {min(unknown)}"
    if name == "tsne" and set(table["policy"]) - {row["policy"] for row in summary["maps"]}:
        return "maps: lacks a policy"
    return None


def table_fault(name: str, table: pl.DataFrame) -> str | None:
    """Return what is wrong with a table's columns, or None.

    Args:
        name: of TABLES.
        table: the table.
    """
    schema = TABLES[name]
    if name == "scores" and REPEAT in table.columns:
        schema = {**schema, REPEAT: pl.Int64, NETWORK: pl.String}
    for column, kind in schema.items():
        if column not in table.columns:
            return f"has no column '{column}'"
        if table.schema[column] != kind:
            return f"column '{column}' holds {table.schema[column]}, not {kind}"
    for column, kind in schema.items():
        if table[column].null_count() and column != "seed" and (kind != pl.Float64 or column in _WHOLE):
            return f"misses values of '{column}'"
        if column in _FINITE and not table[column].drop_nulls().is_finite().all():
            return f"column '{column}' has a value that is no number"
    return None


_WHOLE = ("winning_rate",)
_FINITE = ("winning_rate", "from_s", "to_s", "goodput_mbps", "delay_ms", "capacity_mbps", "fair_share_mbps")
"""Numbers that are always there, and those that are finite where they are: a score may be infinite."""


def tables_fault(summary: Mapping[str, Any], scores: pl.DataFrame, *classes: pl.DataFrame) -> str | None:
    """Return where tables are not of the same sets and schemes as league.json, or None.

    Args:
        summary: league.json's content.
        scores: the table of scores.
        classes: the tables of winning rates by class.
    """
    schemes = sorted(row["scheme"] for row in summary["ranking"])
    if sets(scores) != sorted(summary["environments"]) or sorted(scores["scheme"].unique()) != schemes:
        return "scores.parquet is of other sets or schemes"
    for table in classes:
        of_each = table.group_by("set", "class", "value").agg(pl.col("scheme").sort())["scheme"]
        if any(column.to_list() != schemes for column in of_each):
            return "a table of classes is of other schemes"
    return None


def curves_fault(curves: pl.DataFrame, columns: Sequence[str]) -> str | None:
    """Return what is wrong with a policy's training curves, or None.

    Args:
        curves: the table.
        columns: those of its columns that are drawn, where they are there.
    """
    if "step" not in curves.columns:
        return "has no column 'step'"
    for column in ("step", *columns):
        if column in curves.columns and not (curves.schema[column].is_numeric() or curves[column].is_null().all()):
            return f"column '{column}' holds no numbers"
    return "is empty" if curves.is_empty() else None


def _fault(model: type[BaseModel], content: Mapping[str, Any]) -> str | None:
    try:
        model.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
        return f"{place.removeprefix('.')}: {first['msg']}"
    return None
