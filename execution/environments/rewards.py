# SPDX-License-Identifier: Apache-2.0
"""What a flow earns from one decision to the next, by the names that a task has for it (REWARDS)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Bools, Doubles, Ints
from sagecc.common.errors import SageccError
from sagecc.execution.agent.intervals import Intervals, min_rtts_us, some
from sagecc.execution.agent.sources import ObservationSource, PoolFeatures
from sagecc.execution.environments.astraea import Competition
from sagecc.policy.orca import DELAY_MARGIN, LOSS_FACTOR
from sagecc.pool.features import FeatureTracker
from sagecc.pool.reward import REWARDS as REWARDS_OF_POOL
from sagecc.pool.reward import SCALE, Measured, Values, check_reward, friendliness, power
from sagecc.pool.reward import rewards as rewards_of_pool
from sagecc.schemas.environment import Environment, Flow


def orca(rate: Doubles, lost: Doubles, max_rate: Doubles, min_rtt: Doubles, srtt: Doubles) -> Doubles:
    """Return Orca's reward as its code has it: (thr - 5 loss) / thr_max * min(1, 1.25 minRTT / sRTT).

    rl-module/envwrapper.py of https://github.com/Soheil-ab/Orca. Before anything was delivered it is 0.

    Args:
        rate: throughput thr since the last report [n].
        lost: bytes marked lost per second since then [n].
        max_rate: highest throughput of the flow so far [n].
        min_rtt: the flow's lowest RTT [n].
        srtt: its smoothed RTT [n]; 0 before the first sample.
    """
    near = np.minimum(DELAY_MARGIN * min_rtt / np.where(srtt > 0, srtt, np.inf), 1.0)
    return _orca_net(rate, lost, max_rate) * near


def orca_paper(rate: Doubles, lost: Doubles, max_rate: Doubles, min_rtt: Doubles, srtt: Doubles) -> Doubles:
    """Return Orca's reward by Eq. 1 and 2 of its paper: ((thr - zeta loss) / delay') / (thr_max / d_min).

    delay' is d_min up to beta d_min, and the delay above: at the margin the reward falls by a fifth. zeta and beta are
    the code's, 5 and 1.25. Arguments are those of `orca`; the delay is the smoothed RTT.
    """
    delay = np.where(srtt <= DELAY_MARGIN * min_rtt, min_rtt, srtt)
    return _orca_net(rate, lost, max_rate) * (min_rtt / np.where(delay > 0, delay, np.inf))


def _orca_net(rate: Doubles, lost: Doubles, max_rate: Doubles) -> Doubles:
    return np.asarray((rate - LOSS_FACTOR * lost) / np.where(max_rate > 0, max_rate, np.inf))


def aurora(packets_s: Doubles, rtt_s: Doubles, loss: Doubles) -> Doubles:
    """Return Aurora's reward, 10 throughput - 1000 latency - 2000 loss, in thousands.

    The paper's; the unit is that of https://github.com/PCCproject/PCC-RL, src/gym/network_sim.py (REWARD_SCALE).

    Args:
        packets_s: throughput since the last report [n].
        rtt_s: mean RTT since then [n].
        loss: share of the packets since then that were lost [n].
    """
    return (10 * packets_s - 1000 * rtt_s - 2000 * loss) / 1000


def graded(rewards: Values) -> Doubles:
    """Return the pool's rewards R as 25 / (1 - ln(R / 25)), and those not above 0 as they are.

    The paper's rewards are flat where a flow gets little: at a tenth of the link R1 is a hundredth of the most, at a
    tenth of a fair share R2 is a six-hundredth, and a learner sees no way out. The order, the most and the slope there
    stay; R2 = 25 exp(-8 (x - 1)^2) becomes 25 / (1 + 8 (x - 1)^2).

    Args:
        rewards: R1 or R2, at most 25 [n].
    """
    positive = rewards > 0
    share = np.divide(rewards, SCALE, out=np.ones(len(rewards)), where=positive)
    return np.asarray(np.where(positive, SCALE / (1 - np.log(share)), rewards), np.float64)


LOSS_PRICE = 5.0
"""A share of packets lost beside others takes this many times itself off `shared`, up to all of it."""


def shared(rate: Doubles, loss: Doubles, capacity: Doubles, flows: Doubles) -> Doubles:
    """Return the pool's R2, graded, of a share among the flows that are up now, less what it costs, at most 25.

    R2 knows no loss, so a policy floods a short queue beside others for little. Here R2 counts less by LOSS_PRICE times
    the share of packets lost.

    Args:
        rate: delivery rate over 1 s [n] (bytes/s).
        loss: what is lost [n] (bytes/s).
        capacity: the bottleneck's rate [n] (bytes/s).
        flows: how many flows share the bottleneck now [n].
    """
    sent = rate + loss
    lost = np.divide(loss, sent, out=np.zeros(len(sent)), where=sent > 0)
    return np.asarray(np.maximum(1 - LOSS_PRICE * lost, 0.0) * graded(friendliness(rate, capacity, flows)))


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


class PerTick(Protocol):
    """A reward of each tick, which covers the last second, one slot per flow."""

    def begin(self, slot: int, environment: Environment, flow: Flow) -> None:
        """Put a flow of an environment into a slot."""

    def rewards(self, measured: Doubles, samples: npt.NDArray[np.void], slots: Ints) -> Doubles:
        """Return what flows earn at a tick.

        Args:
            measured: by pool.features.MEASURED [4, n].
            samples: their rows of raw counters [n].
            slots: their slots [n].
        """


class PoolEarnings:
    """The mean over the ticks of a reward of each tick."""

    def __init__(self, per_tick: PerTick, source: ObservationSource, slots: int) -> None:
        """Start with no flow.

        Args:
            per_tick: the reward of a tick.
            source: what is observed: where it is the pool's features, these are derived once.
            slots: number of slots.
        """
        self._per_tick = per_tick
        self._derives = not isinstance(source, PoolFeatures)
        self._tracker = source.tracker if isinstance(source, PoolFeatures) else FeatureTracker(flows=slots)
        self._sum, self._ticks = np.zeros(slots), np.zeros(slots, np.int64)
        self._slots = np.zeros(0, np.int64)

    def begin(self, slot: int, environment: Environment, flow: Flow) -> None:
        """Put a flow of an environment into a slot."""
        if self._derives:
            self._tracker.reset(slot)
        self._per_tick.begin(slot, environment, flow)
        self._sum[slot] = self._ticks[slot] = 0

    def update(self, samples: npt.NDArray[np.void], slots: Ints) -> None:
        """Take one row of each flow."""
        if self._derives:
            self._tracker.update_flows(samples, slots)
        self._sum[slots] += self._per_tick.rewards(self._tracker.measured.T, samples, slots)
        self._ticks[slots] += 1
        self._slots = slots

    def earned(self, shown: Bools) -> Doubles:
        """Return the means."""
        slots = self._slots[shown]
        means = self._sum[slots] / self._ticks[slots]
        self._sum[slots] = self._ticks[slots] = 0
        return np.asarray(means)


class OfPool:
    """The pool's rewards: of each flow the one that its network names, or the same one of all."""

    def __init__(
        self, slots: int, name: str | None = None, shape: Callable[[Values], Values] = lambda rewards: rewards
    ) -> None:
        """Start with no flow.

        Args:
            slots: number of slots.
            name: of the reward of all flows, of pool.reward.REWARDS; None for those that networks name.
            shape: what becomes of the rewards.
        """
        self._name, self._names, self._shape = name, list(REWARDS_OF_POOL), shape
        self._which, self._competitors = np.zeros(slots, np.int64), np.ones(slots)

    def begin(self, slot: int, environment: Environment, flow: Flow) -> None:
        """Put a flow of an environment into a slot."""
        self._which[slot] = self._names.index(check_reward(self._name or environment.reward))
        bottleneck = environment.narrowest(flow)
        self._competitors[slot] = sum(bottleneck in environment.path(other) for other in environment.all_flows)

    def rewards(self, measured: Doubles, samples: npt.NDArray[np.void], slots: Ints) -> Doubles:
        """Return the rewards."""
        which = self._which[slots]
        present, positions = np.unique(which, return_inverse=True)
        names = [self._names[each] for each in present]
        rate, loss, capacity, rtt_rate = measured
        ticks = Measured(rate, loss, capacity, rtt_rate, self._competitors[slots])
        found = rewards_of_pool(names, positions, ticks)
        return np.asarray(self._shape(found), np.float64)


