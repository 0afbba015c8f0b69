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
from sagecc.execution.environments.flows import Flows, action_space, checked, counters, last_tick_ns
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
"""What there is unless told: three flows that begin 3 s apart on 48 Mbps, 40 ms, a queue of two BDP; 30 s."""

Step = tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]
"""By agent: observations, rewards, terminations, truncations, infos."""


class CongestionParallelEnv(ParallelEnv[str, Floats, Any]):
    """TCP flows that share a network, an agent each: `flow_0` is the network's flow under test, `flow_1` another.

    Spaces, rewards and infos are those of CongestionEnv for each of them; the reward counts the rate against the flow's
    own bottleneck and all flows that cross it. `agents` are the flows that are up: an agent appears with its first
    observation (its reward is 0 then) and is truncated when its flow stops. While no flow is up the lab runs on, so
    that there are no agents only once the episode is over.

    environment: the network, or several to draw from (networks.networks). flows: which of its flows are agents, all by
    default; the others keep the schemes that the network names. kernel: what `sagecc kernel` built. latency_ms: from an
    observation to when its action takes effect. max_cycles: to end earlier.
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
    ) -> None:
        check_count("max_cycles", max_cycles)
        self._networks = networks(environment)
        self._driven = tuple(dict.fromkeys(range(self._networks[0].flows) if flows is None else flows))
        self._everyone = flows is None
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
        self._lab = Lab(kernel, drive(latency_ms, tuple(sorted(self._driven))))
        self._flows = Flows(max(self._driven) + 1)
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
        """Boot a kernel and run until a flow is up; its seed is `seed`, or drawn.

        options: `environment` for this episode alone; others are ignored, as PettingZoo wants it. infos hold the
        network's id and the episode's seed, too.
        """
        among = networks(options["environment"]) if options and "environment" in options else self._networks
        if self._random is None or seed is not None:
            self._random, _ = np_random(seed)
        environment, seed = draw(among, seed, self._random)
        self._check(environment)
        self.agents = []
        self._lab.start(environment, seed)
        for flow in self._driven:
            self._flows.begin(flow, environment, environment.everyone[flow])
        self._last_ns = {flow: last_tick_ns(environment, environment.everyone[flow]) for flow in self._driven}
        self._cycles = 0
        observations, _, _, _, infos = self._until_somebody_is_up(self._arrive(self._lab.first_tick()))
        for info in infos.values():
            info |= {"environment_id": environment.id, "seed": seed}
        return observations, infos

    def step(self, actions: Mapping[str, npt.ArrayLike]) -> Step:
        """Multiply the window of every agent's flow by 2**action and run to the next tick."""
        if not self.agents or not self._lab.running:
            raise SageccError("no episode runs: call reset() first")
        if set(actions) != set(self.agents):
            odd = min(set(actions) ^ set(self.agents))
            raise SageccError(f"{odd} {'has no action' if odd in self.agents else 'is no agent now'}: give each one's")
        chosen = {agent: checked(action, (1,), f"{agent}'s action")[0] for agent, action in actions.items()}
        self._cycles += 1
        self._act(chosen)
        return self._until_somebody_is_up(self._arrive(self._lab.next_tick()))

    def close(self) -> None:
        """End the episode, if one runs."""
        self.agents = []
        self._lab.close()

    def _act(self, actions: Mapping[str, float]) -> None:
        """Answer the last samples; a flow without an action keeps its window."""
        flows = self._samples["flow"].astype(np.int64)
        values = np.array([actions.get(name(flow), 0.0) for flow in flows.tolist()])
        self._lab.act(*self._flows.windows(self._samples, flows, values))

    def _arrive(self, samples: Samples) -> Step:
        """Take what the driven flows have at a tick; note who is an agent now."""
        flows, now_ns = samples["flow"].astype(np.int64), int(samples["t_ns"][0])
        features, earned = self._flows.observe(samples, flows)
        names = [name(flow) for flow in flows.tolist()]
        cut = self._cycles == self.max_cycles
        rewards = {
            agent: float(reward) if agent in self.agents else 0.0 for agent, reward in zip(names, earned, strict=True)
        }
        over = {agent: cut or now_ns >= self._last_ns[flow] for agent, flow in zip(names, flows.tolist(), strict=True)}
        self.agents, self._samples = [agent for agent in names if not over[agent]], samples
        if cut or now_ns >= max(self._last_ns.values()):
            self._lab.close()
        observations = dict(zip(names, features, strict=True))
        infos = {agent: counters(sample) for agent, sample in zip(names, samples, strict=True)}
        return observations, rewards, dict.fromkeys(names, False), over, infos

    def _until_somebody_is_up(self, found: Step) -> Step:
        """Run on while there is no agent, until a flow begins or the episode is over; add what comes to `found`."""
        while not self.agents and self._lab.running:
            self._act({})
            later = self._lab.tick()
            if later is None:
                self._lab.close()
            else:
                for part, more in zip(found, self._arrive(later), strict=True):
                    part.update(more)
        return found

    def _check(self, environment: Environment) -> None:
        """Raise SageccError where the agents are not the network's flows."""
        if self._everyone and environment.flows != len(self._driven):
            raise SageccError(
                f"environment {environment.id} has {environment.flows} flows where another has {len(self._driven)}: "
                "the agents must be the same; name them with flows"
            )
        most = environment.flows - 1
        if not all(isinstance(flow, int) and 0 <= flow <= most for flow in self._driven):
            raise SageccError(f"environment {environment.id} has flows 0 to {most}, not {list(self._driven)}")


def name(flow: int) -> str:
    """Return the name of a flow's agent."""
    return f"flow_{flow}"
