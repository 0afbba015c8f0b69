# SPDX-License-Identifier: Apache-2.0
"""Learning in labs: rounds in which actors play and the learner takes updates on the replay of what they played.

A run may go on from a policy (learner.online.beginning), and its batches have a pool's windows (.pool_part).

With one actor process a round's decisions and its updates happen at the same time, each from what the round before
left: the actor has the weights after that round, the learner the records. So the bytes are the same each time. With
several, actors play on and on; the learner takes what there is and publishes its weights after each round. It never
gets ahead of the specification's updates per decision, and waits for nothing else.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Floats, Ints
from sagecc.common.errors import SageccError
from sagecc.common.marks import Mark
from sagecc.learner import runs
from sagecc.learner.continuation import CHECKPOINT
from sagecc.learner.core import Batch
from sagecc.learner.experience import Experience, Source
from sagecc.learner.online.actors import Actors, ActorSpec
from sagecc.learner.online.beginning import check_policy, policy_identity
from sagecc.learner.online.labs import OnlineTask
from sagecc.learner.online.pool_part import PoolPart, PoolWindowsBeside
from sagecc.learner.online.replay import SPARE_SHARE, Layout, Replay
from sagecc.learner.signals import HeldSignals
from sagecc.learner.specification import LabSettings, RunSpecification
from sagecc.policy.artefact import PolicyArtefact
from sagecc.policy.scaling import Scaling

REPLAY = "replay"
"""Folder within the run's."""

REPLAY_MARK = Mark(
    "a replay's",
    r"ring-\d+\.f32|weights\.f32|counters|run\.json",
    lambda folder: runs.recorded_run_id(folder) is not None,
)

REWARD_METRIC = "reward_mean"
"""Behind the metrics of a round's updates: the mean reward of the decisions beside them."""

LOOK_S = 0.002
"""Time between two looks at free-running actors for which the learner waits."""

_OF_ACTOR = "actor/"
_WRITTEN, _CHECKSUMS, _RANDOM = "replay/written", "replay/checksums", "replay/random"
_COUNTERS = "actors/counters"


