# SPDX-License-Identifier: Apache-2.0
"""`python -m evidence.paper [FIGURE ...]`: train, play and draw what figures of the Sage paper need and is not there.

Every part goes on where a killed one stopped. A figure that fails leaves the others to be made.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import click

from evidence.paper import ORDER, RESULTS, VARIANTS, learning, pictures, trajectories, variants
from evidence.paper import picture as picture_of
from evidence.training import run as training
from evidence.training import table
from evidence.training.runs import Plan, read_plan
from sagecc.common.errors import SageccError
from sagecc.leagues.plots import save_figure
from sagecc.options import kernel_option

Maker = Callable[[Plan, Path, int], None]


def curves(plan: Plan, kernel: Path, jobs: int) -> None:
    """Make Fig. 7, with what is there if a training fails."""
    try:
        learning.make(plan, kernel, jobs)
    finally:
        path = RESULTS / f"{learning.NAME}.json"
        if path.exists():
            figure = pictures.learning_figure(json.loads(path.read_text())["result"])
            save_figure(figure, picture_of(learning.NAME))


def compared(figure: str) -> Maker:
    """Return what makes a figure of variants, with what is there if a training fails."""

    def make(plan: Plan, kernel: Path, jobs: int) -> None:
        failed = training.run_all(plan, variants.run_names(figure), kernel, jobs)
        rows = variants.compared(VARIANTS[figure], table.read_results(table.RESULTS))["rows"]
        if rows:
            save_figure(pictures.variants_figure(rows), picture_of(figure))
        if failed:
            raise SageccError(f"{figure}: training failed in {', '.join(failed)}")

    return make


MAKERS: Mapping[str, Maker] = {
    "fig-7": curves,
    "fig-11": trajectories.distances,
    "fig-13": trajectories.likenesses,
    "fig-16": trajectories.maps,
    **{figure: compared(figure) for figure in VARIANTS},
}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("figures", nargs=-1, type=click.Choice(ORDER))
@click.option("--jobs", type=click.IntRange(min=1), default=os.cpu_count(), help="Episodes at a time.  [default: CPUs]")
@kernel_option()
def command(figures: tuple[str, ...], jobs: int, kernel: Path) -> None:
    """Make figures of the Sage paper, all of them if none is named, those that need the least computing first."""
    failed = []
    for figure in (name for name in ORDER if name in figures or not figures):
        training.say(figure)
        try:
            MAKERS[figure](read_plan(training.RUNS), kernel, jobs)
        except SageccError as error:
            failed.append(figure)
            click.echo(f"paper: {figure}: {error}", err=True)
    if failed:
        sys.exit(2)


if __name__ == "__main__":
    command(prog_name="python -m evidence.paper")
