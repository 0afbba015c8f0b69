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

from evidence.training.run import RESULTS, RUNS, read_result
from evidence.training.runs import Plan, Run, read_plan
from sagecc.collector.kernel.identity import kernel_identity
from sagecc.common.errors import SageccError
from sagecc.common.files import write_atomically
from sagecc.learner.online.config import OnlineConfig
from sagecc.online import online_task
from sagecc.options import kernel_option
from sagecc.schemas.schemes import POLICY_PREFIX, SCHEMES


def present(run: Run, result: Mapping[str, Any], plan: Plan, kernel: Path) -> str:
    """Return the fingerprint that a run has now, if it learned from the pool that its result names."""
    learned = online_task(run.config, kernel).identity if isinstance(run.config, OnlineConfig) else None
    source = result["pool"]["identity"] if learned is None else learned
    return run.fingerprint(source, kernel_identity(kernel, (*SCHEMES, POLICY_PREFIX)), plan)


def standing(plan: Plan, kernel: Path, folder: Path = RESULTS) -> dict[str, tuple[Path, str, str]]:
    """Return by run its result, and its fingerprint there and now; "" of a run without a result, or one that failed."""
    found = {}
    for run in plan.runs.values():
        path = folder / f"{run.name}.json"
        result = read_result(path)
        kept = "" if result is None or "failure" in result else str(result["fingerprint"])
        found[run.name] = (path, kept, present(run, result, plan, kernel) if result and kept else "")
    return found


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--accept", multiple=True, metavar="NAME", help="What this run came to is what it comes to now.")
@kernel_option()
def command(accept: tuple[str, ...], kernel: Path) -> None:
    """Print the runs whose results are not theirs as they are now."""
    try:
        plan = read_plan(RUNS)
        plan.chosen(accept)
        found = standing(plan, kernel)
        for name in accept:
            path, _, now = found[name]
            if not now:
                raise SageccError(f"{name} has no result to accept: train it (make policies ONLY={name})")
            result = json.loads(path.read_text()) | {"fingerprint": now}
            with write_atomically(path) as beside:
                beside.write_text(json.dumps(result, indent=2, sort_keys=True) + "\n")
            found[name] = path, now, now
    except SageccError as error:
        click.echo(f"evidence: {error}", err=True)
        sys.exit(2)
    stale = [name for name, (_, kept, now) in found.items() if not kept or kept != now]
    for name in stale:
        click.echo(name)
    click.echo(f"{len(found) - len(stale)} of {len(found)} results are of their runs as they are now", err=True)


if __name__ == "__main__":
    command(prog_name="python -m evidence.training.current")
