# SPDX-License-Identifier: Apache-2.0
"""What is said of files that lie among a set's traces and are none."""

from __future__ import annotations

import click

from sagecc.common.terminals import one_line
from sagecc.schemas.environment_set import EnvironmentSet

SHOWN_SKIPPED = 10
"""The most skipped files that are named."""


def telling_skipped(networks: EnvironmentSet) -> EnvironmentSet:
    """Return a set, after a line on standard error about files that lie among its traces and are none."""
    if networks.skipped:
        names = [path.name for path in networks.skipped]
        more = f" and {len(names) - SHOWN_SKIPPED} more" if len(names) > SHOWN_SKIPPED else ""
        click.echo(one_line(f"skipped, no traces: {', '.join(names[:SHOWN_SKIPPED])}{more}"), err=True)
    return networks
