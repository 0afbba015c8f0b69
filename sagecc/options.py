# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from sagecc.common import shipped
from sagecc.schemas.schemes import SCHEMES, check_scheme

RAW = Path("datasets/raw")
POOL = Path("datasets/pool")
LEAGUE = Path("leagues/results")

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def kernel_option() -> Decorator:
    """Return --kernel, the kernel to run."""
    return click.option(
        "--kernel",
        type=click.Path(path_type=Path),
        default=shipped.kernel,
        show_default=f"{shipped.BUILT}, else the one that comes with sagecc",
        help="The virtual-time kernel; 'sagecc kernel' builds or verifies one.",
    )


runtime_option = click.option(
    "--runtime",
    default="auto",
    show_default=True,
    help="What runs the network: litert, onnx, exact, ... (docs/method/learner.md); auto: litert where it is installed"
    " and the policy has such a file, else exact.",
)


def log_to_stderr() -> None:
    """Write the log of a command that runs for long to standard error, with the time."""
    logging.basicConfig(format="%(asctime)s sagecc: %(message)s", level=logging.INFO, stream=sys.stderr)


class _Duration(click.ParamType[float]):
    """A time such as `5ms`, `250us` or `0.1s`, in ms."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the milliseconds; end with a usage error where it is no time."""
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)(us|ms|s)", value)
        if not match:
            self.fail(f"'{value}' is no time: give a number and its unit, such as 5ms, 250us or 0.1s", param, ctx)
        return float(match[1]) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[match[2]]


def policy_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --decision-latency (ms, as a float) and --sample: how a policy plays in the lab."""
    command = click.option(
        "--sample", is_flag=True, help="Draw a policy's actions from its mixture, seeded by --seed; else its mean."
    )(command)
    return click.option(
        "--decision-latency",
        type=_Duration(),
        default=0.0,
        metavar="TIME",
        help="A slow host: a policy's actions take effect this much later, such as 5ms (default: at once).",
    )(command)


def parse_schemes(text: str) -> tuple[str, ...]:
    """Return the schemes that a comma-separated list names; `all` is the pool's 13."""
    names = [name for part in text.split(",") if (name := part.strip())]
    expanded = [scheme for name in names for scheme in (SCHEMES if name == "all" else (name,))]
    return tuple(dict.fromkeys(check_scheme(name) for name in expanded))
