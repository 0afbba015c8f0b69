# SPDX-License-Identifier: Apache-2.0
"""`sagecc train`: from the pool to a policy."""

from __future__ import annotations

from pathlib import Path

import click

from learner.artefact import NetworkSizes
from learner.config import load, shipped


@click.command()
@click.option(
    "--config",
    "name",
    default="small",
    show_default=True,
    help="'tiny' (seconds), 'small' (minutes), 'paper' (a GPU's work), a YAML file of your own, or a variant: "
    f"{', '.join(n for n in shipped() if n not in ('tiny', 'small', 'paper'))}. 'paper+no-gru' is a variant of paper.",
)
@click.option("--pool", type=click.Path(path_type=Path), default="datasets/pool", show_default=True)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder of the policy.  [default: models/ and the configuration's name]",
)
@click.option("--steps", type=click.IntRange(min=1), help="Optimiser steps, in place of the configuration's.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True)
@click.option(
    "--logs",
    type=click.Path(path_type=Path),
    help="Checkpoint, metrics, TensorBoard.  [default: logs/ and --out's name]",
)
@click.option(
    "--cache",
    type=click.Path(path_type=Path),
    default=".cache/pool",
    show_default=True,
    help="Where the pool is compiled to for random reading; safe to delete.",
)
@click.option(
    "--checkpoint-every", type=click.FloatRange(min=0), default=30.0, show_default=True, help="Seconds of work at risk."
)
@click.option(
    "--int8", is_flag=True, help="Export the network with 8-bit weights too; the card says how far off its answers are."
)
@click.option("--count-parameters", is_flag=True, help="Print the policy's number of parameters and stop.")
def command(
    name: str,
    pool: Path,
    out: Path | None,
    steps: int | None,
    seed: int,
    logs: Path | None,
    cache: Path,
    checkpoint_every: float,
    int8: bool,
    count_parameters: bool,
) -> None:
    """Train a policy from the pool alone, with Critic-Regularized Regression; no packet is sent.

    A run that was stopped goes on from its last checkpoint, bit for bit; a run that is done is not
    repeated. Watch it with 'tensorboard --logdir logs'.
    """
    config = load(name, **({} if steps is None else {"steps": steps}))
    if count_parameters:
        click.echo(NetworkSizes.of(config, len(config.observations)).parameters)
        return
    # TensorFlow takes seconds to load: not for --help.
    from learner.train import train

    out = out or Path("models") / Path(name).stem
    outcome = train(config, pool, out, logs or Path("logs") / out.name, cache, seed, checkpoint_every, int8)
    if outcome.trained_steps:
        click.echo(
            f"{outcome.trained_steps} steps in {outcome.seconds:.0f} s, {outcome.waiting:.1%} of it waiting for data"
        )
    else:
        click.echo("already trained with this configuration and pool: nothing to do")
    click.echo(f"policy   {outcome.artefact} ({outcome.parameters:,} parameters)")
    click.echo(f"logs     {outcome.logs} (metrics.jsonl; tensorboard --logdir {outcome.logs})")
    click.echo("metrics  " + ", ".join(f"{key} {value:.4g}" for key, value in outcome.metrics.items()))
