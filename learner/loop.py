# SPDX-License-Identifier: Apache-2.0
"""The training loop: rounds of updates, and between them whatever is due: a checkpoint, an evaluation, a stop."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from sagecc.common.arrays import Doubles, Floats
from sagecc.common.errors import SageccError
from sagecc.learner import histograms
from sagecc.learner.core import Learner, Setting
from sagecc.learner.evaluation import Candidates
from sagecc.learner.experience import Experience, Source
from sagecc.learner.journal import TrainingJournal
from sagecc.learner.optimisers import in_turn
from sagecc.learner.signals import HeldSignals
from sagecc.learner.specification import RunSpecification
from sagecc.learner.strategy import Step, StepResult, Strategy

DIVERGED = 1e6
"""A loss beyond this, or one that is not a number, ends the run."""

LOSSES = 2
"""Metrics, the first of an update, that must stay below it."""


@dataclass(frozen=True)
class Saving:
    """When the checkpoint is written."""

    seconds: float = 30.0
    """Time between checkpoints."""
    steps: int = 0
    """Steps between checkpoints, in addition; 0 for by time alone."""


@dataclass(frozen=True)
class Result:
    """A trained policy, and how its training went."""

    weights: dict[str, Floats]
    """The policy's weights by name."""
    step: int
    """The step that they are of."""
    curve: list[dict[str, float]]
    """The metrics line by line, without timings."""
    scores: dict[int, dict[str, float]]
    """Scores of the evaluations, by step and name."""
    steps: int
    """Steps taken by this call."""
    seconds: float
    """Time of those steps."""
    evaluating_s: float
    """Time of evaluations, in addition."""
    waiting: float
    """Share of `seconds` spent waiting for data."""

    @property
    def metrics(self) -> dict[str, float]:
        """The last metrics."""
        return self.curve[-1]


@dataclass(frozen=True)
class Training:
    """What is trained, and where it computes."""

    specification: RunSpecification
    """The run's."""
    experience: Experience
    """What it learns from."""
    seed: int
    """The run's."""
    strategy: Strategy
    """Where it computes."""
    logs: Path
    """The run's folder."""

    def learner(self) -> Learner:
        """Return a new learner, on every replica."""
        specification, experience = self.specification, self.experience
        setting = Setting(
            network=specification.network,
            observations=len(experience.observations),
            states=experience.states,
            burn_in=specification.burn_in,
            window=specification.transitions + 1,
            steps=specification.steps,
            seed=self.seed,
            value_range=experience.value_range,
            weights=experience.weights,
        )
        return self.strategy.build(lambda: specification.algorithm.learner(setting))

    def source(self, begin: int) -> Source:
        """Return the source of this process's batches, from the update after `begin` on."""
        return self.experience.open(self.logs, self.strategy.part(self.specification.batch), begin)

    def stepper(self, learner: Learner) -> Step:
        """Return what takes a round's updates."""
        alone = self.specification.round_steps == 1
        return self.strategy.stepper(learner.update if alone else in_turn(learner.update, len(learner.metrics)))


