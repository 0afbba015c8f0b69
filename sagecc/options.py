# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from collector.schemes import SCHEMES, check_scheme

KERNEL = Path("build/sagecc-linux")
RAW = Path("datasets/raw")

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def kernel_option() -> Decorator:
    """Return --kernel, the built kernel."""
    return click.option(
        "--kernel",
        type=click.Path(path_type=Path),
        default=KERNEL,
        show_default=True,
        help="The kernel that 'sagecc kernel' built.",
    )


def parse_schemes(text: str) -> tuple[str, ...]:
    """Return the schemes that a comma-separated list names; `all` is the pool's 13."""
    names = [name for part in text.split(",") if (name := part.strip())]
    expanded = [scheme for name in names for scheme in (SCHEMES if name == "all" else (name,))]
    return tuple(dict.fromkeys(check_scheme(name) for name in expanded))