class Fair:
    """R1, graded, while a flow is alone, and else what is `shared`."""

    def __init__(self, slots: int) -> None:
        """Start with no flow."""
        self._company = _Company(slots)

    def begin(self, slot: int, environment: Environment, flow: Flow) -> None:
        """Put a flow of an environment into a slot."""
        self._company.begin(slot, environment, flow)

    def rewards(self, measured: Doubles, samples: npt.NDArray[np.void], slots: Ints) -> Doubles:
        """Return the rewards."""
        rate, loss, capacity, rtt_rate = measured
        flows = self._company.flows(slots, samples["t_ns"].astype(np.int64))
        alone = graded(power(rate, loss, capacity, rtt_rate))
        return np.where(flows == 1, alone, shared(rate, loss, capacity, flows))


class _Company:
    """When which flows share the bottlenecks of flows, one slot per flow."""

    def __init__(self, slots: int) -> None:
        self._starts, self._stops = np.zeros((2, slots, 1), np.int64)  # ns; of no flow: from 0 to 0

    def begin(self, slot: int, environment: Environment, flow: Flow) -> None:
        """Put a flow of an environment into a slot."""
        bottleneck = environment.narrowest(flow)
        sharing = [other for other in environment.all_flows if bottleneck in environment.path(other)]
        if missing := max(0, len(sharing) - self._starts.shape[1]):
            wider = ((0, 0), (0, missing))
            self._starts, self._stops = np.pad(self._starts, wider), np.pad(self._stops, wider)
        self._starts[slot] = self._stops[slot] = 0
        for number, other in enumerate(sharing):
            self._starts[slot, number] = round(other.start_s * 1e9)
            self._stops[slot, number] = round(environment.stop_of(other) * 1e9)

    def flows(self, slots: Ints, t_ns: Ints) -> Doubles:
        """Return how many flows are up at the bottlenecks of flows at a time, themselves among them [n]."""
        up = (self._starts[slots] <= t_ns[:, None]) & (t_ns[:, None] < self._stops[slots])
        return np.asarray(np.maximum(up.sum(axis=1), 1), np.float64)


