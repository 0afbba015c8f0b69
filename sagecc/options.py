# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share."""

from __future__ import annotations

import logging
import math
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from sagecc.collector.kernel.identity import own_kernel
from sagecc.common import shipped
from sagecc.common.errors import SageccError
from sagecc.common.pictures import picture_format
from sagecc.paths import PATH, LocalPath
from sagecc.schemas.schemes import POLICY_PREFIX, SCHEMES, check_scheme

RAW = Path("datasets/raw")
POOL = Path("datasets/pool")
LEAGUE = Path("leagues/results")
ANALYSIS = Path("leagues/analysis")
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class _Named(LocalPath):
    """A path, or the mere name of what comes with sagecc; the command gets where it lies."""

    def __init__(self, find: Callable[[str], Path], dir_okay: bool = True) -> None:
        super().__init__(dir_okay=dir_okay)
        self._find = find

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path; end with a usage error where it is none, and with SageccError where a name means two."""
        path = super().convert(value, param, ctx)
        return self._find(value if isinstance(value, str) else str(path))  # a Path has lost the ./ of what is here


class _Picture(LocalPath):
    """A path of a picture in a folder that exists; its suffix says the format."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path; raises SageccError where it is that of no picture, or its folder does not exist."""
        path = super().convert(value, param, ctx)
        picture_format(path)
        if not path.parent.is_dir():
            raise SageccError(f"{path}: the folder {path.parent} does not exist")
        return path


PICTURE = _Picture()
POLICY_FOLDER, ENVIRONMENT_FILE = _Named(shipped.policy), _Named(shipped.environment, dir_okay=False)


def kernel_option(default: Callable[[], Path | None] = own_kernel) -> Decorator:
    """Return --kernel, the kernel to run."""
    return click.option(
        "--kernel",
        type=PATH,
        default=default,
        show_default="the checkout's build/sagecc-linux, or the one that comes with sagecc",
        help="The virtual-time kernel ('sagecc kernel').",
    )


def environments_option(name: str = "--environments", text: str = "Instead of a profile:") -> Decorator:
    """Return --environments, a set of networks of one's own.

    Args:
        name: the option's.
        text: what the set is for; its help goes on with what a set is.
    """
    return click.option(
        name,
        metavar="SET",
        help=f"{text} a set that comes with sagecc, or a file of networks (docs/reference/formats.md). Sets: "
        f"{', '.join(shipped.environment_sets())}; cellular:FOLDER takes your traces.",
    )


def refuse_both(profile: str, environments: str | None) -> None:
    """Raise SageccError where a profile and a set are both asked for.

    Args:
        profile: the running command's parameter of the profile.
        environments: what --environments says.
    """
    is_set = click.get_current_context().get_parameter_source(profile) is not ParameterSource.DEFAULT
    if environments is not None and is_set:
        raise SageccError("a profile and a set are both asked for: leave one of them out")


def pool_cache_option(text: str) -> Decorator:
    """Return the option `--cache` of commands that read a compiled pool."""
    return click.option("--cache", type=PATH, default=".cache/pool", show_default=True, help=text)


def raw_option(name: str, text: str, kind: click.ParamType[Any] = PATH) -> Decorator:
    """Return an option for the folder of raw trajectories; `raw_folder` has its default."""
    return _folder_option(name, raw_folder, text, kind)


def league_option(name: str, text: str) -> Decorator:
    """Return an option for the folder of a league; `league_folder` has its default."""
    return _folder_option(name, league_folder, text)


def raw_folder(name: str | None) -> Path:
    """Return where trajectories lie by default.

    Args:
        name: of a set of networks of one's own; None for a profile, from whose folder the pool is made.
    """
    return RAW if name is None else RAW.parent / "sets" / name


def league_folder(name: str | None) -> Path:
    """Return where a league lies by default; the argument is that of `raw_folder`."""
    return LEAGUE if name is None else LEAGUE.parent / "sets" / name


