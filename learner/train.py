# SPDX-License-Identifier: Apache-2.0
"""A training run: from a pool and a configuration to a policy artefact, whatever happens on the way.

The run's folder (`logs/<name>/`) holds the checkpoint, the metrics as JSON lines and TensorBoard events, `run.json`,
which says which run it is, and what evaluations look at. A killed run goes on from its checkpoint bit for bit: weights,
optimiser state, targets, step and half-filled averages are in it, and batches and random numbers follow from the step.
"""

from __future__ import annotations

import csv
import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sagecc.common import code
from sagecc.common.arrays import Floats
from sagecc.common.errors import SageccError
from sagecc.common.files import write_atomically
from sagecc.learner.compiled import CompiledPool, compile_pool
from sagecc.learner.config import Config
from sagecc.learner.data import WindowSampler
from sagecc.learner.evaluation import Candidates, Evaluation
from sagecc.policy import artefact
from sagecc.schemas.pool import FEATURE_NAMES

if TYPE_CHECKING:
    from sagecc.learner.strategy import Device, Kind

CURVES, SCORES = "curves.csv", "scores.csv"
"""Beside the artefact: the metrics by step, for `dvc plots`, and the evaluations' scores by step, if there were any."""

CURVE_ROWS = 1000
"""A longer curve is thinned to this many rows."""


@dataclass(frozen=True)
class Outcome:
    """What a run left behind.

    trained_steps: steps taken by this call, in `seconds`; waiting: the share of them spent waiting for data.
    evaluating_s: seconds that evaluations took beside that. step: the one that the policy is of. scores: the
    evaluations' by step, of a run that this call has ended.
    """

    artefact: Path
    logs: Path
    parameters: int
    trained_steps: int
    seconds: float
    waiting: float
    metrics: dict[str, float]
    step: int
    evaluating_s: float = 0.0
    scores: Mapping[int, Mapping[str, float]] = field(default_factory=dict)


def train(
    config: Config,
    pool: Path,
    out: Path,
    logs: Path,
    cache: Path,
    seed: int = 0,
    checkpoint_s: float = 30.0,
    int8: bool = False,
    checkpoint_steps: int = 0,
    evaluation: Evaluation | None = None,
    strategy: Kind = "one",
    device: Device = "auto",
) -> Outcome | None:
    """Train a policy, or go on with a run that was stopped, or do nothing if `out` holds it already.

    pool: the Parquet pool; cache: where its compiled form lies; out: the artefact's folder; logs: the run's folder.
    checkpoint_s: seconds between checkpoints; checkpoint_steps: steps between them too, if not 0. int8: export the
    network with 8-bit weights too. evaluation: look at the policy from time to time; a run that is looked at is another
    run than one that is not, though it trains the same weights. strategy, device: where to compute
    (learner.strategy.connect). Returns None on workers but the chief, which has the policy and all that is written.
    Raises SageccError for a bad pool, a corrupt checkpoint, a run that diverges, workers that do not agree.
    """
    compiled = compile_pool(pool, cache).select(config.data)
    scaling = compiled.moments.scaling(config.input_transform, config.input_limit)
    fingerprint = _fingerprint(config, seed, compiled.identity, evaluation)
    run_id = _run_id(fingerprint)
    finished = _finished(out, fingerprint, int8) if _described(logs) in (None, run_id) else None
    if finished is not None and strategy == "one":
        return _outcome(finished, out, logs, config)

    # Only a run that trains needs TensorFlow, which takes seconds to load.
    from sagecc.learner.loop import Saving, follow, run
    from sagecc.learner.strategy import connect
    from sagecc.policy.export import export

    place = connect(strategy, device, seed)
    place.part(config.batch)
    done = place.agree(run_id, finished is not None)
    if done and finished is not None:
        return _outcome(finished, out, logs, config)
    if done:
        return None

    sampler = WindowSampler(
        *(compiled, scaling, config.batch, config.window, seed),
        period=config.period_ticks,
        start_share=config.start_share,
    )
    value_range = config.value_range or compiled.value_range(config.discount, config.period_ticks)
    observations = config.observations
    sizes = config.sizes(len(observations))
    selected = scaling.select([FEATURE_NAMES.index(name) for name in observations])
    control = artefact.Control(period_ms=float(config.period_ms), spread=config.period_ticks > 1)
    provenance = {
        "fingerprint": fingerprint,
        "training": asdict(config),
        "seed": seed,
        "value_range": list(value_range),
        "pool": {
            "identity": compiled.identity,
            "rows": compiled.rows,
            "episodes": len(compiled.starts),
            **({"windows": compiled.windows} if compiled.windows else {}),
        },
    }

    def write_candidate(folder: Path, weights: dict[str, Floats], step: int) -> None:
        artefact.write(folder, weights, sizes, selected, observations, {**provenance, "step": step}, control=control)

    candidates = Candidates(evaluation, logs / "candidates", write_candidate) if evaluation else None
    with sampler:
        if place.index > 0:
            follow(config, sampler, value_range, seed, place)
            place.meet()
            return None
        _claim(logs, run_id, config, seed, compiled)
        saving = Saving(checkpoint_s, checkpoint_steps)
        result = run(config, sampler, value_range, seed, logs, run_id, place, saving, candidates)

    kept = {"kept": {"step": result.step, **result.scores[result.step]}} if evaluation else {}
    _write_table(_made(out) / CURVES, thinned(result.curve))
    if evaluation:
        _write_table(out / SCORES, [{"step": step, **scores} for step, scores in result.scores.items()])
    with write_atomically(out / "metrics.json") as path:
        path.write_text(json.dumps({**result.metrics, "parameters": sizes.parameters, **kept}, indent=2) + "\n")
    exported = export(sizes, result.weights, int8)
    provenance = {**provenance, "metrics": result.metrics, **kept}
    artefact.write(out, result.weights, sizes, selected, observations, provenance, exported, control)
    place.meet()
    return Outcome(
        out,
        logs,
        sizes.parameters,
        result.steps,
        result.seconds,
        result.waiting,
        result.metrics,
        result.step,
        result.evaluating_s,
        result.scores,
    )


