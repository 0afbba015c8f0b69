# SPDX-License-Identifier: Apache-2.0
"""Several learned flows on one network of the lab, as a parallel environment of PettingZoo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.utils import EzPickle
from pettingzoo import ParallelEnv

from sagecc.collector.run.grid import bottleneck
from sagecc.common.arrays import Floats
from sagecc.common.errors import SageccError
from sagecc.execution.environments import rollouts
from sagecc.execution.environments.congestion import DEFAULT_TASK, step_info
from sagecc.execution.environments.flows import action_space, checked_actions, observation_space
from sagecc.execution.environments.lab import check_count
from sagecc.execution.environments.networks import Candidates, Networks, candidates, room
from sagecc.execution.environments.rollouts import Rollouts
from sagecc.execution.environments.task import LearningTask
from sagecc.schemas.environment import CrossFlow, Flow, dumbbell
from sagecc.schemas.network_distribution import NetworkDistribution

LATE_S = (3.0, 6.0)
DURATION_S = 30.0

DEFAULT = dumbbell(
    "custom",
    bottleneck(48, 1, 40, 2, DURATION_S),
    return_delay_ms=20,
    duration_s=DURATION_S,
    windows_s=((LATE_S[-1], DURATION_S),),
    reward="friendliness",
    cross=(CrossFlow("pure", Flow(start_s=start_s)) for start_s in LATE_S),
)
"""The default network: three flows that begin 3 s apart on 48 Mbps, 40 ms, a queue of two BDP; 30 s."""

Step = tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]
"""By agent: observations, rewards, terminations, truncations, infos."""


class CongestionParallelEnv(ParallelEnv[str, Floats, Any], EzPickle):
    """TCP flows that share a network, one agent per flow: `flow_0` is the network's flow under test, `flow_1` another.

    Spaces, rewards and infos are those of CongestionEnv for each of them; the pool's rewards count the rate against the
    flow's own bottleneck and all flows that cross it. `agents` are the flows that decide now, by default all that are
    up: an agent appears with its first observation (its reward is 0 then) and is truncated when its flow stops. While
    no flow decides the lab runs on, so that there are no agents only once the episode is over.

    With `constant_agents`, `agents` are all flows from the first step to the last, at which all are truncated. Who does
    not decide now is idle: its action is ignored, it earns 0, and it observes what it observed last; before its flow is
    up and after that zeros, or the bound next to 0. `idle` in each info tells who is.

    A copy, as by pickle, is a new environment with the same arguments. Every method raises SageccError for bad input,
    and where the kernel fails.
    """

    metadata: dict[str, Any] = {"name": "sagecc_congestion_v0", "render_modes": []}  # noqa: RUF012 - PettingZoo's
    render_mode: str | None = None

    def __init__(
        self,
        environment: Networks = DEFAULT,
        flows: Sequence[int] | None = None,
        kernel: Path | str | None = None,
        latency_ms: float = 0.0,
        max_cycles: int | None = None,
        task: LearningTask = DEFAULT_TASK,
        constant_agents: bool = False,
    ) -> None:
        """Check that the networks and the kernel can be used; nothing is booted before `reset`.

        Args:
            environment: the network, or several to draw from; see networks.candidates.
            flows: numbers of the flows that are agents, by default all; the others keep the schemes that the network
                names.
            kernel: path of the lab's kernel, by default the checkout's or the installation's.
            latency_ms: virtual time from an observation to when its action takes effect.
            max_cycles: truncate episodes after so many steps; None leaves them their networks' duration.
            task: what flows observe, do and earn; its networks, where it names any, in place of `environment`.
            constant_agents: whether all flows are agents all the time, as SuperSuit wants it.

        Raises:
            SageccError: an argument is bad, or there is no kernel.
        """
        EzPickle.__init__(self, environment, flows, kernel, latency_ms, max_cycles, task, constant_agents)
        check_count("max_cycles", max_cycles)
        choice = candidates(environment if task.networks is None else task.networks)
        self._driven = tuple(dict.fromkeys(range(room(choice, None)) if flows is None else flows))
        self._all_flows = flows is None
        if not self._driven:
            raise SageccError("flows: there is no agent")
        self._check(choice)
        self.max_cycles = max_cycles
        self.possible_agents = [name(flow) for flow in self._driven]
        self.agents: list[str] = []
        self.observation_spaces: dict[str, spaces.Space[Any]] = {
            agent: observation_space(task) for agent in self.possible_agents
        }
        self.action_spaces: dict[str, spaces.Space[Any]] = {agent: action_space(task) for agent in self.possible_agents}
        self._rollouts = Rollouts(task, environment, 1, flows, kernel, latency_ms)
        self._constant_agents = constant_agents
        self._deciding: list[str] = []
        self._nothing = _nearest_to_zero(observation_space(task))
        self._latest: dict[str, Floats] = {}  # of constant agents
        self._cycles = 0
        self._state = np.zeros(0, np.float32)

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """Return the agent's space of observations, the same object every time."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """Return the agent's space of actions, the same object every time."""
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Floats], dict[str, dict[str, Any]]]:
        """Boot a kernel and run until a flow is up.

        Args:
            seed: the episode's seed, by default drawn.
            options: `environment` for this episode alone; other options are ignored, as PettingZoo wants it.

        Returns:
            By agent: the first observations, and infos with the network's id and the episode's seed beside the
            counters.

        Raises:
            SageccError: bad input, or the kernel fails.
        """
        choice = candidates(options["environment"]) if options and "environment" in options else ()
        self._check(choice)
        self._cycles = 0
        self._latest = dict.fromkeys(self.possible_agents, self._nothing)
        observations, _, _, _, infos = self._run_to_agent(self._rollouts.reset([seed], environment=choice))
        environment, seed = self._rollouts.episodes[0]
        for info in infos.values():
            info |= {"environment_id": environment.id, "seed": seed}
        return observations, infos

    def step(self, actions: Mapping[str, npt.ArrayLike]) -> Step:
        """Give every agent's flow its action and run to the next decision of a flow.

        Args:
            actions: one number [1] for each of `agents`; beyond the action space it is clipped.

        Returns:
            By agent: observations, rewards, terminations (never), truncations, infos.

        Raises:
            SageccError: bad input, no episode runs, or the kernel fails.
        """
        if not self.agents or not self._rollouts.running[0]:
            raise SageccError("no episode runs: call reset() first")
        if set(actions) != set(self.agents):
            stranger = min(set(actions) ^ set(self.agents))
            problem = "has no action" if stranger in self.agents else "is no agent now"
            raise SageccError(f"{stranger} {problem}: give an action for each of agents")
        values = [checked_actions(actions[agent], (1,), f"{agent}'s action")[0] for agent in self._deciding]
        self._cycles += 1
        return self._run_to_agent(self._rollouts.step(values))

    def state(self) -> Floats:
        """Return the network's global state at the last step [12], or of no elements where the task has none."""
        return self._state

    def render(self) -> None:
        """Show nothing: there is no render mode."""

    def close(self) -> None:
        """End the running episode, if any."""
        self.agents, self._deciding = [], []
        self._rollouts.close()

    def _run_to_agent(self, first: rollouts.Step) -> Step:
        """Return a step's rows by agent; while there is none that decides, run on and merge what follows."""
        step = self._by_agent(first)
        while not self._deciding and self._rollouts.running[0]:
            for merged, latest in zip(step, self._by_agent(self._rollouts.step(np.zeros(0))), strict=True):
                merged.update(latest)
        if self._constant_agents:
            return self._of_all(step)
        self.agents = list(self._deciding)
        return step

    def _of_all(self, step: Step) -> Step:
        """Return a step of those who decide with what the others have; update `agents`."""
        observations, rewards, _, over, infos = step
        ended = not self._rollouts.running[0]
        latest = {agent: observations.get(agent, self._latest[agent]).copy() for agent in self.possible_agents}
        self._latest |= {agent: self._nothing if over[agent] else latest[agent] for agent in over}
        self.agents = [] if ended else list(self.possible_agents)
        return (
            latest,
            {agent: rewards.get(agent, 0.0) for agent in latest},
            dict.fromkeys(latest, False),
            dict.fromkeys(latest, ended),
            {agent: {**infos.get(agent, {}), "idle": agent not in self._deciding} for agent in latest},
        )

    def _by_agent(self, step: rollouts.Step) -> Step:
        """Return a step's rows by agent; find out who decides."""
        at_limit = self._cycles == self.max_cycles
        names = [name(flow) for flow in step.flows.tolist()]
        over = {agent: at_limit or ended for agent, ended in zip(names, step.over.tolist(), strict=True)}
        self._deciding = [agent for agent in names if not over[agent]]
        self._state = step.states[-1] if len(names) else self._state
        if at_limit:
            self._rollouts.close()
        observations = dict(zip(names, step.observations, strict=True))
        rewards = dict(zip(names, step.rewards.tolist(), strict=True))
        infos = {agent: step_info(step, row) for row, agent in enumerate(names)}
        return observations, rewards, dict.fromkeys(names, False), over, infos

    def _check(self, choice: Candidates) -> None:
        """Raise SageccError where the agents are not the flows of the networks to draw from."""
        if isinstance(choice, NetworkDistribution):
            return
        for environment in (item for item in choice if not isinstance(item, NetworkDistribution)):
            if self._all_flows and environment.flow_count != len(self._driven):
                raise SageccError(
                    f"environment {environment.id} has {environment.flow_count} flows where another has "
                    f"{len(self._driven)}: the agents must be the same; name them with flows"
                )
            last = environment.flow_count - 1
            if not all(isinstance(flow, int) and 0 <= flow <= last for flow in self._driven):
                raise SageccError(f"environment {environment.id} has flows 0 to {last}, not {list(self._driven)}")


def _nearest_to_zero(space: spaces.Space[Any]) -> Floats:
    zeros = np.zeros(space.shape or (), np.float32)
    return np.clip(zeros, space.low, space.high) if isinstance(space, spaces.Box) else zeros


def name(flow: int) -> str:
    """Return the name of a flow's agent."""
    return f"flow_{flow}"
