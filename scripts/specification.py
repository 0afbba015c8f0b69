# SPDX-License-Identifier: Apache-2.0
"""Writes what configurations come to, resolved: what a stage trains anew for where it changes, and only then."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from sagecc.common.files import write_atomically
from sagecc.learner.specification import load
from sagecc.online import networks_digest


def specifications(pool: str | None = None, labs: str | None = None) -> dict[str, dict[str, Any]]:
    """Return the fields of a configuration that learns from a pool, and of one in labs, with its networks."""
    found: dict[str, dict[str, Any]] = {}
    if pool:
        found["pool"] = load(pool).record()
    if labs:
        learned = load(labs)
        found["labs"] = {**learned.record(), "networks": networks_digest(learned)}
    return found


def write(found: Mapping[str, Mapping[str, Any]], out: Path) -> None:
    """Write each into a file of its own in `out`."""
    out.mkdir(parents=True, exist_ok=True)
    for name, values in found.items():
        with write_atomically(out / f"{name}.json") as beside:
            beside.write_text(json.dumps(values, indent=1, sort_keys=True) + "\n")


@click.command()
@click.option("--pool", help="Configuration that learns from a pool.")
@click.option("--labs", help="Configuration that learns in labs.")
@click.option("--out", type=click.Path(path_type=Path), required=True)
def command(pool: str | None, labs: str | None, out: Path) -> None:
    """Write what they come to."""
    write(specifications(pool, labs), out)


if __name__ == "__main__":
    command()
