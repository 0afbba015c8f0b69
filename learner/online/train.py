# SPDX-License-Identifier: Apache-2.0
"""An online training run: from a task and a configuration to a policy artefact, whatever happens on the way.

The run's folder is an offline run's (learner.train) and has, beside the rest, `replay/`: the replay rings and what the
processes share. With one actor process a killed run continues bit for bit; with several it goes on with the same
weights, optimiser state and replay, and new episodes.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

from sagecc.common import versions
from sagecc.common.arrays import Floats
from sagecc.common.errors import SageccError
from sagecc.common.locks import sole_writer
from sagecc.common.marks import Mark
from sagecc.learner import runs
from sagecc.learner.continuation import CHECKPOINT
from sagecc.learner.evaluation import Candidates, Evaluation
from sagecc.learner.online.actors import ActorSpec
from sagecc.learner.online.config import OnlineConfig
from sagecc.learner.online.labs import OnlineTask
from sagecc.learner.online.replay import SPARE_SHARE, Layout
from sagecc.learner.train import Outcome, finished_outcome, outcome, write_results
from sagecc.policy import artefact
from sagecc.policy.artefact import POLICY_MARK

REPLAY = "replay"
"""Folder within the run's."""

REPLAY_MARK = Mark(
    "a replay's",
    r"ring-\d+\.f32|weights\.f32|counters|run\.json",
    lambda folder: runs.recorded_run_id(folder) is not None,
)


def train(
    config: OnlineConfig,
    task: OnlineTask,
    out: Path,
    logs: Path,
    seed: int = 0,
    *,
    actors: int = 1,
    replay: Path | None = None,
    checkpoint_s: float = 30.0,
    checkpoint_steps: int = 0,
    int8: bool = False,
    evaluation: Evaluation | None = None,
) -> Outcome:
    """Train a policy, or continue a run that was stopped, or do nothing if `out` holds its policy already.

    Args:
        config: The configuration.
        task: What is learned.
        out: The artefact's folder.
        logs: The run's folder.
        seed: Seed of the run.
        actors: Number of actor processes, each with its share of the labs.
        replay: Folder of the replay, by default in the run's; one in a memory file system keeps it in memory.
        checkpoint_s: Seconds between checkpoints.
        checkpoint_steps: Updates between checkpoints, in addition; 0 for by time alone.
        int8: Also export the network with weights of 8 bits.
        evaluation: When and how to evaluate the policy; never by default.

    Raises:
        SageccError: A checkpoint is damaged, the run diverges, an actor fails, the numbers do not fit together, or
            another process writes `logs`, `out` or `replay`.
    """
    if task.control.limits != (-1.0, 1.0):
        raise SageccError(f"actions must have the limits -1 and 1, not {task.control.limits}: set the control's base")
    if not 1 <= actors <= config.labs:
        raise SageccError(f"{actors} actor processes cannot share {config.labs} labs: from 1 to that many")
    share = config.replay // actors
    if config.round_decisions + config.labs > SPARE_SHARE / 2 * share:
        raise SageccError(
            f"a replay of {share:,} records in each actor is too small for rounds of {config.round_decisions:,} "
            "decisions: it takes eight times as many and more"
        )
    beside = [task.identity, seed, actors, *([evaluation.terms] if evaluation else [])]
    fingerprint = runs.digest(asdict(config), *beside)
    version = versions.DAGGER if config.algorithm == "dagger" else versions.TD3
    run_id = runs.digest(config.trained_by(evaluation is not None), *beside, version)
    sizes, scaling = config.sizes(len(task.observations)), config.scaling(len(task.observations))
    finished = runs.finished(out, fingerprint, int8) if runs.recorded_run_id(logs) in (None, run_id) else None
    if finished is not None:
        return finished_outcome(finished, out, logs, config.steps)

    POLICY_MARK.check(out)
    with sole_writer(logs, out, *([replay] if replay else [])):
        # Imported here because TensorFlow takes seconds to load and only a run that trains needs it.
        from sagecc.common.tensorflow_runtime import configure
        from sagecc.learner.loop import Saving
        from sagecc.learner.online.loop import run
        from sagecc.policy.export import export

        configure(seed)
        if replay is not None:
            check_replay(replay, run_id)
        runs.claim(logs, run_id, {"seed": seed, "task": task.identity, "training": asdict(config)})
        folder = replay or logs / REPLAY
        if not (logs / CHECKPOINT).exists():
            REPLAY_MARK.clear(folder)
        runs.write_run(folder, run_id)
        provenance = {"fingerprint": fingerprint, "training": asdict(config), "seed": seed, "actors": actors}
        bound = config.final_window_bound
        control = replace(task.control, window_bound=bound) if bound else task.control

        def write_candidate(place: Path, weights: dict[str, Floats], step: int) -> None:
            about = {**provenance, "step": step}
            artefact.write(
                place, weights, sizes, scaling, task.observations, about, control=control, source=task.source
            )

        result = run(
            config,
            actor_specs(config, task, folder, seed, actors),
            seed,
            logs=logs,
            fingerprint=run_id,
            saving=Saving(checkpoint_s, checkpoint_steps),
            candidates=Candidates(evaluation, logs / "candidates", write_candidate) if evaluation else None,
        )
        exported = export(sizes, result.weights, int8)
        with POLICY_MARK.filling(out):
            kept = write_results(out, result, sizes.parameters, evaluation)
            artefact.write(
                out,
                result.weights,
                sizes,
                scaling,
                task.observations,
                {**provenance, "metrics": result.metrics, **kept},
                exported=exported,
                control=control,
                source=task.source,
            )
        REPLAY_MARK.remove_own(folder)
        return outcome(result, out, logs, sizes.parameters)


def check_replay(folder: Path, run_id: str) -> None:
    """Raise SageccError where a replay's folder holds anything but this run's replay."""
    REPLAY_MARK.check_whole(folder)
    if runs.recorded_run_id(folder) not in (None, run_id):
        raise SageccError(
            f"{folder} holds the replay of another run, which has not ended: name another folder with --replay, or "
            "remove this one"
        )


def actor_specs(config: OnlineConfig, task: OnlineTask, folder: Path, seed: int, actors: int) -> list[ActorSpec]:
    """Return the actor processes, among which the labs are shared as equally as can be.

    Args:
        config: The configuration.
        task: What is learned.
        folder: Where the shared memory's files lie.
        seed: The run's seed.
        actors: Number of processes.
    """
    bounds = [config.labs * i // actors for i in range(actors + 1)]
    return [
        ActorSpec(
            make_labs=task.make_labs,
            network=config.sizes(len(task.observations)),
            scaling=config.scaling(len(task.observations)),
            exploration=config.exploration,
            layout=Layout(config.window, len(task.observations), task.states),
            folder=folder,
            index=i,
            processes=actors,
            first_lab=bounds[i],
            labs=bounds[i + 1] - bounds[i],
            all_labs=config.labs,
            replay=config.replay // actors,
            seed=seed,
        )
        for i in range(actors)
    ]
