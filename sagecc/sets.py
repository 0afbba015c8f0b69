# SPDX-License-Identifier: Apache-2.0
"""The options of commands that run in a profile's networks or in a set of one's own."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from sagecc.collector.run.grid import PROFILES, profile_set
from sagecc.options import environments_option, refuse_both
from sagecc.schemas.environment_set import EnvironmentSet, repeated


def networks_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --profile and --environments; the command gets what they ask for as the argument `networks`."""

    @click.option(
        "--profile", type=click.Choice(PROFILES), default="small", show_default=True, help="Which environments."
    )
    @environments_option()
    @wraps(command)
    def run(profile: str, environments: str | None, **arguments: Any) -> Any:
        refuse_both("profile", environments)
        if environments is None:
            return command(networks=profile_set(profile), **arguments)
        from sagecc.collector.run.set_file import load_set  # pydantic takes time to load

        return command(networks=load_set(environments), **arguments)

    return run


def repeats_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --repeats and --jitter-ms to a command with the argument `networks`; it gets each network so many times."""

    @click.option(
        "--repeats",
        type=int,
        default=1,
        show_default=True,
        metavar="N",
        help="Each network N times: as it is, then with every flow's start delayed by a seeded fraction of the RTT.",
    )
    @click.option(
        "--jitter-ms",
        type=float,
        default=0.0,
        show_default=True,
        help="In all but the first of the repeats, ACKs come up to this earlier or later too, in order.",
    )
    @wraps(command)
    def run(repeats: int, jitter_ms: float, networks: EnvironmentSet, **arguments: Any) -> Any:
        return command(networks=repeated(networks, repeats, jitter_ms), **arguments)

    return run
