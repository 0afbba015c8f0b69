# SPDX-License-Identifier: Apache-2.0
"""A task, one episode to run on this machine or on another, and its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from sagecc.collector.lab.boot import WATCHDOG_S, Controller
from sagecc.collector.lab.episode import Episode, run_episode
from sagecc.collector.lab.spec import Drive, EpisodeSpec, driven_flows, episode_spec, flow_drives
from sagecc.collector.run.store import pack
from sagecc.common.errors import SageccError
from sagecc.schemas.environment import Environment, episode_id

ControllerFactory = Callable[[Environment, str, int], Controller]
"""From environment, scheme under test and seed to the controller of the flows that the host drives there; pickled: a
module's function."""


@dataclass(frozen=True)
class Task:
    """One episode to run."""

    environment: Environment
    """The network and its flows."""

    scheme: str
    """The scheme under test."""

    seed: int
    """Seed of the episode's random numbers."""

    identity: str
    """Identity of the kernel that is to run it (collector.kernel.identity)."""

    factory: ControllerFactory | None = None
    """Makes the controller of the flows that the host drives."""

    drives: Mapping[str, Drive] = field(default_factory=dict)
    """By scheme, how the controller drives its flows, where that differs from the default."""

    player: str = ""
    """What decides the rows of a driven scheme beside networks and kernel, where its partition is to say so."""

    @property
    def id(self) -> str:
        """Identifier of the episode: environment, scheme and seed."""
        return episode_id(self.environment.id, self.scheme, self.seed)

    @cached_property
    def spec_sha256(self) -> str:
        """SHA-256 of the specification with which the guest is started, in hex."""
        return self.spec.sha256

    @property
    def spec(self) -> EpisodeSpec:
        """The specification with which the guest is started."""
        drives = flow_drives(self.environment, self.scheme, self.drives)
        return episode_spec(self.environment, self.scheme, self.seed, drives=drives)

    @property
    def cost(self) -> float:
        """Estimated CPU time (s): a share for packets, and a constant."""
        link = self.environment.bottleneck
        mean_mbps = sum(step.rate_mbps for step in link.rates) / len(link.rates) if link.rates else link.base_mbps
        return 0.1 + self.environment.duration_s * (2 + mean_mbps) / 4000


@dataclass(frozen=True)
class FinishedEpisode:
    """A finished episode, packed for the spool."""

    rows: int
    """Rows of its raw trajectory."""

    spec_sha256: str
    """SHA-256 of the specification of the run, in hex."""

    file: bytes
    """Content of its file in the spool (collector.run.store.pack)."""

    @classmethod
    def pack(cls, episode: Episode, task: Task) -> FinishedEpisode:
        """Pack the episode of a task."""
        return cls(episode.rows.num_rows, episode.spec_sha256, pack(episode, task.identity, task.player))


Result = FinishedEpisode | SageccError
"""A finished episode, or the error that names the episode and says why it failed."""


def attempt(kernel: Path, task: Task, watchdog_s: float = WATCHDOG_S) -> Result:
    """Run a task's episode.

    Args:
        kernel: path of the kernel.
        task: the episode.
        watchdog_s: silence after which the guest counts as hung (s).

    Returns:
        The finished episode, or the error.
    """
    try:
        flows = driven_flows(task.environment, task.scheme)
        controller = task.factory(task.environment, task.scheme, task.seed) if task.factory and flows else None
        episode = run_episode(
            kernel,
            task.environment,
            task.scheme,
            task.seed,
            controller,
            watchdog_s=watchdog_s,
            drives=task.drives,
        )
    except SageccError as error:
        return error
    return FinishedEpisode.pack(episode, task)
