# SPDX-License-Identifier: Apache-2.0
"""A training run: from what is to be learned and a specification to a policy artefact, whatever happens on the way.

The run's folder (`logs/<name>/`) holds the checkpoint, the metrics as JSON lines and TensorBoard events, `run.json`,
which identifies the run, and the evaluated policies. A killed run continues from its checkpoint bit for bit: weights,
optimiser state, targets, step and half-filled averages are in it, and batches and random numbers follow from the step.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sagecc.common.arrays import Floats
from sagecc.common.files import write_atomically
from sagecc.common.locks import sole_writer
from sagecc.learner import runs
from sagecc.learner.evaluation import Candidates, Evaluation
from sagecc.learner.experience import Experience
from sagecc.learner.specification import RunSpecification
from sagecc.policy import artefact
from sagecc.policy.artefact import POLICY_MARK

if TYPE_CHECKING:
    from sagecc.learner.loop import Result, Saving, Training
    from sagecc.learner.strategy import Device, Kind


@dataclass(frozen=True)
class Outcome:
    """The result of a run."""

    artefact: Path
    """Folder of the policy's artefact."""
    logs: Path
    """The run's folder."""
    parameters: int
    """Number of the policy's parameters."""
    trained_steps: int
    """Steps taken by this call."""
    seconds: float
    """Time of those steps."""
    waiting: float
    """Share of `seconds` spent waiting for data."""
    metrics: dict[str, float]
    """The last metrics."""
    step: int
    """The step that the policy is of."""
    evaluating_s: float = 0.0
    """Time of evaluations, in addition to `seconds`."""
    scores: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    """Scores of the evaluations by step and name, if this call ended the run."""


def train(
    specification: RunSpecification,
    experience: Experience,
    out: Path,
    logs: Path,
    seed: int = 0,
    *,
    checkpoint_s: float = 30.0,
    checkpoint_steps: int = 0,
    int8: bool = False,
    evaluation: Evaluation | None = None,
    strategy: Kind = "one",
    device: Device = "auto",
) -> Outcome | None:
    """Train a policy, or continue a run that was stopped, or do nothing if `out` holds its policy already.

    Args:
        specification: every choice of the run.
        experience: what it learns from, of the same specification and seed (learner.pool_source,
            learner.online.lab_source).
        out: the artefact's folder.
        logs: the run's folder.
        seed: seed of the run.
        checkpoint_s: seconds between checkpoints.
        checkpoint_steps: steps between checkpoints, in addition; 0 for by time alone.
        int8: also export the network with weights of 8 bits.
        evaluation: when and how to evaluate the policy; never by default. A run with evaluations is another run than
            one without, though it trains the same weights.
        strategy: where to compute (learner.strategy.connect).
        device: on what to compute (learner.strategy.connect).

    Returns:
        The result; None on every worker but the chief, which writes the policy and all else.

    Raises:
        SageccError: What it learns from or a checkpoint is damaged, the run diverges, the workers' runs differ, or
            another process writes `logs` or `out`.
    """
    beside = [seed, *experience.identity(), *([evaluation.terms] if evaluation else [])]
    fingerprint = runs.digest(specification.record(), *beside)
    trained_by = specification.trained_by(evaluation is not None)
    run_id = runs.digest(trained_by, *beside, specification.algorithm.version)
    finished = runs.finished(out, fingerprint, int8) if runs.recorded_run_id(logs) in (None, run_id) else None
    if finished is not None and strategy == "one":
        return _finished_outcome(finished, out, logs, specification.steps)

    # Imported here because TensorFlow takes seconds to load and only a run that trains needs it.
    from sagecc.learner.loop import Saving, Training, follow
    from sagecc.learner.strategy import connect

    distribution = connect(strategy, device, seed, specification.network.tensorfloat32)
    distribution.part(specification.batch)
    done = distribution.agree(run_id, finished is not None)
    if done:
        return _finished_outcome(finished, out, logs, specification.steps) if finished else None
    training = Training(specification, experience, seed, distribution, logs)
    if distribution.index > 0:
        follow(training)
        distribution.barrier()
        return None
    card = _Card(specification, experience, seed, fingerprint)
    POLICY_MARK.check(out)
    with sole_writer(logs, out, *experience.own):
        outcome = _lead(training, card, run_id, out, Saving(checkpoint_s, checkpoint_steps), int8, evaluation)
    distribution.barrier()
    return outcome


