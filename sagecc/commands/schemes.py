# SPDX-License-Identifier: Apache-2.0
"""`sagecc schemes`: the congestion-control schemes by name."""

from __future__ import annotations

import json

import click

from sagecc.common.shipped import BEST_POLICY
from sagecc.schemas.schemes import OTHERS, SCHEMES, USER_SPACE


@click.command()
@click.option("--pool", is_flag=True, help="Only the 13 schemes that the pool is collected from.")
@click.option("--json", "as_json", is_flag=True, help="Print one array of objects: name, about, in_pool, where.")
def command(pool: bool, as_json: bool) -> None:
    """List the schemes: what can set a window.

    \b
    sagecc schemes
    sagecc schemes --pool       # the 13 that the pool is collected from
    sagecc run --scheme vegas

    Each name stands for --scheme and --schemes. A trained policy is policy:PATH, your own class python:PATH.py:CLASS.
    """
    listed = SCHEMES if pool else {**SCHEMES, **OTHERS, **USER_SPACE}
    if as_json:
        click.echo(json.dumps([_described(name, text) for name, text in listed.items()], indent=1))
        return
    for name, text in listed.items():
        click.echo(f"{name:<11} {text}")
    if not pool:
        click.echo(
            f"{'policy:DIR':<11} a trained policy, such as policy:models/repro; policy:{BEST_POLICY} comes along"
        )
        click.echo(f"{'python:FILE':<11} a class of one's own, python:PATH.py:CLASS (docs/guide/your-own-scheme.md)")


def _described(name: str, text: str) -> dict[str, object]:
    where = "user space" if name in USER_SPACE else "kernel"
    return {"name": name, "about": text, "in_pool": name in SCHEMES, "where": where}
