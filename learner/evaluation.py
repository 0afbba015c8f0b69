# SPDX-License-Identifier: Apache-2.0
"""Evaluates a policy while it trains: its scores from time to time, and which of its states was the best.

How it is scored is left to a function from the folder of a policy's artefact to scores (a league's winning rates, say).
Evaluations do not influence the training, whose weights are the same without them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sagecc.common.arrays import Floats
from sagecc.common.errors import SageccError
from sagecc.policy.artefact import POLICY_MARK, PolicyArtefact

Score = Callable[[Path, int], Mapping[str, float]]
"""Folder of an artefact (weights and card, no other formats) and its training step -> scores by name."""

Scores = Mapping[int, Mapping[str, float]]
"""Scores of the evaluations so far, by step and name."""


@dataclass(frozen=True)
class Evaluation:
    """When and how a policy is evaluated while it trains."""

    score: Score
    """Scores a policy."""
    every: int
    """Steps between evaluations; the last step's policy is evaluated too."""
    identity: str
    """What decides the scores beside the policy, as text: which league."""
    best_by: str = ""
    """The score by which the best of the evaluated policies is exported; empty exports the last policy."""

    def __post_init__(self) -> None:
        if self.every < 1:
            raise SageccError(f"an evaluation every {self.every} steps is none: at least 1")

    @property
    def terms(self) -> list[str | int]:
        """What decides which policies are evaluated, how, and which is kept."""
        return [self.identity, self.every, self.best_by]

    def due(self, step: int, last: int, round_steps: int = 1) -> bool:
        """Tell whether the policy of this step is evaluated, in a run of `last` steps and rounds of so many."""
        return step > 0 and (step % self.every < round_steps or step == last)

    def best(self, scores: Scores) -> int:
        """Return the step of the policy with the best score; of equal ones the last."""
        return max(scores, key=lambda step: (scores[step][self.best_by], step))


class Candidates:
    """The artefacts that a run evaluates, in `folder`/step-N; only the best so far is kept, if `best_by` asks for it.

    Args:
        evaluation: when and how policies are evaluated.
        folder: where the artefacts are written.
        write: writes the artefact of weights at a step into a folder.
    """

    def __init__(
        self, evaluation: Evaluation, folder: Path, write: Callable[[Path, dict[str, Floats], int], None]
    ) -> None:
        self.evaluation, self._folder, self._write = evaluation, folder, write

    def evaluate(self, step: int, weights: dict[str, Floats]) -> dict[str, float]:
        """Evaluate a policy.

        Its artefact stays until `tidy`, so that every recorded score has its artefact.

        Args:
            step: step of the policy.
            weights: its weights by name.

        Returns:
            Its scores by name.

        Raises:
            SageccError: There are no scores, one is not finite, or `best_by` is none of them.
        """
        folder = self._path(step)
        self._write(folder, weights, step)
        scores = {name: float(value) for name, value in self.evaluation.score(folder, step).items()}
        if not scores or not all(map(math.isfinite, scores.values())):
            raise SageccError(f"the evaluation of step {step} gave no scores, or some that are no numbers: {scores}")
        if (best_by := self.evaluation.best_by) and best_by not in scores:
            raise SageccError(f"there is no score '{best_by}' to know the best policy by: {', '.join(scores)}")
        return scores

    def tidy(self, scores: Scores) -> None:
        """Remove every artefact but that of the best policy by these scores."""
        kept = self._path(self.evaluation.best(scores)) if self.evaluation.best_by else None
        for folder in self._folder.glob("step-*"):
            if folder != kept:
                POLICY_MARK.remove(folder)

    def best(self, scores: Scores) -> tuple[int, dict[str, Floats]]:
        """Return the best policy's step and weights.

        Raises:
            SageccError: Its artefact is missing or damaged.
        """
        step = self.evaluation.best(scores)
        return step, PolicyArtefact.load(self._path(step)).weights

    def _path(self, step: int) -> Path:
        return self._folder / f"step-{step}"
