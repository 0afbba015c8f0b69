# SPDX-License-Identifier: Apache-2.0
"""The online training loop: rounds of updates, and between them whatever is due: a checkpoint, an evaluation, a stop.

With one actor process a round's decisions and its updates happen at the same time, each from what the round before
left: the actor has the weights after that round, the learner the records. So the bytes are the same each time. With
several, actors play on and on; the learner takes what there is and publishes its weights after each round. It never
gets ahead of the configuration's updates per decision, and waits for nothing else.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from sagecc.common.arrays import Floats, Ints
from sagecc.common.errors import SageccError
from sagecc.common.tensorflow_runtime import tf
from sagecc.learner.evaluation import Candidates
from sagecc.learner.journal import TrainingJournal
from sagecc.learner.loop import Result, Saving, diverged, evaluate
from sagecc.learner.online.actors import Actors, ActorSpec
from sagecc.learner.online.config import OnlineConfig
from sagecc.learner.online.dagger import Dagger
from sagecc.learner.online.replay import Replay, ReplayBatch
from sagecc.learner.online.td3 import Td3
from sagecc.learner.signals import HeldSignals

REWARD_METRIC = "reward_mean"
"""Behind the metrics of a round's updates: the mean reward of the decisions beside them."""

LOOK_S = 0.002
"""Time between two looks at free-running actors for which the learner waits."""

_OF_ACTOR = "actor/"
_WRITTEN, _CHECKSUMS, _RANDOM = "replay/written", "replay/checksums", "replay/random"
_COUNTERS = "actors/counters"


