# SPDX-License-Identifier: Apache-2.0
"""Several labs in step, for whoever learns: one batch of decisions in, the next batch of observations out.

Each step gives every kernel its actions and only then reads its samples, so that they run side by side on as many cores
as there are; observations, rewards and windows are computed for all of their flows at once. Gymnasium's and
PettingZoo's environments (congestion, vector, parallel) are this with another face.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.utils.seeding import np_random

from sagecc.common.arrays import Bools, Doubles, Floats, Ints, all_of, any_of
from sagecc.common.errors import SageccError
from sagecc.execution.agent.decisions import Decisions, Observed, joined
from sagecc.execution.agent.sources import observation_source
from sagecc.execution.environments.earnings import Place, earnings
from sagecc.execution.environments.flows import last_tick_ns
from sagecc.execution.environments.lab import Lab, Samples, check_count, drive
from sagecc.execution.environments.networks import DEFAULT, Agents, Candidates, Networks, agents, candidates, draw, room
from sagecc.execution.environments.task import LearningTask, checked_reward
from sagecc.execution.flow.competition import Competition
from sagecc.execution.flow.intervals import some
from sagecc.execution.lab.giving_up import GiveUp, LossWindow
from sagecc.execution.schemes.rivals import expert, global_state
from sagecc.schemas import wire
from sagecc.schemas.environment import Environment
from sagecc.schemas.schemes import NO_CODE, TrustedCode

WHO = "the task"
_NO_ROWS = np.zeros(0, np.int64)
_NO_FLAGS = np.zeros(0, np.bool_)
_NOBODY = Observed(np.zeros(0, wire.SAMPLE), _NO_ROWS, *[_NO_FLAGS] * 4)


@dataclass(frozen=True)
class Step:
    """The flows that decide now or end here, by lab and flow: R rows."""

    labs: Ints
    """Each row's lab [R]."""
    flows: Ints
    """Its flow's number in the lab's network [R]."""
    observations: Floats
    """Before scaling [R, F]."""
    rewards: Doubles
    """What the flow earned since its last row [R]; without meaning in its first."""
    first: Bools
    """Whether it is the flow's first row [R]: no action came before it."""
    over: Bools
    """Whether it is the flow's last [R]: it takes no action."""
    given_up: Bools
    """Whether it is the last because the episode is given up [R]: no terminal state, as nothing is earned by it."""
    samples: Samples
    """The kernel's raw counters, wire.SAMPLE [R]."""
    states: Floats
    """What the task has beside observations [R, G]: the global state of the row's lab, or what an expert would do."""

    @classmethod
    def join(cls, parts: Sequence[Step]) -> Step:
        """Return the rows of several, by lab and flow."""
        if len(parts) == 1:
            return parts[0]
        order = np.lexsort((np.concatenate([p.flows for p in parts]), np.concatenate([p.labs for p in parts])))
        columns = ((f.name, [getattr(part, f.name) for part in parts]) for f in fields(cls))
        whole: list[Any] = [joined(values) if name == "samples" else np.concatenate(values) for name, values in columns]
        return cls(*(values[order] for values in whole))


