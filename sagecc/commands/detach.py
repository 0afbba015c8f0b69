# SPDX-License-Identifier: Apache-2.0
"""`sagecc detach`."""

from __future__ import annotations

from pathlib import Path

import click

from sagecc.execution.stock import cgroup, kernel_scheme
from sagecc.paths import PATH


@click.command()
@click.option(
    "--pins",
    type=PATH,
    default=kernel_scheme.PINS,
    show_default=True,
    help="Where the scheme is kept, in a BPF file system.",
)
def command(pins: Path) -> None:
    """Remove what attach, or a killed exec, left in the kernel.

    \b
    sudo sagecc detach
    sudo sagecc attach --policy sagecc-12
    sudo sagecc detach --pins /sys/fs/bpf/mine

    The scheme sagecc_pure. Sockets that use it keep it until they close, and follow Reno's rules. Nothing there is no
    error.
    """
    names = [*kernel_scheme.remove(pins), *cgroup.remove_leftovers()]
    for item in names or ["nothing was there"]:
        click.echo(f"removed: {item}" if names else item)
