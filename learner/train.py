# SPDX-License-Identifier: Apache-2.0
"""A training run: from a pool and a configuration to a policy artefact, whatever happens on the way.

The run's folder (`logs/<name>/`) holds the checkpoint, the metrics as JSON lines and TensorBoard events, and
`run.json`, which says which run it is. A killed run goes on from its checkpoint bit for bit: weights, optimiser
state, targets, step and half-filled averages are in it, and batches and random numbers follow from the step.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as save_tensors
from tqdm import tqdm

from learner import artefact
from learner.config import Config
from learner.crr import METRICS, Crr
from learner.data import CompiledPool, Prefetch, WindowSampler, compile_pool
from learner.tensorflow_runtime import configure, tf
from schemas.errors import SageccError
from schemas.files import write_atomically
from schemas.pool import FEATURE_NAMES

RUN_VERSION = 1
"""Part of a run's fingerprint: raised when the same configuration would train another policy."""

DIVERGED = 1e6
"""A loss beyond this, or one that is not a number, ends the run."""


@dataclass(frozen=True)
class Outcome:
    """What a run left behind. trained_steps: steps taken by this call; waiting: share of time spent on data."""

    artefact: Path
    logs: Path
    parameters: int
    trained_steps: int
    seconds: float
    waiting: float
    metrics: dict[str, float]


def train(
    config: Config,
    pool: Path,
    out: Path,
    logs: Path,
    cache: Path,
    seed: int = 0,
    checkpoint_s: float = 30.0,
) -> Outcome:
    """Train a policy, or go on with a run that was stopped, or do nothing if `out` holds it already.

    pool: the Parquet pool; cache: where its compiled form lies; out: the artefact's folder; logs: the run's folder.
    checkpoint_s: seconds between checkpoints. Raises SageccError for a bad pool, a corrupt checkpoint or a run
    that diverges.
    """
    compiled = compile_pool(pool, cache)
    scaling = compiled.moments.scaling(config.input_transform, config.input_limit)
    sampler = WindowSampler(compiled, scaling, config.batch, config.window, seed)
    fingerprint = _fingerprint(config, seed, compiled.identity)
    finished = _finished(out, fingerprint)
    if finished is not None:
        return Outcome(out, logs, finished.sizes.parameters, 0, 0.0, 0.0, finished.card["metrics"])

    configure(seed)
    value_range = config.value_range or compiled.value_range(config.discount)
    crr = Crr(config, len(FEATURE_NAMES), value_range, seed)
    _claim(logs, fingerprint, config, seed, compiled)
    journal = _Journal(crr, logs, fingerprint, every=max(1, min(100, config.steps // 20)))
    begin = journal.restore()
    begun = time.perf_counter()
    with Prefetch(sampler.batch, range(begin, config.steps)) as batches:
        _loop(config, crr, batches, journal, begin, checkpoint_s)
    seconds = time.perf_counter() - begun

    sizes = artefact.NetworkSizes.of(config, len(FEATURE_NAMES))
    metrics = journal.last()
    provenance = {
        "fingerprint": fingerprint,
        "training": asdict(config),
        "seed": seed,
        "value_range": list(value_range),
        "pool": {
            "identity": compiled.identity,
            "rows": len(compiled.rows),
            "episodes": len(compiled.starts),
        },
        "metrics": metrics,
    }
    weights = {name: variable.numpy() for name, variable in crr.policy.weights().items()}
    with write_atomically(_made(out) / "metrics.json") as path:
        path.write_text(json.dumps({**metrics, "parameters": sizes.parameters}, indent=2) + "\n")
    artefact.write(out, weights, sizes, scaling, FEATURE_NAMES, provenance)
    waiting = batches.waited_s / seconds if config.steps > begin else 0.0
    return Outcome(out, logs, sizes.parameters, config.steps - begin, seconds, waiting, metrics)


def _loop(config: Config, crr: Crr, batches: Prefetch, journal: _Journal, begin: int, checkpoint_s: float) -> None:
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


class _Journal:
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


def _fingerprint(config: Config, seed: int, pool_identity: str) -> str:
    """Return what two runs share if and only if they train the same policy (on one machine)."""
    text = json.dumps([RUN_VERSION, asdict(config), seed, pool_identity], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _finished(out: Path, fingerprint: str) -> artefact.PolicyArtefact | None:
    """Return the artefact in `out` if this very run has already written it whole."""
    try:
        found = artefact.PolicyArtefact.load(out)
    except SageccError:
        return None
    return found if found.card.get("fingerprint") == fingerprint and (out / "metrics.json").exists() else None


def _claim(logs: Path, fingerprint: str, config: Config, seed: int, pool: CompiledPool) -> None:
    """Make the run's folder; an older run of the same name moves aside into `earlier-<its fingerprint>/`."""
    described = _made(logs) / "run.json"
    for left in logs.glob(".tmp-*"):
        left.unlink()
    if described.exists():
        try:
            found = str(json.loads(described.read_text())["fingerprint"])
        except (ValueError, KeyError, TypeError) as error:
            raise SageccError(f"{described} is damaged ({error}): remove the folder {logs} and train again") from error
        if found == fingerprint:
            return
        aside = _made(logs / f"earlier-{found[:12]}")
        for file in logs.iterdir():
            if file.is_file() and file != described:
                file.replace(aside / file.name)
        described.replace(aside / described.name)
    with write_atomically(described) as path:
        text = {"fingerprint": fingerprint, "seed": seed, "pool": pool.identity, "training": asdict(config)}
        path.write_text(json.dumps(text, indent=2) + "\n")


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
