# SPDX-License-Identifier: Apache-2.0
"""A policy in charge of flows: per tick one row of raw counters in, a congestion window and a pacing rate out.

The policy's artefact names what it observes, what an action does to a window, how often it decides, and on top of which
kernel scheme it runs; execution.agent.decisions does all that is not the network.

The pool's features come from the routine that derived the pool, and `pre_act` among them is the ratio of the windows
the kernel really had, as in the pool: the policy observes at work what it observed in training.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Doubles, Ints
from sagecc.common.errors import SageccError
from sagecc.execution.agent.decisions import Decisions
from sagecc.execution.agent.exploration import Exploration
from sagecc.execution.agent.sources import observation_source
from sagecc.policy import exact, runtime
from sagecc.policy.artefact import PolicyArtefact
from sagecc.pool.features import Windows


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
        who = f"policy {policy.path}"
        source = observation_source(policy.source, policy.observations, flows, who, _windows(policy), policy.without)
        self._policy = policy
        self._decisions = Decisions(policy.control, source, flows, who)
        self._network = step or runtime.load(policy)
        self._slots = np.arange(flows)
        self._hidden = policy.initial_state(flows)
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
        return self._policy.control.underlying_scheme

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
        observed, observation = self._decisions.observe(samples, slots)
        deciding = slots[observed.due]
        actions = self._decide(observation, deciding) if len(deciding) else np.zeros(0)
        orders = self._decisions.act(observed, actions)
        self._hidden[self._decisions.restarted] = 0
        return orders

    def bounding_rates(self, slots: Ints) -> Ints:
        """Return what bounds the windows of flows in the kernel until their next step; see Decisions.bounding_rates."""
        return self._decisions.bounding_rates(slots)

    def reset(self, slot: int = 0, stream: int | None = None) -> None:
        """Forget a flow, so that its slot can serve another.

        Args:
            slot: the flow's.
            stream: number of the random stream that the next flow draws its actions from, by default the slot's.
        """
        self._decisions.reset(slot)
        self._hidden[slot] = 0
        self._random[slot] = self._generator(slot if stream is None else stream)

    def _decide(self, observation: npt.NDArray[np.float32], slots: Ints) -> Doubles:
        """Return the actions of flows [B] for their observations [B, F]."""
        logits, loc, scale, hidden = self._network(observation, self._hidden[slots])
        exploration = self._exploration
        action = self._draw(exploration, slots, logits, loc, scale) if exploration else exact.mean(logits, loc)
        finite = np.isfinite(action) & np.isfinite(hidden).all(axis=1)
        if not finite.all():
            raise SageccError(
                f"policy {self._policy.path} computed an action or a state that is not a number"
                f" (flow {slots[np.argmin(finite)]}): train it again"
            )
        self._hidden[slots] = hidden
        return action

    def _generator(self, stream: int) -> np.random.Generator:
        return (self._exploration or Exploration()).stream(stream)

    def _draw(
        self, exploration: Exploration, slots: Ints, logits: Any, loc: Any, scale: Any
    ) -> npt.NDArray[np.float64]:
        """Draw from the mixtures [B, K]; a flow's draws do not depend on the others of its batch."""
        rows = zip(slots, logits, loc, scale, strict=True)
        return np.array([exploration.draw(self._random[slot], *mixture) for slot, *mixture in rows])


def _windows(policy: PolicyArtefact) -> Windows:
    """Return the observation windows of the pool that the policy learned from, by default the paper's."""
    pool = policy.card.get("pool", {})
    try:
        if not isinstance(pool, dict):
            raise SageccError(f"it learned from '{pool}', which is no pool")
        return Windows.parse(str(pool["windows"])) if "windows" in pool else Windows()
    except SageccError as error:
        raise SageccError(f"policy {policy.path}: {error}: train it again or fetch it again") from error
