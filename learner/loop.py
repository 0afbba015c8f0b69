# SPDX-License-Identifier: Apache-2.0
"""The training loop: steps, and between them whatever is due: a checkpoint, a look at the policy, a stop."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from learner import histograms
from learner.config import Config
from learner.crr import METRICS, Crr
from learner.data import Prefetch, WindowSampler
from learner.evaluation import Candidates
from learner.journal import Journal
from learner.scaling import Floats
from learner.signals import HeldSignals
from learner.tensorflow_runtime import configure
from schemas.errors import SageccError
from schemas.pool import FEATURE_NAMES

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
    saving: Saving = Saving(),
    candidates: Candidates | None = None,
) -> Result:
    """Train from the last checkpoint in `logs` (or from the start) to the configuration's last step.

    SIGTERM and SIGINT end it between two steps with the checkpoint written, by SystemExit (143) and KeyboardInterrupt.
    """
    configure(seed)
    crr = Crr(config, len(config.observations), value_range, seed)
    journal = Journal(crr, logs, fingerprint, every=max(1, min(100, config.steps // 20)))
    begin = journal.restore()
    begun = time.perf_counter()
    with Prefetch(_selecting(sampler, config), range(begin, config.steps)) as batches:
        loop = _Loop(config, crr, sampler, batches, journal, saving, candidates)
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


def _selecting(sampler: WindowSampler, config: Config) -> Callable[[int], tuple[Floats, ...]]:
    """Return the sampler's batches with the observations that the configuration selects."""
    if config.observations == FEATURE_NAMES:
        return sampler.batch
    columns = [FEATURE_NAMES.index(name) for name in config.observations]

    def batch(step: int) -> tuple[Floats, ...]:
        observation, *labels = sampler.batch(step)
        return np.take(observation, columns, axis=-1), *labels

    return batch


@dataclass
class _Loop:
    """The parts of a run that meet at each step. evaluating_s: time that evaluations took so far."""

    config: Config
    crr: Crr
    sampler: WindowSampler
    batches: Prefetch
    journal: Journal
    saving: Saving
    candidates: Candidates | None
    evaluating_s: float = field(default=0.0, init=False)

    def weights(self) -> dict[str, Floats]:
        return {name: variable.numpy() for name, variable in self.crr.exported().items()}

    def run(self, begin: int) -> None:
        step, last, saved = begin, self.config.steps, time.monotonic()
        held = HeldSignals()
        with held, tqdm(total=last, initial=begin, unit="step", desc="train", disable=None) as bar:
            self._look(begin, held, bar)  # one that was cut short
            for step in range(begin + 1, last + 1):
                losses = self._step(step)
                bar.update()
                if step % self.journal.every == 0:
                    bar.set_postfix(critic=f"{losses[0]:.3f}", policy=f"{losses[1]:.3f}")
                by_steps = self.saving.steps and step % self.saving.steps == 0
                due = by_steps or self._looks_at(step) or step == last or held.noted is not None
                if due or time.monotonic() - saved > self.saving.seconds:
                    self.journal.save()
                    saved = time.monotonic()
                if held.noted is not None:
                    break
                self._look(step, held, bar)
        if held.noted is not None:
            tqdm.write(f"stopped at step {step} of {last}; the same command goes on from there", file=sys.stderr)
            held.obey()

    def _step(self, step: int) -> Floats:
        """Take one step and write down what it gave; return its losses."""
        batch = self.batches.next()
        metrics, seen = self.crr.learn(*batch)
        values = metrics.numpy()
        losses: Floats = values[:2]
        if not np.isfinite(values).all() or (np.abs(losses) > DIVERGED).any():
            np.savez(self.journal.folder / "diverged.npz", *batch)
            raise SageccError(
                f"training diverged at step {step} ({METRICS[0]} {losses[0]:g}, {METRICS[1]} {losses[1]:g}); the "
                f"batch is in {self.journal.folder / 'diverged.npz'}: lower the learning rates, then train again"
            )
        self.journal.add(step, values, self.batches.waited_s)
        if step % histograms.period(self.config.steps) == 0:
            found = histograms.of_step(self.sampler.schemes(step - 1), batch[1], seen)
            self.journal.add_histograms(step, found)
        return losses

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
