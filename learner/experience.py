# SPDX-License-Identifier: Apache-2.0
"""Where a run's batches come from: a pool (learner.pool_source), or labs (learner.online.lab_source)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from sagecc.common.arrays import Floats
from sagecc.learner.continuation import Continuation
from sagecc.learner.core import Batch
from sagecc.learner.signals import HeldSignals
from sagecc.policy.artefact import Control
from sagecc.policy.scaling import Scaling


class Source:
    """Where a learner's batches come from, round by round; a context manager. By default a round is its batch alone."""

    waited_s: float = 0.0
    """Time for which the learner has waited so far."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def begin(self, kept: Mapping[str, npt.NDArray[Any]], weights: dict[str, Floats], held: HeldSignals) -> None:
        """Begin where a checkpoint left it, or anew.

        Args:
            kept: what `kept` returned for that checkpoint; empty anew.
            weights: those of the policy that plays to learn.
            held: signals that came meanwhile.
        """

    def next(self, acting: Callable[[], dict[str, Floats]]) -> Batch:
        """Return the round's batch; of a round of several updates as many, one behind another in front of time.

        Args:
            acting: returns the weights of the policy that plays to learn.
        """
        raise NotImplementedError

    def after(self, step: int) -> Sequence[float]:
        """End the round, whose last update is `step`; return the values of Experience.metrics."""
        return ()

    def latest(self) -> Mapping[str, float]:
        """Return what a line of metrics says of the source as it is now."""
        return {}

    def schemes(self, step: int) -> npt.NDArray[np.str_] | None:
        """Return the scheme of each window of that update's batch [B]; None where they have none."""
        return None

    def example(self, step: int) -> Batch | None:
        """Return the whole batch of an update that diverged; None where it cannot be made again."""
        return None

    def pressing(self) -> bool:
        """Tell whether a checkpoint is due for the source's sake."""
        return False

    def kept(self) -> dict[str, npt.NDArray[Any]]:
        """Return what a checkpoint must hold of it."""
        return {}

    def saved(self) -> None:
        """Take note that the checkpoint with what `kept` returned last is written."""


class Experience:
    """What a run learns from, as far as it is known before TensorFlow is loaded."""

    observations: tuple[str, ...]
    """Names of what the policy sees, in order."""
    source: tuple[str, str]
    """The definition of the observations and its version."""
    scaling: Scaling
    """What is done to the observations before the networks see them."""
    control: Control
    """What the policy's actions do."""
    states: int = 0
    """Numbers that critics see beside the observations."""
    metrics: tuple[str, ...] = ()
    """Names of what a line of metrics says of a round, behind the learner's."""
    value_range: tuple[float, float] | None = None
    """See Setting."""
    start: Continuation | None = None
    """Where another run ended, to go on from there; None for new networks."""
    weights: Mapping[str, Floats] | None = None
    """The policy's weights to begin with, by name; None for new ones."""
    own: tuple[Path, ...] = ()
    """Folders that the run writes beside its own."""

    def identity(self) -> list[Any]:
        """Return what decides the data."""
        raise NotImplementedError

    def about(self) -> dict[str, Any]:
        """Return what the run's file says of it."""
        raise NotImplementedError

    def provenance(self) -> dict[str, Any]:
        """Return what the policy's card says of it."""
        raise NotImplementedError

    def check(self, run_id: str) -> None:
        """Raise SageccError where a folder of `own` holds something else."""

    def prepare(self, logs: Path, run_id: str) -> None:
        """Make ready what the source needs of the disk, once the run has its folder."""

    def open(self, logs: Path, part: slice, begin: int) -> Source:
        """Return the source, from the update after `begin` on.

        Args:
            logs: the run's folder.
            part: the windows of each batch that this process reads.
            begin: updates taken so far.
        """
        raise NotImplementedError

    def close(self, logs: Path) -> None:
        """Remove what nothing needs once the policy is written."""
