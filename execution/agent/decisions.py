# SPDX-License-Identifier: Apache-2.0
"""When flows decide, what they see then, and what their actions do: a policy's card at work, whoever decides.

A policy (execution.agent.policy_agent) and whoever learns in an environment (execution.environments) share it, so that
what was trained is what runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Bools, Doubles, Floats, Ints, any_of
from sagecc.common.errors import SageccError
from sagecc.execution.agent.actions import PURE_SCHEME, action_map, slow_start
from sagecc.execution.agent.bound import window_bound
from sagecc.execution.agent.recovery import recovery_floor
from sagecc.execution.flow.intervals import min_rtts_us, some
from sagecc.execution.flow.outage import Outages
from sagecc.execution.flow.source import ObservationSource
from sagecc.execution.flow.window import UNLIMITED, pacing_rates
from sagecc.policy.artefact import SPREAD_MAP, Control
from sagecc.schemas.raw import TICK_S
from sagecc.schemas.schemes import OTHERS, SCHEMES

UNDERLYING_SCHEMES = (PURE_SCHEME, *SCHEMES, *OTHERS)
"""Kernel schemes whose windows can be set in the lab."""

TICK_MS = TICK_S * 1000


@dataclass(frozen=True)
class Observed:
    """Flows at a tick [B]."""

    samples: npt.NDArray[np.void]
    """Their raw rows [B]."""
    slots: Ints
    """Their slots [B]."""
    due: Bools
    """Which decide now [B]."""
    shown: Bools
    """Which have an observation [B]: those that decide, and those that end here."""
    starting: Bools
    """Which are in slow start [B]."""
    acked: Bools
    """For which of these something was acknowledged since their last report or step [B]."""

    def take(self, chosen: Bools) -> Observed:
        """Return some of the flows [B]."""
        return Observed(*(getattr(self, field.name)[chosen] for field in fields(self)))

    @classmethod
    def join(cls, parts: Sequence[Observed]) -> Observed:
        """Return the flows of several, in the order of their slots."""
        if len(parts) == 1:
            return parts[0]
        order = np.argsort(np.concatenate([part.slots for part in parts]))
        samples = joined([part.samples for part in parts])
        rest = (np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)[1:])
        return cls(samples[order], *(values[order] for values in rest))


def joined(rows: list[Any]) -> npt.NDArray[np.void]:
    """Return several structured arrays of one type as one; numpy's concatenation takes 400 times as long."""
    return rows[0] if len(rows) == 1 else np.frombuffer(b"".join(rows), rows[0].dtype)