def _outcome(finished: artefact.PolicyArtefact, out: Path, logs: Path, config: Config) -> Outcome:
    """Return what there is to say of a run that had ended before."""
    step = finished.card.get("kept", {}).get("step", config.steps)
    return Outcome(out, logs, finished.sizes.parameters, 0, 0.0, 0.0, finished.card.get("metrics", {}), step)


def _fingerprint(config: Config, seed: int, pool_identity: str, evaluation: Evaluation | None) -> str:
    """Return what two runs share if and only if the same code trains and keeps the same policy (on one machine)."""
    looks = [[evaluation.identity, evaluation.every, evaluation.best_by]] if evaluation else []
    text = json.dumps([asdict(config), seed, pool_identity, *looks], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _run_id(fingerprint: str) -> str:
    """Return a run's fingerprint together with its code's identity: what has both can be gone on with, bit for bit."""
    return hashlib.sha256(f"{fingerprint} {code.identity('sagecc.learner.train')}".encode()).hexdigest()


def thinned(curve: Sequence[Mapping[str, float]]) -> Sequence[Mapping[str, float]]:
    """Return at most CURVE_ROWS rows at even distances, the last among them."""
    every = -(-len(curve) // CURVE_ROWS)
    return curve[::-1][::every][::-1]


def _write_table(path: Path, rows: Sequence[Mapping[str, float]]) -> None:
    """Write rows as CSV, numbers to six digits."""
    with write_atomically(path) as beside, beside.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(rows[0])
        table.writerows(
            [f"{value:.6g}" if isinstance(value, float) else value for value in row.values()] for row in rows
        )


def _finished(out: Path, fingerprint: str, int8: bool) -> artefact.PolicyArtefact | None:
    """Return the artefact in `out` if this very run has already written it whole."""
    try:
        found = artefact.PolicyArtefact.load(out)
    except SageccError:
        return None
    wanted = {artefact.LITERT, artefact.ONNX, *([artefact.INT8] if int8 else [])}
    whole = wanted <= found.intact_files() and (out / "metrics.json").exists()
    whole = whole and all(isinstance(found.card.get(name, {}), dict) for name in ("metrics", "kept"))
    return found if whole and found.card.get("fingerprint") == fingerprint else None


def _described(logs: Path) -> str | None:
    """Return the run whose folder this is, if it is one's. Raises SageccError where that cannot be read."""
    described = logs / "run.json"
    try:
        return str(json.loads(described.read_text())["fingerprint"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise SageccError(f"{described} is damaged ({error}): remove the folder {logs} and train again") from error


def _claim(logs: Path, run_id: str, config: Config, seed: int, pool: CompiledPool) -> None:
    """Make the run's folder; an older run of the same name moves aside into `earlier-<its id>/`."""
    described = _made(logs) / "run.json"
    for left in logs.glob(".tmp-*"):
        left.unlink()
    if found := _described(logs):
        if found == run_id:
            return
        aside = _made(logs / f"earlier-{found[:12]}")
        for path in list(logs.iterdir()):
            if path != described and not path.name.startswith("earlier-"):
                shutil.rmtree(aside / path.name, ignore_errors=True)  # a folder of a run set aside before
                path.replace(aside / path.name)
        described.replace(aside / described.name)
    with write_atomically(described) as path:
        text = {"fingerprint": run_id, "seed": seed, "pool": pool.identity, "training": asdict(config)}
        path.write_text(json.dumps(text, indent=2) + "\n")


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
