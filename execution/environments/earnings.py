# SPDX-License-Identifier: Apache-2.0
"""What a flow earns in labs from one decision to the next, by a reward of whatever kind (pool.reward.Reward)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol, get_args

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Bools, Doubles, Ints
from sagecc.execution.agent.sources import PoolFeatures
from sagecc.execution.flow.competition import Competition
from sagecc.execution.flow.intervals import Intervals, some
from sagecc.execution.flow.source import ObservationSource
from sagecc.pool.features import FeatureTracker
from sagecc.pool.reward import Measured, Reward, Ticks, of_networks
from sagecc.schemas.environment import Environment, Flow, RewardKind

KINDS: tuple[RewardKind, ...] = get_args(RewardKind)
"""What a network may name."""


class Earnings(Protocol):
    """What flows earn, one slot per flow; per tick one `update`, then `earned` of the flows that are shown."""

    def begin(self, slot: int, environment: Environment, flow: Flow) -> None:
        """Put a flow of an environment into a slot."""

    def update(self, samples: npt.NDArray[np.void], slots: Ints) -> None:
        """Take one row of raw counters of each flow [B], which the observation's source has taken already."""

    def earned(self, shown: Bools) -> Doubles:
        """Return what some flows of the last update earned since they were shown last [sum(shown)].

        Args:
            shown: which [B].
        """


class TickEarnings:
    """The mean over the ticks of a reward of ticks."""

    def __init__(self, reward: Reward, place: Place) -> None:
        """Start with no flow."""
        source = place.source
        self._reward = reward
        self._derives = not isinstance(source, PoolFeatures)
        self._tracker = source.tracker if isinstance(source, PoolFeatures) else FeatureTracker(flows=place.slots)
        self._kind, self._competitors = np.zeros(place.slots, np.int64), np.ones(place.slots)
        self._company = _Company(place.slots)
        self._sum, self._ticks = np.zeros(place.slots), np.zeros(place.slots, np.int64)
        self._slots = np.zeros(0, np.int64)

    def begin(self, slot: int, environment: Environment, flow: Flow) -> None:
        """Put a flow of an environment into a slot."""
        if self._derives:
            self._tracker.reset(slot)
        bottleneck = environment.narrowest(flow)
        self._kind[slot] = KINDS.index(environment.reward)
        self._competitors[slot] = sum(bottleneck in environment.path(other) for other in environment.all_flows)
        self._company.begin(slot, environment, flow)
        self._sum[slot] = self._ticks[slot] = 0

    def update(self, samples: npt.NDArray[np.void], slots: Ints) -> None:
        """Take one row of each flow."""
        if self._derives:
            self._tracker.update_flows(samples, slots)
        rate, loss, capacity, rtt_rate = self._tracker.measured.T
        measured = Measured(rate, loss, capacity, rtt_rate, self._competitors[slots])
        of_network = of_networks(KINDS, self._kind[slots], measured)
        up = self._company.flows(slots, samples["t_ns"].astype(np.int64))
        self._sum[slots] += self._reward.function(Ticks(measured, up, of_network))
        self._ticks[slots] += 1
        self._slots = slots

    def earned(self, shown: Bools) -> Doubles:
        """Return the means."""
        slots = self._slots[shown]
        means = self._sum[slots] / self._ticks[slots]
        self._sum[slots] = self._ticks[slots] = 0
        return np.asarray(means)


