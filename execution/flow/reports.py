# SPDX-License-Identifier: Apache-2.0
"""Observations that are a flow's last reports, each of the interval since the one before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Bools, Doubles, Floats, Ints
from sagecc.common.errors import SageccError
from sagecc.execution.flow.intervals import Intervals, Report, some


@dataclass(frozen=True)
class Reporting:
    """What a scheme reports."""

    names: tuple[str, ...]
    """Names of a report's values."""
    history: int
    """Reports in an observation."""
    observations: tuple[str, ...]
    """Names of all values of an observation, the oldest report's first."""
    rate: Callable[[Report], Doubles]
    """The rate whose highest so far scales a flow's reports (bytes/s, or mean RTTs per us)."""
    values: Callable[[Report, npt.NDArray[np.void], Doubles], Doubles]
    """From intervals, rows at their ends and highest rates [R], the reports [R, len(names)]."""
    after_acks: bool
    """Whether a flow decides only where something was acknowledged in its interval; else from its second row on."""
    rises: bool = False
    """Whether the values take the RTTs' rise within an interval."""


class Reports:
    """The last reports of flows, one slot per flow; an ObservationSource."""

    def __init__(self, reporting: Reporting, names: tuple[str, ...], flows: int) -> None:
        """Start with no flow known.

        Args:
            reporting: what is reported.
            names: of the observations asked for.
            flows: number of slots.

        Raises:
            SageccError: the names are others.
        """
        if names != reporting.observations:
            raise SageccError(f"does not observe {reporting.history} reports of {', '.join(reporting.names)}")
        self._reporting, self._intervals = reporting, Intervals(flows, reporting.rises)
        self._begun = np.zeros(flows, np.bool_)
        self._highest = np.zeros(flows)
        self._history = np.zeros((flows, reporting.history, len(reporting.names)))

    def update(self, samples: npt.NDArray[np.void], slots: Ints) -> Bools:
        """Take one row of each flow; return which may report now [B]."""
        acked = self._intervals.update(samples, slots)
        if self._reporting.after_acks:
            return acked
        begun = self._begun[slots]
        self._begun[slots] = True
        return begun

    def report(self, due: Bools) -> Floats:
        """Add a report of each due flow to its history; return their histories, the oldest report first.

        Args:
            due: which flows of the last update decide now [B].

        Returns:
            One row of history x names numbers per due flow.
        """
        samples, slots = some(due, self._intervals.samples, self._intervals.slots)
        report = self._intervals.report(due)
        rates = self._highest[slots] = np.maximum(self._highest[slots], self._reporting.rate(report))
        newest = self._reporting.values(report, samples, rates)[:, None]
        self._history[slots] = np.concatenate([self._history[slots, 1:], newest], axis=1)
        history: Floats = self._history[slots].reshape(len(slots), -1).astype(np.float32)
        return history

    def acted(self, slots: Ints, actions: Doubles) -> None:
        """Do nothing: no scheme reports its actions."""

    def skip(self, skipped: Bools) -> None:
        """Begin a new interval for those flows of the last update, without a report."""
        self._intervals.begin(skipped)

    def reset(self, slot: int) -> None:
        """Forget a flow."""
        self._intervals.reset(slot)
        self._begun[slot] = False
        self._highest[slot] = self._history[slot] = 0