def run(
    config: OnlineConfig,
    specs: Sequence[ActorSpec],
    seed: int,
    *,
    logs: Path,
    fingerprint: str,
    saving: Saving,
    candidates: Candidates | None = None,
) -> Result:
    """Train from the last checkpoint (or from the start) to the configuration's last step.

    Args:
        config: The configuration.
        specs: The actor processes.
        seed: Seed of the run.
        logs: The run's folder.
        fingerprint: What only this run has; a checkpoint of another is refused.
        saving: When the checkpoint is written.
        candidates: The policies to evaluate; none by default.

    Raises:
        SageccError: The run diverges, its checkpoint is damaged, or an actor fails.
        KeyboardInterrupt: SIGINT ended it between two rounds, with the checkpoint written.
        SystemExit: SIGTERM or SIGHUP did (exit code 143 or 129).
    """
    layout = specs[0].layout
    learner: Td3 | Dagger
    if config.algorithm == "dagger":
        learner = Dagger(config, layout.observations)
    else:
        learner = Td3(config, layout.observations, layout.states, seed)
    metrics = (*learner.metrics, REWARD_METRIC)
    rounds = max(1, min(100, config.steps // config.round_steps // 20))
    journal = TrainingJournal(learner, logs, fingerprint, every=rounds * config.round_steps, metrics=metrics)
    begin, begun = journal.restore(), time.perf_counter()
    waited_s = evaluating_s = 0.0
    if begin < config.steps or (candidates and config.steps not in journal.scores):
        if gone := [spec.ring_path for spec in specs if begin and not spec.ring_path.exists()]:
            raise SageccError(
                f"{gone[0]}, the replay of the run in {logs}, is gone: remove that folder and train again"
            )
        with Actors(specs) as actors:
            loop = _Loop(
                config=config,
                learner=learner,
                actors=actors,
                replay=Replay(actors.rings, layout, seed),
                journal=journal,
                saving=saving,
                candidates=candidates,
            )
            loop.run(begin)
            waited_s, evaluating_s = loop.waited_s, loop.evaluating_s
    seconds = time.perf_counter() - begun - evaluating_s
    if candidates and candidates.evaluation.best_by:
        step, weights = candidates.best(journal.scores)
    else:
        step, weights = config.steps, _arrays(learner.exported())
    return Result(
        weights=weights,
        step=step,
        curve=journal.curve(),
        scores=journal.scores,
        steps=config.steps - begin,
        seconds=seconds,
        evaluating_s=evaluating_s,
        waiting=waited_s / seconds,
    )


@dataclass(kw_only=True)
class _Loop:
    """The parts of a run that each round uses."""

    config: OnlineConfig
    """The configuration."""
    learner: Td3 | Dagger
    """The learner."""
    actors: Actors
    """The actor processes."""
    replay: Replay
    """Their records."""
    journal: TrainingJournal
    """Checkpoint, metrics and scores."""
    saving: Saving
    """When the checkpoint is written."""
    candidates: Candidates | None
    """The policies to evaluate; None for no evaluation."""
    evaluating_s: float = field(default=0.0, init=False)
    """Time that evaluations took so far."""
    waited_s: float = field(default=0.0, init=False)
    """Time that the learner has waited for actors so far."""
    _rewards: tuple[float, int] = field(default=(0.0, 0), init=False)
    """Sum and number of all rewards up to the last round."""

    @property
    def alone(self) -> bool:
        """Whether there is one actor process, which plays a round at a time."""
        return len(self.replay.rings) == 1

    def run(self, step: int) -> None:
        last, size = self.config.steps, self.config.round_steps
        held, saved = HeldSignals(), time.monotonic()
        with held, tqdm(total=last, initial=step, unit="step", desc="train", disable=None) as bar:
            self._begin(held)
            self._evaluate(step, held, bar)  # an evaluation that was interrupted
            while step < last and held.noted is None:
                values = self._round()
                step += size
                self._record(step, values)
                bar.update(size)
                if step % self.journal.every == 0:
                    bar.set_postfix(loss=f"{values[0]:.3g}", reward=f"{values[-1]:.3g}")
                by_steps = self.saving.steps and step % self.saving.steps < size
                due = by_steps or self._evaluation_due(step) or step >= last or held.noted is not None
                if due or self.actors.crowded() or time.monotonic() - saved > self.saving.seconds:
                    self._save()
                    saved = time.monotonic()
                if held.noted is None:
                    self._evaluate(step, held, bar)
        if held.noted is not None:
            tqdm.write(f"stopped at step {step} of {last}; the same command goes on from there", file=sys.stderr)
            held.obey()

    def _begin(self, held: HeldSignals) -> None:
        """Start the actors where the checkpoint says, or play the warm-up."""
        extra = self.journal.extra
        self.actors.weights.write(_arrays(self.learner.acting()))
        if extra:
            written: Ints = extra[_WRITTEN]
            for ring, count, checksum in zip(self.replay.rings, written, extra[_CHECKSUMS], strict=True):
                if not ring.holds(int(count), int(checksum)):
                    raise SageccError(
                        f"{ring.path}, the replay of the run in {self.journal.folder}, is damaged: remove that folder "
                        "and train again"
                    )
            self.actors.durable(written)
            self.replay.random.bit_generator.state = json.loads(extra[_RANDOM].tobytes())
            if self.alone:
                state = {name.removeprefix(_OF_ACTOR): x for name, x in extra.items() if name.startswith(_OF_ACTOR)}
                self.actors.restore(state)
            else:
                self.actors.begin(extra[_COUNTERS].tobytes())
            self.replay.written = written
        else:
            self.actors.begin()
        if not self.alone:
            self.actors.start(0)
        self._warm_up(held)
        self._rewards = self._all_rewards()

    def _warm_up(self, held: HeldSignals) -> None:
        """Let the actors play until there is something to learn from, in parts, so that a signal is heeded."""
        part = self.config.round_decisions
        while self._decisions() < self.config.warm_up or not len(self.replay):
            if self.alone:
                self.actors.start(part)
                self.actors.finished()
            else:
                self.actors.check()
                time.sleep(LOOK_S)
            # Nothing is lost before the first checkpoint, so all places can be written again.
            self.replay.written = self.actors.written
            self.actors.durable(self.replay.written)
            if held.noted is not None:
                held.obey()

    def _round(self) -> npt.NDArray[np.float64]:
        """Learn and let the actors play; return the metrics of the updates and REWARD_METRIC."""
        self.actors.weights.write(_arrays(self.learner.acting()))
        if self.alone:
            self.actors.start(self.config.round_decisions)
        batches = self.replay.sample(self.config.round_steps, self.config.batch)
        values = self.learner.learn(ReplayBatch(*(tf.constant(np.ascontiguousarray(x)) for x in batches))).numpy()
        begun = time.perf_counter()
        if self.alone:
            self.actors.finished()
        else:
            self._keep_pace()
        self.waited_s += time.perf_counter() - begun
        self.replay.written = self.actors.written
        total, count = self._all_rewards()
        mean = (total - self._rewards[0]) / max(1, count - self._rewards[1])
        self._rewards = total, count
        return np.array([*values.tolist(), mean])

    def _keep_pace(self) -> None:
        """Wait while there are more updates per decision than the configuration has."""
        self.actors.check()
        rounds = int(self.learner.steps.numpy()) // self.config.round_steps
        while self._decisions() < self.config.warm_up + rounds * self.config.round_decisions:
            self.actors.check()
            if self.actors.crowded():
                return  # they wait for a checkpoint
            time.sleep(LOOK_S)

    def _record(self, step: int, values: npt.NDArray[np.float64]) -> None:
        if diverged(values):
            first, second, *_ = self.learner.metrics
            raise SageccError(
                f"training diverged at step {step} ({first} {values[0]:g}, {second} {values[1]:g}): lower the "
                "learning rates, then train again"
            )
        counters = self.actors.counters
        latest = {name: int(counters[name].sum()) for name in ("decisions", "episodes", "given_up")}
        self.journal.add(step, values, self.waited_s, steps=self.config.round_steps, latest=latest)

    def _save(self) -> None:
        """Write the checkpoint: what it says of the replay is in the files before it."""
        for ring in self.replay.rings:
            ring.sync()
        state = json.dumps(self.replay.random.bit_generator.state).encode()
        written = self.replay.written
        sums = [ring.checksum(int(n)) for ring, n in zip(self.replay.rings, written, strict=True)]
        extra: dict[str, npt.NDArray[Any]] = {
            _WRITTEN: written,
            _CHECKSUMS: np.array(sums, np.uint32),
            _RANDOM: np.frombuffer(state, np.uint8),
        }
        if self.alone:
            extra |= {_OF_ACTOR + name: value for name, value in self.actors.state().items()}
        else:
            counters = self.actors.counters.copy()
            counters["written"] = written
            extra[_COUNTERS] = np.frombuffer(counters.tobytes(), np.uint8)
        self.journal.save(extra)
        self.actors.durable(written)

    def _decisions(self) -> int:
        return int(self.actors.counters["decisions"].sum())

    def _all_rewards(self) -> tuple[float, int]:
        counters = self.actors.counters
        return float(counters["reward_sum"].sum()), int(counters["rewards"].sum())

    def _evaluation_due(self, step: int) -> bool:
        if self.candidates is None or step in self.journal.scores or step == 0:
            return False
        evaluation = self.candidates.evaluation
        return step % evaluation.every < self.config.round_steps or step == self.config.steps

    def _evaluate(self, step: int, held: HeldSignals, bar: tqdm[Any]) -> None:
        """Evaluate the policy if that is due; the checkpoint of this step is written, so a kill loses nothing."""
        if self.candidates is None or not self._evaluation_due(step):
            return
        self.evaluating_s += evaluate(self.candidates, step, _arrays(self.learner.exported()), self.journal, held)
        bar.unpause()


def _arrays(weights: Mapping[str, Any]) -> dict[str, Floats]:
    return {name: variable.numpy() for name, variable in weights.items()}
