# SPDX-License-Identifier: Apache-2.0
"""A scheme in user space in charge of flows, one slot per flow, with the members that execution.lab asks of a policy's.

Each flow has an instance and random numbers of its own, so its bytes do not depend on the others of its batch.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Ints
from sagecc.common.errors import SageccError
from sagecc.execution.schemes.scheme import Sample, SchemeClass, UserSpaceScheme

MAX_WINDOW = 20_000
"""Largest window (packets), a policy's too: what the guest's memory is planned for."""

MAX_RATE = 2**53
"""Largest pacing rate (bytes/s)."""

_FIELDS = ["t_ns", *Sample._fields[1:]]


class SchemeAgent:
    """One scheme and the flows that it drives."""

    underlying_scheme = "pure"
    """The kernel scheme whose window and pacing rate it sets."""

    def __init__(self, name: str, scheme: SchemeClass, flows: int = 1) -> None:
        """Prepare the slots.

        Args:
            name: the scheme's, for errors.
            scheme: makes the scheme of a flow.
            flows: number of slots.

        Raises:
            SageccError: The scheme cannot be made.
        """
        self._name, self._scheme = name, scheme
        self._flows = [self._made(slot) for slot in range(flows)]

    def step(self, samples: npt.NDArray[np.void], slots: Ints) -> tuple[Ints, Ints]:
        """Take one row of raw counters of each flow.

        Args:
            samples: structured array [B] with `t_ns` and the counters of schemas.raw by name (as wire.SAMPLE).
            slots: the flows' slots [B].

        Returns:
            Windows (packets) and pacing rates (bytes/s) [B]; a pacing rate of 0 means unlimited.

        Raises:
            SageccError: The scheme fails, or returns something else; the message names it.
        """
        orders = np.zeros((2, len(slots)), np.int64)
        for row, (slot, (t_ns, *counters)) in enumerate(zip(slots.tolist(), samples[_FIELDS].tolist(), strict=True)):
            sample = Sample(t_ns / 1e9, *counters)
            orders[:, row] = self._order(self._guarded(self._flows[slot].on_tick, sample))
        return orders[0], orders[1]

    def reset(self, slot: int = 0, stream: int | None = None) -> None:
        """Forget a flow, so that its slot can serve another.

        Args:
            slot: the flow's.
            stream: number of the next flow's random numbers, by default the slot's.
        """
        self._flows[slot] = self._made(slot if stream is None else stream)

    def _made(self, stream: int) -> UserSpaceScheme:
        scheme: UserSpaceScheme = self._guarded(self._scheme, Random(stream))
        return scheme

    def _guarded(self, call: Callable[..., Any], argument: object) -> Any:
        """Return what code of somebody else returns; where that fails, say where."""
        try:
            return call(argument)
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{place.filename}:{place.lineno}"
            raise SageccError(f"{self._name} failed at {where}: {type(error).__name__}: {error}") from error

    def _order(self, returned: Any) -> tuple[int, int]:
        """Return a window and a pacing rate as the kernel takes them."""
        try:
            window, rate = map(float, returned)
        except (TypeError, ValueError):
            window = rate = math.nan
        if not (math.isfinite(window) and math.isfinite(rate) and rate >= 0):
            raise SageccError(
                f"{self._name}: on_tick returned {returned!r}; it is to return (window in packets, pacing rate in "
                "bytes/s or 0)"
            )
        return int(min(max(window, 1), MAX_WINDOW)), int(min(rate, MAX_RATE))
