# SPDX-License-Identifier: Apache-2.0
"""A policy in charge of flows: per tick one row of raw counters in, a congestion window and a pacing rate out.

The policy's artefact names what it observes, what an action does to a window, how often it decides, and on top of which
kernel scheme it runs; execution.agent.sources and execution.agent.actions implement the choices.

The pool's features come from the routine that derived the pool, and `pre_act` among them is the ratio of the windows
the kernel really had, as in the pool: the policy observes at work what it observed in training.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Ints
from sagecc.common.errors import SageccError
from sagecc.execution.agent.actions import PURE_SCHEME, SlowStart, action_map
from sagecc.execution.agent.bound import WindowBound
from sagecc.execution.agent.exploration import Exploration
from sagecc.execution.agent.sources import observation_source
from sagecc.policy import exact, runtime
from sagecc.policy.artefact import PolicyArtefact
from sagecc.schemas.raw import TICK_S
from sagecc.schemas.schemes import OTHERS, SCHEMES

UNDERLYING_SCHEMES = (PURE_SCHEME, *SCHEMES, *OTHERS)
"""Kernel schemes whose windows can be set in the lab."""


class PolicyAgent:
    """One policy and the flows it drives, one slot per flow: observations, hidden state and window of every flow."""

    def __init__(
        self,
        policy: PolicyArtefact,
        flows: int = 1,
        exploration: Exploration | None = None,
        step: runtime.Step | None = None,
    ) -> None:
        """Prepare the slots.

        Args:
            policy: the artefact.
            flows: number of slots.
            exploration: how actions are drawn, with one generator per slot; None takes the mixture's mean.
            step: the policy's network in a runtime of policy.runtime, by default the one whose bits are the same on
                every machine and in every batch.

        Raises:
            SageccError: the policy needs what is not implemented.
        """
        _check_runnable(policy)
        self._policy = policy
        self._control = control = policy.control
        self._network = step or runtime.load(policy)
        self._source = observation_source(policy, flows)
        self._action_map = action_map(control, flows)
        self._slow_start = SlowStart(control.slow_start, control, flows) if control.slow_start else None
        self._bound = WindowBound(control.window_bound, flows) if control.window_bound else None
        self._slots = np.arange(flows)
        self._hidden = policy.initial_state(flows)
        self._period = _period_ticks(policy)
        self._wait = np.zeros(flows, np.int64)  # ticks to the next decision
        self._action = np.zeros(flows)
        self._exploration = exploration
        self._random = [self._generator(slot) for slot in range(flows)]

    @classmethod
    def load(
        cls,
        path: Path | str,
        flows: int = 1,
        exploration: Exploration | None = None,
        runtime_name: str = runtime.DEFAULT,
    ) -> PolicyAgent:
        """Return the agent of the policy in a folder.

        Args:
            path: the artefact's folder.
            flows: number of slots.
            exploration: how actions are drawn, see __init__.
            runtime_name: the network's runtime, by its name in policy.runtime.

        Raises:
            SageccError: there is no policy, or none that can be run.
        """
        policy = PolicyArtefact.load(path)
        return cls(policy, flows, exploration, runtime.load(policy, runtime_name))

    @property
    def underlying_scheme(self) -> str:
        """The kernel scheme on top of which the policy sets windows."""
        return self._control.underlying_scheme

    @property
    def hidden(self) -> npt.NDArray[np.float32]:
        """Hidden state of every flow [flows, H]."""
        return self._hidden

    def __call__(self, sample: np.void) -> tuple[int, int]:
        """Drive the only (or first) flow; see `step`."""
        cwnd, pacing = self.step(np.atleast_1d(np.asarray(sample)), self._slots[:1])
        return int(cwnd[0]), int(pacing[0])

    def step(self, samples: npt.NDArray[np.void], slots: Ints | None = None) -> tuple[Ints, Ints]:
        """Take one row of raw counters of each flow.

        Args:
            samples: structured array [B] with `t_ns` or `t_s` and the counters of schemas.raw by name (as wire.SAMPLE).
            slots: the flows' slots [B], all by default.

        Returns:
            Windows (packets) and pacing rates (bytes/s) [B]; a pacing rate of 0 means unlimited.

        Raises:
            SageccError: an action is not a number; the message names the policy.
        """
        if slots is None:
            slots = self._slots
        ready = self._source.update(samples, slots)
        due = (self._wait[slots] <= 0) & ready
        self._wait[slots] -= 1
        starting = self._slow_start.active(samples, slots) if self._slow_start else None
        if starting is not None:
            due &= ~starting
        if due.any():
            self._decide(self._source.report(due), slots[due])
            self._wait[slots[due]] = self._period - 1
        cwnd, pacing = self._action_map.step(samples, slots, due, self._action[slots])
        if self._slow_start and starting is not None and starting.any():
            cwnd, pacing = np.where(starting, self._slow_start.step(samples, ready), (cwnd, pacing))
            self._source.skip(starting & ready)
        return self._bound.apply(samples, slots, cwnd, pacing) if self._bound else (cwnd, pacing)

    def bounding_rates(self, slots: Ints) -> Ints:
        """Return what bounds the windows of flows in the kernel until their next step.

        Args:
            slots: the flows' slots [B].

        Returns:
            Rates [B] (thousandths of packets per second) whose products with sRTT bound the windows
            (execution.agent.bound); 0 for none.
        """
        # a rate of 0 bounds as well
        return np.maximum(self._bound.rates(slots), 1) if self._bound else np.zeros(len(slots), np.int64)

    def reset(self, slot: int = 0, stream: int | None = None) -> None:
        """Forget a flow, so that its slot can serve another.

        Args:
            slot: the flow's.
            stream: number of the random stream that the next flow draws its actions from, by default the slot's.
        """
        self._source.reset(slot)
        self._action_map.reset(slot)
        if self._slow_start:
            self._slow_start.reset(slot)
        if self._bound:
            self._bound.reset(slot)
        self._hidden[slot] = self._wait[slot] = 0
        self._random[slot] = self._generator(slot if stream is None else stream)

    def _decide(self, observation: npt.NDArray[np.float32], slots: Ints) -> None:
        """Infer and keep the actions per tick of flows [B] from their observations [B, F]."""
        logits, loc, scale, hidden = self._network(observation, self._hidden[slots])
        exploring = self._exploration
        action = self._draw(exploring, slots, logits, loc, scale) if exploring else exact.mean(logits, loc)
        finite = np.isfinite(action) & np.isfinite(hidden).all(axis=1)
        if not finite.all():
            raise SageccError(
                f"policy {self._policy.path} computed an action or a state that is not a number"
                f" (flow {slots[np.argmin(finite)]}): train it again"
            )
        self._hidden[slots] = hidden
        self._action[slots] = np.clip(action, *self._control.limits) / (self._period if self._control.spread else 1)

    def _generator(self, stream: int) -> np.random.Generator:
        return (self._exploration or Exploration()).stream(stream)

    def _draw(
        self, exploration: Exploration, slots: Ints, logits: Any, loc: Any, scale: Any
    ) -> npt.NDArray[np.float64]:
        """Draw from the mixtures [B, K]; a flow's draws do not depend on the others of its batch."""
        rows = zip(slots, logits, loc, scale, strict=True)
        return np.array([exploration.draw(self._random[slot], *mixture) for slot, *mixture in rows])


def _check_runnable(policy: PolicyArtefact) -> None:
    """Raise SageccError where a policy's period or underlying scheme is not implemented."""
    _period_ticks(policy)
    if policy.control.underlying_scheme not in UNDERLYING_SCHEMES:
        raise SageccError(
            f"policy {policy.path} acts on top of '{policy.control.underlying_scheme}', which this kernel has not:"
            f" there are {', '.join(UNDERLYING_SCHEMES)}"
        )


def _period_ticks(policy: PolicyArtefact) -> int:
    """Return the ticks from one decision to the next; raises SageccError where that is no whole number."""
    ticks = policy.control.period_ms / (TICK_S * 1000)
    if ticks < 1 or ticks != int(ticks):
        raise SageccError(
            f"policy {policy.path} decides every {policy.control.period_ms:g} ms; only multiples of "
            f"{TICK_S * 1000:g} ms can be run"
        )
    return int(ticks)
