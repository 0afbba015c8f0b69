# SPDX-License-Identifier: Apache-2.0
"""Several learned flows on one network of the lab, as a parallel environment of PettingZoo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.utils.seeding import np_random
from pettingzoo import ParallelEnv

from sagecc.collector.run.grid import bottleneck
from sagecc.common.arrays import Floats
from sagecc.common.errors import SageccError
from sagecc.execution.environments.flows import Flows, action_space, checked_actions, counters, last_tick_ns
from sagecc.execution.environments.lab import Lab, Samples, check_count, drive
from sagecc.execution.environments.networks import Networks, draw, networks
from sagecc.pool.spaces import observation_space
from sagecc.schemas import wire
from sagecc.schemas.environment import CrossFlow, Environment, Flow, dumbbell

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


class CongestionParallelEnv(ParallelEnv[str, Floats, Any]):
    """TCP flows that share a network, one agent per flow: `flow_0` is the network's flow under test, `flow_1` another.

    Spaces, rewards and infos are those of CongestionEnv for each of them; the reward counts the rate against the flow's
    own bottleneck and all flows that cross it. `agents` are the flows that are up: an agent appears with its first
    observation (its reward is 0 then) and is truncated when its flow stops. While no flow is up the lab runs on, so
    that there are no agents only once the episode is over.

    Every method raises SageccError for bad input, and where the kernel fails.
    """

    metadata: dict[str, Any] = {"name": "sagecc_congestion_v0", "render_modes": []}  # noqa: RUF012 - PettingZoo's

    def __init__(
        self,
        environment: Networks = DEFAULT,
        flows: Sequence[int] | None = None,
        kernel: Path | str | None = None,
        latency_ms: float = 0.0,
        max_cycles: int | None = None,
        window_bound: float | None = None,
    ) -> None:
        """Check that the networks and the kernel can be used; nothing is booted before `reset`.

        Args:
            environment: the network, or several to draw from; see networks.networks.
            flows: numbers of the flows that are agents, by default all; the others keep the schemes that the network
                names.
            kernel: path of the lab's kernel, by default the one that common.shipped finds.
            latency_ms: virtual time from an observation to when its action takes effect.
            max_cycles: truncate episodes after so many steps; None leaves them their networks' duration.
            window_bound: no window is above this times what the path was seen to deliver in an RTT
                (execution.agent.bound); None: no such bound.

        Raises:
            SageccError: an argument is bad, or there is no kernel.
        """
        check_count("max_cycles", max_cycles)
        self._networks = networks(environment)
        self._driven = tuple(dict.fromkeys(range(self._networks[0].flow_count) if flows is None else flows))
        self._all_flows = flows is None
        if not self._driven:
            raise SageccError("flows: there is no agent")
        for network in self._networks:
            self._check(network)
        self.max_cycles = max_cycles
        self.possible_agents = [name(flow) for flow in self._driven]
        self.agents: list[str] = []
        self.observation_spaces: dict[str, spaces.Space[Any]] = {
            agent: observation_space() for agent in self.possible_agents
        }
        self.action_spaces: dict[str, spaces.Space[Any]] = {agent: action_space() for agent in self.possible_agents}
        self._lab = Lab(kernel, drive(latency_ms), sorted(self._driven))
        self._flows = Flows(max(self._driven) + 1, window_bound)
        self._random: np.random.Generator | None = None
        self._samples = np.zeros(0, wire.SAMPLE)
        self._last_ns: dict[int, int] = {}
        self._cycles = 0

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
        candidates = networks(options["environment"]) if options and "environment" in options else self._networks
        if self._random is None or seed is not None:
            self._random, _ = np_random(seed)
        environment, seed = draw(candidates, seed, self._random)
        self._check(environment)
        self.agents = []
        self._lab.start(environment, seed)
        for flow in self._driven:
            self._flows.begin(flow, environment, environment.all_flows[flow])
        self._last_ns = {flow: last_tick_ns(environment, environment.all_flows[flow]) for flow in self._driven}
        self._cycles = 0
        observations, _, _, _, infos = self._run_to_agent(self._observe(self._lab.first_tick()))
        for info in infos.values():
            info |= {"environment_id": environment.id, "seed": seed}
        return observations, infos

    def step(self, actions: Mapping[str, npt.ArrayLike]) -> Step:
        """Multiply the window of every agent's flow by 2**action and run to the next tick.

        Args:
            actions: one number [1] for each of `agents`; beyond the action space it is clipped.

        Returns:
            By agent: observations, rewards, terminations (never), truncations, infos.

        Raises:
            SageccError: bad input, no episode runs, or the kernel fails.
        """
        if not self.agents or not self._lab.running:
            raise SageccError("no episode runs: call reset() first")
        if set(actions) != set(self.agents):
            odd = min(set(actions) ^ set(self.agents))
            problem = "has no action" if odd in self.agents else "is no agent now"
            raise SageccError(f"{odd} {problem}: give an action for each of agents")
        values = {agent: checked_actions(action, (1,), f"{agent}'s action")[0] for agent, action in actions.items()}
        self._cycles += 1
        self._act(values)
        return self._run_to_agent(self._observe(self._lab.next_tick()))

    def close(self) -> None:
        """End the running episode, if any."""
        self.agents = []
        self._lab.close()

    def _act(self, actions: Mapping[str, float]) -> None:
        """Set the windows of the flows last sampled; a flow without an action keeps its window."""
        flows = self._samples["flow"].astype(np.int64)
        values = np.array([actions.get(name(flow), 0.0) for flow in flows.tolist()])
        self._lab.act(*self._flows.windows(self._samples, flows, values))

    def _observe(self, samples: Samples) -> Step:
        """Take the driven flows' samples of a tick; update `agents`."""
        flows, now_ns = samples["flow"].astype(np.int64), int(samples["t_ns"][0])
        features, values = self._flows.observe(samples, flows)
        names = [name(flow) for flow in flows.tolist()]
        at_limit = self._cycles == self.max_cycles
        rewards = {
            agent: float(reward) if agent in self.agents else 0.0 for agent, reward in zip(names, values, strict=True)
        }
        over = {
            agent: at_limit or now_ns >= self._last_ns[flow] for agent, flow in zip(names, flows.tolist(), strict=True)
        }
        self.agents, self._samples = [agent for agent in names if not over[agent]], samples
        if at_limit or now_ns >= max(self._last_ns.values()):
            self._lab.close()
        observations = dict(zip(names, features, strict=True))
        infos = {agent: counters(sample) for agent, sample in zip(names, samples, strict=True)}
        return observations, rewards, dict.fromkeys(names, False), over, infos

    def _run_to_agent(self, step: Step) -> Step:
        """Run on while there is no agent, until a flow begins or the episode is over; merge the ticks into `step`."""
        while not self.agents and self._lab.running:
            self._act({})
            samples = self._lab.tick()
            if samples is None:
                self._lab.close()
            else:
                for merged, latest in zip(step, self._observe(samples), strict=True):
                    merged.update(latest)
        return step

    def _check(self, environment: Environment) -> None:
        """Raise SageccError where the agents are not the network's flows."""
        if self._all_flows and environment.flow_count != len(self._driven):
            raise SageccError(
                f"environment {environment.id} has {environment.flow_count} flows where another has "
                f"{len(self._driven)}: the agents must be the same; name them with flows"
            )
        last = environment.flow_count - 1
        if not all(isinstance(flow, int) and 0 <= flow <= last for flow in self._driven):
            raise SageccError(f"environment {environment.id} has flows 0 to {last}, not {list(self._driven)}")


def name(flow: int) -> str:
    """Return the name of a flow's agent."""
    return f"flow_{flow}"
