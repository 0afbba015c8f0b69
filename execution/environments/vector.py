# SPDX-License-Identifier: Apache-2.0
"""`sagecc/Congestion-v0` several times over: as many kernels, one process that serves them together.

Each step gives every kernel its action and only then reads their answers, so that they run side by side on as many
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
from sagecc.execution.environments.flows import COUNTER_NAMES, Flows, action_space, checked, last_tick_ns
from sagecc.execution.environments.lab import Lab, check_count, drive
from sagecc.execution.environments.networks import DEFAULT, Networks, chosen, draw, networks
from sagecc.pool.spaces import observation_space
from sagecc.schemas import wire
from sagecc.schemas.environment import Environment

Bools = npt.NDArray[np.bool_]


class CongestionVectorEnv(VectorEnv[Floats, Any, npt.NDArray[Any]]):
    """`num_envs` episodes of CongestionEnv side by side: what SyncVectorEnv of them gives, faster.

    An episode that is over is followed, at the next step, by another (AutoresetMode.NEXT_STEP): that step's action
    of it is ignored and its reward is 0. Arguments and errors are those of CongestionEnv.
    """

    metadata: dict[str, Any] = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 - as there

    def __init__(
        self,
        num_envs: int = 1,
        environment: Networks = DEFAULT,
        kernel: Path | str | None = None,
        latency_ms: float = 0.0,
        max_episode_steps: int | None = None,
    ) -> None:
        check_count("num_envs", num_envs)
        check_count("max_episode_steps", max_episode_steps)
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = observation_space(), action_space()
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._networks, self._most = networks(environment), max_episode_steps
        self._labs = [Lab(kernel, drive(latency_ms)) for _ in range(num_envs)]
        self._flows, self._slots = Flows(num_envs), np.arange(num_envs)
        self._randoms: list[np.random.Generator | None] = [None] * num_envs
        self._samples = np.zeros(num_envs, wire.SAMPLE)
        self._observations = np.zeros((num_envs, *(self.single_observation_space.shape or ())), np.float32)
        self._steps, self._last_ns = np.zeros(num_envs, np.int64), np.zeros(num_envs, np.int64)
        self._over = np.zeros(num_envs, bool)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Floats, dict[str, Any]]:
        """Begin an episode everywhere, or where `options["reset_mask"]` [num_envs] says so.

        seed: of the first; the next one has seed + 1 and so on; or one for each. options: as CongestionEnv's.
        """
        seeds = self._seeds(seed)
        own = dict(options or {})
        mask = self._mask(own.pop("reset_mask", np.ones(self.num_envs, bool)))
        among = chosen(own) or self._networks
        slots = np.flatnonzero(mask)
        with self._whole():
            infos = self._begin(slots, dict(enumerate(seeds)), among)
            for slot in slots:
                self._samples[slot] = self._labs[slot].first_tick()[0]
        self._observations[slots], _ = self._flows.observe(self._samples[slots], slots)
        self._over[slots] = False
        return self._observations.copy(), self._infos(mask) | infos

    def step(self, actions: npt.ArrayLike) -> tuple[Floats, Doubles, Bools, Bools, dict[str, Any]]:
        """Multiply every window by 2**action [num_envs, 1] and run to the next tick; begin again what is over."""
        values = checked(actions, (self.num_envs, 1), "actions")[:, 0]
        again, on = np.flatnonzero(self._over), np.flatnonzero(~self._over)
        if not all(self._labs[slot].running for slot in on):
            raise SageccError("no episode runs: call reset() first")
        windows = self._flows.windows(self._samples[on], on, values[on])
        with self._whole():
            for slot, cwnd, pacing in zip(on, *windows, strict=True):
                self._labs[slot].act((cwnd,), (pacing,))
            infos = self._begin(again, {}, self._networks)
            for lane, lab in enumerate(self._labs):
                self._samples[lane] = (lab.first_tick() if self._over[lane] else lab.next_tick())[0]
        self._steps += 1
        self._steps[again] = 0
        self._observations, rewards = self._flows.observe(self._samples, self._slots)
        rewards[again] = 0
        self._over = self._samples["t_ns"].astype(np.int64) >= self._last_ns
        if self._most is not None:
            self._over |= self._steps == self._most
        for slot in np.flatnonzero(self._over):
            self._labs[slot].close()
        everywhere = self._infos(np.ones(self.num_envs, bool))
        nowhere = np.zeros(self.num_envs, bool)
        return self._observations.copy(), rewards, nowhere, self._over.copy(), everywhere | infos

    def close_extras(self, **_: Any) -> None:
        """End all episodes."""
        self._over[:] = False
        for lab in self._labs:
            lab.close()

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """End all episodes where one of them fails: some have gone a tick further than others then."""
        try:
            yield
        except BaseException:
            self.close_extras()
            raise

    def _begin(
        self, slots: Ints, seeds: Mapping[int, int | None], among: tuple[Environment, ...]
    ) -> dict[str, npt.NDArray[Any]]:
        """Boot a kernel in each of `slots`; return which network and seed each has, as infos."""
        if not len(slots):
            return {}
        names, drawn = np.full(self.num_envs, None, object), np.zeros(self.num_envs, np.int64)
        there = np.zeros(self.num_envs, bool)
        there[slots] = True
        for slot in map(int, slots):
            environment, drawn[slot] = draw(among, seeds.get(slot), self._random(slot, seeds.get(slot)))
            self._labs[slot].start(environment, int(drawn[slot]))
            self._flows.begin(slot, environment, environment.flow)
            self._last_ns[slot], self._steps[slot] = last_tick_ns(environment, environment.flow), 0
            names[slot] = environment.id
        return {"environment_id": names, "_environment_id": there, "seed": drawn, "_seed": there.copy()}

    def _random(self, slot: int, seed: int | None) -> np.random.Generator:
        """Return the slot's source of random numbers, begun anew with a seed."""
        random = self._randoms[slot]
        if random is None or seed is not None:
            random, _ = np_random(seed)
            self._randoms[slot] = random
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
        """Return the raw counters of all, and which of them are new (`_name`), as Gymnasium has it for vectors."""
        infos: dict[str, Any] = {"t_s": self._samples["t_ns"] / 1e9, "_t_s": mask.copy()}
        for name in COUNTER_NAMES:
            infos[name] = self._samples[name].copy()
            infos[f"_{name}"] = mask.copy()
        return infos