class _Company:
    """When which flows share the bottlenecks of flows, one slot per flow."""

    def __init__(self, slots: int) -> None:
        self._starts, self._stops = np.zeros((2, slots, 1), np.int64)  # ns; of no flow: from 0 to 0

    def begin(self, slot: int, environment: Environment, flow: Flow) -> None:
        """Put a flow of an environment into a slot."""
        bottleneck = environment.narrowest(flow)
        sharers = [other for other in environment.all_flows if bottleneck in environment.path(other)]
        if lack := max(0, len(sharers) - self._starts.shape[1]):
            wider = ((0, 0), (0, lack))
            self._starts, self._stops = np.pad(self._starts, wider), np.pad(self._stops, wider)
        self._starts[slot] = self._stops[slot] = 0
        for number, other in enumerate(sharers):
            self._starts[slot, number] = round(other.start_s * 1e9)
            self._stops[slot, number] = round(environment.stop_of(other) * 1e9)

    def flows(self, slots: Ints, t_ns: Ints) -> Doubles:
        """Return how many flows are up at the bottlenecks of flows at a time, themselves among them [n]."""
        if self._starts.shape[1] == 1:  # nobody shares anything
            return np.ones(len(slots))
        up = (self._starts[slots] <= t_ns[:, None]) & (t_ns[:, None] < self._stops[slots])
        return np.asarray(np.maximum(up.sum(axis=1), 1), np.float64)


class IntervalEarnings:
    """A reward of the interval since a flow was shown last."""

    def __init__(self, reward: Reward, place: Place) -> None:
        """Start with no flow."""
        self._reward, self._intervals = reward, Intervals(place.slots)
        self._max_rate = np.zeros(place.slots)

    def begin(self, slot: int, environment: Environment, flow: Flow) -> None:
        """Put a flow of an environment into a slot."""
        self._intervals.reset(slot)
        self._max_rate[slot] = 0

    def update(self, samples: npt.NDArray[np.void], slots: Ints) -> None:
        """Take one row of each flow."""
        self._intervals.update(samples, slots)

    def earned(self, shown: Bools) -> Doubles:
        """Return the rewards."""
        samples, slots = some(shown, self._intervals.samples, self._intervals.slots)
        report = self._intervals.report(shown)
        max_rate = self._max_rate[slots] = np.maximum(self._max_rate[slots], report.rate_bytes_s)
        return np.asarray(self._reward.function(report, samples, max_rate))


class NetworkEarnings:
    """A reward of all flows of a network as they are now, the same for each of them."""

    def __init__(self, reward: Reward, place: Place) -> None:
        """Take what is known of all flows: the place's competition, which is updated before this at each tick."""
        if place.competition is None:
            raise ValueError(f"the reward {reward.name} needs a competition")
        self._reward, self._competition, self._weights = reward, place.competition, place.weights
        self._flows = place.flows
        self._labs = np.zeros(0, np.int64)

    def begin(self, slot: int, environment: Environment, flow: Flow) -> None:
        """Do nothing: the competition knows."""

    def update(self, samples: npt.NDArray[np.void], slots: Ints) -> None:
        """Take one row of each flow."""
        self._labs = slots // self._flows

    def earned(self, shown: Bools) -> Doubles:
        """Return the rewards."""
        labs, rows = np.unique(self._labs[shown], return_inverse=True)
        rewards = self._reward.function(self._competition.flows(labs), self._competition.capacity(labs), self._weights)
        return np.asarray(rewards[rows])


@dataclass(frozen=True)
class Place:
    """Where a reward is earned."""

    source: ObservationSource
    """What is observed; where it is the pool's features, these are derived once."""
    labs: int
    """Number of labs."""
    flows: int
    """Slots per lab."""
    competition: Competition | None
    """What is known of all flows, for a reward of a network; it is updated before the reward."""
    weights: Any = None
    """Of such a reward."""

    @property
    def slots(self) -> int:
        """Number of slots."""
        return self.labs * self.flows


EARNINGS: Mapping[str, Callable[[Reward, Place], Earnings]] = MappingProxyType(
    {"ticks": TickEarnings, "interval": IntervalEarnings, "network": NetworkEarnings}
)
"""By what a reward covers (pool.reward.Reward.of), what makes its flows earn: from the reward and the place.

The function of a reward of an interval takes the intervals, the rows at their ends and the highest delivery rates of
the flows so far (execution.flow.intervals.Report, samples, bytes/s), [R] each. That of a reward of a network takes the
networks' flows, the bottlenecks' rates [L] and the reward's weights (execution.flow.competition.Flows).
"""


def earnings(reward: Reward, place: Place) -> Earnings:
    """Return what flows earn at a place."""
    return EARNINGS[reward.of](reward, place)
