# SPDX-License-Identifier: Apache-2.0
"""`sagecc/Congestion-v0` several times over: as many kernels, one process that serves them together (rollouts)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from sagecc.common.arrays import Bools, Doubles, Floats
from sagecc.common.errors import SageccError
from sagecc.execution.environments.congestion import DEFAULT_TASK
from sagecc.execution.environments.flows import COUNTER_NAMES, action_space, checked_actions, observation_space
from sagecc.execution.environments.lab import check_count
from sagecc.execution.environments.networks import DEFAULT, Networks, requested_networks
from sagecc.execution.environments.rollouts import Rollouts, Step
from sagecc.execution.environments.task import LearningTask
from sagecc.schemas import wire


class CongestionVectorEnv(VectorEnv[Floats, Any, npt.NDArray[Any]]):
    """`num_envs` episodes of CongestionEnv side by side: what SyncVectorEnv of them gives, faster.

    An episode that is over is followed, at the next step, by another (AutoresetMode.NEXT_STEP): its action in that
    step is ignored and its reward is 0. Errors are those of CongestionEnv.
    """

    metadata: dict[str, Any] = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 - as there

    def __init__(
        self,
        num_envs: int = 1,
        environment: Networks = DEFAULT,
        kernel: Path | str | None = None,
        latency_ms: float = 0.0,
        max_episode_steps: int | None = None,
        task: LearningTask = DEFAULT_TASK,
    ) -> None:
        """Check that the networks and the kernel can be used; nothing is booted before `reset`.

        Args:
            num_envs: number of episodes side by side.
            environment: as CongestionEnv's, and so are the others.
            kernel: path of the lab's kernel.
            latency_ms: virtual time from an observation to when its action takes effect.
            max_episode_steps: truncate episodes after so many steps.
            task: what the flows observe, do and earn.

        Raises:
            SageccError: an argument is bad, or there is no kernel.
        """
        check_count("num_envs", num_envs)
        check_count("max_episode_steps", max_episode_steps)
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = observation_space(task), action_space(task)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._rollouts = Rollouts(task, environment, num_envs, (0,), kernel, latency_ms, max_episode_steps)
        self._samples = np.zeros(num_envs, wire.SAMPLE)
        self._states = np.zeros((num_envs, len(task.states) if task.global_state else 0), np.float32)
        self._observations = np.zeros((num_envs, *(self.single_observation_space.shape or ())), np.float32)
        self._over = np.zeros(num_envs, bool)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Floats, dict[str, Any]]:
        """Begin an episode everywhere, or where a mask says so.

        Args:
            seed: the first environment's, the next one has seed + 1 and so on; or one for each.
            options: `environment` as CongestionEnv's, `reset_mask` [num_envs]: where to begin an episode.

        Returns:
            The observations [num_envs, F] and infos of all.

        Raises:
            SageccError: bad input, or a kernel fails; all episodes are ended then.
        """
        seeds = self._seeds(seed)
        rest = dict(options or {})
        mask = self._mask(rest.pop("reset_mask", np.ones(self.num_envs, bool)))
        slots = np.flatnonzero(mask).tolist()
        self._over[slots] = False
        self._take(self._rollouts.reset([seeds[slot] for slot in slots], slots, requested_networks(rest)))
        return self._observations.copy(), self._infos(mask) | self._episodes(mask)

    def step(self, actions: npt.ArrayLike) -> tuple[Floats, Doubles, Bools, Bools, dict[str, Any]]:
        """Give every flow its action and run to its next decision; begin a new episode where one was over.

        Args:
            actions: one number per environment [num_envs, 1]; beyond the action space it is clipped.

        Returns:
            Observations [num_envs, F], rewards, terminations (never), truncations [num_envs], infos.

        Raises:
            SageccError: bad input, no episode runs, or a kernel fails; all episodes are ended then.
        """
        values = checked_actions(actions, (self.num_envs, 1), "actions")[:, 0]
        restarting = self._over.copy()
        if not (self._rollouts.running | restarting).all():
            raise SageccError("no episode runs: call reset() first")
        step = self._rollouts.step(values[~restarting])
        self._take(step)
        self._over = step.over.copy()
        infos = self._infos(np.ones(self.num_envs, bool)) | (self._episodes(restarting) if restarting.any() else {})
        return self._observations.copy(), step.rewards, np.zeros(self.num_envs, bool), step.over, infos

    def close_extras(self, **_: Any) -> None:
        """End all episodes."""
        self._over[:] = False
        self._rollouts.close()

    def _take(self, step: Step) -> None:
        """Keep what a step, of one row per lab, shows."""
        self._samples[step.labs] = step.samples
        self._observations[step.labs], self._states[step.labs] = step.observations, step.states

    def _episodes(self, mask: Bools) -> dict[str, npt.NDArray[Any]]:
        """Return the network and the seed of the episodes that begin where the mask says so, as infos."""
        ids, seeds = np.full(self.num_envs, None, object), np.zeros(self.num_envs, np.int64)
        for slot in np.flatnonzero(mask).tolist():
            environment, seeds[slot] = self._rollouts.episodes[slot]
            ids[slot] = environment.id
        return {"environment_id": ids, "_environment_id": mask.copy(), "seed": seeds, "_seed": mask.copy()}

    def _seeds(self, seed: int | Sequence[int | None] | None) -> Sequence[int | None]:
        if seed is None:
            return [None] * self.num_envs
        seeds = [int(seed) + slot for slot in range(self.num_envs)] if isinstance(seed, int | np.integer) else seed
        if len(seeds) != self.num_envs:
            raise SageccError(f"{len(seeds)} seeds for {self.num_envs} environments")
        return seeds

    def _mask(self, mask: Any) -> Bools:
        if not isinstance(mask, np.ndarray) or mask.dtype != bool or mask.shape != (self.num_envs,) or not mask.any():
            raise SageccError(f"reset_mask must be {self.num_envs} booleans in an array, not all of them False")
        return mask

    def _infos(self, mask: Bools) -> dict[str, Any]:
        """Return the raw counters of all, and which of them are new (`_name`), Gymnasium's form for vectors."""
        samples, known = self._samples.copy(), mask.copy()
        infos: dict[str, Any] = {"t_s": samples["t_ns"] / 1e9, "_t_s": known}
        for name in COUNTER_NAMES:
            infos[name], infos[f"_{name}"] = samples[name], known
        if self._states.shape[1]:
            infos |= {"global_state": self._states.copy(), "_global_state": known}
        return infos
