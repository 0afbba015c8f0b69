# SPDX-License-Identifier: Apache-2.0
"""From many runs to the study's tables: values, cells with intervals beside what was published, and verdicts.

An interval is Student's t over repeats, two-sided, 95 %: with five repeats a bootstrap has too few to draw from. Where
a number is a ratio without an upper end (measures.LOGARITHMIC) mean and interval are of its logarithm, and shown as
ratios. A cell's interval is cut where the number itself ends, at 0 and at 1 for shares; a verdict's is not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from sagecc.common.files import write_atomically
from sagecc.common.marks import parquet_mark
from sagecc.leagues.claims import NO, NOT_MEASURED, YES, Claim, Judgement
from sagecc.leagues.intervals import Interval, interval
from sagecc.leagues.study.catalogue import EXPERIMENTS, experiment
from sagecc.leagues.study.comparison import Comparison
from sagecc.leagues.study.conclusions import CONCLUSIONS
from sagecc.leagues.study.experiments import StudyRun
from sagecc.leagues.study.measures import LOGARITHMIC, RELATIVE, SHARES
from sagecc.leagues.study.networks import CELL_COLUMNS
from sagecc.leagues.study.published import POINTS, STUDY_NAMES

STUDY_VERSION = "1.0"
"""Of the three tables."""

_VERSION_KEY = b"sagecc.study_version"

STUDY_MARK = parquet_mark("a study's", r"(values|cells|verdicts)\.parquet|study\.html", _VERSION_KEY)

Verdict = Literal["holds", "within noise", "changes", "no interval", "not measured"]
_IN_WORDS: Mapping[str, Verdict] = {YES: "holds", NO: "changes", NOT_MEASURED: "not measured"}
"""By verdict of leagues.claims; what the others are called hangs on whether there is an interval."""

KEY_COLUMNS = ("experiment", *CELL_COLUMNS[:-1], "scheme", "quantity")
"""What the rows of the cells' table differ by: a schedule is a repeat, not a cell."""

VALUES_SCHEMA = pl.Schema(
    {
        "experiment": pl.String(),
        "queue_bdp": pl.Float64(),
        "bandwidth_mbps": pl.Float64(),
        "rtt_ms": pl.Float64(),
        "cubics": pl.Int64(),
        "order": pl.String(),
        "flows": pl.Int64(),
        "case": pl.String(),
        "schedule": pl.Int64(),
        "scheme": pl.String(),
        "repeat": pl.Int64(),
        "quantity": pl.String(),
        "value": pl.Float64(),
    }
)
"""One row per run and number."""


def values_table(runs: Iterable[tuple[StudyRun, pl.DataFrame]]) -> pl.DataFrame:
    """Measure runs.

    Args:
        runs: each with its series (flow_metrics.SERIES_SCHEMA, at the run's interval).

    Returns:
        A table of VALUES_SCHEMA; a number that a run does not have is null.
    """
    rows: list[dict[str, object]] = []
    for run, series in runs:
        numbers = experiment(run.experiment).measure(series, run.environment, run.interval_s)
        keys = {"experiment": run.experiment, **asdict(run.cell), "scheme": run.scheme, "repeat": run.repeat}
        rows += [{**keys, "quantity": name, "value": value} for name, value in numbers.items()]
    return with_relatives(pl.DataFrame(rows, schema=VALUES_SCHEMA))


def with_relatives(values: pl.DataFrame) -> pl.DataFrame:
    """Return the values with those that are one run's over another scheme's (measures.RELATIVE)."""
    keys = ["experiment", *CELL_COLUMNS, "repeat"]
    tables = [values]
    for name, relative in RELATIVE.items():
        experiments = [each.name for each in EXPERIMENTS.values() if each.quantity == name]
        own = values.filter(pl.col("experiment").is_in(experiments), pl.col("quantity") == relative.quantity)
        base = own.filter(pl.col("scheme") == relative.scheme).select(*keys, base="value")
        ratio = pl.when(pl.col("base") > 0).then(pl.col("value") / pl.col("base"))
        joined = own.join(base, on=keys, how="left", nulls_equal=True, maintain_order="left")
        tables.append(joined.with_columns(quantity=pl.lit(name), value=ratio).select(values.columns))
    return pl.concat(tables)


