# SPDX-License-Identifier: Apache-2.0
"""One running episode at a time, whose kernel ends with it."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sagecc.collector.kernel.identity import own_kernel
from sagecc.collector.kernel.machine import check_kernel
from sagecc.collector.lab.boot import Guest
from sagecc.collector.lab.spec import Drive, driven_flows, episode_spec
from sagecc.common.errors import SageccError
from sagecc.execution.lab.controllers import PolicyController
from sagecc.schemas.environment import Environment

SCHEME = "policy:environment"
"""The scheme in the episodes' names."""

Samples = npt.NDArray[np.void]


def drive(latency_ms: float, underlying_scheme: str = "pure") -> Drive:
    """Return how agents drive the lab's flows.

    Args:
        latency_ms: virtual time from an observation to when its action takes effect.
        underlying_scheme: the kernel scheme whose windows they set.

    Raises:
        SageccError: the latency is out of range.
    """
    if not math.isfinite(latency_ms):
        raise SageccError(f"latency_ms must be a number, not {latency_ms}")
    return Drive(underlying_scheme, latency_us=round(latency_ms * 1000))


def check_count(name: str, count: int | None) -> None:
    """Raise SageccError, naming the argument, where a count is neither a whole number from 1 on nor None."""
    if count is not None and (not isinstance(count, int | np.integer) or count < 1):
        raise SageccError(f"{name} must be a whole number from 1 on, not {count!r}")


class Lab:
    """At most one running episode: ended when it is closed, replaced, fails, or is garbage-collected.

    Agents drive some of its flows; the lab itself drives the others whose scheme is a policy (`policy:PATH`). Its
    methods raise as collector.lab.boot.Guest does.
    """

    def __init__(self, kernel: Path | str | None, drive: Drive) -> None:
        """Check the kernel; nothing is booted before `start`.

        Args:
            kernel: the lab's kernel, by default the checkout's or the installation's.
            drive: how the agents' flows are driven.

        Raises:
            SageccError: there is no such kernel.
        """
        self._kernel, self._drive = Path(kernel or own_kernel()), drive
        check_kernel(self._kernel)
        self._flows: tuple[int, ...] = ()
        self._policies = PolicyController({})  # read once for the episodes in which the same compete
        self._policy_drives: dict[str, Drive] = {}
        self._of_agents = np.ones(0, np.bool_)  # which of the last tick's samples
        self._policy_actions: tuple[Sequence[int], Sequence[int]] = (), ()
        self._guest: Guest | None = None
        self._name = ""
        self._end: Callable[[], object] = lambda: None

    def start(self, environment: Environment, seed: int, flows: Sequence[int]) -> None:
        """Boot a kernel for an episode; the running one is ended.

        Args:
            environment: the network.
            seed: the episode's.
            flows: numbers of the agents' flows.
        """
        self.close()
        self._flows = tuple(flows)
        competitors = {f: name for f, name in driven_flows(environment, SCHEME).items() if f not in self._flows}
        if self._policies.scheme_of != competitors:
            self._policies = PolicyController(competitors)
            self._policy_drives = self._policies.drives()
        self._policies.reset()
        drives = {f: self._policy_drives[name] for f, name in competitors.items()}
        drives |= dict.fromkeys(self._flows, self._drive)
        spec = episode_spec(environment, SCHEME, seed, packet_delays=False, drives=drives)
        guest = Guest(self._kernel, spec)
        guest.__enter__()
        self._name = spec.name
        self._guest, self._end = guest, weakref.finalize(self, guest.__exit__)

    def tick(self) -> Samples | None:
        """Run to the next tick at which an agent's flow is up; return their samples, None when the episode is over."""
        guest = self._running()
        try:
            while (samples := guest.tick()) is not None:
                if not self._policy_drives:
                    return samples
                self._of_agents = np.isin(samples["flow"], self._flows)
                others = samples[~self._of_agents]
                self._policy_actions = self._policies(others) if len(others) else ((), ())
                if self._of_agents.any():
                    return samples[self._of_agents]
                guest.act(*self._policy_actions)
            return None
        except BaseException:  # an interrupted exchange cannot be taken up again
            self.close()
            raise

    def act(self, cwnd_pkts: Sequence[int], pacing_bytes_s: Sequence[int]) -> None:
        """Set the windows and pacing rates of the flows sampled at the last tick, in their order."""
        guest = self._running()
        try:
            guest.act(*self._merged(cwnd_pkts, pacing_bytes_s))
        except BaseException:
            self.close()
            raise

    def _merged(self, cwnd_pkts: Sequence[int], pacing_bytes_s: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
        """Return the agents' actions and the policies', in the order of flows."""
        if not self._policy_drives:
            return cwnd_pkts, pacing_bytes_s
        orders = np.zeros((2, len(self._of_agents)), np.int64)
        orders[:, self._of_agents] = cwnd_pkts, pacing_bytes_s
        orders[:, ~self._of_agents] = self._policy_actions
        return orders[0].tolist(), orders[1].tolist()

    def close(self) -> None:
        """End the running episode, if any."""
        self._guest = None
        self._end()

    def failure(self, problem: str) -> SageccError:
        """Return an error that names the episode."""
        return SageccError(f"episode {self._name}: {problem}")

    def _running(self) -> Guest:
        if self._guest is None:
            raise SageccError("no episode runs: call reset() first")
        return self._guest
