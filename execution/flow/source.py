# SPDX-License-Identifier: Apache-2.0
"""What derives observations from raw counters."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Bools, Doubles, Floats, Ints


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