@dataclass(frozen=True)
class _Card:
    """What a run's artefacts say beside their weights."""

    specification: RunSpecification
    """The run's."""
    experience: Experience
    """What it learns from."""
    seed: int
    """The run's."""
    fingerprint: str
    """The run's."""

    def write(self, folder: Path, weights: dict[str, Floats], about: Mapping[str, Any], **exported: Any) -> None:
        """Write an artefact.

        Args:
            folder: the artefact's.
            weights: the policy's by name.
            about: what else the card says.
            exported: the network in other formats (policy.artefact.write).
        """
        experience, specification = self.experience, self.specification
        provenance = {
            "fingerprint": self.fingerprint,
            "training": specification.record(),
            "seed": self.seed,
            **experience.provenance(),
            **about,
        }
        artefact.write(
            folder,
            weights,
            specification.network.sizes(len(experience.observations)),
            experience.scaling,
            experience.observations,
            provenance,
            control=specification.control.around(experience.control),
            source=experience.source,
            **exported,
        )


def _lead(
    training: Training, card: _Card, run_id: str, out: Path, saving: Saving, int8: bool, evaluation: Evaluation | None
) -> Outcome:
    """Train as the only worker, or the chief: what writes the run's folder and the policy."""
    from sagecc.learner.loop import run
    from sagecc.policy.export import export

    specification, experience, logs = card.specification, card.experience, training.logs
    about = {"seed": card.seed, **experience.about(), "training": specification.record()}
    experience.check(run_id)
    runs.claim(logs, run_id, about)
    experience.prepare(logs, run_id)
    candidates = None
    if evaluation:
        candidates = Candidates(
            evaluation, logs / "candidates", lambda folder, weights, step: card.write(folder, weights, {"step": step})
        )
    result = run(training, run_id, saving, candidates)
    sizes = specification.network.sizes(len(experience.observations))
    exported = export(sizes, result.weights, int8)
    with POLICY_MARK.filling(out):
        kept = _write_results(out, result, sizes.parameters, evaluation)
        card.write(out, result.weights, {"metrics": result.metrics, **kept}, exported=exported)
    experience.close(logs)
    return Outcome(
        artefact=out,
        logs=logs,
        parameters=sizes.parameters,
        trained_steps=result.steps,
        seconds=result.seconds,
        waiting=result.waiting,
        metrics=result.metrics,
        step=result.step,
        evaluating_s=result.evaluating_s,
        scores=result.scores,
    )


def _write_results(out: Path, result: Result, parameters: int, evaluation: Evaluation | None) -> dict[str, Any]:
    """Write what stands beside a policy: curve, scores, metrics; return what its card says of the step that was kept.

    Args:
        out: the artefact's folder.
        result: how the training went.
        parameters: number of the policy's parameters.
        evaluation: how it was evaluated; None for not at all.
    """
    kept = {"kept": {"step": result.step, **result.scores[result.step]}} if evaluation else {}
    runs.write_tables(out, result.curve, result.scores)
    with write_atomically(out / "metrics.json") as path:
        path.write_text(json.dumps({**result.metrics, "parameters": parameters, **kept}, indent=2) + "\n")
    return kept


def _finished_outcome(finished: artefact.PolicyArtefact, out: Path, logs: Path, steps: int) -> Outcome:
    """Return the result of a run that had ended before this call."""
    return Outcome(
        artefact=out,
        logs=logs,
        parameters=finished.sizes.parameters,
        trained_steps=0,
        seconds=0.0,
        waiting=0.0,
        metrics=finished.card.get("metrics", {}),
        step=finished.card.get("kept", {}).get("step", steps),
    )
