# SPDX-License-Identifier: Apache-2.0
"""`sagecc/Congestion-v0`: one flow on one network of the lab, whose window the agent sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy.typing as npt

from sagecc.common.arrays import Floats
from sagecc.common.errors import SageccError
from sagecc.execution.environments.flows import action_space, checked_actions, counters, observation_space
from sagecc.execution.environments.lab import check_count
from sagecc.execution.environments.networks import DEFAULT, Networks, requested_networks
from sagecc.execution.environments.rollouts import Rollouts, Step
from sagecc.execution.environments.task import LearningTask

DEFAULT_TASK = LearningTask()


class CongestionEnv(gymnasium.Env[Floats, Any]):
    """A TCP flow of a real kernel in virtual time; a step is the time from one decision to the next.

    By default, which a task (execution.environments.task) replaces:

    - a step is a tick of 10 ms;
    - observation [69]: the pool's features;
    - action [1]: log2 of what the window is multiplied by;
    - reward: the pool's, of the kind that the network names, measured one tick after the action.

    With any task, info has the kernel's raw counters (schemas.raw), and `global_state` where the task has that.

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
        task: LearningTask = DEFAULT_TASK,
    ) -> None:
        """Check that the networks and the kernel can be used; nothing is booted before `reset`.

        Args:
            environment: the network, or several to draw from; see networks.candidates.
            kernel: path of the lab's kernel, by default the checkout's or the installation's.
            latency_ms: virtual time from an observation to when its action takes effect.
            max_episode_steps: truncate episodes after so many steps; None leaves them their networks' duration.
            task: what the flow observes, does and earns; its networks, where it names any, in place of `environment`.

        Raises:
            SageccError: an argument is bad, or there is no kernel.
        """
        check_count("max_episode_steps", max_episode_steps)
        self.observation_space, self.action_space = observation_space(task), action_space(task)
        self._rollouts = Rollouts(task, environment, 1, (0,), kernel, latency_ms, max_episode_steps)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Floats, dict[str, Any]]:
        """Boot a kernel and run until the flow decides.

        Args:
            seed: the episode's seed, by default drawn.
            options: `environment` for this episode alone.

        Returns:
            The first observation, and info with the network's id and the episode's seed beside the counters.

        Raises:
            SageccError: bad input, or the kernel fails.
        """
        super().reset(seed=seed)
        step = self._rollouts.reset([seed], environment=requested_networks(options))
        environment, seed = self._rollouts.episodes[0]
        return step.observations[0], {"environment_id": environment.id, "seed": seed, **step_info(step, 0)}

    def step(self, action: npt.ArrayLike) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Do as the task's map says and run to the next decision; by default, multiply the window by 2**action.

        Args:
            action: one number [1]; beyond the action space it is clipped.

        Returns:
            Observation, reward, terminated (never), truncated, info.

        Raises:
            SageccError: bad input, no episode runs, or the kernel fails.
        """
        actions = checked_actions(action, (1,))
        if not self._rollouts.running[0]:
            raise SageccError("no episode runs: call reset() first")
        step = self._rollouts.step(actions)
        return step.observations[0], float(step.rewards[0]), False, bool(step.over[0]), step_info(step, 0)

    def close(self) -> None:
        """End the running episode, if any."""
        self._rollouts.close()


def step_info(step: Step, row: int) -> dict[str, Any]:
    """Return what is known of a step's row beside its observation: the raw counters, and the global state if any."""
    states = {"global_state": step.states[row]} if step.states.shape[1] else {}
    return {**counters(step.samples[row]), **states}
