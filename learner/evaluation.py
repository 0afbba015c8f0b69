# SPDX-License-Identifier: Apache-2.0
"""Looks at a policy while it trains: what it scores from time to time, and which of its states was the best.

Who looks is not known here: a function takes the folder of a policy's artefact and returns scores (a league's winning
rates, say). Nothing of it reaches the training, whose weights are the same without.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sagecc.common.arrays import Floats
from sagecc.common.errors import SageccError
from sagecc.policy.artefact import PolicyArtefact

Score = Callable[[Path, int], Mapping[str, float]]
"""Folder of an artefact (weights and card, no other formats) and the step it is of -> scores by name."""

Scores = Mapping[int, Mapping[str, float]]
"""Of the evaluations done, by step."""


@dataclass(frozen=True)
class Evaluation:
    """A look at the policy every `every` steps and at the last one.

    score: see Score. identity: what decides its answers beside the policy, in words: which league.
    best_by: the score that the exported policy is the best by, of those looked at; empty: the last is exported.
    """

    score: Score
    every: int
    identity: str
    best_by: str = ""

    def __post_init__(self) -> None:
        if self.every < 1:
            raise SageccError(f"an evaluation every {self.every} steps is none: at least 1")

    def due(self, step: int, last: int) -> bool:
        """Say whether the policy of this step is looked at, in a run of `last` steps."""
        return step > 0 and (step % self.every == 0 or step == last)

    def best(self, scores: Scores) -> int:
        """Return the step of the best policy by their scores; of equal ones the last."""
        return max(scores, key=lambda step: (scores[step][self.best_by], step))


class Candidates:
    """The artefacts that a run's evaluations look at, in `folder`/step-N; only the best so far stays, if it is wanted.

    write: writes the artefact of weights at a step into a folder. Scores are given by step, of the evaluations done.
    """

    def __init__(
        self, evaluation: Evaluation, folder: Path, write: Callable[[Path, dict[str, Floats], int], None]
    ) -> None:
        self.evaluation, self._folder, self._write = evaluation, folder, write

    def evaluate(self, step: int, weights: dict[str, Floats]) -> dict[str, float]:
        """Return the scores of a policy. Raises SageccError where one is not a number or the one wanted is not there.

        Its artefact stays until `tidy`, so that a score which was noted always has the artefact it is of.
        """
        folder = self._path(step)
        self._write(folder, weights, step)
        scores = {name: float(value) for name, value in self.evaluation.score(folder, step).items()}
        if not scores or not all(map(math.isfinite, scores.values())):
            raise SageccError(f"the evaluation of step {step} gave no scores, or some that are no numbers: {scores}")
        if (wanted := self.evaluation.best_by) and wanted not in scores:
            raise SageccError(f"there is no score '{wanted}' to know the best policy by: {', '.join(scores)}")
        return scores

    def tidy(self, scores: Scores) -> None:
        """Remove every artefact but the best one's."""
        kept = self._path(self.evaluation.best(scores)) if self.evaluation.best_by else None
        for folder in self._folder.glob("step-*"):
            if folder != kept:
                shutil.rmtree(folder)

    def best(self, scores: Scores) -> tuple[int, dict[str, Floats]]:
        """Return the best policy's step and weights. Raises SageccError where its artefact is damaged or gone."""
        step = self.evaluation.best(scores)
        return step, PolicyArtefact.load(self._path(step)).weights

    def _path(self, step: int) -> Path:
        return self._folder / f"step-{step}"
