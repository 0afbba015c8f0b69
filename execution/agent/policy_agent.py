# SPDX-License-Identifier: Apache-2.0
"""A policy in charge of flows: one raw row a tick in, a congestion window and a pacing rate out.

What is observed, what an answer does to a window, how often, and on top of which of the kernel's schemes is the
artefact's to say; execution.agent.sources and execution.agent.actions have what can be offered.

The pool's features come from the routine that derived the pool, and `pre_act` among them is the ratio of the windows
the kernel really had, as in the pool: what the policy sees in charge is what it saw in training.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sagecc.collector.lab.spec import Drive
from sagecc.common.arrays import Ints
from sagecc.common.errors import SageccError
from sagecc.execution.agent.actions import OWN_WINDOW, Starting, action_of
from sagecc.execution.agent.sources import source_of
from sagecc.policy import exact, runtime
from sagecc.policy.artefact import PolicyArtefact
from sagecc.schemas.raw import TICK_S
from sagecc.schemas.schemes import OTHERS, POLICY_PREFIX, SCHEMES

UNDERLYING_SCHEMES = (OWN_WINDOW, *SCHEMES, *OTHERS)
"""Whose windows can be set in the lab."""


class PolicyAgent:
    """One policy and the flows it drives, a slot each: observations, hidden state and window of every flow.

    flows: number of slots. seed: draw each action from the policy's mixture with a generator of its own for
    every slot, instead of taking the mixture's mean. step: the policy's network in a runtime of policy.runtime, by
    default the one whose bits are the same on every machine and in every batch.
    """

    def __init__(
        self, policy: PolicyArtefact, flows: int = 1, seed: int | None = None, step: runtime.Step | None = None
    ) -> None:
        _refuse_what_cannot_run(policy)
        self._policy = policy
        self._control = control = policy.control
        self._network = step or runtime.load(policy)
        self._source = source_of(policy, flows)
        self._act = action_of(control, flows)
        self._starting = Starting(control.slow_start, control, flows) if control.slow_start else None
        self._slots = np.arange(flows)
        self._hidden = policy.initial_state(flows)
        self._period = _period_ticks(policy)
        self._wait = np.zeros(flows, np.int64)  # ticks to the next decision
        self._action = np.zeros(flows)
        self._seed = seed
        self._random = [self._generator(slot) for slot in range(flows)]

    @classmethod
    def load(
        cls, path: Path | str, flows: int = 1, seed: int | None = None, runtime_name: str = runtime.DEFAULT
    ) -> PolicyAgent:
        """Return the agent of the policy in folder `path`; raises SageccError where that is not one it can run."""
        policy = PolicyArtefact.load(path)
        return cls(policy, flows, seed, runtime.load(policy, runtime_name))

    @property
    def hidden(self) -> npt.NDArray[np.float32]:
        """Hidden state of every flow [flows, H]."""
        return self._hidden

    def drive(self, latency_us: int = 0) -> Drive:
        """Return how the policy drives a flow in the lab: on top of which of its schemes."""
        return Drive(self._control.underlying_scheme, latency_us)

    def __call__(self, sample: np.void) -> tuple[int, int]:
        """Drive the only (or first) flow: see `step`."""
        cwnd, pacing = self.step(np.atleast_1d(np.asarray(sample)), self._slots[:1])
        return int(cwnd[0]), int(pacing[0])

    def step(self, samples: npt.NDArray[np.void], slots: Ints | None = None) -> tuple[Ints, Ints]:
        """Take one row of raw counters of each flow; return windows (packets) and pacing rates (bytes/s) [B].

        samples [B]: structured, with `t_ns` or `t_s` and the counters of schemas.raw by name (as wire.SAMPLE).
        slots [B]: which flows, all by default. A pacing rate of 0 means unlimited.
        Raises SageccError naming the policy when it answers with something that is not a number.
        """
        at = self._slots if slots is None else slots
        news = self._source.update(samples, at)
        due = (self._wait[at] <= 0) & news
        self._wait[at] -= 1
        early = self._starting.going_on(samples, at) if self._starting else None
        if early is not None:
            due &= ~early
        if due.any():
            self._decide(self._source.report(due), at[due])
            self._wait[at[due]] = self._period - 1
        cwnd, pacing = self._act.step(samples, at, due, self._action[at])
        if self._starting and early is not None and early.any():
            first = self._starting.step(samples, news)
            cwnd, pacing = np.where(early, first, (cwnd, pacing))
            self._source.skip(early & news)
        return cwnd, pacing

    def reset(self, slot: int = 0, stream: int | None = None) -> None:
        """Forget a flow, so that its slot can serve another.

        stream: which random numbers that one draws its actions with, whatever its slot; the slot's by default.
        """
        self._source.reset(slot)
        self._act.reset(slot)
        if self._starting:
            self._starting.reset(slot)
        self._hidden[slot] = self._wait[slot] = 0
        self._random[slot] = self._generator(slot if stream is None else stream)

    def _decide(self, observation: npt.NDArray[np.float32], at: Ints) -> None:
        """Ask the network about flows [B] and their observations [B, F]; note what each does at a tick."""
        logits, loc, scale, hidden = self._network(observation, self._hidden[at])
        action = exact.mean(logits, loc) if self._seed is None else self._draw(at, logits, loc, scale)
        sound = np.isfinite(action) & np.isfinite(hidden).all(axis=1)
        if not sound.all():
            raise SageccError(
                f"policy {self._policy.path} answered with something that is not a number"
                f" (flow {at[np.argmin(sound)]}): train it again"
            )
        self._hidden[at] = hidden
        self._action[at] = np.clip(action, *self._control.limits) / (self._period if self._control.spread else 1)

    def _generator(self, stream: int) -> np.random.Generator:
        return np.random.default_rng((self._seed or 0, stream))

    def _draw(self, at: Ints, logits: Any, loc: Any, scale: Any) -> npt.NDArray[np.float64]:
        """Draw from the mixtures [B, K]; a flow's draws do not depend on which others are asked with it."""
        actions = np.empty(len(at))
        for row, slot in enumerate(at):
            random = self._random[slot]
            part = np.argmax(logits[row] + random.gumbel(size=logits.shape[1]))
            actions[row] = random.normal(loc[row, part], scale[row, part])
        return actions


