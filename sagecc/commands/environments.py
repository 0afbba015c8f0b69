# SPDX-License-Identifier: Apache-2.0
"""`sagecc environments`: the networks of a profile."""

from __future__ import annotations

import json

import click

from collector.grid import PROFILES, profile_environments


@click.command()
@click.option("--profile", type=click.Choice(PROFILES), default="small", show_default=True)
@click.option("--count", is_flag=True, help="Print only how many there are.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, with every field.")
def command(profile: str, count: bool, as_json: bool) -> None:
    """List the environments of a profile: id, base rate, step, minimum RTT, queue, flows, duration."""
    environments = profile_environments(profile)
    if count:
        click.echo(len(environments))
    elif as_json:
        for environment in environments:
            click.echo(json.dumps({"id": environment.id, **json.loads(environment.to_json())}))
    else:
        click.echo(f"{'id':<38} {'Mbps':>5} {'step':>5} {'RTT ms':>7} {'queue BDP':>9} {'flows':>5} {'s':>4}")
        for e in environments:
            click.echo(
                f"{e.id:<38} {e.bandwidth_mbps:>5g} {e.step:>5g} {e.min_rtt_ms:>7g}"
                f" {e.queue_bdp:>9.3g} {e.flows:>5} {e.duration_s:>4g}"
            )
