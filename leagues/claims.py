# SPDX-License-Identifier: Apache-2.0
"""Whether what a publication says holds here: its sentence, what is measured of it, within which bounds it holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
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
    told: str
    """The figures in words."""
    of: str = ""
    """Whom or what it is about."""


@dataclass(frozen=True)
class Judgement:
    """What becomes of a claim, for one of those that it is about."""

    source: str
    sentence: str
    of: str
    told: str
    verdict: str
    """One of VERDICTS."""


@dataclass(frozen=True)
class Claim(Generic[Tables]):
    """A sentence of a publication."""

    source: str
    """Section, table or figure."""
    sentence: str
    """In short, or as it stands, with the bounds that are ours."""
    measure: Callable[[Tables], Iterable[Measurement]]
    """Takes what it is measured from; returns nothing where a part of that is missing."""
    bounds: Bounds = POSITIVE

    def judged(self, tables: Tables) -> list[Judgement]:
        """Return what becomes of it, for each of those that it is about."""
        return [judge(self.source, self.sentence, each, self.bounds) for each in self.measure(tables)]


def judge(source: str, sentence: str, measured: Measurement, bounds: Bounds) -> Judgement:
    """Return what becomes of a sentence by what was measured of it."""
    values = (measured.value,) if isinstance(measured.value, Interval) else measured.value
    verdict = min((bounds.verdict(value) for value in values), key=VERDICTS.index)
    return Judgement(source, sentence, measured.of, measured.told, verdict)


def exact(value: float) -> Interval:
    """Return a number that leaves no doubt, such as a count, with an interval of no width."""
    return Interval(1, value, value, value)


def fact(holds: bool) -> Interval:
    """Return what is so or not as a number within TRUE or outside."""
    return exact(float(holds))