def policy_controller(scheme: str, episode: str | None = None) -> PolicyAgent:
    """Return what drives a flow in the lab for the scheme `policy:PATH`: its policy, by the mixture's mean.

    episode: an episode's id (it names the seed): actions are drawn from the mixture instead, as in any other run of it.
    """
    agent = PolicyAgent.load(scheme.removeprefix(POLICY_PREFIX), seed=None if episode is None else 0)
    agent.reset(stream=None if episode is None else stream_of(episode))
    return agent


def policy_drive(scheme: str, latency_us: int = 0) -> Drive:
    """Return how the policy of the scheme `policy:PATH` drives a flow; raises SageccError where it cannot be run."""
    return policy_controller(scheme).drive(latency_us)


def stream_of(episode: str) -> int:
    """Return the number of the random numbers that an episode's actions are drawn with."""
    return int.from_bytes(hashlib.sha256(episode.encode()).digest()[:8], "little")


def _refuse_what_cannot_run(policy: PolicyArtefact) -> None:
    """Raise SageccError where a policy wants what is not here: a period, an underlying scheme."""
    _period_ticks(policy)
    if policy.control.underlying_scheme not in UNDERLYING_SCHEMES:
        raise SageccError(
            f"policy {policy.path} acts on top of '{policy.control.underlying_scheme}', which this kernel has not:"
            f" there are {', '.join(UNDERLYING_SCHEMES)}"
        )


def _period_ticks(policy: PolicyArtefact) -> int:
    """Return the ticks from one decision to the next. Raises SageccError where that is no whole number."""
    ticks = policy.control.period_ms / (TICK_S * 1000)
    if ticks < 1 or ticks != int(ticks):
        raise SageccError(
            f"policy {policy.path} decides every {policy.control.period_ms:g} ms; only multiples of "
            f"{TICK_S * 1000:g} ms can be run"
        )
    return int(ticks)
