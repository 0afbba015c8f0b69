# SPDX-License-Identifier: Apache-2.0
"""Options of the commands that run episodes on this machine or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from sagecc.common.errors import SageccError


def engine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --engine and --ray-address: where the work runs; `ray_cluster` reads them."""
    command = click.option(
        "--ray-address", help="The cluster's head, HOST:PORT (default: the one that runs on this machine)."
    )(command)
    return click.option(
        "--engine",
        type=click.Choice(["local", "ray"]),
        default="local",
        show_default=True,
        help="Where the work runs: on this machine, or on a Ray cluster.",
    )(command)


def ray_cluster(engine: str, ray_address: str | None, jobs: int | None) -> str | None:
    """Return the address of the Ray cluster that the options name, or None for this machine.

    Raises:
        SageccError: --ray-address without a cluster, or --jobs with one.
    """
    if engine == "local" and ray_address:
        raise SageccError("--ray-address goes with --engine ray")
    if engine == "ray" and jobs:
        raise SageccError("--jobs goes with --engine local: a Ray cluster does as much at a time as it has CPUs")
    return (ray_address or "auto") if engine == "ray" else None
