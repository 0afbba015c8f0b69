# SPDX-License-Identifier: Apache-2.0
"""Writes what two configurations come to, resolved: what `dvc.yaml` trains anew for where it changes, and only then."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from sagecc.common.files import write_atomically
from sagecc.learner.specification import load
from sagecc.online import networks_digest


def specifications(pool: str, labs: str) -> dict[str, dict[str, Any]]:
    """Return the fields of the configuration that learns from a pool, and of that in labs, with its networks."""
    learned = load(labs)
    return {"pool": load(pool).record(), "labs": {**learned.record(), "networks": networks_digest(learned)}}


def write(found: Mapping[str, Mapping[str, Any]], out: Path) -> None:
    """Write each into a file of its own in `out`."""
    out.mkdir(parents=True, exist_ok=True)
    for name, values in found.items():
        with write_atomically(out / f"{name}.json") as beside:
            beside.write_text(json.dumps(values, indent=1, sort_keys=True) + "\n")


@click.command()
@click.option("--pool", required=True, help="Configuration that learns from a pool.")
@click.option("--labs", required=True, help="Configuration that learns in labs.")
@click.option("--out", type=click.Path(path_type=Path), required=True)
def command(pool: str, labs: str, out: Path) -> None:
    """Write what these two come to."""
    write(specifications(pool, labs), out)


if __name__ == "__main__":
    command()
