# SPDX-License-Identifier: Apache-2.0
"""How a statement is measured: a number over some cells, one scheme's beside another's, other cells' or a bound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import polars as pl

from sagecc.leagues.claims import NEGATIVE, POSITIVE, Bounds, Measurement
from sagecc.leagues.intervals import interval
from sagecc.leagues.study.catalogue import experiment
from sagecc.leagues.study.measures import LOGARITHMIC, mean_of
from sagecc.leagues.study.networks import CELL_COLUMNS, Cell, Order


def _within(ends: tuple[float, float] | None, value: float | None) -> bool:
    return ends is None or (value is not None and ends[0] <= value <= ends[1])


@dataclass(frozen=True)
class Side:
    """What is averaged over: cells of one experiment, of one scheme. Empty means all."""

    scheme: str
    """As the study names it."""
    queues_bdp: tuple[float, ...] = ()
    rtts_ms: tuple[float, float] | None = None
    """Smallest and largest base RTT."""
    bandwidths_mbps: tuple[float, float] | None = None
    order: Order | None = None
    case: str | None = None
    flows: tuple[int, int] | None = None
    """Fewest and most flows of the tested scheme."""

    def has(self, cell: Cell) -> bool:
        """Tell whether it averages over this cell."""
        return (
            (not self.queues_bdp or cell.queue_bdp in self.queues_bdp)
            and _within(self.rtts_ms, cell.rtt_ms)
            and _within(self.bandwidths_mbps, cell.bandwidth_mbps)
            and self.order in (None, cell.order)
            and self.case in (None, cell.case)
            and _within(self.flows, cell.flows)
        )


ABOVE, BELOW = POSITIVE, NEGATIVE
"""Where the difference of a statement's sides lies."""

Statement = tuple[str, Side, Bounds, Side | str | float]
"""A sentence; where its left side lies; of its right side. A name is another scheme in the same cells."""


@dataclass(frozen=True)
class Comparison:
    """The difference of `left` and `right`."""

    experiment: str
    quantity: str
    left: Side
    right: Side | float

    @property
    def sides(self) -> tuple[Side, ...]:
        """What is measured of it."""
        return (self.left, self.right) if isinstance(self.right, Side) else (self.left,)

    def __call__(self, values: pl.DataFrame) -> list[Measurement]:
        """Measure it.

        Args:
            values: of results.VALUES_SCHEMA, the schemes by the study's names.

        Returns:
            The difference over repeats, of logarithms where the number's scale is. Its figures: left and right (means),
            difference with low and high (95 %; factors where the scale is logarithmic), count (repeats), cells measured
            of cells_asked.
        """
        log = self.quantity in LOGARITHMIC
        own = values.filter(pl.col("experiment") == self.experiment, pl.col("quantity") == self.quantity)
        own = own.drop_nulls("value")
        if log:
            own = own.with_columns(pl.col("value").log())
        asked = [[cell for cell in experiment(self.experiment).grid if side.has(cell)] for side in self.sides]
        parts = [_part(own, side.scheme, cells) for side, cells in zip(self.sides, asked, strict=True)]
        if len(parts) == 2 and asked[0] == asked[1]:  # two schemes are held against each other where both were measured
            pairs = (parts, parts[::-1])
            parts = [one.join(other, on=CELL_COLUMNS, how="semi", nulls_equal=True) for one, other in pairs]
        left = _by_repeat(parts[0])
        if isinstance(self.right, Side):
            right = _by_repeat(parts[1])
        else:
            right = left.with_columns(value=pl.lit(math.log(self.right) if log else float(self.right)))
        both = left.join(right, on="unit", suffix="_right").sort("unit")
        over = interval((both["value"] - both["value_right"]).to_numpy())
        means = {"left": mean_of(both["value"]), "right": mean_of(both["value_right"]), "difference": over.mean}
        numbers = {**means, "low": over.low, "high": over.high}
        figures = {
            **{name: math.exp(value) if log and value is not None else value for name, value in numbers.items()},
            "count": over.count,
            "cells": sum(part.select(CELL_COLUMNS).n_unique() for part in parts),
            "cells_asked": sum(map(len, asked)),
        }
        return [Measurement(over, figures=figures)]


def _part(own: pl.DataFrame, scheme: str, cells: Sequence[Cell]) -> pl.DataFrame:
    """Return a side's values with their unit, a repeat or a schedule.

    A cell with fewer units than others is left out: a mean over other cells would tell of them, not of the repeat.
    """
    keys = pl.DataFrame([asdict(cell) for cell in cells], schema={name: own.schema[name] for name in CELL_COLUMNS})
    part = own.filter(pl.col("scheme") == scheme)
    part = part.join(keys, on=CELL_COLUMNS, how="semi", nulls_equal=True)
    part = part.with_columns(unit=pl.coalesce("schedule", "repeat"))
    part = part.with_columns(units=pl.col("unit").n_unique().over(CELL_COLUMNS[:-1]))
    return part.filter(pl.col("units") == pl.col("units").max())


def _by_repeat(side: pl.DataFrame) -> pl.DataFrame:
    """Return a side's mean over its cells for each repeat, or each schedule: unit, value."""
    return side.group_by("unit").agg(pl.col("value").mean())
