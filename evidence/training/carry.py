# SPDX-License-Identifier: Apache-2.0
"""`python -m evidence.training.carry NAME ...`: keep in Git what a long training needs to go on on another machine.

Kept is all of the training's folder of logs (checkpoint, metrics, the best policy so far) but what it writes for
TensorBoard, and the CPU time spent. `make policies` goes on from there where it finds no training of that name.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import click

from evidence.training import ARTEFACTS, CARRIED, LOGS, METER
from sagecc.common.errors import SageccError
from sagecc.common.locks import locked
from sagecc.learner.continuation import CHECKPOINT

_BESIDE = "events.*", ".*"
"""What a continued training does without."""


def keep(folder: Path, kept: Path) -> None:
    """Copy what the training in `folder` needs to go on to the folder `kept`, in place of what is there.

    Raises:
        SageccError: it has no checkpoint, or a process is at it.
    """
    if not (folder / LOGS / CHECKPOINT).exists():
        raise SageccError(f"{folder / LOGS} has no {CHECKPOINT}: there is no training to keep")
    try:
        with locked(folder / ".lock"):
            _copy(folder, kept)
    except BlockingIOError:
        raise SageccError(f"{folder}: a process is at it; end it first (it goes on from its checkpoint)") from None


def take_up(kept: Path, folder: Path) -> bool:
    """Copy what `keep` has kept to `folder`, if that has no training of its own; tell whether it did."""
    if (folder / LOGS).exists() or not (kept / LOGS / CHECKPOINT).exists():
        return False
    _copy(kept, folder)
    return True


def _copy(source: Path, target: Path) -> None:
    """Copy a training; a killed call leaves the target without one, or with one that is whole."""
    logs, temporary = target / LOGS, target / f".{LOGS}"
    for old in (temporary, logs):
        if old.exists():
            shutil.rmtree(old)
    target.mkdir(parents=True, exist_ok=True)
    shutil.copytree(source / LOGS, temporary, ignore=shutil.ignore_patterns(*_BESIDE))
    if (source / METER).exists():
        shutil.copyfile(source / METER, target / METER)
    temporary.rename(logs)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, required=True)
def command(names: tuple[str, ...]) -> None:
    """Keep these runs' unfinished trainings in evidence/training/checkpoints/, to be committed."""
    try:
        for name in names:
            keep(ARTEFACTS / name, CARRIED / name)
            click.echo(f"{name}: kept in {CARRIED / name}", err=True)
    except SageccError as error:
        click.echo(f"training: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    command(prog_name="python -m evidence.training.carry")
