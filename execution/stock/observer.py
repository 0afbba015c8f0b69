# SPDX-License-Identifier: Apache-2.0
"""Looks at a trial each second, prints it interval by interval, and has it tested."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from sagecc.execution.stock.activity import ADDED, HEADER, Tally, lines
from sagecc.execution.stock.shared import Structured
from sagecc.execution.stock.trial import GROUPS, TrialMemory
from sagecc.execution.stock.watch import Excess, Watch

LOOK_S = 1.0
"""From one look to the next."""


class Observer:
    """Looks at a trial from its beginning on."""

    def __init__(
        self,
        trial: TrialMemory,
        interval_s: float,
        watch: Watch | None = None,
        write: Callable[[str], None] | None = None,
    ) -> None:
        """Begin the first interval.

        Args:
            trial: that has just begun.
            interval_s: from one row of the table, and one test, to the next.
            watch: tests the trial; None: nobody does.
            write: takes the table line by line; None: there is none.
        """
        self._trial, self._interval_s, self._watch, self._write = trial, interval_s, watch, write
        self._tally = Tally()
        self._begun_s = self._looked_s = time.monotonic()
        self.totals = {name: np.zeros(len(GROUPS), np.int64) for name in ADDED}
        """What all connections did so far, by the fields of ACTIVITY that can be added up; by group."""
        self.intervals = 0
        """Intervals that have ended."""
        if write:
            write(HEADER)

    @property
    def open(self) -> Structured:
        """Records of the connections that were open at the last look [n]."""
        return self._tally.open

    def due(self) -> bool:
        """Tell whether it is time for a look."""
        return time.monotonic() - self._looked_s >= LOOK_S

    def look(self) -> Excess | None:
        """Look; return by what the canary is worse, where an interval ends and that was found."""
        self._looked_s = time.monotonic()
        rows = self._tally.look(self._trial.records())
        for name, total in self.totals.items():
            np.add.at(total, rows["group"], rows[name])
        length_s = self._looked_s - self._begun_s
        if length_s < self._interval_s:
            return None
        self._begun_s = self._looked_s
        self.intervals += 1
        active = self._tally.close()
        if self._write:
            for line in lines(self.intervals, active, length_s):
                self._write(line)
        return self._watch.add(active) if self._watch else None
