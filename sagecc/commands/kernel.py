# SPDX-License-Identifier: Apache-2.0
"""`sagecc kernel`: build or verify the virtual-time kernel."""

from __future__ import annotations

from pathlib import Path

import click

from sagecc.collector.kernel.build import ensure_kernel, shipped_kernel
from sagecc.common import shipped
from sagecc.common.limits import usable_cores


@click.command()
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help=f"Where it is built.  [default: {shipped.BUILT}; where sagecc came with a kernel, that one is verified]",
)
@click.option("--build-dir", type=click.Path(path_type=Path), default=Path("build/kernel"), show_default=True)
@click.option("--jobs", type=click.IntRange(min=1), default=usable_cores, help="Compilers at a time.")
def command(output: Path | None, build_dir: Path, jobs: int) -> None:
    """Build or verify the virtual-time kernel.

    Takes Debian's linux-source-6.12 (what came with sagecc, from /usr/src, or downloaded by apt without root), adds the
    lab's modules and patches, and builds one file that holds the kernel and its guest program. About four
    minutes the first time; later only what changed. Prints the file's path and SHA-256.
    Beside it, kernel-identity/ says for each scheme what its trajectories hang on: raw files carry that.
    """
    use_shipped = output is None and shipped.INSTALLED and shipped.kernel() == shipped.KERNEL
    kernel = shipped_kernel() if use_shipped else ensure_kernel(output or shipped.BUILT, build_dir, jobs)
    click.echo(f"{kernel.path}  sha256 {kernel.sha256}  (linux-source-6.12 {kernel.source})")
    if use_shipped:
        click.echo(f"it came with sagecc, and is unchanged; to build your own: sagecc kernel --output {shipped.BUILT}")
