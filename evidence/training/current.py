# SPDX-License-Identifier: Apache-2.0
"""`python -m evidence.training.current`: which results are of their run as it is now, without its pool or a training.

A result says what it learned from, so that its fingerprint can be told where that pool is not at hand. `--accept NAME`
writes the present one into a result: for a change that golden runs have shown to move no byte of it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from evidence.training.run import RUNS
from evidence.training.runs import Plan, learned_from, read_plan
from evidence.training.table import RESULTS, keep_result, read_results
from sagecc.collector.kernel.identity import kernel_identity
from sagecc.common.errors import SageccError
from sagecc.online import online_task
from sagecc.options import kernel_option
from sagecc.schemas.schemes import POLICY_PREFIX, SCHEMES


def fingerprints(plan: Plan, results: Mapping[str, Mapping[str, Any]], kernel: Path) -> dict[str, tuple[str, str]]:
    """Return by run the fingerprint of its result, and its own now; both are "" where it has none, or a failure.

    A run's own is told for the pool that its result names.
    """
    identity, tasks = kernel_identity(kernel, (*SCHEMES, POLICY_PREFIX)), dict[str, str]()
    found = {}
    for name, run in plan.runs.items():
        result = results.get(name, {"failure": ""})
        if "failure" in result:
            found[name] = "", ""
            continue
        if run.in_labs:
            task = json.dumps(run.config.task)
            tasks[task] = tasks.get(task) or online_task(run.config, kernel).identity
            start, pool = (result.get(part) or {} for part in ("from", "pool"))
            learned = learned_from(tasks[task], start.get("identity"), pool.get("identity"))
        else:
            learned = result["pool"]["identity"]
        found[name] = result["fingerprint"], run.fingerprint(learned, identity, plan)
    return found


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--accept", multiple=True, metavar="NAME", help="What this run came to is what it comes to now.")
@kernel_option()
def command(accept: tuple[str, ...], kernel: Path) -> None:
    """Print the runs whose results are not theirs as they are now."""
    try:
        plan, results = read_plan(RUNS), read_results(RESULTS)
        if accept:
            plan.chosen(accept)
        found = fingerprints(plan, results, kernel)
        for name in accept:
            if not found[name][1]:
                raise SageccError(f"{name} has no result to accept: train it (make policies ONLY={name})")
            keep_result(RESULTS, {**results[name], "fingerprint": found[name][1]})
            found[name] = found[name][1], found[name][1]
    except SageccError as error:
        click.echo(f"evidence: {error}", err=True)
        sys.exit(2)
    stale = [name for name, (kept, now) in found.items() if not kept or kept != now]
    for name in stale:
        click.echo(name)
    click.echo(f"{len(found) - len(stale)} of {len(found)} results are of their runs as they are now", err=True)


if __name__ == "__main__":
    command(prog_name="python -m evidence.training.current")
