# SPDX-License-Identifier: Apache-2.0
"""An option of commands in which policies play; apart from sagecc.options, for what it is about takes time to load."""

from __future__ import annotations

import click

from sagecc.execution.lab.lockstep import BATCH

batch_option = click.option(
    "--batch",
    type=click.IntRange(min=1),
    default=BATCH,
    show_default=True,
    help="Episodes that share an inference, in each process; they change no result.",
)
