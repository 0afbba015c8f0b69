# SPDX-License-Identifier: Apache-2.0
"""What policies can observe, by the name of who defines it. Another kind of observation is another entry of SOURCES."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Floats, Ints
from sagecc.common.errors import SageccError
from sagecc.execution.agent.orca import OrcaReports
from sagecc.policy import orca
from sagecc.policy.artefact import OBSERVATION_SOURCE, PolicyArtefact
from sagecc.pool.features import FeatureTracker, Windows
from sagecc.schemas.pool import FEATURE_NAMES, POOL_VERSION

Bools = npt.NDArray[np.bool_]


class Source(Protocol):
    """What is known of flows, a slot each. Calls come tick by tick: one `update`, then what it calls for."""

    def update(self, samples: npt.NDArray[np.void], slots: Ints) -> Bools:
        """Take one row of raw counters of each flow [B], by tick; return which have something to report [B].

        One that has not puts its decision off.
        """

    def report(self, due: Bools) -> Floats:
        """Return the observations of those flows of the last update that decide now, unscaled [sum(due), F]."""

    def skip(self, passed: Bools) -> None:
        """Let those flows of the last update begin anew what they count up to a report, without one."""

    def reset(self, slot: int) -> None:
        """Forget a flow."""


class PoolFeatures:
    """The pool's features, or some of them, from the routine that derived it."""

    def __init__(self, policy: PolicyArtefact, flows: int) -> None:
        """Raises SageccError where the policy observes what is no feature."""
        if unknown := [name for name in policy.observations if name not in FEATURE_NAMES]:
            raise SageccError(f"policy {policy.path} observes '{unknown[0]}', which is no feature of schemas/pool.py")
        self.tracker = FeatureTracker(_windows(policy), flows)
        self._columns = np.array([FEATURE_NAMES.index(name) for name in policy.observations])
        self._now = np.zeros((0, len(FEATURE_NAMES)), np.float32)

    def update(self, samples: npt.NDArray[np.void], slots: Ints) -> Bools:
        """Take one row of each flow; there is always something to report."""
        self._now = self.tracker.update_flows(samples, slots)
        return np.ones(len(slots), np.bool_)

    def report(self, due: Bools) -> Floats:
        """Return the features of this tick in the policy's order."""
        return np.ascontiguousarray(self._now[due][:, self._columns])

    def skip(self, passed: Bools) -> None:
        """Nothing is counted from report to report."""

    def reset(self, slot: int) -> None:
        """Forget a flow."""
        self.tracker.reset(slot)


SOURCES: dict[str, tuple[str, Callable[[PolicyArtefact, int], Source]]] = {
    OBSERVATION_SOURCE: (POOL_VERSION, PoolFeatures),
    orca.SOURCE[0]: (orca.SOURCE[1], OrcaReports),
}
"""By the card's `source`: the version there is, and what makes a policy's observations of so many flows.

A policy of another minor version runs, if what it observes is there; one of another major version does not.
"""


def source_of(policy: PolicyArtefact, flows: int) -> Source:
    """Return what a policy observes of so many flows. Raises SageccError where that cannot be offered."""
    name, version = policy.source
    if name not in SOURCES or version.split(".")[0] != SOURCES[name][0].split(".")[0]:
        offered = ", ".join(f"{name} {SOURCES[name][0]}" for name in sorted(SOURCES))
        raise SageccError(f"policy {policy.path} observes '{name} {version}'; there is only {offered}")
    return SOURCES[name][1](policy, flows)


def _windows(policy: PolicyArtefact) -> Windows:
    """Return the observation windows of the pool that the policy learned from; the paper's where it does not say."""
    pool = policy.card.get("pool", {})
    try:
        if not isinstance(pool, dict):
            raise SageccError(f"it learned from '{pool}', which is no pool")
        return Windows.parse(str(pool["windows"])) if "windows" in pool else Windows()
    except SageccError as error:
        raise SageccError(f"policy {policy.path}: {error}: train it again or fetch it again") from error
