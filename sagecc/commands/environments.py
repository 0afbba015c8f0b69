# SPDX-License-Identifier: Apache-2.0
"""`sagecc environments`: the networks of a profile, or of files."""

from __future__ import annotations

import json
from pathlib import Path

import click

from sagecc.options import ENVIRONMENT_FILE
from sagecc.schemas.environment_file import load_environment
from sagecc.schemas.environment_set import EnvironmentSet
from sagecc.schemas.schemes import ANY_CODE
from sagecc.sets import listed_networks_options


@click.command()
@click.argument("files", nargs=-1, type=ENVIRONMENT_FILE)
@listed_networks_options
@click.option("--count", is_flag=True, help="Print only how many there are.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line, with every field.")
def command(files: tuple[Path, ...], networks: EnvironmentSet, count: bool, as_json: bool) -> None:
    """List the networks of a profile, a set or files.

    \b
    sagecc environments --profile full --count
    sagecc environments --environments cellular
    sagecc environments parking-lot.yaml mine.yaml

    A line has id, base rate, step, minimum RTT, queue, flows and duration. With FILES, it checks and lists environment
    files (docs/reference/formats.md) instead. A line of --json is such a file.
    """
    environments = tuple(load_environment(file, ANY_CODE) for file in files) or networks.environments
    if count:
        click.echo(len(environments))
    elif as_json:
        for environment in environments:
            click.echo(json.dumps({"id": environment.id, **json.loads(environment.to_json())}))
    else:
        width = max(len(environment.id) for environment in environments)
        click.echo(f"{'id':<{width}} {'Mbps':>6} {'step':>5} {'RTT ms':>7} {'queue BDP':>9} {'flows':>5} {'s':>4}")
        for e in environments:
            click.echo(
                f"{e.id:<{width}} {e.bandwidth_mbps:>6.4g} {e.step:>5.3g} {e.min_rtt_ms:>7g}"
                f" {e.queue_bdp:>9.3g} {e.flow_count:>5} {e.duration_s:>4g}"
            )
