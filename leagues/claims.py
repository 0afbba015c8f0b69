# SPDX-License-Identifier: Apache-2.0
"""Whether what a publication says holds here: its sentence, what is measured of it, within which bounds it holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from sagecc.leagues.intervals import Interval

NOT_MEASURED, NO, NOT_IN_MEAN, IN_MEAN, YES = VERDICTS = (
    "not measured",
    "no",
    "not in the mean",
    "in the mean",
    "yes",
)
"""Weakest first. By the interval of what was measured where that lies wholly within the bounds, or wholly outside;
else, and without an interval, by its mean alone."""

Tables = TypeVar("Tables")
Measure = TypeVar("Measure", covariant=True)


@dataclass(frozen=True)
class Bounds:
    """Where a number must lie."""

    low: float = -math.inf
    high: float = math.inf
    strict: bool = False
    """The ends themselves are outside."""

    def have(self, value: float) -> bool:
        """Tell whether a number lies within."""
        return self.low < value < self.high if self.strict else self.low <= value <= self.high

    def verdict(self, of: Interval) -> str:
        """Return one of VERDICTS of what was measured."""
        if of.mean is None:
            return NOT_MEASURED
        if of.low is not None and of.high is not None:
            if self.have(of.low) and self.have(of.high):
                return YES
            if of.high < self.low or of.low > self.high:
                return NO
        return IN_MEAN if self.have(of.mean) else NOT_IN_MEAN


POSITIVE, NEGATIVE, TRUE = Bounds(low=0, strict=True), Bounds(high=0, strict=True), Bounds(1, 1)


@dataclass(frozen=True)
class Measurement:
    """What decides a claim, for one of those that it is about."""

    value: Interval | tuple[Interval, ...]
    """Of several the weakest counts."""
    told: str = ""
    """The figures in words."""
    of: str = ""
    """Whom or what it is about."""
    figures: Mapping[str, float | None] = field(default_factory=dict)
    """By name, for a table."""


@dataclass(frozen=True)
class Judgement:
    """What becomes of a claim, for one of those that it is about."""

    claim: Claim[object]
    measured: Measurement
    verdict: str
    """One of VERDICTS."""


@dataclass(frozen=True)
class Claim(Generic[Measure]):
    """A sentence of a publication."""

    source: str
    """Section, table or figure."""
    sentence: str
    """In short, or as it stands, with the bounds that are ours."""
    measure: Measure
    """Takes the tables that it is measured from; returns nothing where a part of them is missing."""
    bounds: Bounds = POSITIVE

    def judged(self: Claim[Callable[[Tables], Iterable[Measurement]]], tables: Tables) -> list[Judgement]:
        """Return what becomes of it, for each of those that it is about."""
        return [Judgement(self, each, self._verdict(each.value)) for each in self.measure(tables)]

    def _verdict(self, value: Interval | tuple[Interval, ...]) -> str:
        values = (value,) if isinstance(value, Interval) else value
        return min(map(self.bounds.verdict, values), key=VERDICTS.index)


def exact(value: float) -> Interval:
    """Return a number that leaves no doubt, such as a count, with an interval of no width."""
    return Interval(1, value, value, value)


def fact(holds: bool) -> Interval:
    """Return what is so or not as a number within TRUE or outside."""
    return exact(float(holds))