def analysis_folder(name: str | None) -> Path:
    """Return where a league's analyses lie by default; the argument is that of `raw_folder`."""
    return ANALYSIS if name is None else league_folder(name) / "analysis"


def _folder_option(
    name: str, default: Callable[[str | None], Path], text: str, kind: click.ParamType[Any] = PATH
) -> Decorator:
    help_default = f"{default(None)}, of a set {default('NAME')}"
    names = ("-o", name) if name == "--out" else (name,)
    return click.option(*names, type=kind, show_default=help_default, help=text)


runtime_option = click.option(
    "--runtime",
    default="exact",
    show_default=True,
    help="Runtime of the network: exact, numpy, litert, litert-int8 or onnx (docs/method/learner.md). The last three"
    " are for policies that you trust: a crafted file can break their library.",
)


def log_to_stderr() -> None:
    """Write the log of a command that runs for long to standard error, with the time."""
    logging.basicConfig(format="%(asctime)s sagecc: %(message)s", level=logging.INFO, stream=sys.stderr)


class _Number(click.types.FloatParamType):
    """A float that is neither infinite nor NaN."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; end with a usage error if it is none."""
        number = float(super().convert(value, param, ctx))
        return number if math.isfinite(number) else self.fail(f"{value} is not finite", param, ctx)


NUMBER = _Number()


class _Quantity(click.ParamType[float]):
    """A finite number in a unit, or with one of some others after it: `40` and `0.04s` are 40 ms; gives the former."""

    def __init__(self, unit: str, units: Mapping[str, float], example: str) -> None:
        self.name = unit
        self._units, self._example = units, example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number in the type's unit; end with a usage error where it is none."""
        text = str(value).strip().lower()
        match = re.fullmatch(r"(.*[\d.]) ?([a-z%]+)", text)
        try:
            number = float(match[1] if match else text)
            factor = self._units[match[2]] if match else 1.0
        except (ValueError, KeyError):
            self.fail(f"'{value}': a number is in {self.name}, or has its unit, such as {self._example}", param, ctx)
        return number * factor if math.isfinite(number) else self.fail(f"{value} is not finite", param, ctx)


MBPS = _Quantity("Mbps", {"bps": 1e-6, "kbps": 1e-3, "mbps": 1.0, "gbps": 1e3}, "1.5gbps")
MILLISECONDS = _Quantity("ms", {"us": 1e-3, "ms": 1.0, "s": 1e3}, "250us or 0.1s")
SECONDS = _Quantity("s", {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}, "500ms, 2min or 24h")
SHARE = _Quantity("share", {"%": 0.01}, "1%")


quiet_option = click.option("-q", "--quiet", is_flag=True, help="Show no progress.")

allow_python_option = click.option(
    "--allow-python",
    is_flag=True,
    help="Let files name Python code as schemes. Without it, only code that this command names (python:PATH.py:CLASS).",
)


def policy_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --decision-latency (ms, as a float) and --sample: how a policy plays in the lab."""
    command = click.option(
        "--sample", is_flag=True, help="Draw a policy's actions, seeded by --seed; else take the mean."
    )(command)
    return click.option(
        "--decision-latency",
        type=MILLISECONDS,
        default=0.0,
        help="A policy's actions take effect this much later, as on a slow host (default: at once).",
    )(command)


def named_scheme(text: str) -> str:
    """Return the scheme that a word of a command line names; the mere name of a policy that comes with sagecc will do.

    Raises:
        SageccError: it names none.
    """
    return f"{POLICY_PREFIX}{text}" if text in shipped.policies() else check_scheme(text)


def parse_schemes(text: str) -> tuple[str, ...]:
    """Return the schemes that a comma-separated list names; `all` is the pool's 13."""
    names = [name for part in text.split(",") if (name := part.strip())]
    expanded = [scheme for name in names for scheme in (SCHEMES if name == "all" else (name,))]
    return tuple(dict.fromkeys(map(named_scheme, expanded)))
