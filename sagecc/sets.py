# SPDX-License-Identifier: Apache-2.0
"""The options of commands about a profile's networks or a set of one's own."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from sagecc.collector.run.grid import PROFILES, profile_set
from sagecc.options import MILLISECONDS, allow_python_option, environments_option, parse_schemes, refuse_both
from sagecc.schemas.environment_set import EnvironmentSet, repeated
from sagecc.schemas.schemes import ANY_CODE, TrustedCode
from sagecc.skipped import telling_skipped


def networks_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --profile, --environments and --allow-python to a command that runs schemes in what they ask for.

    The command gets that as the argument `networks`. What it runs by --scheme and --schemes may stand in the file too.
    """

    @_choice
    @allow_python_option
    @wraps(command)
    def run(profile: str, environments: str | None, allow_python: bool, **arguments: Any) -> Any:
        named = (arguments.get("scheme") or "", *parse_schemes(arguments.get("schemes") or ""))
        trusted = TrustedCode.named_by(named, allow_python)
        return command(networks=_networks(profile, environments, trusted), **arguments)

    return run


def listed_networks_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --profile and --environments to a command that runs nothing; see `networks_options`."""

    @_choice
    @wraps(command)
    def run(profile: str, environments: str | None, **arguments: Any) -> Any:
        return command(networks=_networks(profile, environments, ANY_CODE), **arguments)

    return run


def _choice(command: Callable[..., Any]) -> Callable[..., Any]:
    profile = click.option(
        "--profile", type=click.Choice(PROFILES), default="small", show_default=True, help="Which environments."
    )
    return profile(environments_option()(command))


def _networks(profile: str, environments: str | None, trusted: TrustedCode) -> EnvironmentSet:
    """Return the networks that the running command's options ask for."""
    refuse_both("profile", environments)
    if environments is None:
        return profile_set(profile)
    from sagecc.collector.run.set_file import load_set  # pydantic takes time to load

    return telling_skipped(load_set(environments, trusted))


def repeats_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --repeats and --jitter-ms to a command with the argument `networks`; it gets each network so many times."""

    @click.option(
        "--repeats",
        type=int,
        default=1,
        show_default=True,
        metavar="N",
        help="Play each network N times. From the second on, flows start later by a seeded fraction of the RTT.",
    )
    @click.option(
        "--jitter-ms",
        type=MILLISECONDS,
        default=0.0,
        show_default=True,
        help="Jitter of ACKs in all repeats but the first, in order.",
    )
    @wraps(command)
    def run(repeats: int, jitter_ms: float, networks: EnvironmentSet, **arguments: Any) -> Any:
        return command(networks=repeated(networks, repeats, jitter_ms), **arguments)

    return run
