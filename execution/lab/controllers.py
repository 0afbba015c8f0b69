# SPDX-License-Identifier: Apache-2.0
"""Who decides in the lab: every flow of an episode whose scheme is a policy, or one in user space."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from sagecc.collector.lab.episode import Episode, run_episode
from sagecc.collector.lab.spec import Drive, driven_flows
from sagecc.common.arrays import Ints
from sagecc.execution.agent.exploration import Exploration
from sagecc.execution.agent.policy_agent import PolicyAgent
from sagecc.execution.lab.giving_up import GiveUp
from sagecc.execution.schemes.agent import SchemeAgent
from sagecc.execution.schemes.registry import driver_sha256, scheme_class
from sagecc.schemas.environment import Environment, episode_id
from sagecc.schemas.schemes import POLICY_PREFIX, is_driven


class Agent(Protocol):
    """Drives flows of one scheme, one slot per flow: a PolicyAgent or a SchemeAgent."""

    @property
    def underlying_scheme(self) -> str:
        """The kernel scheme whose window it sets."""

    def step(self, samples: npt.NDArray[np.void], slots: Ints) -> tuple[Ints, Ints]:
        """Return windows (packets) and pacing rates (bytes/s) [B] for samples [B] of the flows in `slots` [B]."""

    def reset(self, slot: int = 0, stream: int | None = None) -> None:
        """Forget a flow; the next one draws its random numbers from that stream."""


@dataclass(frozen=True)
class Playing:
    """How driven flows play in the lab; by default a policy takes its mixture's mean and lies where its name says."""

    exploration: Exploration | None = None
    """How they draw their actions; None takes their mixtures' means."""

    folders: Mapping[str, str] = field(default_factory=dict)
    """By scheme, the policy's folder, where that is not the path in the scheme's name."""

    give_up: GiveUp | None = None
    """When an episode is given up; its result is a GivenUpError then. None plays all to their end."""

    keep: bool = False
    """Keep what was played of an episode that is given up, as an episode that ends there, in place of the error."""

    def agent(self, scheme: str, slots: int = 1) -> Agent:
        """Return the agent of a driven scheme.

        Args:
            scheme: the scheme.
            slots: how many flows it can drive at once.

        Raises:
            SageccError: there is no such policy or scheme, or none that can be run.
        """
        if not scheme.startswith(POLICY_PREFIX):
            return SchemeAgent(scheme, scheme_class(scheme), slots)
        return PolicyAgent.load(self._folder(scheme), slots, self.exploration)

    def drive(self, scheme: str, agent: Agent, latency_us: int = 0) -> Drive:
        """Return how a driven scheme's flows are driven.

        Args:
            scheme: the scheme.
            agent: its agent.
            latency_us: from a sample to when its action takes effect.
        """
        policy = scheme.startswith(POLICY_PREFIX)
        sha256 = driver_sha256(f"{POLICY_PREFIX}{self._folder(scheme)}" if policy else scheme)
        return Drive(agent.underlying_scheme, latency_us, sha256)

    def _folder(self, scheme: str) -> str:
        return self.folders.get(scheme, scheme.removeprefix(POLICY_PREFIX))


AS_NAMED = Playing()


class PolicyController:
    """In charge of all driven flows of an episode; flows of one policy share an inference.

    Each flow has its own observations, hidden state, period and random numbers, whatever flies beside it.
    """

    def __init__(self, scheme_of: Mapping[int, str], episode: str = "", playing: Playing = AS_NAMED) -> None:
        """Read the policies.

        Args:
            scheme_of: the scheme of each driven flow, by its number (collector.lab.spec.driven_flows).
            episode: its id, which names its seed: where policies explore, they draw the same in every run of it.
            playing: how they play.

        Raises:
            SageccError: there is no such policy or scheme, or none that can be run.
        """
        self.scheme_of, self._episode, self._playing = scheme_of, episode, playing
        self._slot_of: dict[int, int] = {}
        self._agents: dict[str, Agent] = {}
        for name in dict.fromkeys(scheme_of.values()):
            flows = [flow for flow, other in scheme_of.items() if other == name]
            self._agents[name] = playing.agent(name, len(flows))
            self._slot_of |= {flow: slot for slot, flow in enumerate(flows)}
        self.reset()

    def drives(self, latency_us: int = 0) -> dict[str, Drive]:
        """Return by scheme how its flows are driven.

        Args:
            latency_us: from a sample to when its action takes effect.
        """
        return {name: self._playing.drive(name, agent, latency_us) for name, agent in self._agents.items()}

    def reset(self) -> None:
        """Forget what was seen of the flows, before another episode of the same ones."""
        for flow, name in self.scheme_of.items():
            self._agents[name].reset(self._slot_of[flow], random_stream(self._episode, flow))

    def __call__(self, samples: npt.NDArray[np.void]) -> tuple[Sequence[int], Sequence[int]]:
        """Return the windows (packets) and pacing rates (bytes/s) for the driven flows' samples of a tick."""
        flows = [int(flow) for flow in samples["flow"]]
        windows, rates = np.zeros((2, len(flows)), np.int64)
        by_scheme = sorted(range(len(flows)), key=lambda row: self.scheme_of[flows[row]])
        for name, group in groupby(by_scheme, key=lambda row: self.scheme_of[flows[row]]):
            rows = list(group)
            slots = np.array([self._slot_of[flows[row]] for row in rows])
            windows[rows], rates[rows] = self._agents[name].step(samples[rows], slots)
        return windows.tolist(), rates.tolist()


def policy_controller(environment: Environment, scheme: str, seed: int) -> PolicyController:
    """Return the controller of an episode's driven flows; policies take their mixtures' means (a ControllerFactory)."""
    return PolicyController(driven_flows(environment, scheme), episode_id(environment.id, scheme, seed))


def play_episode(
    kernel: Path,
    environment: Environment,
    scheme: str,
    seed: int = 0,
    *,
    latency_us: int = 0,
    sample: bool = False,
    every_flow: bool = False,
) -> Episode:
    """Run one episode in the lab, whatever drives its flows: schemes of the kernel or in user space, or policies.

    Args:
        kernel: path of the lab's kernel.
        environment: the network and its flows.
        scheme: the scheme under test.
        seed: seed of the episode's random numbers.
        latency_us: from a driven flow's sample to when its action takes effect.
        sample: draw actions from the policies' mixtures, instead of taking the means.
        every_flow: whether the episode has the rows of every flow.

    Raises:
        SageccError: a policy or scheme cannot be run, or the episode yields no complete trajectory.
    """
    playing = Playing(Exploration() if sample else None)
    controller = PolicyController(driven_flows(environment, scheme), episode_id(environment.id, scheme, seed), playing)
    drives = controller.drives(latency_us)
    return run_episode(kernel, environment, scheme, seed, controller, drives=drives, every_flow=every_flow)


def policy_drives(schemes: Iterable[str], latency_us: int = 0, playing: Playing = AS_NAMED) -> dict[str, Drive]:
    """Return how the flows of each driven one among `schemes` are driven; policies and files of schemes are read.

    Args:
        schemes: any schemes.
        latency_us: from a sample to when its action takes effect.
        playing: how they play.

    Raises:
        SageccError: there is no such policy, or none that can be run.
    """
    names = [name for name in dict.fromkeys(schemes) if is_driven(name)]
    return {name: playing.drive(name, playing.agent(name), latency_us) for name in names}


def random_stream(episode: str, flow: int = 0) -> int:
    """Return the number of the random stream that a flow's actions are drawn from in an episode."""
    text = f"{episode}.{flow}" if flow else episode
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
