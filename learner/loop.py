# SPDX-License-Identifier: Apache-2.0
"""The training loop: steps, and between them whatever is due: a checkpoint, a look at the policy, a stop."""

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

from sagecc.common.arrays import Floats
from sagecc.common.errors import SageccError
from sagecc.learner import histograms
from sagecc.learner.config import Config
from sagecc.learner.crr import METRICS, Crr
from sagecc.learner.data import ALL, Prefetch, WindowSampler
from sagecc.learner.evaluation import Candidates
from sagecc.learner.journal import Journal
from sagecc.learner.signals import HeldSignals
from sagecc.learner.strategy import Step, Strategy
from sagecc.schemas.pool import FEATURE_NAMES

DIVERGED = 1e6
"""A loss beyond this, or one that is not a number, ends the run."""


@dataclass(frozen=True)
class Saving:
    """When the checkpoint is written: after `seconds`, and after every `steps` steps (0: by time alone)."""

    seconds: float = 30.0
    steps: int = 0


@dataclass(frozen=True)
class Result:
    """A trained policy's weights by name, the step they are of, and how it went.

    curve: the metrics line by line, without timings; scores: of the evaluations, by step. steps: those taken now;
    seconds: their time; evaluating_s: the time of evaluations beside it; waiting: the share of `seconds` spent waiting
    for data.
    """

    weights: dict[str, Floats]
    step: int
    curve: list[dict[str, float]]
    scores: dict[int, dict[str, float]]
    steps: int
    seconds: float
    evaluating_s: float
    waiting: float

    @property
    def metrics(self) -> dict[str, float]:
        """The curve's last line."""
        return self.curve[-1]


