# SPDX-License-Identifier: Apache-2.0
"""`sagecc kernel`: build or verify the virtual-time kernel."""

from __future__ import annotations

from pathlib import Path

import click

from sagecc.collector.kernel.build import ensure_kernel, kernel_of_wheel, shipped_kernel
from sagecc.common import shipped
from sagecc.common.limits import usable_cores
from sagecc.paths import PATH


@click.command()
@click.option(
    "--output",
    type=PATH,
    help="Where it is built.  [default: build/sagecc-linux of the checkout; where sagecc came with a kernel, that one"
    " is verified]",
)
@click.option("--build-dir", type=PATH, show_default="kernel/ next to it", help="Where it is compiled.")
@click.option("--wheel", type=PATH, help="Take it out of this wheel, of the same source, and build nothing.")
@click.option("-j", "--jobs", type=click.IntRange(min=1), default=usable_cores, help="Compilers at a time.")
def command(output: Path | None, build_dir: Path | None, wheel: Path | None, jobs: int) -> None:
    """Build or verify the virtual-time kernel.

    \b
    sagecc kernel
    sagecc kernel --jobs 8
    sagecc kernel --output build/sagecc-linux
    sagecc kernel --wheel dist/sagecc-0.1.0-py3-none-manylinux_2_17_x86_64.whl

    Takes Debian's linux-source-6.12, shipped, from /usr/src or by apt without root. Adds the lab's modules and patches,
    and builds one file with the kernel and its guest program, in about four minutes. Prints its path and SHA-256.
    """
    use_shipped = output is None and wheel is None and shipped.INSTALLED
    output = output or shipped.KERNEL
    if use_shipped:
        kernel = shipped_kernel()
    elif wheel:
        kernel = kernel_of_wheel(wheel, output)
    else:
        kernel = ensure_kernel(output, build_dir or output.parent / "kernel", jobs)
    click.echo(f"{kernel.path}  sha256 {kernel.sha256}  (linux-source-6.12 {kernel.source})")
    if use_shipped:
        click.echo("it came with sagecc, and is unchanged; your own: sagecc kernel --output build/sagecc-linux")