Formula = Callable[[Doubles, Doubles, Doubles, Doubles, Doubles], Doubles]
"""From throughput, loss, highest throughput, lowest RTT and smoothed RTT to rewards, as `orca`."""


class IntervalEarnings:
    """A formula's value over the interval since a flow was shown last."""

    def __init__(self, formula: Formula, slots: int) -> None:
        """Start with no flow.

        Args:
            formula: the reward.
            slots: number of slots.
        """
        self._reward = formula
        self._intervals, self._max_rate = Intervals(slots), np.zeros(slots)

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
        srtt = samples["srtt_us"].astype(np.float64)
        return self._reward(report.rate_bytes_s, report.lost_bytes_s, max_rate, min_rtts_us(samples), srtt)


class AuroraEarnings:
    """Aurora's reward of the interval since a flow was shown last."""

    def __init__(self, slots: int) -> None:
        """Start with no flow."""
        self._intervals = Intervals(slots)

    def begin(self, slot: int, environment: Environment, flow: Flow) -> None:
        """Put a flow of an environment into a slot."""
        self._intervals.reset(slot)

    def update(self, samples: npt.NDArray[np.void], slots: Ints) -> None:
        """Take one row of each flow."""
        self._intervals.update(samples, slots)

    def earned(self, shown: Bools) -> Doubles:
        """Return the rewards."""
        (samples,) = some(shown, self._intervals.samples)
        report = self._intervals.report(shown)
        packets_s = report.delivered_bytes_s / np.maximum(samples["mss_bytes"].astype(np.float64), 1.0)
        ended = report.delivered_bytes_s + report.lost_bytes_s
        loss = report.lost_bytes_s / np.where(ended > 0, ended, np.inf)
        return aurora(packets_s, report.rtt_us / 1e6, loss)


class AstraeaEarnings:
    """Astraea's reward of all flows of a lab as they are now."""

    def __init__(self, competition: Competition, flows: int) -> None:
        """Take what is known of all flows.

        Args:
            competition: updated before this at each tick.
            flows: slots per lab.
        """
        self._competition, self._flows = competition, flows
        self._labs = np.zeros(0, np.int64)

    def begin(self, slot: int, environment: Environment, flow: Flow) -> None:
        """Do nothing: the competition knows."""

    def update(self, samples: npt.NDArray[np.void], slots: Ints) -> None:
        """Take one row of each flow."""
        self._labs = slots // self._flows

    def earned(self, shown: Bools) -> Doubles:
        """Return the rewards."""
        labs, rows = np.unique(self._labs[shown], return_inverse=True)
        return self._competition.rewards(labs)[rows]


@dataclass(frozen=True)
class Place:
    """Where a reward is earned."""

    source: ObservationSource
    """What is observed."""
    labs: int
    """Number of labs."""
    flows: int
    """Slots per lab."""
    competition: Competition | None
    """What is known of all flows, for a reward that competes; it is updated before the reward."""

    @property
    def slots(self) -> int:
        """Number of slots."""
        return self.labs * self.flows


@dataclass(frozen=True)
class Reward:
    """A reward."""

    earnings: Callable[[Place], Earnings]
    """Makes what flows earn at a place."""
    competes: bool = False
    """Whether it needs the place's competition."""


def per_tick(make: Callable[[int], PerTick]) -> Reward:
    """Return the mean of a reward of each tick, which `make` makes for so many slots."""
    return Reward(lambda place: PoolEarnings(make(place.slots), place.source, place.slots))


def of_interval(formula: Formula) -> Reward:
    """Return the reward that is a formula of the interval since the last decision."""
    return Reward(lambda place: IntervalEarnings(formula, place.slots))


def _of_all_flows(place: Place) -> Earnings:
    if place.competition is None:
        raise ValueError("this reward needs a competition")
    return AstraeaEarnings(place.competition, place.flows)


REWARDS: dict[str, Reward] = {
    "pool": per_tick(OfPool),
    "pool-log": per_tick(partial(OfPool, shape=graded)),
    "pool-fair": per_tick(Fair),
    "power": per_tick(partial(OfPool, name="power")),
    "friendliness": per_tick(partial(OfPool, name="friendliness")),
    "orca": of_interval(orca),
    "orca-paper": of_interval(orca_paper),
    "astraea": Reward(_of_all_flows, competes=True),
    "aurora": Reward(lambda place: AuroraEarnings(place.slots)),
}
"""By the name that a task has for it. A reward of one's own is an entry here, and nothing else."""


def reward_of(name: str) -> Reward:
    """Return the reward of a name; raises SageccError where there is none."""
    if name not in REWARDS:
        raise SageccError(f"task: reward must be one of {', '.join(REWARDS)}, not {name!r}")
    return REWARDS[name]