class LabExperience(Experience):
    """What is learned in labs; see Experience.

    With one actor process a killed run continues bit for bit; with several it goes on with the same weights, optimiser
    state and replay, and new episodes.

    Args:
        specification: the run's.
        task: what is learned.
        seed: the run's.
        actors: number of actor processes, each with its share of the labs.
        replay: folder of the replay, by default in the run's; one in a memory file system keeps it in memory.
        policy: what to go on from: its weights and its scaling of the inputs. None: new ones.
        pool: the pool of a specification with a section `pool`, and the folder where it is compiled to.

    Raises:
        SageccError: The numbers, the policy or the pool do not fit.
    """

    metrics = (REWARD_METRIC,)

    def __init__(
        self,
        specification: RunSpecification,
        task: OnlineTask,
        seed: int,
        actors: int = 1,
        replay: Path | None = None,
        policy: PolicyArtefact | None = None,
        pool: tuple[Path, Path] | None = None,
    ) -> None:
        labs = specification.labs
        if labs is None:
            raise SageccError("training configuration: it learns from a pool, not in labs")
        self._specification, self._labs, self._task, self._seed = specification, labs, task, seed
        self._actors, self._replay = actors, replay
        if task.control.limits != (-1.0, 1.0):
            raise SageccError(
                f"actions must have the limits -1 and 1, not {task.control.limits}: set the control's base"
            )
        if not 1 <= actors <= labs.count:
            raise SageccError(f"{actors} actor processes cannot share {labs.count} labs: from 1 to that many")
        share = labs.replay // actors
        if labs.round_decisions + labs.count > SPARE_SHARE / 2 * share:
            raise SageccError(
                f"a replay of {share:,} records in each actor is too small for rounds of {labs.round_decisions:,} "
                "decisions: it takes eight times as many and more"
            )
        self.observations, self.states, self.source = task.observations, task.states, task.source
        network, zeros = specification.network, np.zeros(len(task.observations), np.float32)
        self.scaling = Scaling(network.input_transform, zeros, np.ones_like(zeros), network.input_limit)
        self._policy, self._pool = policy, None
        if policy:
            check_policy(policy, specification, task)
            self.scaling, self.weights = policy.scaling, policy.weights
        if specification.pool:
            if pool is None:
                raise SageccError("training configuration: it has a pool's windows in its replay: give the pool")
            self._pool = PoolPart(specification, task, self.scaling, *pool, seed)
        self.control = task.control
        self.own = (replay,) if replay else ()

    def identity(self) -> list[Any]:
        """Return what decides the data."""
        policy, pool = self._policy, self._pool
        return [
            *(self._task.identity, self._actors),
            *([{"policy": policy_identity(policy)}] if policy else []),
            *([{"pool": pool.identity}] if pool else []),
        ]

    def about(self) -> dict[str, Any]:
        """Return what the run's file says of it."""
        return {"task": self._task.identity}

    def provenance(self) -> dict[str, Any]:
        """Return what the policy's card says of it."""
        policy, pool = self._policy, self._pool
        found = {"actors": self._actors, **({"pool": pool.provenance()} if pool else {})}
        return found | ({"started_from": {"identity": policy_identity(policy)}} if policy else {})

    def check(self, run_id: str) -> None:
        """Raise SageccError where the replay's folder holds anything but this run's replay."""
        if self._replay:
            check_replay(self._replay, run_id)

    def prepare(self, logs: Path, run_id: str) -> None:
        """Make the replay's folder ready."""
        folder = self._folder(logs)
        if not (logs / CHECKPOINT).exists():
            REPLAY_MARK.clear(folder)
        runs.write_run(folder, run_id)

    def open(self, logs: Path, part: slice, begin: int) -> LabSource:
        """Return the source; see Experience.

        Raises:
            SageccError: The replay of a run that goes on is gone.
        """
        specs = self.actor_specs(self._folder(logs))
        if gone := [spec.ring_path for spec in specs if begin and not spec.ring_path.exists()]:
            raise SageccError(
                f"{gone[0]}, the replay of the run in {logs}, is gone: remove that folder and train again"
            )
        beside = self._pool.open() if self._pool else None
        return LabSource(specs, self._labs, self._specification.batch, self._seed, logs, begin, beside)

    def close(self, logs: Path) -> None:
        """Remove the replay."""
        REPLAY_MARK.remove_own(self._folder(logs))

    def actor_specs(self, folder: Path) -> list[ActorSpec]:
        """Return the actor processes, among which the labs are shared as equally as can be.

        Args:
            folder: where the shared memory's files lie.
        """
        specification, labs, task, actors = self._specification, self._labs, self._task, self._actors
        bounds = [labs.count * i // actors for i in range(actors + 1)]
        return [
            ActorSpec(
                make_labs=task.make_labs,
                network=specification.network.sizes(len(task.observations)),
                scaling=self.scaling,
                exploration=specification.algorithm.exploring(0 if self._policy else labs.warm_up),
                layout=Layout(specification.window, len(task.observations), task.states),
                folder=folder,
                index=i,
                processes=actors,
                first_lab=bounds[i],
                labs=bounds[i + 1] - bounds[i],
                all_labs=labs.count,
                replay=labs.replay // actors,
                seed=self._seed,
            )
            for i in range(actors)
        ]

    def _folder(self, logs: Path) -> Path:
        return self._replay or logs / REPLAY


def check_replay(folder: Path, run_id: str) -> None:
    """Raise SageccError where a replay's folder holds anything but this run's replay."""
    REPLAY_MARK.check_whole(folder)
    if runs.recorded_run_id(folder) not in (None, run_id):
        raise SageccError(
            f"{folder} holds the replay of another run, which has not ended: name another folder with --replay, or "
            "remove this one"
        )


class LabSource(Source):
    """The replay of actors' labs, as many batches as a round has updates; see Source.

    Args:
        specs: the actor processes.
        labs: how they play.
        batch: records per update.
        seed: seed of the sampling.
        logs: the run's folder.
        begin: updates taken so far.
        beside: a pool's windows in each batch; None for none.

    Raises:
        SageccError: From most methods: an actor failed, or was killed.
    """

    def __init__(
        self,
        specs: Sequence[ActorSpec],
        labs: LabSettings,
        batch: int,
        seed: int,
        logs: Path,
        begin: int = 0,
        beside: PoolWindowsBeside | None = None,
    ) -> None:
        self._specs, self._labs, self._batch, self._seed, self._logs = specs, labs, batch, seed, logs
        self._begin, self._beside, self._opened = begin, beside, ExitStack()
        self._rewards: tuple[float, int] = (0.0, 0)
        """Sum and number of all rewards up to the last round."""

    def __enter__(self) -> LabSource:
        if self._beside:
            self._opened.enter_context(self._beside)
        self._actors = Actors(self._specs)
        self._replay = Replay(self._actors.rings, self._specs[0].layout, self._seed)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._opened:
            self._actors.close()

    @property
    def _alone(self) -> bool:
        """Whether there is one actor process, which plays a round at a time."""
        return len(self._specs) == 1

    def begin(self, kept: Mapping[str, npt.NDArray[Any]], weights: dict[str, Floats], held: HeldSignals) -> None:
        """Start the actors where the checkpoint says, or play the warm-up.

        Raises:
            SageccError: The replay is damaged.
        """
        self._actors.weights.write(weights)
        if kept:
            self._restore(kept)
        else:
            self._actors.begin()
        if not self._alone:
            self._actors.start(0)
        self._warm_up(held)
        self._rewards = self._all_rewards()

    def _restore(self, kept: Mapping[str, npt.NDArray[Any]]) -> None:
        written: Ints = kept[_WRITTEN]
        for ring, count, checksum in zip(self._replay.rings, written, kept[_CHECKSUMS], strict=True):
            if not ring.holds(int(count), int(checksum)):
                raise SageccError(
                    f"{ring.path}, the replay of the run in {self._logs}, is damaged: remove that folder and train "
                    "again"
                )
        self._actors.durable(written)
        self._replay.random.bit_generator.state = json.loads(kept[_RANDOM].tobytes())
        if self._alone:
            state = {name.removeprefix(_OF_ACTOR): x for name, x in kept.items() if name.startswith(_OF_ACTOR)}
            self._actors.restore(state)
        else:
            self._actors.begin(kept[_COUNTERS].tobytes())
        self._replay.written = written

    def _warm_up(self, held: HeldSignals) -> None:
        """Let the actors play until there is something to learn from, in parts, so that a signal is heeded."""
        while self._decisions() < self._labs.warm_up or not len(self._replay):
            if self._alone:
                self._actors.start(self._labs.round_decisions)
                self._actors.finished()
            else:
                self._actors.check()
                time.sleep(LOOK_S)
            # Nothing is lost before the first checkpoint, so all places can be written again.
            self._replay.written = self._actors.written
            self._actors.durable(self._replay.written)
            if held.noted is not None:
                held.obey()

    def next(self, acting: Callable[[], dict[str, Floats]]) -> Batch:
        """Let the actors play with these weights, and return batches of what they played before."""
        self._actors.weights.write(acting())
        if self._alone:
            self._actors.start(self._labs.round_decisions)
        batches = Batch(*map(np.ascontiguousarray, self._replay.sample(self._labs.round_steps, self._batch)))
        if self._beside:
            self._beside.mix(batches, self._begin)
        self._begin += self._labs.round_steps
        return batches

    def after(self, step: int) -> Sequence[float]:
        """Wait for what the actors play in this round; return its mean reward."""
        begun = time.perf_counter()
        if self._alone:
            self._actors.finished()
        else:
            self._keep_pace(step)
        self.waited_s += time.perf_counter() - begun
        self._replay.written = self._actors.written
        total, count = self._all_rewards()
        mean = (total - self._rewards[0]) / max(1, count - self._rewards[1])
        self._rewards = total, count
        return (mean,)

    def _keep_pace(self, step: int) -> None:
        """Wait while there are more updates per decision than the specification has."""
        self._actors.check()
        rounds = step // self._labs.round_steps
        while self._decisions() < self._labs.warm_up + rounds * self._labs.round_decisions:
            self._actors.check()
            if self._actors.crowded():
                return  # they wait for a checkpoint
            time.sleep(LOOK_S)

    def latest(self) -> Mapping[str, float]:
        """Return how much has been played."""
        counters = self._actors.counters
        played = {name: int(counters[name].sum()) for name in ("decisions", "episodes", "given_up")}
        return played | ({"pool_share": self._beside.share} if self._beside else {})

    def pressing(self) -> bool:
        """Tell whether actors soon have no room without a checkpoint."""
        return self._actors.crowded()

    def kept(self) -> dict[str, npt.NDArray[Any]]:
        """Return what a checkpoint must hold: what it says of the replay is in the files before it."""
        for ring in self._replay.rings:
            ring.sync()
        state = json.dumps(self._replay.random.bit_generator.state).encode()
        written = self._replay.written
        sums = [ring.checksum(int(n)) for ring, n in zip(self._replay.rings, written, strict=True)]
        kept: dict[str, npt.NDArray[Any]] = {
            _WRITTEN: written,
            _CHECKSUMS: np.array(sums, np.uint32),
            _RANDOM: np.frombuffer(state, np.uint8),
        }
        if self._alone:
            return kept | {_OF_ACTOR + name: value for name, value in self._actors.state().items()}
        counters = self._actors.counters.copy()
        counters["written"] = written
        return kept | {_COUNTERS: np.frombuffer(counters.tobytes(), np.uint8)}

    def saved(self) -> None:
        """Let the actors write over what the checkpoint no longer needs."""
        self._actors.durable(self._replay.written)

    def _decisions(self) -> int:
        return int(self._actors.counters["decisions"].sum())

    def _all_rewards(self) -> tuple[float, int]:
        counters = self._actors.counters
        return float(counters["reward_sum"].sum()), int(counters["rewards"].sum())