def run(
    config: Config,
    sampler: WindowSampler,
    value_range: tuple[float, float],
    seed: int,
    logs: Path,
    fingerprint: str,
    strategy: Strategy,
    saving: Saving = Saving(),
    candidates: Candidates | None = None,
) -> Result:
    """Train from the last checkpoint in `logs` (or from the start) to the configuration's last step.

    SIGTERM and SIGINT end it between two steps with the checkpoint written, by SystemExit (143) and KeyboardInterrupt.
    Of several workers this is the chief's part; the others `follow`.
    """
    crr = strategy.build(lambda: Crr(config, len(config.observations), value_range, seed))
    journal = Journal(crr, logs, fingerprint, every=max(1, min(100, config.steps // 20)))
    begin = journal.restore()
    strategy.spread(crr)
    take, begun = strategy.stepper(crr), time.perf_counter()
    with _batches(config, sampler, strategy, begin) as batches:
        loop = _Loop(config, crr, sampler, batches, take, strategy.meet, journal, saving, candidates)
        loop.run(begin)
    seconds = time.perf_counter() - begun - loop.evaluating_s
    if candidates and candidates.evaluation.best_by:
        step, weights = candidates.best(journal.scores)
    else:
        step, weights = config.steps, loop.weights()
    return Result(
        weights,
        step,
        journal.curve(),
        journal.scores,
        config.steps - begin,
        seconds,
        loop.evaluating_s,
        batches.waited_s / seconds,
    )


def follow(
    config: Config, sampler: WindowSampler, value_range: tuple[float, float], seed: int, strategy: Strategy
) -> None:
    """Take every step that the chief takes, from where it begins; its files are no concern of this worker.

    SIGTERM and SIGINT, of whichever worker, end all between two steps.
    """
    crr = strategy.build(lambda: Crr(config, len(config.observations), value_range, seed))
    strategy.spread(crr)
    begin, take = int(crr.steps.numpy()), strategy.stepper(crr)
    held = HeldSignals()
    try:
        with held, _batches(config, sampler, strategy, begin) as batches:
            for step in range(begin + 1, config.steps + 1):
                taken = take(batches.next(), lambda: held.noted is not None)
                if diverged(taken.metrics):
                    raise SageccError(f"training diverged at step {step}: the chief says more")
                if taken.stop:
                    strategy.meet()  # once the checkpoint is written
                    held.noted = held.noted or signal.SIGTERM
                    break
    finally:
        held.obey()


def diverged(metrics: Floats) -> bool:
    """Whether a step's metrics are no longer those of a run that learns."""
    return bool(not np.isfinite(metrics).all() or (np.abs(metrics[:2]) > DIVERGED).any())


def _batches(config: Config, sampler: WindowSampler, strategy: Strategy, begin: int) -> Prefetch:
    return Prefetch(_selecting(sampler, config, strategy.part(config.batch)), range(begin, config.steps))


def _selecting(sampler: WindowSampler, config: Config, part: slice = ALL) -> Callable[[int], tuple[Floats, ...]]:
    """Return the sampler's batches, or a part of each, with the observations that the configuration selects."""
    every = config.observations == FEATURE_NAMES
    columns = [FEATURE_NAMES.index(name) for name in config.observations]

    def batch(step: int) -> tuple[Floats, ...]:
        observation, *labels = sampler.batch(step, part)
        if every:
            return observation, *labels
        return np.take(observation, columns, axis=-1), *labels

    return batch


@dataclass
class _Loop:
    """The parts of a run that meet at each step. evaluating_s: time that evaluations took so far."""

    config: Config
    crr: Crr
    sampler: WindowSampler
    batches: Prefetch
    take: Step
    meet: Callable[[], None]
    journal: Journal
    saving: Saving
    candidates: Candidates | None
    evaluating_s: float = field(default=0.0, init=False)

    def weights(self) -> dict[str, Floats]:
        return {name: variable.numpy() for name, variable in self.crr.exported().items()}

    def run(self, begin: int) -> None:
        step, last, saved = begin, self.config.steps, time.monotonic()
        held, stop = HeldSignals(), False
        with held, tqdm(total=last, initial=begin, unit="step", desc="train", disable=None) as bar:
            self._look(begin, held, bar)  # one that was cut short
            for step in range(begin + 1, last + 1):
                losses, stop = self._step(step, held)
                bar.update()
                if step % self.journal.every == 0:
                    bar.set_postfix(critic=f"{losses[0]:.3f}", policy=f"{losses[1]:.3f}")
                by_steps = self.saving.steps and step % self.saving.steps == 0
                due = by_steps or self._looks_at(step) or step == last or stop
                if due or time.monotonic() - saved > self.saving.seconds:
                    self.journal.save()
                    saved = time.monotonic()
                if stop:
                    self.meet()
                    held.noted = held.noted or signal.SIGTERM  # another worker's
                    break
                self._look(step, held, bar)
        if held.noted is not None:
            tqdm.write(f"stopped at step {step} of {last}; the same command goes on from there", file=sys.stderr)
            held.obey()

    def _step(self, step: int, held: HeldSignals) -> tuple[Floats, bool]:
        """Take one step and write down what it gave; return its losses and whether to stop."""
        batch = self.batches.next()
        values, seen, stop = self.take(batch, lambda: held.noted is not None)
        losses: Floats = values[:2]
        if diverged(values):
            np.savez(self.journal.folder / "diverged.npz", *_selecting(self.sampler, self.config)(step - 1))
            raise SageccError(
                f"training diverged at step {step} ({METRICS[0]} {losses[0]:g}, {METRICS[1]} {losses[1]:g}); the "
                f"batch is in {self.journal.folder / 'diverged.npz'}: lower the learning rates, then train again"
            )
        self.journal.add(step, values, self.batches.waited_s)
        if step % histograms.period(self.config.steps) == 0:
            first = slice(seen.advantage.shape[1])  # the first replica's windows
            found = histograms.of_step(self.sampler.schemes(step - 1)[first], batch[1][:, first], seen)
            self.journal.add_histograms(step, found)
        return losses, stop

    def _looks_at(self, step: int) -> bool:
        due = self.candidates is not None and self.candidates.evaluation.due(step, self.config.steps)
        return due and step not in self.journal.scores

    def _look(self, step: int, held: HeldSignals, bar: tqdm[Any]) -> None:
        """Evaluate the policy if that is due; the checkpoint of this step is written, so it may be killed."""
        if self.candidates is None or not self._looks_at(step):
            return
        begun = time.perf_counter()
        with held.released():
            scores = self.candidates.evaluate(step, self.weights())
        seconds = time.perf_counter() - begun
        self.journal.add_scores(step, scores, seconds)
        self.candidates.tidy(self.journal.scores)
        self.evaluating_s += seconds
        bar.unpause()
