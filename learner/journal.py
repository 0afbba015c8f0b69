# SPDX-License-Identifier: Apache-2.0
"""Checkpoint, metrics and scores of a run: what must agree after a restart is written and read in one place."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from sagecc.common.errors import SageccError
from sagecc.common.files import write_atomically
from sagecc.common.inputs import read_regular
from sagecc.common.tables import reading_error
from sagecc.common.tensorflow_runtime import tf
from sagecc.learner import histograms
from sagecc.learner.continuation import CHECKPOINT, CHECKPOINT_BYTES, OWN, Continuation
from sagecc.learner.core import Learner
from sagecc.learner.tensors import DAMAGED, not_finite, pack, unpack

METRICS_BYTES = 2**30
"""Limit of metrics.jsonl."""

EVALUATION = "evaluation/"
"""Prefix of a score's name in metrics.jsonl, where an evaluation has a line of its own, and in TensorBoard."""

_RUN, _LINES, _LINES_DIGEST = "fingerprint", "metrics_bytes", "metrics_sha256"
"""What a checkpoint says beside its arrays: whose it is, and which metrics came before it."""

SPEED = ("steps_per_s", "waiting_share")
"""What a line of metrics says of the machine."""


class TrainingJournal:
    """What a run writes while it trains, and from which a killed one continues.

    Args:
        learner: its state is the checkpoint's.
        folder: the run's folder.
        fingerprint: what only this run has; a checkpoint of another is refused.
        every: steps over which metrics are averaged.
        metrics: names of the metrics of a step.
        start: where another run ended, if this one goes on from there.
    """

    def __init__(
        self,
        learner: Learner,
        folder: Path,
        fingerprint: str,
        every: int,
        metrics: tuple[str, ...],
        start: Continuation | None = None,
    ) -> None:
        self.folder, self.every = folder, every
        self.scores: dict[int, dict[str, float]] = {}
        """Scores of the evaluations so far, by step and name."""
        self.extra: dict[str, npt.NDArray[Any]] = {}
        """What the checkpoint that was restored holds beside the learner's state."""
        self._learner, self._fingerprint, self._metrics, self._start = learner, fingerprint, metrics, start
        self._checkpoint = folder / CHECKPOINT
        self._lines = folder / "metrics.jsonl"
        self._sums = np.zeros(len(metrics))
        self._events = tf.summary.create_file_writer(str(folder))
        self._since, self._waited = time.perf_counter(), 0.0

    def add(
        self,
        step: int,
        values: Any,
        waited_s: float,
        steps: int = 1,
        latest: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        """Add the metrics of some steps; every `every` steps write their averages.

        Args:
            step: the last of the steps; every `every`-th is the last of some.
            values: the metrics, averaged over the steps.
            waited_s: time that the run has waited for data so far.
            steps: number of the steps.
            latest: what is written as it is, and not averaged.
        """
        self._sums += values * steps
        if step % self.every:
            return
        count = min(self.every, step - (self._start.steps if self._start else 0))
        means = {**dict(zip(self._metrics, (self._sums / count).tolist(), strict=True)), **latest}
        self._sums[:] = 0
        now = time.perf_counter()
        seconds = now - self._since
        speed = dict(zip(SPEED, (self.every / seconds, (waited_s - self._waited) / seconds), strict=True))
        self._since, self._waited = now, waited_s
        self._write(step, {**means, **speed})

    def add_scores(self, step: int, scores: Mapping[str, float], seconds: float) -> None:
        """Write an evaluation's scores to the disk; its time does not count as time spent on steps."""
        self._since += seconds
        self._write(step, {EVALUATION + name: value for name, value in scores.items()})
        self._sync()
        self.scores[step] = dict(scores)

    def add_histograms(self, step: int, buckets: Mapping[str, histograms.Buckets]) -> None:
        """Write histograms to TensorBoard."""
        with self._events.as_default(step):
            for name, histogram in buckets.items():
                histograms.write(name, histogram)

    def curve(self) -> list[dict[str, float]]:
        """Return the lines of metrics without what depends on the machine's speed."""
        lines = [json.loads(line) for line in self._read()]
        return [
            {name: value for name, value in line.items() if name not in SPEED}
            for line in lines
            if self._metrics[0] in line
        ]

    def save(self, extra: Mapping[str, npt.NDArray[Any]] = MappingProxyType({})) -> None:
        """Write the checkpoint: after a kill the run continues from here.

        Args:
            extra: what it is to hold beside the learner's state, by names that no variable has.

        Raises:
            SageccError: The state is no longer finite; the checkpoint before it stays.
        """
        self._sync()
        state = {name: np.asarray(variable.numpy()) for name, variable in self._learner.state().items()}
        if name := not_finite(state):
            raise SageccError(
                f"training diverged before step {int(state['steps'])} ({name} is not finite): lower the learning rates,"
                " then train again"
            )
        lines = read_regular(self._lines, METRICS_BYTES)
        about = {_RUN: self._fingerprint, _LINES: str(len(lines)), _LINES_DIGEST: hashlib.sha256(lines).hexdigest()}
        data = pack({**state, **extra, OWN: self._sums}, about)
        with write_atomically(self._checkpoint) as path:
            path.write_bytes(data)
        self._events.flush()

    def restore(self) -> int:
        """Load the checkpoint, if there is one, and cut the metrics back to it; else where another run ended.

        Returns:
            The checkpoint's step; without one, the steps of the run that this one goes on from, or 0.

        Raises:
            SageccError: The checkpoint or the metrics are damaged or of another run.
        """
        if not self._checkpoint.exists():
            self._lines.unlink(missing_ok=True)
            return self._begin()
        state = self._learner.state()
        try:
            tensors, about = unpack(read_regular(self._checkpoint, CHECKPOINT_BYTES))
            if about.get(_RUN) != self._fingerprint:
                raise ValueError("it belongs to another run")
            if name := not_finite({name: tensors[name] for name in state}):
                raise ValueError(f"{name} is not finite")
            self._sums = tensors.pop(OWN)
            for name, variable in state.items():
                variable.assign(tensors.pop(name))
            self.extra = tensors
            step = int(state["steps"].numpy())
            before = read_regular(self._lines, METRICS_BYTES)[: int(about[_LINES])]
            if hashlib.sha256(before).hexdigest() != about[_LINES_DIGEST]:
                raise ValueError(f"{self._lines.name} is not what it was at the checkpoint")
            lines = {text: json.loads(text) for text in self._read()}
            lines = {text: line for text, line in lines.items() if line["step"] <= step}
            for line in lines.values():
                scores = {k.removeprefix(EVALUATION): v for k, v in line.items() if k.startswith(EVALUATION)}
                if scores:
                    self.scores[line["step"]] = scores
        except (OSError, *DAMAGED) as error:
            raise reading_error(f"the run in {self.folder}", error, "remove the folder and train again") from error
        with write_atomically(self._lines) as path:
            path.write_text("".join(f"{text}\n" for text in lines))
        return step

    def _begin(self) -> int:
        """Take over the state of the run that this one goes on from, if there is one; return its steps."""
        if self._start is None:
            return 0
        try:
            for name, variable in self._learner.state().items():
                variable.assign(self._start.state[name])
        except (KeyError, ValueError) as error:
            raise SageccError(f"{self._start.policy.path} is of another kind of run ({error})") from error
        return self._start.steps

    def _write(self, step: int, values: Mapping[str, float]) -> None:
        with self._lines.open("a") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")
        with self._events.as_default(step):
            for name, value in values.items():
                tf.summary.scalar(name, value)

    def _read(self) -> list[str]:
        """Return the whole lines; one that was being written when the machine stopped has no end and is left out."""
        text = read_regular(self._lines, METRICS_BYTES).decode()
        return text[: text.rfind("\n") + 1].splitlines()

    def _sync(self) -> None:
        """Sync the metrics to the disk: a checkpoint must not survive without the lines before it."""
        with self._lines.open("a") as file:
            os.fsync(file.fileno())
