# SPDX-License-Identifier: Apache-2.0
"""The training loop: steps, and between them whatever is due: a checkpoint, an evaluation, a stop."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from sagecc.common.arrays import Doubles, Floats
from sagecc.common.errors import SageccError
from sagecc.learner import histograms
from sagecc.learner.config import Config
from sagecc.learner.continuation import Continuation
from sagecc.learner.crr import METRICS, Crr
from sagecc.learner.data import ALL, Prefetch, WindowSampler
from sagecc.learner.evaluation import Candidates
from sagecc.learner.journal import TrainingJournal
from sagecc.learner.signals import HeldSignals
from sagecc.learner.strategy import Step, Strategy
from sagecc.schemas.pool import FEATURE_NAMES

DIVERGED = 1e6
"""A loss beyond this, or one that is not a number, ends the run."""


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


def run(
    config: Config,
    sampler: WindowSampler,
    value_range: tuple[float, float],
    seed: int,
    *,
    logs: Path,
    fingerprint: str,
    strategy: Strategy,
    saving: Saving = Saving(),
    candidates: Candidates | None = None,
    start: Continuation | None = None,
) -> Result:
    """Train from the last checkpoint (or from the start) to the configuration's last step.

    Of several workers this is the chief's part; the others call `follow`.

    Args:
        config: The configuration.
        sampler: The pool's windows.
        value_range: Lowest and highest return that the critic can represent.
        seed: Seed of the run.
        logs: The run's folder.
        fingerprint: What only this run has; a checkpoint of another is refused.
        strategy: Where to compute.
        saving: When the checkpoint is written.
        candidates: The policies to evaluate; none by default.
        start: Where another run ended, to go on from there; by default the networks are new.

    Raises:
        SageccError: The run diverges, or its checkpoint is damaged.
        KeyboardInterrupt: SIGINT ended it between two steps, with the checkpoint written.
        SystemExit: SIGTERM or SIGHUP did (exit code 143 or 129).
    """
    crr = strategy.build(lambda: Crr(config, len(config.observations), value_range, seed))
    steps = config.steps - (start.steps if start else 0)
    journal = TrainingJournal(crr, logs, fingerprint, every=max(1, min(100, steps // 20)), start=start)
    begin = journal.restore()
    strategy.broadcast(crr)
    take_step, begun = strategy.stepper(crr), time.perf_counter()
    with _batches(config, sampler, strategy, begin) as batches:
        loop = _Loop(
            config=config,
            crr=crr,
            sampler=sampler,
            batches=batches,
            take_step=take_step,
            barrier=strategy.barrier,
            journal=journal,
            saving=saving,
            candidates=candidates,
        )
        loop.run(begin)
    seconds = time.perf_counter() - begun - loop.evaluating_s
    if candidates and candidates.evaluation.best_by:
        step, weights = candidates.best(journal.scores)
    else:
        step, weights = config.steps, loop.weights()
    return Result(
        weights=weights,
        step=step,
        curve=journal.curve(),
        scores=journal.scores,
        steps=config.steps - begin,
        seconds=seconds,
        evaluating_s=loop.evaluating_s,
        waiting=batches.waited_s / seconds,
    )


def follow(
    config: Config, sampler: WindowSampler, value_range: tuple[float, float], seed: int, strategy: Strategy
) -> None:
    """Take every step that the chief takes, from where it begins; only the chief writes files.

    SIGTERM, SIGINT and SIGHUP of any worker end all of them between two steps.

    Args:
        config: The configuration.
        sampler: The pool's windows.
        value_range: Lowest and highest return that the critic can represent.
        seed: Seed of the run.
        strategy: Where to compute.

    Raises:
        SageccError: The run diverges, or another worker is lost.
    """
    crr = strategy.build(lambda: Crr(config, len(config.observations), value_range, seed))
    strategy.broadcast(crr)
    begin, take_step = int(crr.steps.numpy()), strategy.stepper(crr)
    held = HeldSignals()
    try:
        with held, _batches(config, sampler, strategy, begin) as batches:
            for step in range(begin + 1, config.steps + 1):
                result = take_step(batches.next(), lambda: held.noted is not None)
                if diverged(result.metrics):
                    raise SageccError(f"training diverged at step {step}: the chief says more")
                if result.stop:
                    strategy.barrier()  # once the checkpoint is written
                    held.noted = held.noted or signal.SIGTERM
                    break
    finally:
        held.obey()


def evaluate(
    candidates: Candidates, step: int, weights: dict[str, Floats], journal: TrainingJournal, held: HeldSignals
) -> float:
    """Evaluate the policy of a step whose checkpoint is written, with signals as usual; return the time it took (s)."""
    begun = time.perf_counter()
    with held.released():
        scores = candidates.evaluate(step, weights)
    seconds = time.perf_counter() - begun
    journal.add_scores(step, scores, seconds)
    candidates.tidy(journal.scores)
    return seconds


def diverged(metrics: Floats | Doubles) -> bool:
    """Tell from a step's metrics whether the run has diverged: one is not finite, or a loss is beyond DIVERGED."""
    return bool(not np.isfinite(metrics).all() or (np.abs(metrics[:2]) > DIVERGED).any())