class Decisions:
    """Observations, periods, windows and slow starts of flows, one slot per flow."""

    def __init__(self, control: Control, source: ObservationSource, flows: int, who: str) -> None:
        """Start with no flow known.

        Args:
            control: what actions do, and how often.
            source: what is observed.
            flows: number of slots.
            who: whose choices these are, for errors.

        Raises:
            SageccError: the period or the underlying scheme is not implemented.
        """
        ticks = control.period_ms / TICK_MS
        if ticks < 1 or ticks != int(ticks):
            raise SageccError(
                f"{who} decides every {control.period_ms:g} ms; only multiples of {TICK_MS:g} ms can be run"
            )
        if control.underlying_scheme not in UNDERLYING_SCHEMES:
            raise SageccError(
                f"{who} acts on top of '{control.underlying_scheme}', which this kernel has not:"
                f" there are {', '.join(UNDERLYING_SCHEMES)}"
            )
        self.source = source
        """What is observed."""
        self.restarted: Ints = np.zeros(0, np.int64)
        """Slots of flows whose outage was over at the last step: `source` begins as with new flows."""
        self._control, self._action_map = control, action_map(control, flows)
        self._slow_start = slow_start(control, flows)
        self._outages = Outages(flows)
        self._floor = recovery_floor(control, flows)
        self._bound = window_bound(control, flows)
        self._wait = np.zeros(flows, np.int64)  # ticks to the next decision
        self._period = np.ones(flows, np.int64)  # ticks, as of the last decision
        self._action = np.zeros(flows)

    def observe(
        self, samples: npt.NDArray[np.void], slots: Ints, ending: Bools | None = None
    ) -> tuple[Observed, Floats]:
        """Take one row of raw counters of each flow, each tick.

        Args:
            samples: structured array [B] with the counters of schemas.raw by name.
            slots: the flows' slots [B].
            ending: which flows have their last row here [B]: these are shown and do not decide.

        Returns:
            The flows, and the observations before scaling of those that are shown [sum(shown), F].
        """
        ready = self.source.update(samples, slots)
        due = (self._wait[slots] <= 0) & ready
        self._wait[slots] -= 1
        starting = np.zeros(len(slots), np.bool_)
        if self._slow_start:
            starting = self._slow_start.active(samples, slots)
            due &= ~starting
        shown = due
        if ending is not None and any_of(ending):
            due, shown = due & ~ending, due | ending
        observation = self.source.report(shown) if any_of(shown) else np.zeros((0, 0), np.float32)
        if self._slow_start and any_of(skipped := starting & ready & ~shown):
            self.source.skip(skipped)
        if any_of(due):
            rows, deciding = some(due, samples, slots)
            period = self._period[deciding] = period_ticks(self._control, rows)
            self._wait[deciding] = period - 1
        return Observed(samples, slots, due, shown, starting, ready), observation

    def act(self, observed: Observed, actions: Doubles) -> tuple[Ints, Ints]:
        """Return what to set in the kernel, once for each tick of a flow.

        Args:
            observed: the flows of a tick [B].
            actions: of those that decide, in their order [sum(due)], each clipped to the limits.

        Returns:
            Windows (packets) and pacing rates (bytes/s) [B]; execution.agent.actions.LEAVE leaves either to the scheme.
        """
        slots, due = observed.slots, observed.due
        outage = self._outages.step(observed.samples, slots)
        samples = outage.samples if outage else observed.samples
        if len(actions):
            deciding, (low, high) = slots[due], self._control.limits
            parts = self._period[deciding] if self._control.map == SPREAD_MAP else 1
            values = rounded(self._control, np.minimum(np.maximum(actions, low), high))
            self._action[deciding] = values / parts
            self.source.acted(deciding, values)
        cwnd, pacing = self._action_map.step(samples, slots, due, self._action[slots])
        if self._slow_start and any_of(observed.starting):
            start = self._slow_start.step(samples, slots, observed.acked)
            cwnd, pacing = np.where(observed.starting, start, (cwnd, pacing))
        if self._floor:
            cwnd, pacing = self._floor.apply(samples, slots, cwnd, pacing)
        if self._bound:
            cwnd, pacing = self._bound.apply(samples, slots, cwnd, pacing)
        self.restarted = slots[:0]
        if outage:
            limited = np.where(cwnd > 0, np.clip(cwnd, outage.least, outage.most), cwnd)
            cwnd, pacing = limited, np.where(limited != cwnd, pacing_rates(samples, limited), pacing)
            self.restarted = slots[outage.over]
            for slot in self.restarted:
                self.source.reset(int(slot))
        return cwnd, pacing if self._control.paced else np.full(len(slots), UNLIMITED)

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

    def reset(self, slot: int) -> None:
        """Forget a flow, so that its slot can serve another."""
        self.source.reset(slot)
        self._action_map.reset(slot)
        self._outages.reset(slot)
        if self._slow_start:
            self._slow_start.reset(slot)
        if self._floor:
            self._floor.reset(slot)
        if self._bound:
            self._bound.reset(slot)
        self._wait[slot] = self._action[slot] = 0


def rounded(control: Control, actions: Doubles) -> Doubles:
    """Return actions [B] as a control rounds them."""
    if control.decimals is None:
        return actions
    return np.round(actions.astype(np.float32), control.decimals).astype(np.float64)


def period_ticks(control: Control, samples: npt.NDArray[np.void]) -> Ints:
    """Return the ticks to the next decision: a share of the minimum RTT, rounded, and at least the shortest period.

    Args:
        control: names both.
        samples: the flows' rows [B].
    """
    shortest = np.full(len(samples), int(control.period_ms / TICK_MS))
    if not control.period_min_rtts:
        return shortest
    share = np.floor(control.period_min_rtts * min_rtts_us(samples) / (TICK_MS * 1000) + 0.5)
    return np.asarray(np.maximum(shortest, share.astype(np.int64)))