def cells_table(values: pl.DataFrame, names: Mapping[str, str] = STUDY_NAMES) -> pl.DataFrame:
    """Summarise repeats and put what was published beside them.

    Args:
        values: of VALUES_SCHEMA.
        names: from a scheme of ours to the study's name for it.

    Returns:
        One row per cell, scheme and number: KEY_COLUMNS, study_name (null for a scheme that the study has not), count,
        mean, deviation (of the values), low, high (95 %), p10, p50, p90, published and source (null where none).
    """
    rows = []
    known = values.drop_nulls("value")
    for key, part in known.group_by(*KEY_COLUMNS, maintain_order=True):
        keys = dict(zip(KEY_COLUMNS, key, strict=True))
        found, quantity = part["value"].to_numpy(), str(keys["quantity"])
        over = as_number(interval(np.log(found) if quantity in LOGARITHMIC else found), quantity)
        spread = float(found.std(ddof=1)) if len(found) > 1 else None
        quantiles = {f"p{q}": part["value"].quantile(q / 100, "linear") for q in (10, 50, 90)}
        rows.append({**keys, **asdict(over), "deviation": spread, **quantiles})
    schema = {name: VALUES_SCHEMA[name] for name in KEY_COLUMNS} | {"count": pl.Int64()}
    numbers = ("mean", "deviation", "low", "high", "p10", "p50", "p90")
    table = pl.DataFrame(rows, schema=schema | dict.fromkeys(numbers, pl.Float64()))
    table = table.with_columns(
        study_name=pl.col("scheme").replace_strict(dict(names), default=None, return_dtype=pl.String)
    )
    keys_of_points = [name for name in KEY_COLUMNS if name != "scheme"]
    return table.join(
        published_table(), how="left", on=[*keys_of_points, "study_name"], nulls_equal=True, maintain_order="left"
    )


def published_table() -> pl.DataFrame:
    """Return the published points: KEY_COLUMNS with study_name instead of scheme, published, source."""
    rows = [
        {
            "experiment": point.experiment,
            **{name: value for name, value in asdict(point.cell).items() if name != "schedule"},
            "study_name": point.scheme,
            "quantity": point.quantity,
            "published": point.value,
            "source": point.source,
        }
        for point in POINTS
    ]
    names = [name if name != "scheme" else "study_name" for name in KEY_COLUMNS]
    schema: dict[str, pl.DataType] = {name: VALUES_SCHEMA.get(name, pl.String()) for name in names}
    return pl.DataFrame(rows, schema=schema | {"published": pl.Float64(), "source": pl.String()})


def verdicts_table(
    values: pl.DataFrame,
    names: Mapping[str, str] = STUDY_NAMES,
    conclusions: Iterable[Claim[Comparison]] = CONCLUSIONS,
) -> pl.DataFrame:
    """Hold the study's conclusions against what was measured.

    A statement holds or changes only where the interval of the difference (of the logarithms, where the number's scale
    is) lies wholly on one side of 0.

    Args:
        values: of VALUES_SCHEMA.
        names: from a scheme of ours to the study's name for it.
        conclusions: statements of the study.

    Returns:
        One row per statement: experiment, source, statement, quantity, left and right (means), difference with low and
        high (95 %; factors where the scale is logarithmic), count (repeats), cells measured of
        cells_asked, and verdict.
    """
    of_study = values.filter(pl.col("scheme").is_in(list(names))).with_columns(pl.col("scheme").replace(names))
    rows = [
        {
            "experiment": claim.measure.experiment,
            "source": claim.source,
            "statement": claim.sentence,
            "quantity": claim.measure.quantity,
            **judgement.measured.figures,
            "verdict": _in_words(judgement),
        }
        for claim in conclusions
        for judgement in claim.judged(of_study)
    ]
    numbers = dict.fromkeys(("left", "right", "difference", "low", "high"), pl.Float64())
    counts = dict.fromkeys(("count", "cells", "cells_asked"), pl.Int64())
    texts = dict.fromkeys(("experiment", "source", "statement", "quantity"), pl.String())
    return pl.DataFrame(rows, schema={**texts, **numbers, **counts, "verdict": pl.String()})


def write_tables(values: pl.DataFrame, folder: Path, names: Mapping[str, str] = STUDY_NAMES) -> dict[str, pl.DataFrame]:
    """Write values.parquet, cells.parquet and verdicts.parquet to a folder, each whole or not at all; return them."""
    tables = {"values": values, "cells": cells_table(values, names), "verdicts": verdicts_table(values, names)}
    with STUDY_MARK.filling(folder):
        for name, table in tables.items():
            with write_atomically(folder / f"{name}.parquet") as temporary:
                table.write_parquet(temporary, metadata={_VERSION_KEY.decode(): STUDY_VERSION})
    return tables


def _in_words(judgement: Judgement) -> Verdict:
    if judgement.verdict in _IN_WORDS:
        return _IN_WORDS[judgement.verdict]
    return "no interval" if judgement.measured.figures["low"] is None else "within noise"


def as_number(over: Interval, quantity: str) -> Interval:
    """Return mean and interval as the number itself: from logarithms, or with ends cut where the number ends.

    Args:
        over: mean and interval over repeats, on the number's scale.
        quantity: its name.
    """
    if quantity in LOGARITHMIC:
        return Interval(over.count, *(None if x is None else math.exp(x) for x in (over.mean, over.low, over.high)))
    most = 1.0 if quantity in SHARES else math.inf
    low, high = (None if end is None else min(max(end, 0.0), most) for end in (over.low, over.high))
    return replace(over, low=low, high=high)
