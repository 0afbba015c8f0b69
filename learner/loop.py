# SPDX-License-Identifier: Apache-2.0
"""The training loop, and the journal from which a killed run goes on."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as save_tensors
from tqdm import tqdm

from learner.config import Config
from learner.crr import METRICS, Crr
from learner.data import Prefetch, WindowSampler
from learner.scaling import Floats
from learner.tensorflow_runtime import configure, tf
from schemas.errors import SageccError
from schemas.files import write_atomically
from schemas.pool import FEATURE_NAMES

DIVERGED = 1e6
"""A loss beyond this, or one that is not a number, ends the run."""


@dataclass(frozen=True)
class Result:
    """The trained policy's weights by name, the last metrics, and what this call did.

    steps: steps taken now; seconds: their time; waiting: the share of it spent waiting for data.
    """

    weights: dict[str, Floats]
    metrics: dict[str, float]
    steps: int
    seconds: float
    waiting: float


def run(
    config: Config,
    sampler: WindowSampler,
    value_range: tuple[float, float],
    seed: int,
    logs: Path,
    fingerprint: str,
    checkpoint_s: float,
) -> Result:
    """Train from the last checkpoint in `logs` (or from the start) to the configuration's last step."""
    configure(seed)
    crr = Crr(config, len(config.observations), value_range, seed)
    journal = Journal(crr, logs, fingerprint, every=max(1, min(100, config.steps // 20)))
    begin = journal.restore()
    begun = time.perf_counter()
    with Prefetch(_selecting(sampler, config), range(begin, config.steps)) as batches:
        _loop(config, crr, batches, journal, begin, checkpoint_s)
    seconds = time.perf_counter() - begun
    weights = {name: variable.numpy() for name, variable in crr.exported().items()}
    return Result(weights, journal.last(), config.steps - begin, seconds, batches.waited_s / seconds)


def _selecting(sampler: WindowSampler, config: Config) -> Callable[[int], tuple[Floats, ...]]:
    """Return the sampler's batches with the observations that the configuration selects."""
    if config.observations == FEATURE_NAMES:
        return sampler.batch
    columns = [FEATURE_NAMES.index(name) for name in config.observations]

    def batch(step: int) -> tuple[Floats, ...]:
        observation, *labels = sampler.batch(step)
        return np.take(observation, columns, axis=-1), *labels

    return batch


def _loop(config: Config, crr: Crr, batches: Prefetch, journal: Journal, begin: int, checkpoint_s: float) -> None:
    saved = time.monotonic()
    with tqdm(total=config.steps, initial=begin, unit="step", desc="train", disable=None) as bar:
        for step in range(begin + 1, config.steps + 1):
            batch = batches.next()
            values = crr.step(*batch).numpy()
            losses = values[:2]
            if not np.isfinite(values).all() or (np.abs(losses) > DIVERGED).any():
                np.savez(journal.folder / "diverged.npz", *batch)
                raise SageccError(
                    f"training diverged at step {step} ({METRICS[0]} {losses[0]:g}, {METRICS[1]} {losses[1]:g}); the "
                    f"batch is in {journal.folder / 'diverged.npz'}: lower the learning rates, then train again"
                )
            journal.add(step, values, batches.waited_s)
            bar.update()
            if step % journal.every == 0:
                bar.set_postfix(critic=f"{losses[0]:.3f}", policy=f"{losses[1]:.3f}")
            if time.monotonic() - saved > checkpoint_s:
                journal.save()
                saved = time.monotonic()
    journal.save()


class Journal:
    """Checkpoint and metrics of a run: what must agree after a restart is written and read in one place."""

    def __init__(self, crr: Crr, folder: Path, fingerprint: str, every: int) -> None:
        self.folder, self.every = folder, every
        self._crr, self._fingerprint = crr, fingerprint
        self._checkpoint = folder / "checkpoint.safetensors"
        self._lines = folder / "metrics.jsonl"
        self._sums = np.zeros(len(METRICS))
        self._events = tf.summary.create_file_writer(str(folder))
        self._since, self._waited = time.perf_counter(), 0.0

    def add(self, step: int, values: Any, waited_s: float) -> None:
        """Take one step's metrics; every `every` steps write their averages."""
        self._sums += values
        if step % self.every:
            return
        means = dict(zip(METRICS, (self._sums / self.every).tolist(), strict=True))
        self._sums[:] = 0
        now = time.perf_counter()
        speed = {
            "steps_per_s": self.every / (now - self._since),
            "waiting_share": (waited_s - self._waited) / (now - self._since),
        }
        self._since, self._waited = now, waited_s
        with self._lines.open("a") as file:
            file.write(json.dumps({"step": step, **means, **speed}) + "\n")
        with self._events.as_default(step):
            for name, value in {**means, **speed}.items():
                tf.summary.scalar(name, value)

    def last(self) -> dict[str, float]:
        """Return the last line of metrics without what depends on the machine's speed."""
        line = json.loads(self._lines.read_text().splitlines()[-1])
        return {name: line[name] for name in ("step", *METRICS)}

    def save(self) -> None:
        """Write the checkpoint: after a kill the run goes on from here."""
        tensors = {name: np.asarray(variable.numpy()) for name, variable in self._crr.state().items()}
        data = save_tensors({**tensors, "metric_sums": self._sums}, {"fingerprint": self._fingerprint})
        with write_atomically(self._checkpoint) as path:
            path.write_bytes(data)
        self._events.flush()

    def restore(self) -> int:
        """Load the checkpoint if there is one and cut the metrics back to it; return its step."""
        if not self._checkpoint.exists():
            self._lines.unlink(missing_ok=True)
            return 0
        state = self._crr.state()
        try:
            with safe_open(self._checkpoint, "numpy") as file:
                if (file.metadata() or {}).get("fingerprint") != self._fingerprint:
                    raise ValueError("it belongs to another run")
                self._sums = file.get_tensor("metric_sums")
                for name, variable in state.items():
                    variable.assign(file.get_tensor(name))
            step = int(state["steps"].numpy())
            lines = [x for x in self._lines.read_text().splitlines() if json.loads(x)["step"] <= step]
        except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
            raise SageccError(
                f"{self.folder} holds a run that cannot be continued ({error}): remove the folder and train again"
            ) from error
        with write_atomically(self._lines) as path:
            path.write_text("".join(f"{x}\n" for x in lines))
        return step
