# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: N999 (found by its name and imported through importlib)
"""`sagecc import`: others' policies, as artefacts."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("kind", type=click.Choice(["orca"]))
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the policy.  [default: models/ and the kind]")
def command(kind: str, checkpoint: Path, out: Path | None) -> None:
    """Turn another project's trained policy into one that runs here: sagecc run --scheme policy:models/orca.

    KIND says whose it is: 'orca' is the actor that Orca's public code (SIGCOMM 2020) trains. CHECKPOINT is a TensorFlow
    checkpoint: its folder, one of its files, or their common beginning. Its licence stays its authors'; the card of the
    policy says so. docs/guide/your-own-scheme.md has the rest.
    """
    # The numeric libraries take a second to load: not for --help.
    from sagecc.policy.orca_import import import_checkpoint

    imported = import_checkpoint(checkpoint, out or Path("models") / kind)
    click.echo(f"policy   {imported.folder} ({imported.parameters:,} parameters, step {imported.step:,})")
