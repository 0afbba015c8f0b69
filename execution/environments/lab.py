# SPDX-License-Identifier: Apache-2.0
"""One running episode at a time, whose kernel ends with it."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sagecc.collector.kernel.machine import check_kernel
from sagecc.collector.lab.boot import Guest
from sagecc.collector.lab.spec import Drive, episode_spec
from sagecc.common import shipped
from sagecc.common.errors import SageccError
from sagecc.schemas.environment import Environment

SCHEME = "policy:environment"
"""The scheme in the episodes' names."""

Samples = npt.NDArray[np.void]


def drive(latency_ms: float, flows: tuple[int, ...] = (0,)) -> Drive:
    """Return how the lab's flows are driven.

    Args:
        latency_ms: virtual time from an observation to when its action takes effect.
        flows: numbers of the driven flows.

    Raises:
        SageccError: the latency is out of range.
    """
    if not math.isfinite(latency_ms):
        raise SageccError(f"latency_ms must be a number, not {latency_ms}")
    return Drive(latency_us=round(latency_ms * 1000), flows=flows)


def check_count(name: str, count: int | None) -> None:
    """Raise SageccError, naming the argument, where a count is neither a whole number from 1 on nor None."""
    if count is not None and (not isinstance(count, int | np.integer) or count < 1):
        raise SageccError(f"{name} must be a whole number from 1 on, not {count!r}")


class Lab:
    """At most one running episode: ended when it is closed, replaced, fails, or is garbage-collected.

    Its methods raise as collector.lab.boot.Guest does.
    """

    def __init__(self, kernel: Path | str | None, drive: Drive) -> None:
        """Check the kernel; nothing is booted before `start`.

        Args:
            kernel: the lab's kernel, by default the one that common.shipped finds.
            drive: how its flows are driven.

        Raises:
            SageccError: there is no such kernel.
        """
        self._kernel, self._drive = Path(kernel or shipped.kernel()), drive
        check_kernel(self._kernel)
        self._guest: Guest | None = None
        self._name = ""
        self._end: Callable[[], object] = lambda: None

    @property
    def running(self) -> bool:
        """Whether an episode runs."""
        return self._guest is not None

    def start(self, environment: Environment, seed: int) -> None:
        """Boot a kernel for an episode; the running one is ended."""
        self.close()
        spec = episode_spec(environment, SCHEME, seed, packet_delays=False, drive=self._drive)
        guest = Guest(self._kernel, spec)
        guest.__enter__()
        self._name = spec.name
        self._guest, self._end = guest, weakref.finalize(self, guest.__exit__)

    def tick(self) -> Samples | None:
        """Run to the next tick at which a driven flow is up; return their samples, None when the episode is over."""
        guest = self._running()
        try:
            return guest.tick()
        except BaseException:  # an interrupted exchange cannot be taken up again
            self.close()
            raise

    def first_tick(self) -> Samples:
        """Run to the first tick at which a driven flow is up; raises SageccError where none ever is."""
        return self._expected(self.tick(), "the flow never got through")

    def next_tick(self) -> Samples:
        """Run to the next tick of an episode that is not over yet; raises SageccError where it is."""
        return self._expected(self.tick(), "it ended before its time")

    def act(self, cwnd_pkts: Sequence[int], pacing_bytes_s: Sequence[int]) -> None:
        """Set the windows and pacing rates of the flows sampled at the last tick, in their order."""
        guest = self._running()
        try:
            guest.act(cwnd_pkts, pacing_bytes_s)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the running episode, if any."""
        self._guest = None
        self._end()

    def _expected(self, samples: Samples | None, problem: str) -> Samples:
        if samples is None:
            self.close()
            raise SageccError(f"episode {self._name}: {problem}")
        return samples

    def _running(self) -> Guest:
        if self._guest is None:
            raise SageccError("no episode runs: call reset() first")
        return self._guest
