# SPDX-License-Identifier: Apache-2.0
"""A training run: from a pool and a configuration to a policy artefact, whatever happens on the way.

The run's folder (`logs/<name>/`) holds the checkpoint, the metrics as JSON lines and TensorBoard events, `run.json`,
which identifies the run, and the evaluated policies. A killed run continues from its checkpoint bit for bit: weights,
optimiser state, targets, step and half-filled averages are in it, and batches and random numbers follow from the step.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sagecc.common import versions
from sagecc.common.arrays import Floats
from sagecc.common.files import write_atomically
from sagecc.common.locks import sole_writer
from sagecc.learner import runs
from sagecc.learner.compiled import compile_pool
from sagecc.learner.config import Config
from sagecc.learner.continuation import Continuation
from sagecc.learner.data import WindowSampler
from sagecc.learner.evaluation import Candidates, Evaluation
from sagecc.policy import artefact
from sagecc.schemas.pool import FEATURE_NAMES

if TYPE_CHECKING:
    from sagecc.learner.loop import Result
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
    config: Config,
    pool: Path,
    out: Path,
    logs: Path,
    cache: Path,
    seed: int = 0,
    *,
    checkpoint_s: float = 30.0,
    int8: bool = False,
    checkpoint_steps: int = 0,
    evaluation: Evaluation | None = None,
    strategy: Kind = "one",
    device: Device = "auto",
    start: Continuation | None = None,
) -> Outcome | None:
    """Train a policy, or continue a run that was stopped, or do nothing if `out` holds its policy already.

    Args:
        config: The configuration.
        pool: The pool's folder.
        out: The artefact's folder.
        logs: The run's folder.
        cache: Folder of the compiled pools.
        seed: Seed of the run.
        checkpoint_s: Seconds between checkpoints.
        int8: Also export the network with weights of 8 bits.
        checkpoint_steps: Steps between checkpoints, in addition; 0 for by time alone.
        evaluation: When and how to evaluate the policy; never by default. A run with evaluations is another run than
            one without, though it trains the same weights.
        strategy: Where to compute (learner.strategy.connect).
        device: On what to compute (learner.strategy.connect).
        start: Where another run ended, to train on from there up to the configuration's last step: with its networks,
            Adam's state, scaling and range of returns. By default all of these are new.

    Returns:
        The result; None on every worker but the chief, which writes the policy and all else.

    Raises:
        SageccError: The pool or a checkpoint is damaged, the run diverges, the workers' runs differ, or another process
            writes `logs` or `out`.
    """
    compiled = compile_pool(pool, cache).select(config.data)
    if start is not None:
        start.check(config)
    scaling = start.scaling if start else compiled.moments.scaling(config.input_transform, config.input_limit)
    beside = [seed, compiled.identity]
    beside += [evaluation.terms] if evaluation else []
    beside += [start.identity] if start else []
    fingerprint = runs.digest(config.record(), *beside)
    run_id = runs.digest(config.trained_by(evaluation is not None), *beside, versions.CRR)
    finished = runs.finished(out, fingerprint, int8) if runs.recorded_run_id(logs) in (None, run_id) else None
    if finished is not None and strategy == "one":
        return finished_outcome(finished, out, logs, config.steps)

    # Imported here because TensorFlow takes seconds to load and only a run that trains needs it.
    from sagecc.learner.loop import Saving, follow, run
    from sagecc.learner.strategy import connect
    from sagecc.policy.export import export

    distribution = connect(strategy, device, seed)
    distribution.part(config.batch)
    done = distribution.agree(run_id, finished is not None)
    if done and finished is not None:
        return finished_outcome(finished, out, logs, config.steps)
    if done:
        return None

    sampler = WindowSampler(
        compiled,
        scaling,
        config.batch,
        config.window,
        seed,
        period=config.period_ticks,
        start_share=config.start_share,
    )
    value_range = (
        start.value_range if start else config.value_range or compiled.value_range(config.discount, config.period_ticks)
    )
    observations = config.observations
    sizes = config.sizes(len(observations))
    selected = scaling.select([FEATURE_NAMES.index(name) for name in observations])
    control = artefact.Control(
        period_ms=float(config.period_ms),
        map=artefact.SPREAD_MAP if config.period_ticks > 1 else artefact.ACTION_MAP,
        slow_start=config.slow_start,
        window_bound=config.window_bound,
        window_bound_loss=config.window_bound_loss,
    )
    provenance = {
        "fingerprint": fingerprint,
        "training": config.record(),
        "seed": seed,
        "value_range": list(value_range),
        "pool": {
            "identity": compiled.identity,
            "rows": compiled.rows,
            "episodes": len(compiled.starts),
            **({"windows": compiled.windows} if compiled.windows else {}),
            **({"effective_windows": compiled.effective} if compiled.effective else {}),
        },
        **({"started_from": {"steps": start.steps, "identity": start.identity}} if start else {}),
    }

    def write_candidate(folder: Path, weights: dict[str, Floats], step: int) -> None:
        artefact.write(folder, weights, sizes, selected, observations, {**provenance, "step": step}, control=control)

    candidates = Candidates(evaluation, logs / "candidates", write_candidate) if evaluation else None
    with ExitStack() as held:
        held.enter_context(sampler)
        if distribution.index > 0:
            follow(config, sampler, value_range, seed, distribution)
            distribution.barrier()
            return None
        artefact.POLICY_MARK.check(out)
        held.enter_context(sole_writer(logs, out))
        runs.claim(logs, run_id, {"seed": seed, "pool": compiled.identity, "training": config.record()})
        saving = Saving(checkpoint_s, checkpoint_steps)
        result = run(
            config,
            sampler,
            value_range,
            seed,
            logs=logs,
            fingerprint=run_id,
            strategy=distribution,
            saving=saving,
            candidates=candidates,
            start=start,
        )
        exported = export(sizes, result.weights, int8)
        with artefact.POLICY_MARK.filling(out):
            kept = write_results(out, result, sizes.parameters, evaluation)
            about = {**provenance, "metrics": result.metrics, **kept}
            artefact.write(
                out, result.weights, sizes, selected, observations, about, exported=exported, control=control
            )
    distribution.barrier()
    return outcome(result, out, logs, sizes.parameters)


def write_results(out: Path, result: Result, parameters: int, evaluation: Evaluation | None) -> dict[str, Any]:
    """Write what stands beside a policy: curve, scores, metrics; return what its card says of the step that was kept.

    Args:
        out: The artefact's folder.
        result: How the training went.
        parameters: Number of the policy's parameters.
        evaluation: How it was evaluated; None for not at all.
    """
    kept = {"kept": {"step": result.step, **result.scores[result.step]}} if evaluation else {}
    runs.write_tables(out, result.curve, result.scores)
    with write_atomically(out / "metrics.json") as path:
        path.write_text(json.dumps({**result.metrics, "parameters": parameters, **kept}, indent=2) + "\n")
    return kept


def outcome(result: Result, out: Path, logs: Path, parameters: int) -> Outcome:
    """Return the result of a run that ended in this call."""
    return Outcome(
        artefact=out,
        logs=logs,
        parameters=parameters,
        trained_steps=result.steps,
        seconds=result.seconds,
        waiting=result.waiting,
        metrics=result.metrics,
        step=result.step,
        evaluating_s=result.evaluating_s,
        scores=result.scores,
    )


def finished_outcome(finished: artefact.PolicyArtefact, out: Path, logs: Path, steps: int) -> Outcome:
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
