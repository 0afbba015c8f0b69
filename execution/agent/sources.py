# SPDX-License-Identifier: Apache-2.0
"""What policies can observe, by the name of its source. Another kind of observation is another entry of SOURCES."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Bools, Doubles, Floats, Ints
from sagecc.common.errors import SageccError
from sagecc.common.versions import same_major
from sagecc.execution.agent.astraea import REPORTING as ASTRAEA
from sagecc.execution.agent.aurora import REPORTING as AURORA
from sagecc.execution.agent.indigo import IndigoStates
from sagecc.execution.agent.intervals import some
from sagecc.execution.agent.orca import REPORTING as ORCA
from sagecc.execution.agent.reports import Reports
from sagecc.policy import astraea, aurora, indigo, orca
from sagecc.policy.artefact import OBSERVATION_SOURCE
from sagecc.pool.features import FeatureTracker, Windows
from sagecc.schemas.pool import FEATURE_NAMES, POOL_VERSION


class ObservationSource(Protocol):
    """Derives observations of flows, one slot per flow.

    Per tick there is one `update`, then `report` of the flows that decide and `skip` of those in slow start, then
    `acted` of those that decided.
    """

    def update(self, samples: npt.NDArray[np.void], slots: Ints) -> Bools:
        """Take one row of raw counters of each flow.

        Args:
            samples: structured array [B] with the counters of schemas.raw by name.
            slots: the flows' slots [B].

        Returns:
            Which flows have something to report [B]; the others put their decision off.
        """

    def report(self, due: Bools) -> Floats:
        """Return the observations of some flows of the last update.

        Args:
            due: which flows decide now [B].

        Returns:
            Observations before scaling [sum(due), F].
        """

    def acted(self, slots: Ints, actions: Doubles) -> None:
        """Take note of what flows in some slots do [n], within the limits of their actions."""

    def skip(self, skipped: Bools) -> None:
        """Begin a new interval for those flows of the last update [B], without a report."""

    def reset(self, slot: int) -> None:
        """Forget a flow."""


class PoolFeatures:
    """The pool's features, or some of them, from the routine that derived the pool."""

    def __init__(self, names: tuple[str, ...], flows: int, windows: Windows) -> None:
        """Start with no flow known.

        Args:
            names: of the observations.
            flows: number of slots.
            windows: lengths of the observation windows.

        Raises:
            SageccError: one is no feature.
        """
        if unknown := [name for name in names if name not in FEATURE_NAMES]:
            raise SageccError(f"observes '{unknown[0]}', which is no feature of schemas/pool.py")
        self.tracker = FeatureTracker(windows, flows)
        self._columns = np.array([FEATURE_NAMES.index(name) for name in names])
        self._now = np.zeros((0, len(FEATURE_NAMES)), np.float32)

    def update(self, samples: npt.NDArray[np.void], slots: Ints) -> Bools:
        """Take one row of each flow; every flow has something to report."""
        self._now = self.tracker.update_flows(samples, slots)
        return np.ones(len(slots), np.bool_)

    def report(self, due: Bools) -> Floats:
        """Return the due flows' features of this tick in the policy's order."""
        (rows,) = some(due, self._now)
        return np.ascontiguousarray(rows[:, self._columns])

    def acted(self, slots: Ints, actions: Doubles) -> None:
        """Do nothing: the window shows it."""

    def skip(self, skipped: Bools) -> None:
        """Do nothing: a tick's features are complete in themselves."""

    def reset(self, slot: int) -> None:
        """Forget a flow."""
        self.tracker.reset(slot)


Factory = Callable[[tuple[str, ...], int, Windows], ObservationSource]

SOURCES: dict[str, tuple[str, Factory]] = {
    OBSERVATION_SOURCE: (POOL_VERSION, PoolFeatures),
    orca.SOURCE[0]: (orca.SOURCE[1], lambda names, flows, _: Reports(ORCA, names, flows)),
    astraea.SOURCE[0]: (astraea.SOURCE[1], lambda names, flows, _: Reports(ASTRAEA, names, flows)),
    aurora.SOURCE[0]: (aurora.SOURCE[1], lambda names, flows, _: Reports(AURORA, names, flows)),
    indigo.SOURCE[0]: (indigo.SOURCE[1], lambda names, flows, _: IndigoStates(names, flows)),
}
"""By the card's `source`: the version implemented here, and what makes one from names, slots and the pool's windows.

A policy of another minor version runs if all that it observes exists here; one of another major version does not.
"""


def observation_source(
    source: tuple[str, str], names: tuple[str, ...], flows: int, who: str, windows: Windows | None = None
) -> ObservationSource:
    """Return what derives observations.

    Args:
        source: the definition of the observations and its version.
        names: of the observations.
        flows: number of slots.
        who: whose observations these are, for errors.
        windows: lengths of the observation windows of the pool's features; the paper's by default.

    Raises:
        SageccError: there is no such source, or not in that major version, or it has no such observations.
    """
    name, version = source
    if name not in SOURCES or not same_major(version, SOURCES[name][0]):
        offered = ", ".join(f"{name} {SOURCES[name][0]}" for name in sorted(SOURCES))
        raise SageccError(f"{who} observes '{name} {version}'; there is only {offered}")
    try:
        return SOURCES[name][1](names, flows, windows or Windows())
    except SageccError as error:
        raise SageccError(f"{who} {error}") from None
