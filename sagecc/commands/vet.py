# SPDX-License-Identifier: Apache-2.0
"""`sagecc vet`: whether a policy meets the conditions for being deployed."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from tqdm import tqdm

from sagecc.command import Command
from sagecc.common.errors import SageccError
from sagecc.common.limits import usable_cores
from sagecc.common.locks import sole_writer
from sagecc.common.machine_code import telling_of_compilation
from sagecc.common.suggestions import did_you_mean
from sagecc.leagues.vetting.conditions import CONDITIONS, Condition
from sagecc.leagues.vetting.suite import Verdict, vet
from sagecc.naming import short_names
from sagecc.options import kernel_option, named_scheme, parse_schemes, quiet_option
from sagecc.paths import LocalPath


@click.command(cls=Command)
@click.argument("scheme", metavar="POLICY")
@click.option("--beside", default="", metavar="SCHEMES", help="Show others' values too, such as cubic,bbr.")
@click.option("--only", multiple=True, metavar="CONDITION", help="Only this condition (repeatable).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with the value of every network.")
@click.option(
    "--runs",
    type=LocalPath(file_okay=False),
    default=Path(".cache/vetting"),
    show_default=True,
    help="Where runs are kept; the same command runs what is missing.",
)
@click.option(
    "-j", "--jobs", type=click.IntRange(min=1), default=usable_cores, help="Runs at a time (default: one per CPU)."
)
@quiet_option
@kernel_option()
def command(
    scheme: str,
    beside: str,
    only: tuple[str, ...],
    as_json: bool,
    runs: Path,
    jobs: int,
    quiet: bool,
    kernel: Path,
) -> None:
    """Hold a policy against the conditions for being deployed.

    \b
    sagecc vet sagecc-12
    sagecc vet policy:models/mine --beside cubic,bbr --json
    sagecc vet sagecc-12 --only outage --only late

    Each condition is measured in several networks of the lab, and the worst of them decides. POLICY is one that comes
    with sagecc by its name, policy:PATH, or any other scheme. The exit status is 1 where a condition is not met.
    """
    conditions = [_condition(name) for name in dict.fromkeys(only)] or list(CONDITIONS.values())
    tested = named_scheme(scheme)
    schemes = list(dict.fromkeys((tested, *parse_schemes(beside))))
    with (
        telling_of_compilation(lambda: tqdm.write("compiling once, for some seconds", file=sys.stderr)),
        sole_writer(runs),
    ):
        verdicts = vet(kernel, schemes, conditions, runs, jobs, progress=not quiet)
    if as_json:
        click.echo(json.dumps({name: [_result(each) for each in found] for name, found in verdicts.items()}, indent=1))
    else:
        click.echo("\n".join(_table(schemes, conditions, verdicts)))
    if not all(each.met for each in verdicts.get(tested, [])):
        sys.exit(1)


def _condition(name: str) -> Condition:
    if name not in CONDITIONS:
        hint = did_you_mean(name, CONDITIONS)
        raise SageccError(f"vet: no condition '{name}'{hint}; there are {', '.join(CONDITIONS)}")
    return CONDITIONS[name]


def _table(schemes: Sequence[str], conditions: Sequence[Condition], verdicts: dict[str, list[Verdict]]) -> list[str]:
    """Return a line of titles, and a line for each condition: the first scheme's verdict, then the others' values."""
    names = short_names(schemes)
    found = {scheme: {each.condition.name: each for each in verdicts.get(scheme, [])} for scheme in schemes}
    tested, *others = schemes
    rows = [["condition", "limit", names[tested], "", "worst network", *(names[each] for each in others)]]
    for condition in conditions:
        own = found[tested].get(condition.name)
        bound = "at least" if condition.least else "at most"
        rows.append(
            [
                condition.name,
                f"{bound} {condition.limit:g} {condition.unit}",
                _number(own),
                "" if own is None else "met" if own.met else "NOT MET",
                "" if own is None else own.where,
                *(_number(found[other].get(condition.name)) for other in others),
            ]
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    failures = {reason for each in found[tested].values() for reason in each.failures.values()}
    return [*lines, *(f"failed: {reason}" for reason in sorted(failures))]


def _number(verdict: Verdict | None) -> str:
    if verdict is None:
        return "-"
    if verdict.value is None:
        return "failed"
    return "never" if math.isinf(verdict.value) else f"{verdict.value:z.2f}"


def _result(verdict: Verdict) -> dict[str, Any]:
    """Return what --json says of a verdict; a number that is infinite is None."""
    condition = verdict.condition
    values = {label: value if math.isfinite(value) else None for label, value in verdict.values.items()}
    return {
        "condition": condition.name,
        "says": condition.says,
        "unit": condition.unit,
        "at_least" if condition.least else "at_most": condition.limit,
        **verdict.as_json(),
        "values": values,
    }
