# SPDX-License-Identifier: Apache-2.0
"""The evaluation study with those of its schemes that play here, and the policies trained here in Sage's place.

A fifth of each large grid, small grids whole (`cells`). SAGECC_ORCA names the folder of Orca's published checkpoint;
where SAGECC_SAGE names that of Sage's, it plays too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl

from evidence.leagues.experiments import NAMES, REPEATS, Plays, contestants, statements, together
from evidence.machine import save
from sagecc.cli import errors_in_one_line
from sagecc.common.shipped import BEST_POLICY, SAFEST_POLICY
from sagecc.leagues.intervals import interval
from sagecc.leagues.plots import save_figure
from sagecc.leagues.study.drawing import Look
from sagecc.leagues.study.experiments import STUDY, Experiment
from sagecc.leagues.study.figures import ratio_figure
from sagecc.leagues.study.measures import LOGARITHMIC, MEANINGS
from sagecc.leagues.study.networks import CELL_COLUMNS
from sagecc.leagues.study.results import as_number, cells_table
from sagecc.schemas.schemes import POLICY_PREFIX

PLAYS = Plays("study", tuple(each for each in STUDY.values() if each.in_study), small_grid=6)
SAGES = (SAFEST_POLICY, BEST_POLICY)
"""What stands for the study's Sage, one after the other: learned from the pool, and learned online; SAGE too, where it
plays."""
CONTESTANTS = {
    "cubic": "cubic",
    "bbr3": "bbr3",
    "vivace": "vivace",
    "astraea-1": f"{POLICY_PREFIX}models/astraea-1",
    **{name: f"{POLICY_PREFIX}models/{name}" for name in SAGES},
}
"""By name what the lab calls them; ORCA plays too."""
PANELS = {"dynamics": "order"}
"""By experiment what its rows are apart by, where that is not what its figure's panels differ by."""
ALSO = {"efficiency": ("rtt_ratio",), "convergence": ("stability_mbps", "converged")}
"""By experiment what is shown beside its figure's number."""
PICTURES = {name: Path(f"docs/img/study-{name}.svg") for name in ("fairness", "friendliness")}


def main() -> None:
    """Play what is not kept yet, judge, and save."""
    players = contestants(CONTESTANTS)
    numbers = {name: PLAYS.numbers(name, scheme) for name, scheme in players.items()}
    values = together(numbers.values())
    cells = cells_table(values, NAMES | {SAGES[0]: "Sage"})
    for name, path in PICTURES.items():
        figure = ratio_figure(STUDY[name], cells, Look(tuple(players)))
        figure.set_size_inches(11.7, 5.2)  # so high that intervals at the same place can be told apart
        save_figure(figure, path)
    save("evaluation", told(values, {name: each.failed for name, each in numbers.items()}))


def told(values: pl.DataFrame, failed: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Return what the page shows: each experiment's numbers by contestant and panel, and every statement judged."""
    return {
        "repeats": REPEATS,
        "runs": values.select("scheme", "experiment", *CELL_COLUMNS, "repeat").n_unique(),
        "failed": {name: dict(runs) for name, runs in failed.items() if runs},
        "names": NAMES,
        "experiments": [shown(each, values.filter(pl.col("experiment") == each.name)) for each in PLAYS.experiments],
        "statements": statements(values, PLAYS.experiments, SAGES),
    }


def shown(each: Experiment, own: pl.DataFrame) -> dict[str, Any]:
    """Return an experiment's row of the page.

    Returns:
        Each of `quantities` has a row per contestant and panel: the mean over its cells, of logarithms where a ratio
        has no upper end, and the 95 % interval over repeats, or schedules.
    """
    panel = PANELS.get(each.name, each.panel)
    return {
        "name": each.name,
        "title": each.title,
        "figure": each.figure,
        "panel": panel,
        "cells": own.select(CELL_COLUMNS).n_unique(),
        "quantities": [
            {
                "meaning": MEANINGS[name],
                "rows": _means(own.filter(pl.col("quantity") == name), panel, name),
            }
            for name in (each.quantity, *ALSO.get(each.name, ()))
        ],
    }


def _means(own: pl.DataFrame, panel: str, quantity: str) -> list[dict[str, Any]]:
    known = own.drop_nulls("value").with_columns(unit=pl.coalesce("schedule", "repeat"))
    scaled = known.with_columns(pl.col("value").log()) if quantity in LOGARITHMIC else known
    units = scaled.group_by("scheme", panel, "unit", maintain_order=True).agg(pl.col("value").mean())
    rows = []
    for (scheme, at), part in units.group_by("scheme", panel, maintain_order=True):
        over = as_number(interval(part["value"].to_numpy()), quantity)
        rows.append({"scheme": scheme, "panel": at, **asdict(over)})
    return rows


if __name__ == "__main__":
    with errors_in_one_line("evidence.leagues.evaluation"):
        main()
