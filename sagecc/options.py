# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from collector.schemes import SCHEMES, check_scheme

KERNEL = Path("build/sagecc-linux")
RAW = Path("datasets/raw")
POOL = Path("datasets/pool")
LEAGUE = Path("leagues/results")

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


runtime_option = click.option(
    "--runtime",
    default="auto",
    show_default=True,
    help="What runs the network: litert, onnx, exact, ... (docs/learner.md); auto: litert, or exact without a file.",
)


def log_to_stderr() -> None:
    """Show what commands that go on for long have to say, with the time."""
    logging.basicConfig(format="%(asctime)s sagecc: %(message)s", level=logging.INFO, stream=sys.stderr)


def parse_schemes(text: str) -> tuple[str, ...]:
    """Return the schemes that a comma-separated list names; `all` is the pool's 13."""
    names = [name for part in text.split(",") if (name := part.strip())]
    expanded = [scheme for name in names for scheme in (SCHEMES if name == "all" else (name,))]
    return tuple(dict.fromkeys(check_scheme(name) for name in expanded))
