# SPDX-License-Identifier: Apache-2.0
"""`sagecc/Congestion-v0`: one flow on one network of the lab, whose window the agent sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Floats
from sagecc.execution.environments.flows import Flows, action_space, checked_actions, counters, last_tick_ns
from sagecc.execution.environments.lab import Lab, check_count, drive
from sagecc.execution.environments.networks import DEFAULT, Networks, draw, networks, requested_networks
from sagecc.pool.spaces import observation_space
from sagecc.schemas import wire


class CongestionEnv(gymnasium.Env[Floats, Any]):
    """A TCP flow of a real kernel in virtual time; a step is a tick of 10 ms.

    - observation [69]: the pool's features;
    - action [1]: log2 of what the window is multiplied by;
    - reward: the pool's, of the kind that the network names, measured one tick after the action;
    - info: the kernel's raw counters (schemas.raw).

    An episode ends by its clock, which is no state of the flow: it is truncated, and never terminated.
    Every method raises SageccError for bad input, and where the kernel fails.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium's, and not marked ClassVar there

    def __init__(
        self,
        environment: Networks = DEFAULT,
        kernel: Path | str | None = None,
        latency_ms: float = 0.0,
        max_episode_steps: int | None = None,
        window_bound: float | None = None,
    ) -> None:
        """Check that the networks and the kernel can be used; nothing is booted before `reset`.

        Args:
            environment: the network, or several to draw from; see networks.networks.
            kernel: path of the lab's kernel, by default the one that common.shipped finds.
            latency_ms: virtual time from an observation to when its action takes effect.
            max_episode_steps: truncate episodes after so many steps; None leaves them their networks' duration.
            window_bound: no window is above this times what the path was seen to deliver in an RTT
                (execution.agent.bound); None: no such bound.

        Raises:
            SageccError: an argument is bad, or there is no kernel.
        """
        check_count("max_episode_steps", max_episode_steps)
        self.observation_space, self.action_space = observation_space(), action_space()
        self._networks, self._max_steps = networks(environment), max_episode_steps
        self._lab = Lab(kernel, drive(latency_ms))
        self._flows, self._slots = Flows(1, window_bound), np.zeros(1, np.int64)
        self._samples = np.zeros(1, wire.SAMPLE)
        self._last_ns = self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Floats, dict[str, Any]]:
        """Boot a kernel and run until the flow is up.

        Args:
            seed: the episode's seed, by default drawn.
            options: `environment` for this episode alone.

        Returns:
            The first observation, and info with the network's id and the episode's seed beside the counters.

        Raises:
            SageccError: bad input, or the kernel fails.
        """
        super().reset(seed=seed)
        environment, seed = draw(requested_networks(options) or self._networks, seed, self.np_random)
        self._lab.start(environment, seed)
        self._flows.begin(0, environment, environment.flow)
        self._last_ns, self._steps = last_tick_ns(environment, environment.flow), 0
        self._samples = self._lab.first_tick()
        features, _ = self._flows.observe(self._samples, self._slots)
        return features[0], {"environment_id": environment.id, "seed": seed, **counters(self._samples[0])}

    def step(self, action: npt.ArrayLike) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Multiply the window by 2**action and run to the next tick.

        Args:
            action: one number [1]; beyond the action space it is clipped.

        Returns:
            Observation, reward, terminated (never), truncated, info.

        Raises:
            SageccError: bad input, no episode runs, or the kernel fails.
        """
        actions = checked_actions(action, (1,))
        self._lab.act(*self._flows.windows(self._samples, self._slots, actions))
        samples = self._samples = self._lab.next_tick()
        self._steps += 1
        features, rewards = self._flows.observe(samples, self._slots)
        over = int(samples["t_ns"][0]) >= self._last_ns or self._steps == self._max_steps
        if over:
            self._lab.close()
        return features[0], float(rewards[0]), False, over, counters(samples[0])

    def close(self) -> None:
        """End the running episode, if any."""
        self._lab.close()