def run(training: Training, run_id: str, saving: Saving = Saving(), candidates: Candidates | None = None) -> Result:
    """Train from the last checkpoint (or from the start) to the specification's last step.

    Of several workers this is the chief's part; the others call `follow`.

    Args:
        training: what is trained.
        run_id: what only this run has; a checkpoint of another is refused.
        saving: when the checkpoint is written.
        candidates: the policies to evaluate; none by default.

    Raises:
        SageccError: The run diverges, its checkpoint is damaged, or its source fails.
        KeyboardInterrupt: SIGINT ended it between two rounds, with the checkpoint written.
        SystemExit: SIGTERM or SIGHUP did (exit code 143 or 129).
    """
    learner, start, last = training.learner(), training.experience.start, training.specification.steps
    size = training.specification.round_steps
    rounds = (last - (start.steps if start else 0)) // size
    journal = TrainingJournal(
        learner,
        training.logs,
        run_id,
        every=max(1, min(100, rounds // 20)) * size,
        metrics=(*learner.metrics, *training.experience.metrics),
        start=start,
    )
    begin = journal.restore()
    training.strategy.broadcast(learner)
    begun, waited_s, evaluating_s = time.perf_counter(), 0.0, 0.0
    if begin < last or (candidates and last not in journal.scores):
        with training.source(begin) as source:
            loop = _Loop(
                training=training,
                learner=learner,
                source=source,
                take_step=training.stepper(learner),
                journal=journal,
                saving=saving,
                candidates=candidates,
            )
            loop.run(begin)
            waited_s, evaluating_s = source.waited_s, loop.evaluating_s
    seconds = time.perf_counter() - begun - evaluating_s
    if candidates and candidates.evaluation.best_by:
        step, weights = candidates.best(journal.scores)
    else:
        step, weights = last, arrays(learner.exported())
    return Result(
        weights=weights,
        step=step,
        curve=journal.curve(),
        scores=journal.scores,
        steps=last - begin,
        seconds=seconds,
        evaluating_s=evaluating_s,
        waiting=waited_s / seconds,
    )


def follow(training: Training) -> None:
    """Take every step that the chief takes, from where it begins; only the chief writes files.

    SIGTERM, SIGINT and SIGHUP of any worker end all of them between two steps.

    Args:
        training: what is trained.

    Raises:
        SageccError: The run diverges, or another worker is lost.
    """
    learner = training.learner()
    training.strategy.broadcast(learner)
    begin, last = int(learner.state()["steps"].numpy()), training.specification.steps
    held = HeldSignals()
    try:
        with held, training.source(begin) as source:
            take_step = training.stepper(learner)
            for step in range(begin + 1, last + 1):
                result = take_step(source.next(dict), lambda: held.noted is not None)
                if diverged(result.metrics):
                    raise SageccError(f"training diverged at step {step}: the chief says more")
                if result.stop:
                    training.strategy.barrier()  # once the checkpoint is written
                    held.noted = held.noted or signal.SIGTERM
                    break
    finally:
        held.obey()


def diverged(metrics: Floats | Doubles) -> bool:
    """Tell from a step's metrics whether the run has diverged: one is not finite, or a loss is beyond DIVERGED."""
    return bool(not np.isfinite(metrics).all() or (np.abs(metrics[:LOSSES]) > DIVERGED).any())


def arrays(weights: Mapping[str, Any]) -> dict[str, Floats]:
    """Return the values of variables."""
    return {name: variable.numpy() for name, variable in weights.items()}


@dataclass(kw_only=True)
class _Loop:
    """The parts of a run that each round uses."""

    training: Training
    """What is trained."""
    learner: Learner
    """What learns."""
    source: Source
    """Where its batches come from."""
    take_step: Step
    """Takes a round's updates on all replicas."""
    journal: TrainingJournal
    """Checkpoint, metrics and scores."""
    saving: Saving
    """When the checkpoint is written."""
    candidates: Candidates | None
    """The policies to evaluate; None for no evaluation."""
    evaluating_s: float = field(default=0.0, init=False)
    """Time that evaluations took so far."""

    @property
    def size(self) -> int:
        """Updates of a round."""
        return self.training.specification.round_steps

    def run(self, step: int) -> None:
        last, size, saved = self.training.specification.steps, self.size, time.monotonic()
        held, stop = HeldSignals(), False
        with held, tqdm(total=last, initial=step, unit="step", desc="train", disable=None) as bar:
            self.source.begin(self.journal.extra, self._acting(), held)
            self._evaluate(step, held, bar)  # an evaluation that was interrupted
            while step < last and not stop:
                step += size
                stop = self._round(step, held, bar)
                by_steps = self.saving.steps and step % self.saving.steps < size
                due = by_steps or self._evaluation_due(step) or step >= last or stop or self.source.pressing()
                if due or time.monotonic() - saved > self.saving.seconds:
                    self.journal.save(self.source.kept())
                    self.source.saved()
                    saved = time.monotonic()
                if not stop:
                    self._evaluate(step, held, bar)
            if stop:
                self.training.strategy.barrier()
                held.noted = held.noted or signal.SIGTERM  # another worker's
        if held.noted is not None:
            tqdm.write(f"stopped at step {step} of {last}; the same command goes on from there", file=sys.stderr)
            held.obey()

    def _round(self, step: int, held: HeldSignals, bar: tqdm[Any]) -> bool:
        """Take the updates up to a step and record their results; return whether to stop."""
        source = self.source
        batch = source.next(self._acting)
        result = self.take_step(batch, lambda: held.noted is not None)
        values = np.array([*result.metrics.tolist(), *source.after(step)])
        if diverged(values):
            raise SageccError(self._divergence(step, values))
        self.journal.add(step, values, source.waited_s, self.size, source.latest())
        bar.update(self.size)
        if step % self.journal.every == 0:
            bar.set_postfix({name: f"{x:.3g}" for name, x in zip(self.learner.metrics[:LOSSES], values, strict=False)})
        if result.transitions and step % histograms.period(self.training.specification.steps) == 0:
            self._histograms(step, batch.actions, result)
        return result.stop

    def _histograms(self, step: int, actions: Floats, result: StepResult) -> None:
        schemes = self.source.schemes(step)
        if schemes is not None:
            first = slice(np.asarray(result.transitions["action"]).shape[1])  # the first replica's windows
            found = histograms.of_step(schemes[first], actions[:, first], result.transitions)
            self.journal.add_histograms(step, found)

    def _divergence(self, step: int, values: Doubles) -> str:
        """Keep the batch with which the run diverged; return what is said of it."""
        told = ", ".join(f"{name} {x:g}" for name, x in zip(self.learner.metrics[:LOSSES], values, strict=False))
        batch, path = self.source.example(step), self.journal.folder / "diverged.npz"
        if batch:
            np.savez(path, *batch)
        kept = f"; the batch is in {path}" if batch else ""
        return f"training diverged at step {step} ({told}){kept}: lower the learning rates, then train again"

    def _acting(self) -> dict[str, Floats]:
        return arrays(self.learner.acting())

    def _evaluation_due(self, step: int) -> bool:
        if self.candidates is None or step in self.journal.scores:
            return False
        return self.candidates.evaluation.due(step, self.training.specification.steps, self.size)

    def _evaluate(self, step: int, held: HeldSignals, bar: tqdm[Any]) -> None:
        """Evaluate the policy if that is due; the checkpoint of this step is written, so a kill loses nothing."""
        if self.candidates is None or not self._evaluation_due(step):
            return
        begun = time.perf_counter()
        with held.released():
            scores = self.candidates.evaluate(step, arrays(self.learner.exported()))
        seconds = time.perf_counter() - begun
        self.journal.add_scores(step, scores, seconds)
        self.candidates.tidy(self.journal.scores)
        self.evaluating_s += seconds
        bar.unpause()
