# SPDX-License-Identifier: Apache-2.0
"""A task: one episode to run, on this machine or on another, and what comes back of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from sagecc.collector.lab.boot import WATCHDOG_S, Controller
from sagecc.collector.lab.episode import Episode, run_episode
from sagecc.collector.lab.spec import Drive, episode_spec
from sagecc.collector.run.store import pack
from sagecc.common.errors import SageccError
from sagecc.schemas.environment import Environment, episode_id
from sagecc.schemas.schemes import POLICY_PREFIX

ControllerFactory = Callable[[str], Controller]
"""Makes the controller of a policy from its scheme name; a module-level function, for it goes to other processes."""


@dataclass(frozen=True)
class Task:
    """One episode to run. identity: of the kernel it is to run on (collector.kernel.identity).

    factory, drive: of a policy, what makes its controller and how that drives the flow.
    """

    environment: Environment
    scheme: str
    seed: int
    identity: str
    factory: ControllerFactory | None = None
    drive: Drive | None = None

    @property
    def id(self) -> str:
        """Environment, scheme and seed."""
        return episode_id(self.environment.id, self.scheme, self.seed)

    @cached_property
    def spec_sha256(self) -> str:
        """What the guest would be started with."""
        return episode_spec(self.environment, self.scheme, self.seed, drive=self.drive).sha256

    @property
    def cost(self) -> float:
        """About the CPU time it takes (s): packets, and a fixed part."""
        link = self.environment.bottleneck
        mean_mbps = sum(step.rate_mbps for step in link.rates) / len(link.rates) if link.rates else link.base_mbps
        return 0.1 + self.environment.duration_s * (2 + mean_mbps) / 4000


@dataclass(frozen=True)
class Finished:
    """A finished episode as one file for the spool (collector.run.store.pack), and its number of rows."""

    rows: int
    spec_sha256: str
    file: bytes

    @classmethod
    def of(cls, episode: Episode, identity: str) -> Finished:
        """Pack an episode. identity: of the kernel that it ran on."""
        return cls(episode.rows.num_rows, episode.spec_sha256, pack(episode, identity))


Result = Finished | SageccError


def attempt(kernel: Path, task: Task, watchdog_s: float = WATCHDOG_S) -> Result:
    """Run the episode on the kernel at `kernel`; return it, or the error that names it."""
    try:
        controller = task.factory(task.scheme) if task.factory and task.scheme.startswith(POLICY_PREFIX) else None
        episode = run_episode(kernel, task.environment, task.scheme, task.seed, controller, watchdog_s, task.drive)
    except SageccError as error:
        return error
    return Finished.of(episode, task.identity)
