# SPDX-License-Identifier: Apache-2.0
"""Whether a trial's canary is worse than its control by more than a margin: a randomisation test over connections.

Hypothesis: under the policy no connection has an sRTT longer, or a retransmitted share larger, than under the other
scheme by more than the margin. Then the canary's values less the margin are no larger than what the same connections
had in the control group, and as the groups were drawn by lot, the canary is a random sample of all. That its mean is as
large as it is has at most the probability of Chernoff's bound for samples without replacement (Hoeffding 1963,
theorem 4). The bound holds for any distribution and any dependence between connections, and needs no approximation.

The test is repeated. Test k may be wrong with probability ALPHA / (k (k + 1)); these sum to ALPHA over a watch without
an end. So a policy within the margins is taken off with probability ALPHA at most, however long the watch.

The groups share links. What the canary does to a queue the control suffers as well, so that the difference is less than
if all connections were driven (Spang et al., Unbiased Experiments in Congested Networks, IMC 2021).
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np

from sagecc.common.arrays import Doubles
from sagecc.execution.stock.activity import merged, retransmitted, srtts_us
from sagecc.execution.stock.shared import Structured
from sagecc.execution.stock.trial import GROUPS

ALPHA = 0.01
"""Largest probability that a policy within the margins is ever taken off."""
SPANS = (1, 4, 16, 64)
"""Intervals that a test looks back on: short ones find what is bad at once, long ones what is a little worse."""
LEAST = 20
"""Active connections that each group must have for a test."""


@dataclass(frozen=True)
class Margins:
    """By how much the canary may be worse."""

    rtt: float
    """Share by which its sRTT may be longer."""
    loss: float
    """What its retransmitted share may have more."""


@dataclass(frozen=True)
class Excess:
    """A canary that is worse than the control by more than a margin."""

    what: str
    """Both values and the margin, in words."""
    connections: tuple[int, int]
    """Of the canary and of the control."""
    intervals: int
    """How many the test looked back on."""
    chance: float
    """Bound on the probability that a policy within the margin looks so bad in this test."""

    def __str__(self) -> str:
        canary, control = self.connections
        return (
            f"{self.what}, over {canary:,} and {control:,} connections in {self.intervals}"
            f" interval{'s' if self.intervals > 1 else ''} (p < {self.chance:.1g})"
        )


class Watch:
    """Tests a trial at the end of each interval."""

    def __init__(self, margins: Margins) -> None:
        self._margins = margins
        self._recent: deque[Structured] = deque(maxlen=max(SPANS))
        self.intervals = self._tests = 0

    def add(self, rows: Structured) -> Excess | None:
        """Take an interval's activity [n]; return by what the canary is worse, if it is."""
        self._recent.append(rows)
        self.intervals += 1
        for span in SPANS:
            if self.intervals % span == 0:
                excess = self._test(span)
                if excess:
                    return excess
        return None

    def _test(self, span: int) -> Excess | None:
        rows = merged(list(self._recent)[-span:])
        canary, control = (rows[rows["group"] == GROUPS.index(group)] for group in ("canary", "control"))
        if min(len(canary), len(control)) < LEAST:
            return None
        for values, margin, words in (
            (_log_srtts, math.log1p(self._margins.rtt), self._rtt_words),
            (retransmitted, self._margins.loss, self._loss_words),
        ):
            self._tests += 1
            of_canary, of_control = values(canary), values(control)
            chance = chance_bound(of_canary - margin, of_control)
            if chance < ALPHA / (self._tests * (self._tests + 1)):
                what = words(float(of_canary.mean()), float(of_control.mean()))
                return Excess(what, (len(canary), len(control)), span, chance)
        return None

    def _rtt_words(self, canary: float, control: float) -> str:
        return (
            f"sRTT {1e3 * math.exp(canary):.1f} ms against {1e3 * math.exp(control):.1f} ms"
            f" (margin {self._margins.rtt:.3g} of it)"
        )

    def _loss_words(self, canary: float, control: float) -> str:
        return f"retransmitted {canary:.2%} against {control:.2%} (margin {100 * self._margins.loss:.3g} points)"


def _log_srtts(rows: Structured) -> Doubles:
    return np.log(srtts_us(rows) / 1e6)


def chance_bound(sample: Doubles, rest: Doubles) -> float:
    """Return a bound on the probability that a sample drawn by lot has a mean as large as this one.

    Args:
        sample: its values [m].
        rest: the values that were not drawn [n].
    """
    above = np.concatenate([sample, rest]) - sample.mean()
    widest = above.max()
    if above.mean() >= 0:
        return 1.0
    if widest <= 0:  # no sample has a larger mean
        return float((above == 0).mean() ** len(sample))
    # the bound holds for every t > 0; it is least where log E exp(t * above), which is convex, has no slope
    low, high = 0.0, 1 / widest
    while _falls(above, high) and high < 1e6 / widest:
        low, high = high, 2 * high
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if _falls(above, middle) else (low, middle)
    exponents = low * above
    most = exponents.max()
    return float(np.exp(len(sample) * (most + np.log(np.exp(exponents - most).mean()))))


def _falls(above: Doubles, t: float) -> bool:
    """Tell whether log E exp(t * above) falls at t."""
    return float((above * np.exp(t * (above - above.max()))).sum()) < 0