class Rollouts:
    """Episodes side by side, each in a lab of its own; one that is over is followed, at the next step, by another.

    A step runs each lab to the next tick at which a flow of its decides or ends, so that labs' clocks differ where
    their flows decide at different times.
    """

    def __init__(
        self,
        task: LearningTask,
        environment: Networks = DEFAULT,
        labs: int = 1,
        flows: Agents = None,
        kernel: Path | str | None = None,
        latency_ms: float = 0.0,
        max_steps: int | None = None,
        give_up: GiveUp | None = None,
        trusted: TrustedCode = NO_CODE,
    ) -> None:
        """Check that the networks and the kernel can be used; nothing is booted before `reset`.

        Args:
            task: what flows observe and do, and what they earn.
            environment: networks to draw from where the task names none; see networks.candidates.
            labs: number of episodes side by side.
            flows: which flows decide; see networks.Agents. The others keep the schemes that the network names.
            kernel: path of the lab's kernel, by default the checkout's or the installation's.
            latency_ms: virtual time from an observation to when its action takes effect.
            max_steps: end episodes after so many steps; None leaves them their networks' duration. A flow that does
                not decide at the last one has no last row.
            give_up: end an episode early whose flows that decide lose too many of their packets, all together; each of
                them that is up has its last row then. None: never.
            trusted: the code that files of networks may name.

        Raises:
            SageccError: an argument is bad, or there is no kernel.
        """
        check_count("max_steps", max_steps)
        reward = checked_reward(task.reward)
        self.task = task
        """What flows observe and do, and what they earn."""
        self._candidates = candidates(environment if task.networks is None else task.networks, trusted)
        self._chosen: Agents = flows if flows is None or isinstance(flows, str) else tuple(sorted(flows))
        self._max_steps = max_steps
        self.per_lab = room(self._candidates, self._chosen)
        """Flows that a lab has room for: flow f of lab l has the slot l * per_lab + f."""
        slots = labs * self.per_lab
        source = observation_source(task.source, task.observations, slots, WHO)
        self._decisions = Decisions(task.control, source, slots, WHO)
        driven = drive(latency_ms, task.control.underlying_scheme)
        self._labs = [Lab(kernel, driven) for _ in range(labs)]
        self._watch = give_up and _Floods(give_up, labs, self.per_lab)
        competes = reward.of == "network" or task.global_state
        self._competition = Competition(labs, self.per_lab) if competes else None
        self._global_state = global_state().function if task.global_state else None
        self._expert = expert().make() if task.expert else None
        weights = task.reward_weights or reward.weights
        self._earnings = earnings(reward, Place(source, labs, self.per_lab, self._competition, weights))
        self._generators: list[np.random.Generator | None] = [None] * labs
        self._last_ns = np.full(slots, -1)  # of each flow; -1: there is none
        self._lab_last_ns = np.zeros(labs, np.int64)
        self._up = np.zeros(slots, np.bool_)  # had a row, and not its last
        self._seen = np.zeros(slots, np.bool_)  # was shown
        self._running = np.zeros(labs, np.bool_)
        self._fresh = np.zeros(labs, np.bool_)  # booted and not read yet
        self._steps = np.zeros(labs, np.int64)
        self._waiting = _NOBODY  # the flows of all running labs, at their last ticks
        self._nothing = Step(
            labs=_NO_ROWS,
            flows=_NO_ROWS,
            observations=np.zeros((0, len(task.observations)), np.float32),
            rewards=np.zeros(0),
            first=_NO_FLAGS,
            over=_NO_FLAGS,
            given_up=_NO_FLAGS,
            samples=_NOBODY.samples,
            states=np.zeros((0, len(task.states)), np.float32),
        )
        self.episodes: dict[int, tuple[Environment, int]] = {}
        """By lab the network and the seed of its last episode."""

    @property
    def running(self) -> Bools:
        """Which labs' episodes run [labs]."""
        return self._running.copy()

    def reset(
        self,
        seeds: Sequence[int | None] | None = None,
        labs: Sequence[int] | None = None,
        environment: Candidates = (),
    ) -> Step:
        """Begin an episode in some labs; the ones under way there are ended.

        Args:
            seeds: of the labs' episodes, by default drawn; one draws the episode's network too.
            labs: which, by default all.
            environment: networks to draw from for these episodes alone.

        Returns:
            Their first rows.

        Raises:
            SageccError: bad input, or a kernel fails; all episodes are ended then.
        """
        numbers = list(range(len(self._labs)) if labs is None else labs)
        seed_list = [None] * len(numbers) if seeds is None else list(seeds)
        try:
            self._waiting = self._waiting.take(~np.isin(self._waiting.slots // self.per_lab, numbers))
            self._begin(dict(zip(numbers, seed_list, strict=True)), environment or self._candidates)
            return self._run(numbers)
        except BaseException:
            self.close()
            raise

    def step(self, actions: npt.ArrayLike, renew: bool = True) -> Step:
        """Give the flows that decide their actions and run each lab on; begin an episode where one was over.

        Args:
            actions: one for each row of the last steps that is not over, by lab and flow; beyond the task's limits they
                are clipped.
            renew: begin another episode where one was over; False leaves those labs to `reset`.

        Returns:
            The next rows.

        Raises:
            SageccError: bad input, or a kernel fails; all episodes are ended then.
        """
        values, waiting = np.asarray(actions, np.float64), self._waiting
        if values.shape != (count := np.count_nonzero(waiting.due),) or not all_of(np.isfinite(values)):
            raise SageccError(f"actions must be {count} finite numbers, not {actions!r:.60}")
        try:
            self._act(waiting, values)
            self._waiting = _NOBODY
            self._steps += self._running
            if renew and not all_of(self._running):
                self._begin(dict.fromkeys(np.flatnonzero(~self._running).tolist()), self._candidates)
            return self._run(np.flatnonzero(self._running).tolist())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all episodes."""
        self._waiting = _NOBODY
        for number in range(len(self._labs)):
            self._end(number)

    def _end(self, number: int) -> None:
        """End a lab's episode, if any."""
        self._running[number] = False
        self._labs[number].close()

    def _begin(self, seeds: Mapping[int, int | None], networks: Candidates) -> None:
        """Boot a kernel in each of these labs."""
        for number, given in seeds.items():
            environment, seed = draw(networks, given, self._random(number, given))
            driven = agents(environment, self._chosen)
            if driven[-1] >= min(environment.flow_count, self.per_lab):
                raise SageccError(
                    f"environment {environment.id} has flows 0 to {environment.flow_count - 1}, and this has room for"
                    f" {self.per_lab} and drives {list(driven)}"
                )
            flows = {flow: environment.all_flows[flow] for flow in driven}
            self._running[number] = True
            self._labs[number].start(environment, seed, driven)
            first = number * self.per_lab
            within = slice(first, first + self.per_lab)
            self._last_ns[within] = -1
            self._up[within] = self._seen[within] = False
            for flow, value in flows.items():
                self._decisions.reset(first + flow)
                self._earnings.begin(first + flow, environment, value)
                if self._expert:
                    self._expert.begin(first + flow, environment, value)
                self._last_ns[first + flow] = last_tick_ns(environment, value)
            if self._watch:
                self._watch.begin(number)
            if self._competition:
                self._competition.begin(number, environment, flows)
            self._lab_last_ns[number] = self._last_ns[within].max()
            self._steps[number], self._fresh[number] = 0, True
            self.episodes[number] = environment, seed

    def _random(self, lab: int, seed: int | None) -> np.random.Generator:
        """Return the lab's source of random numbers, begun anew with a seed."""
        random = self._generators[lab]
        if random is None or seed is not None:
            random, _ = np_random(seed)
            self._generators[lab] = random
        return random

    def _act(self, observed: Observed, actions: Doubles) -> None:
        """Set the windows of flows [B], by actions of those that decide; the others' stay, or are their scheme's."""
        if not len(observed.slots):
            return
        cwnd, pacing = (values.tolist() for values in self._decisions.act(observed, actions))
        labs = (observed.slots // self.per_lab).tolist()
        bounds = [0, *(row for row in range(1, len(labs)) if labs[row] != labs[row - 1]), len(labs)]
        for begin, end in pairwise(bounds):
            self._labs[labs[begin]].act(cwnd[begin:end], pacing[begin:end])

    def _run(self, labs: Sequence[int]) -> Step:
        """Run labs on, each to the next tick at which a flow of its is shown, or to its end."""
        steps, waiting, numbers = [self._nothing], [self._waiting], list(labs)
        while numbers and (observed := self._tick(numbers, steps)) is not None:
            if all_of(observed.shown) and not any_of(steps[-1].over):  # nothing to part: most ticks are so
                waiting.append(observed)
                break
            of_lab = observed.slots // self.per_lab
            stopped = np.isin(of_lab, steps[-1].labs)
            waiting.append(observed.take(stopped & self._running[of_lab]))
            resting = observed.take(~stopped)
            self._act(resting, np.zeros(0))
            numbers = np.unique(resting.slots // self.per_lab).tolist()
        self._waiting = Observed.join([part for part in waiting if len(part.slots)] or [_NOBODY])
        return Step.join([step for step in steps if len(step.labs)] or steps[:1])

    def _tick(self, labs: Sequence[int], steps: list[Step]) -> Observed | None:
        """Run labs to their next ticks and add what is shown there to `steps`; None where all of them are over."""
        read = [(number, samples) for number in labs if (samples := self._read(number)) is not None]
        if not read:
            return None
        samples = joined([rows for _, rows in read])
        of_lab = np.array([number for number, rows in read for _ in range(len(rows))])
        slots, now_ns = of_lab * self.per_lab + samples["flow"], samples["t_ns"].astype(np.int64)
        floods = self._watch.update(samples, slots) if self._watch else np.zeros(len(slots), np.bool_)
        ending = (now_ns >= self._last_ns[slots]) | floods
        self._up[slots] = ~ending
        observed, observations = self._decisions.observe(samples, slots, ending)
        shown = observed.shown
        if self._competition:
            self._competition.update(samples, slots, shown, ending)
        self._earnings.update(samples, slots)
        if not any_of(shown):
            steps.append(self._nothing)
            return observed
        shown_samples, rows, labs_shown = some(shown, samples, slots, of_lab)
        first = ~self._seen[rows]
        self._seen[rows] = True
        limited = self._steps[of_lab] == (self._max_steps or -1)
        states = np.zeros((len(rows), 0), np.float32)
        if self._competition and self._global_state:
            states = self._competition.states(labs_shown, self._global_state)
        elif self._expert:
            states = self._expert.actions(shown_samples, rows)
        steps.append(
            Step(
                labs=labs_shown,
                flows=rows % self.per_lab,
                observations=observations,
                rewards=np.where(first, 0.0, self._earnings.earned(shown)),
                first=first,
                over=(ending | limited)[shown],
                given_up=floods[shown],
                samples=shown_samples,
                states=states,
            )
        )
        if any_of(steps[-1].over):
            over = (now_ns >= self._lab_last_ns[of_lab]) | (limited & shown) | floods
            for number in np.unique(of_lab[over]).tolist():
                self._end(number)
        return observed

    def _read(self, number: int) -> Samples | None:
        """Run a lab to its next tick, which it must have while a flow is up; None where it is over without one."""
        samples = self._labs[number].tick()
        if samples is None:
            if self._fresh[number]:
                raise self._labs[number].failure("the flow never got through")
            if self._up[number * self.per_lab : (number + 1) * self.per_lab].any():
                raise self._labs[number].failure("it ended before its time")
            self._end(number)
        self._fresh[number] = False
        return samples


class _Floods:
    """Which labs' episodes are to be given up: by what the flows that decide there lost, all together."""

    def __init__(self, give_up: GiveUp, labs: int, per_lab: int) -> None:
        self._give_up, self._per_lab = give_up, per_lab
        self._windows = [LossWindow(give_up) for _ in range(labs)]
        self._passed, self._lost = np.zeros((2, labs, per_lab), np.int64)  # packets of each flow so far

    def begin(self, lab: int) -> None:
        """Forget a lab's episode."""
        self._windows[lab] = LossWindow(self._give_up)
        self._passed[lab] = self._lost[lab] = 0

    def update(self, samples: Samples, slots: Ints) -> Bools:
        """Take a tick's samples, lab by lab; return which of them are of labs whose episodes are to be given up."""
        of_lab = slots // self._per_lab
        begins = np.append(True, of_lab[1:] != of_lab[:-1])
        first = np.flatnonzero(begins)
        labs = of_lab[first]
        self._passed.reshape(-1)[slots], self._lost.reshape(-1)[slots] = samples["link_packets"], samples["link_drops"]
        counters = samples["t_ns"][first], self._passed[labs].sum(axis=1), self._lost[labs].sum(axis=1)
        ticks = zip(labs.tolist(), *(values.tolist() for values in counters), strict=True)
        floods = [self._windows[lab].flooded(*counted) is not None for lab, *counted in ticks]
        return np.asarray(np.array(floods)[np.cumsum(begins) - 1])
