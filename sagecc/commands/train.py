# SPDX-License-Identifier: Apache-2.0
"""`sagecc train`: from the pool, or from labs, to a policy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from sagecc.command import Command
from sagecc.common.errors import SageccError
from sagecc.common.limits import usable_cores
from sagecc.common.remote import Place
from sagecc.learner.architectures import Precision
from sagecc.learner.specification import RunSpecification, load, shipped
from sagecc.options import (
    allow_python_option,
    environments_option,
    kernel_option,
    parse_schemes,
    pool_cache_option,
    refuse_both,
)
from sagecc.paths import PATH
from sagecc.places import PLACE, pool_copy
from sagecc.schemas.schemes import TrustedCode
from sagecc.skipped import telling_skipped

if TYPE_CHECKING:
    from sagecc.learner.evaluation import Evaluation
    from sagecc.learner.experience import Experience
    from sagecc.learner.strategy import Device, Kind

LEAGUES = Path(".cache/league")
"""Where the heuristics' trajectories of evaluations lie, one folder per profile or set; safe to delete."""


@click.command(cls=Command)
@click.option(
    "--config",
    "name",
    show_default="small; with --from onward",
    help="A shipped configuration, or a YAML file. Shipped: 'tiny' (seconds), 'small' (minutes), 'paper' (a GPU's"
    f" work), {', '.join(n for n in shipped() if n not in ('tiny', 'small', 'paper'))}."
    " 'paper+no-gru' is a variant of paper.",
)
@click.option("--pool", "place", type=PLACE, default="datasets/pool", show_default=True)
@click.option(
    "--from",
    "start",
    metavar="POLICY",
    help="In labs: go on from a policy, a folder or a name, in place of new weights. Critics are new.",
)
@click.option(
    "-o",
    "--out",
    type=PATH,
    help="Folder of the policy.  [default: models/ and the configuration's name]",
)
@click.option("--steps", type=click.IntRange(min=1), help="Updates, in place of the configuration's.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True)
@click.option(
    "--logs",
    type=PATH,
    help="Checkpoint, metrics, TensorBoard.  [default: logs/ and --out's name]",
)
@pool_cache_option("Where the pool is compiled to for random reading; safe to delete.")
@click.option(
    "--checkpoint-every", type=click.FloatRange(min=0), default=30.0, show_default=True, help="Seconds of work at risk."
)
@click.option(
    "--checkpoint-steps", type=click.IntRange(min=1), metavar="N", help="A checkpoint after every N steps too."
)
@click.option(
    "--evaluate-every",
    type=click.IntRange(min=1),
    metavar="N",
    help="Play a league every N steps and at the end. The training itself is the same with and without.",
)
@click.option(
    "--evaluate-profile",
    default="heldout",
    show_default=True,
    metavar="PROFILE",
    help="The environments of that league. The heuristics' trajectories in them are collected first, once.",
)
@environments_option("--evaluate-environments", "Instead:")
@click.option(
    "--evaluate-schemes", default="all", show_default=True, help="Its heuristics, comma-separated; 'all' is the 13."
)
@allow_python_option
@click.option(
    "--keep",
    type=click.Choice(["last", "best"]),
    default="last",
    show_default=True,
    help="Export the last weights, or the best of the evaluations.",
)
@click.option(
    "--strategy",
    type=click.Choice(["one", "mirrored", "workers"]),
    default="one",
    show_default=True,
    help="Compute on one device; on all GPUs of this machine (without a GPU, on all cores); or with workers on several "
    "machines, this being one of them, as TF_CONFIG or Slurm's srun says (docs/guide/cluster.md).",
)
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "gpu"]),
    default="auto",
    show_default=True,
    help="'auto' takes GPUs where TensorFlow sees any.",
)
@click.option(
    "--precision",
    type=click.Choice(get_args(Precision)),
    help="Of matrix products, in place of the configuration's; bfloat16 also where a processor has AVX512_BF16 or AMX.",
)
@click.option("--xla", is_flag=True, help="Compile the losses and gradients with XLA, as `xla: true` does; for GPUs.")
@click.option(
    "--actors",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="In labs: processes that play in the labs. One gives the same bytes each time; several never wait.",
)
@click.option(
    "--replay",
    type=PATH,
    help="In labs: folder of the replay; one in /dev/shm keeps it in memory.  [default: replay/ in --logs]",
)
@click.option(
    "-j", "--jobs", type=click.IntRange(min=1), default=usable_cores, help="Episodes of an evaluation at a time."
)
@kernel_option()
@click.option(
    "--int8", is_flag=True, help="Export the network with 8-bit weights too; the card says how far off its outputs are."
)
@click.option("--count-parameters", is_flag=True, help="Print the policy's number of parameters and stop.")
def command(
    name: str | None,
    place: Place,
    start: str | None,
    out: Path | None,
    steps: int | None,
    seed: int,
    logs: Path | None,
    cache: Path,
    checkpoint_every: float,
    checkpoint_steps: int | None,
    evaluate_every: int | None,
    evaluate_profile: str,
    evaluate_environments: str | None,
    evaluate_schemes: str,
    allow_python: bool,
    keep: str,
    strategy: Kind,
    device: Device,
    precision: str | None,
    xla: bool,
    actors: int,
    replay: Path | None,
    jobs: int,
    kernel: Path,
    int8: bool,
    count_parameters: bool,
) -> None:
    """Train a policy, from the pool alone or in labs.

    \b
    sagecc train --config tiny
    sagecc train --config offline --pool datasets/kicked/pool --out models/mine
    sagecc train --config sagecc-10 --actors 2
    sagecc train --from models/mine --pool datasets/kicked/pool

    A configuration says how. From the pool alone, no packet is sent. A run that was stopped continues from its last
    checkpoint, bit for bit; a run that is done is not repeated. Ctrl-C, SIGTERM and a closed terminal write a
    checkpoint first (exit code 130, 143 and 129). Watch it with 'tensorboard --logdir logs'.
    """
    name = name or ("onward" if start else "small")
    network = {"precision": precision, "xla": xla or None}
    changes = {"steps": steps, "network": {field: value for field, value in network.items() if value is not None}}
    specification = load(name, **{field: value for field, value in changes.items() if value})
    if specification.task is not None and strategy != "one":
        raise SageccError(f"{name} learns in labs, in one process: leave out --strategy")
    if specification.task is None and start:
        raise SageccError(f"{name} learns from a pool, --from goes on in labs: choose one such as onward")
    if count_parameters:
        from sagecc.online import observed

        click.echo(specification.network.sizes(len(observed(specification))).parameters)
        return
    if keep == "best" and evaluate_every is None:
        raise SageccError("--keep best goes with --evaluate-every: it takes a league to know the best")
    if strategy == "workers" and evaluate_every is not None:
        raise SageccError("--evaluate-every goes with one machine, not with --strategy workers: leave it out there")
    if strategy == "workers" and specification.data and specification.data.validation_share:
        raise SageccError(
            "data.validation_share goes with one machine, not with --strategy workers: leave it out there"
        )
    out = out or Path("models") / Path(name).stem
    logs = logs or Path("logs") / out.name
    evaluation = None
    heuristics = parse_schemes(evaluate_schemes)
    trusted = TrustedCode.named_by(heuristics, allow_python)
    if evaluate_every is not None:
        evaluation = _league(
            evaluate_profile,
            evaluate_environments,
            heuristics,
            trusted,
            every=evaluate_every,
            best=keep == "best",
            kernel=kernel,
            logs=logs,
            jobs=jobs,
        )
    pool = pool_copy(place, cache) if specification.data or specification.pool else Path()
    experience = _experience(specification, pool, cache, start, seed, actors, replay, kernel, trusted)
    from sagecc.learner.judging.judge import evaluation_of
    from sagecc.learner.train import train  # it takes time to load: not for --help

    outcome = train(
        specification,
        experience,
        out,
        logs,
        seed,
        checkpoint_s=checkpoint_every,
        checkpoint_steps=checkpoint_steps or 0,
        int8=int8,
        evaluation=evaluation_of(specification, pool, cache, evaluation),
        strategy=strategy,
        device=device,
    )
    if outcome is None:
        click.echo("done: worker 0 has the policy and the logs")
        return
    if outcome.trained_steps:
        click.echo(
            f"{outcome.trained_steps} steps in {outcome.seconds:.0f} s, {outcome.waiting:.1%} of it waiting for data"
            + (f"; {outcome.evaluating_s:.0f} s of evaluations" if outcome.evaluating_s else "")
        )
    else:
        click.echo("already trained with this configuration and pool: nothing to do")
    of_step = f", of step {outcome.step}" if outcome.step != specification.steps else ""
    click.echo(f"policy   {outcome.artefact} ({outcome.parameters:,} parameters{of_step})")
    click.echo(f"logs     {outcome.logs} (metrics.jsonl; tensorboard --logdir {outcome.logs})")
    click.echo("metrics  " + ", ".join(f"{key} {value:.4g}" for key, value in outcome.metrics.items()))
    for step, scores in outcome.scores.items():
        click.echo(f"step {step:>8}  " + ", ".join(f"{name} {score:.3f}" for name, score in scores.items()))