def _batches(config: Config, sampler: WindowSampler, strategy: Strategy, begin: int) -> Prefetch:
    return Prefetch(_selecting(sampler, config, strategy.part(config.batch)), range(begin, config.steps))


def _selecting(sampler: WindowSampler, config: Config, part: slice = ALL) -> Callable[[int], tuple[Floats, ...]]:
    """Return the sampler's batches, or a part of each, with the observations that the configuration selects."""
    all_features = config.observations == FEATURE_NAMES
    columns = [FEATURE_NAMES.index(name) for name in config.observations]

    def batch(step: int) -> tuple[Floats, ...]:
        observation, *labels = sampler.batch(step, part)
        if all_features:
            return observation, *labels
        return np.take(observation, columns, axis=-1), *labels

    return batch


@dataclass(kw_only=True)
class _Loop:
    """The parts of a run that each step uses."""

    config: Config
    """The configuration."""
    crr: Crr
    """The learner."""
    sampler: WindowSampler
    """The pool's windows."""
    batches: Prefetch
    """This process's share of each step's batch."""
    take_step: Step
    """Takes a step on all replicas."""
    barrier: Callable[[], None]
    """Waits for all workers."""
    journal: TrainingJournal
    """Checkpoint, metrics and scores."""
    saving: Saving
    """When the checkpoint is written."""
    candidates: Candidates | None
    """The policies to evaluate; None for no evaluation."""
    evaluating_s: float = field(default=0.0, init=False)
    """Time that evaluations took so far."""

    def weights(self) -> dict[str, Floats]:
        return {name: variable.numpy() for name, variable in self.crr.exported().items()}

    def run(self, begin: int) -> None:
        step, last, saved = begin, self.config.steps, time.monotonic()
        held, stop = HeldSignals(), False
        with held, tqdm(total=last, initial=begin, unit="step", desc="train", disable=None) as bar:
            self._evaluate(begin, held, bar)  # an evaluation that was interrupted
            for step in range(begin + 1, last + 1):
                losses, stop = self._step(step, held)
                bar.update()
                if step % self.journal.every == 0:
                    bar.set_postfix(critic=f"{losses[0]:.3f}", policy=f"{losses[1]:.3f}")
                by_steps = self.saving.steps and step % self.saving.steps == 0
                due = by_steps or self._evaluation_due(step) or step == last or stop
                if due or time.monotonic() - saved > self.saving.seconds:
                    self.journal.save()
                    saved = time.monotonic()
                if stop:
                    self.barrier()
                    held.noted = held.noted or signal.SIGTERM  # another worker's
                    break
                self._evaluate(step, held, bar)
        if held.noted is not None:
            tqdm.write(f"stopped at step {step} of {last}; the same command goes on from there", file=sys.stderr)
            held.obey()

    def _step(self, step: int, held: HeldSignals) -> tuple[Floats, bool]:
        """Take one step and record its result; return its losses and whether to stop."""
        batch = self.batches.next()
        values, transitions, stop = self.take_step(batch, lambda: held.noted is not None)
        losses: Floats = values[:2]
        if diverged(values):
            np.savez(self.journal.folder / "diverged.npz", *_selecting(self.sampler, self.config)(step - 1))
            raise SageccError(
                f"training diverged at step {step} ({METRICS[0]} {losses[0]:g}, {METRICS[1]} {losses[1]:g}); the "
                f"batch is in {self.journal.folder / 'diverged.npz'}: lower the learning rates, then train again"
            )
        self.journal.add(step, values, self.batches.waited_s)
        if step % histograms.period(self.config.steps) == 0:
            first = slice(transitions.advantage.shape[1])  # the first replica's windows
            schemes = self.sampler.schemes(step - 1)[first]
            self.journal.add_histograms(step, histograms.of_step(schemes, batch[1][:, first], transitions))
        return losses, stop

    def _evaluation_due(self, step: int) -> bool:
        due = self.candidates is not None and self.candidates.evaluation.due(step, self.config.steps)
        return due and step not in self.journal.scores

    def _evaluate(self, step: int, held: HeldSignals, bar: tqdm[Any]) -> None:
        """Evaluate the policy if that is due; the checkpoint of this step is written, so a kill loses nothing."""
        if self.candidates is None or not self._evaluation_due(step):
            return
        self.evaluating_s += evaluate(self.candidates, step, self.weights(), self.journal, held)
        bar.unpause()
