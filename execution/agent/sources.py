# SPDX-License-Identifier: Apache-2.0
"""What policies can observe, by the name of its source: the pool's features, and what rivals observe."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Bools, Doubles, Floats, Ints
from sagecc.common.errors import SageccError
from sagecc.common.versions import same_major
from sagecc.execution.flow.intervals import some
from sagecc.execution.flow.source import ObservationSource
from sagecc.execution.schemes.rival import Observation
from sagecc.execution.schemes.rivals import RIVALS
from sagecc.policy.artefact import OBSERVATION_SOURCE
from sagecc.pool.features import FeatureTracker, Windows
from sagecc.schemas.pool import FEATURE_NAMES, POOL_VERSION


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


OBSERVATIONS: Mapping[str, Observation] = MappingProxyType(
    {rival.observation.source[0]: rival.observation for rival in RIVALS if rival.observation}
)
"""By the card's `source`, what rivals observe."""

SOURCES: Mapping[str, str] = MappingProxyType(
    {OBSERVATION_SOURCE: POOL_VERSION, **{name: each.source[1] for name, each in OBSERVATIONS.items()}}
)
"""By the card's `source` the version implemented here.

A policy of another minor version runs if all that it observes exists here; one of another major version does not.
"""


def observation_source(
    source: tuple[str, str],
    names: tuple[str, ...],
    flows: int,
    who: str,
    windows: Windows | None = None,
    without: tuple[str, ...] = (),
) -> ObservationSource:
    """Return what derives observations.

    Args:
        source: the definition of the observations and its version.
        names: of the observations.
        flows: number of slots.
        who: whose observations these are, for errors.
        windows: lengths of the observation windows of the pool's features; the paper's by default.
        without: rules of the source that are not to hold.

    Raises:
        SageccError: there is no such source, or not in that major version, or it has no such observations or rules.
    """
    name, version = source
    if name not in SOURCES or not same_major(version, SOURCES[name]):
        offers = ", ".join(f"{name} {SOURCES[name]}" for name in sorted(SOURCES))
        raise SageccError(f"{who} observes '{name} {version}'; there is only {offers}")
    rules = OBSERVATIONS[name].rules if name in OBSERVATIONS else {}
    if unknown := [rule for rule in without if rule not in rules]:
        raise SageccError(f"{who} observes '{name}' without '{unknown[0]}', which is no rule of it")
    try:
        if name == OBSERVATION_SOURCE:
            return PoolFeatures(names, flows, windows or Windows())
        return OBSERVATIONS[name].make(names, flows, frozenset(without))
    except SageccError as error:
        raise SageccError(f"{who} {error}") from None