def _experience(
    specification: RunSpecification,
    pool: Path,
    cache: Path,
    start: str | None,
    seed: int,
    actors: int,
    replay: Path | None,
    kernel: Path,
    trusted: TrustedCode,
) -> Experience:
    """Return what is learned from: the pool, or the labs of the task."""
    if specification.data:
        from sagecc.learner.pool_source import PoolExperience

        return PoolExperience(specification, pool, cache, seed)
    from sagecc.learner.online.lab_source import LabExperience
    from sagecc.online import online_task
    from sagecc.policy.artefact import PolicyArtefact

    policy = PolicyArtefact.load(start) if start else None
    task = online_task(specification, kernel, trusted)
    return LabExperience(specification, task, seed, actors, replay, policy, (pool, cache))


def _league(
    profile: str,
    environments: str | None,
    schemes: Sequence[str],
    trusted: TrustedCode,
    *,
    every: int,
    best: bool,
    kernel: Path,
    logs: Path,
    jobs: int,
) -> Evaluation:
    """Return the evaluation by a league, after collecting its heuristics' trajectories."""
    # Lab and league are imported only here: training needs neither.
    from sagecc.collector.run.set_file import chosen_set
    from sagecc.leagues.candidate import MEAN_RATE, CandidateLeague
    from sagecc.learner.evaluation import Evaluation

    refuse_both("evaluate_profile", environments)
    networks = telling_skipped(chosen_set(profile, environments, trusted))
    league = CandidateLeague(networks, schemes, kernel, LEAGUES / networks.name, logs / "league", jobs)
    league.prepare()
    return Evaluation(league, every, league.identity, MEAN_RATE if best else "")
