# SPDX-License-Identifier: Apache-2.0
"""What policies can observe, by the name of its source. Another kind of observation is another entry of SOURCES."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Floats, Ints
from sagecc.common.errors import SageccError
from sagecc.common.versions import same_major
from sagecc.execution.agent.orca import OrcaReports
from sagecc.policy import orca
from sagecc.policy.artefact import OBSERVATION_SOURCE, PolicyArtefact
from sagecc.pool.features import FeatureTracker, Windows
from sagecc.schemas.pool import FEATURE_NAMES, POOL_VERSION

Bools = npt.NDArray[np.bool_]


class ObservationSource(Protocol):
    """Derives observations of flows, one slot per flow.

    Per tick there is one `update`, then `report` of the flows that decide and `skip` of those in slow start.
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

    def skip(self, skipped: Bools) -> None:
        """Begin a new interval for those flows of the last update [B], without a report."""

    def reset(self, slot: int) -> None:
        """Forget a flow."""


class PoolFeatures:
    """The pool's features, or some of them, from the routine that derived the pool."""

    def __init__(self, policy: PolicyArtefact, flows: int) -> None:
        """Start with no flow known.

        Args:
            policy: whose observations these are.
            flows: number of slots.

        Raises:
            SageccError: the policy observes what is no feature.
        """
        if unknown := [name for name in policy.observations if name not in FEATURE_NAMES]:
            raise SageccError(f"policy {policy.path} observes '{unknown[0]}', which is no feature of schemas/pool.py")
        self.tracker = FeatureTracker(_windows(policy), flows)
        self._columns = np.array([FEATURE_NAMES.index(name) for name in policy.observations])
        self._now = np.zeros((0, len(FEATURE_NAMES)), np.float32)

    def update(self, samples: npt.NDArray[np.void], slots: Ints) -> Bools:
        """Take one row of each flow; every flow has something to report."""
        self._now = self.tracker.update_flows(samples, slots)
        return np.ones(len(slots), np.bool_)

    def report(self, due: Bools) -> Floats:
        """Return the due flows' features of this tick in the policy's order."""
        return np.ascontiguousarray(self._now[due][:, self._columns])

    def skip(self, skipped: Bools) -> None:
        """Do nothing: a tick's features are complete in themselves."""

    def reset(self, slot: int) -> None:
        """Forget a flow."""
        self.tracker.reset(slot)


SOURCES: dict[str, tuple[str, Callable[[PolicyArtefact, int], ObservationSource]]] = {
    OBSERVATION_SOURCE: (POOL_VERSION, PoolFeatures),
    orca.SOURCE[0]: (orca.SOURCE[1], OrcaReports),
}
"""By the card's `source`: the version implemented here, and the class that derives observations of so many flows.

A policy of another minor version runs if all that it observes exists here; one of another major version does not.
"""


def observation_source(policy: PolicyArtefact, flows: int) -> ObservationSource:
    """Return what derives a policy's observations.

    Args:
        policy: its card names the source and its version.
        flows: number of slots.

    Raises:
        SageccError: there is no such source, or not in that major version.
    """
    name, version = policy.source
    if name not in SOURCES or not same_major(version, SOURCES[name][0]):
        offered = ", ".join(f"{name} {SOURCES[name][0]}" for name in sorted(SOURCES))
        raise SageccError(f"policy {policy.path} observes '{name} {version}'; there is only {offered}")
    return SOURCES[name][1](policy, flows)


def _windows(policy: PolicyArtefact) -> Windows:
    """Return the observation windows of the pool that the policy learned from, by default the paper's."""
    pool = policy.card.get("pool", {})
    try:
        if not isinstance(pool, dict):
            raise SageccError(f"it learned from '{pool}', which is no pool")
        return Windows.parse(str(pool["windows"])) if "windows" in pool else Windows()
    except SageccError as error:
        raise SageccError(f"policy {policy.path}: {error}: train it again or fetch it again") from error
