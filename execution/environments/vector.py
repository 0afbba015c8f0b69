# SPDX-License-Identifier: Apache-2.0
"""`sagecc/Congestion-v0` several times over: as many kernels, one process that serves them together.

Each step gives every kernel its action and only then reads their samples, so that they run side by side on as many
cores as there are; features and rewards are derived for all of them at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.utils.seeding import np_random
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from sagecc.common.arrays import Doubles, Floats, Ints
from sagecc.common.errors import SageccError
from sagecc.execution.environments.flows import COUNTER_NAMES, Flows, action_space, checked_actions, last_tick_ns
from sagecc.execution.environments.lab import Lab, check_count, drive
from sagecc.execution.environments.networks import DEFAULT, Networks, draw, networks, requested_networks
from sagecc.pool.spaces import observation_space
from sagecc.schemas import wire
from sagecc.schemas.environment import Environment

Bools = npt.NDArray[np.bool_]


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
        window_bound: float | None = None,
    ) -> None:
        """Check that the networks and the kernel can be used; nothing is booted before `reset`.

        Args:
            num_envs: number of episodes side by side.
            environment: as CongestionEnv's, and so are the others.
            kernel: path of the lab's kernel.
            latency_ms: virtual time from an observation to when its action takes effect.
            max_episode_steps: truncate episodes after so many steps.
            window_bound: no window is above this times what the path was seen to deliver in an RTT
                (execution.agent.bound); None: no such bound.

        Raises:
            SageccError: an argument is bad, or there is no kernel.
        """
        check_count("num_envs", num_envs)
        check_count("max_episode_steps", max_episode_steps)
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = observation_space(), action_space()
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._networks, self._max_steps = networks(environment), max_episode_steps
        self._labs = [Lab(kernel, drive(latency_ms)) for _ in range(num_envs)]
        self._flows, self._slots = Flows(num_envs, window_bound), np.arange(num_envs)
        self._generators: list[np.random.Generator | None] = [None] * num_envs
        self._samples = np.zeros(num_envs, wire.SAMPLE)
        self._observations = np.zeros((num_envs, *(self.single_observation_space.shape or ())), np.float32)
        self._steps, self._last_ns = np.zeros(num_envs, np.int64), np.zeros(num_envs, np.int64)
        self._over = np.zeros(num_envs, bool)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Floats, dict[str, Any]]:
        """Begin an episode everywhere, or where a mask says so.

        Args:
            seed: the first environment's, the next one has seed + 1 and so on; or one for each.
            options: `environment` as CongestionEnv's, `reset_mask` [num_envs]: where to begin an episode.

        Returns:
            The observations [num_envs, 69] and infos of all.

        Raises:
            SageccError: bad input, or a kernel fails; all episodes are ended then.
        """
        seeds = self._seeds(seed)
        remaining = dict(options or {})
        mask = self._mask(remaining.pop("reset_mask", np.ones(self.num_envs, bool)))
        candidates = requested_networks(remaining) or self._networks
        slots = np.flatnonzero(mask)
        with self._all_or_none():
            infos = self._begin(slots, dict(enumerate(seeds)), candidates)
            for slot in slots:
                self._samples[slot] = self._labs[slot].first_tick()[0]
        self._observations[slots], _ = self._flows.observe(self._samples[slots], slots)
        self._over[slots] = False
        return self._observations.copy(), self._infos(mask) | infos

    def step(self, actions: npt.ArrayLike) -> tuple[Floats, Doubles, Bools, Bools, dict[str, Any]]:
        """Multiply every window by 2**action and run to the next tick; begin a new episode where one was over.

        Args:
            actions: one number per environment [num_envs, 1]; beyond the action space it is clipped.

        Returns:
            Observations [num_envs, 69], rewards, terminations (never), truncations [num_envs], infos.

        Raises:
            SageccError: bad input, no episode runs, or a kernel fails; all episodes are ended then.
        """
        values = checked_actions(actions, (self.num_envs, 1), "actions")[:, 0]
        restarting, continuing = np.flatnonzero(self._over), np.flatnonzero(~self._over)
        if not all(self._labs[slot].running for slot in continuing):
            raise SageccError("no episode runs: call reset() first")
        windows = self._flows.windows(self._samples[continuing], continuing, values[continuing])
        with self._all_or_none():
            for slot, cwnd, pacing in zip(continuing, *windows, strict=True):
                self._labs[slot].act((cwnd,), (pacing,))
            infos = self._begin(restarting, {}, self._networks)
            for number, lab in enumerate(self._labs):
                self._samples[number] = (lab.first_tick() if self._over[number] else lab.next_tick())[0]
        self._steps += 1
        self._steps[restarting] = 0
        self._observations, rewards = self._flows.observe(self._samples, self._slots)
        rewards[restarting] = 0
        self._over = self._samples["t_ns"].astype(np.int64) >= self._last_ns
        if self._max_steps is not None:
            self._over |= self._steps == self._max_steps
        for slot in np.flatnonzero(self._over):
            self._labs[slot].close()
        terminations = np.zeros(self.num_envs, bool)
        infos = self._infos(np.ones(self.num_envs, bool)) | infos
        return self._observations.copy(), rewards, terminations, self._over.copy(), infos

    def close_extras(self, **_: Any) -> None:
        """End all episodes."""
        self._over[:] = False
        for lab in self._labs:
            lab.close()

    @contextmanager
    def _all_or_none(self) -> Iterator[None]:
        """End all episodes where one of them fails: some have gone a tick further than others then."""
        try:
            yield
        except BaseException:
            self.close_extras()
            raise

    def _begin(
        self, slots: Ints, seeds: Mapping[int, int | None], candidates: tuple[Environment, ...]
    ) -> dict[str, npt.NDArray[Any]]:
        """Boot a kernel in each of `slots`; return the network and seed of each, as infos."""
        if not len(slots):
            return {}
        ids, drawn = np.full(self.num_envs, None, object), np.zeros(self.num_envs, np.int64)
        mask = np.zeros(self.num_envs, bool)
        mask[slots] = True
        for slot in map(int, slots):
            environment, drawn[slot] = draw(candidates, seeds.get(slot), self._random(slot, seeds.get(slot)))
            self._labs[slot].start(environment, int(drawn[slot]))
            self._flows.begin(slot, environment, environment.flow)
            self._last_ns[slot], self._steps[slot] = last_tick_ns(environment, environment.flow), 0
            ids[slot] = environment.id
        return {"environment_id": ids, "_environment_id": mask, "seed": drawn, "_seed": mask.copy()}

    def _random(self, slot: int, seed: int | None) -> np.random.Generator:
        """Return the slot's source of random numbers, begun anew with a seed."""
        random = self._generators[slot]
        if random is None or seed is not None:
            random, _ = np_random(seed)
            self._generators[slot] = random
        return random

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
        infos: dict[str, Any] = {"t_s": self._samples["t_ns"] / 1e9, "_t_s": mask.copy()}
        for name in COUNTER_NAMES:
            infos[name] = self._samples[name].copy()
            infos[f"_{name}"] = mask.copy()
        return infos
