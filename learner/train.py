# SPDX-License-Identifier: Apache-2.0
"""A training run: from a pool and a configuration to a policy artefact, whatever happens on the way.

The run's folder (`logs/<name>/`) holds the checkpoint, the metrics as JSON lines and TensorBoard events, and
`run.json`, which says which run it is. A killed run goes on from its checkpoint bit for bit: weights, optimiser
state, targets, step and half-filled averages are in it, and batches and random numbers follow from the step.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from learner import artefact
from learner.compiled import CompiledPool, compile_pool
from learner.config import Config
from learner.data import WindowSampler
from schemas.errors import SageccError
from schemas.files import write_atomically
from schemas.pool import FEATURE_NAMES

RUN_VERSION = 2
"""Part of a run's fingerprint: raised when the same configuration would train another policy."""


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
    int8: bool = False,
) -> Outcome:
    """Train a policy, or go on with a run that was stopped, or do nothing if `out` holds it already.

    pool: the Parquet pool; cache: where its compiled form lies; out: the artefact's folder; logs: the run's folder.
    checkpoint_s: seconds between checkpoints. int8: export the network with 8-bit weights too. Raises SageccError for
    a bad pool, a corrupt checkpoint or a run that diverges.
    """
    compiled = compile_pool(pool, cache).select(config.data)
    scaling = compiled.moments.scaling(config.input_transform, config.input_limit)
    fingerprint = _fingerprint(config, seed, compiled.identity)
    finished = _finished(out, fingerprint, int8)
    if finished is not None:
        return Outcome(out, logs, finished.sizes.parameters, 0, 0.0, 0.0, finished.card["metrics"])

    # Only a run that trains needs TensorFlow, which takes seconds to load.
    from learner.export import export
    from learner.loop import run

    value_range = config.value_range or compiled.value_range(config.discount)
    with WindowSampler(compiled, scaling, config.batch, config.window, seed) as sampler:
        _claim(logs, fingerprint, config, seed, compiled)
        result = run(config, sampler, value_range, seed, logs, fingerprint, checkpoint_s)

    observations = config.observations
    sizes = artefact.NetworkSizes.of(config, len(observations))
    provenance = {
        "fingerprint": fingerprint,
        "training": asdict(config),
        "seed": seed,
        "value_range": list(value_range),
        "pool": {
            "identity": compiled.identity,
            "rows": compiled.rows,
            "episodes": len(compiled.starts),
        },
        "metrics": result.metrics,
    }
    with write_atomically(_made(out) / "metrics.json") as path:
        path.write_text(json.dumps({**result.metrics, "parameters": sizes.parameters}, indent=2) + "\n")
    selected = scaling.select([FEATURE_NAMES.index(name) for name in observations])
    exported = export(sizes, result.weights, int8)
    artefact.write(out, result.weights, sizes, selected, observations, provenance, exported)
    return Outcome(out, logs, sizes.parameters, result.steps, result.seconds, result.waiting, result.metrics)


def _fingerprint(config: Config, seed: int, pool_identity: str) -> str:
    """Return what two runs share if and only if they train the same policy (on one machine)."""
    text = json.dumps([RUN_VERSION, asdict(config), seed, pool_identity], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _finished(out: Path, fingerprint: str, int8: bool) -> artefact.PolicyArtefact | None:
    """Return the artefact in `out` if this very run has already written it whole."""
    try:
        found = artefact.PolicyArtefact.load(out)
    except SageccError:
        return None
    wanted = {artefact.LITERT, artefact.ONNX, *([artefact.INT8] if int8 else [])}
    whole = wanted <= found.intact_files() and (out / "metrics.json").exists()
    return found if whole and found.card.get("fingerprint") == fingerprint else None


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
