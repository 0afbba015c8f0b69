# SPDX-License-Identifier: Apache-2.0
"""The evaluation study with those of its schemes that play here, and the policies trained here in Sage's place.

A fifth of each large grid, small grids whole (`cells`), REPEATS runs of a cell. Every run's numbers are kept in Git, a
file per contestant, by what decides them (leagues.study.collect.run_key): a new policy, or one more repeat, plays
alone; a killed call goes on. Virtual time: the numbers hang on the kernel's bytes and the policies' files, not on the
machine. SAGECC_ORCA names the folder of Orca's published checkpoint; where SAGECC_SAGE names that of Sage's, it plays
too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl

from evidence.kept import keep, path_of, read_kept
from evidence.machine import KERNEL, save
from evidence.published import ORCA, SAGE, published
from sagecc.cli import errors_in_one_line
from sagecc.common.errors import SageccError
from sagecc.common.limits import usable_cores
from sagecc.common.shipped import BEST_POLICY, POOL_POLICY
from sagecc.leagues.intervals import interval
from sagecc.leagues.plots import save_figure
from sagecc.leagues.study.collect import Identity, collect, lab_identity, run_key
from sagecc.leagues.study.conclusions import CONCLUSIONS
from sagecc.leagues.study.drawing import Look
from sagecc.leagues.study.experiments import STUDY, Experiment, StudyRun
from sagecc.leagues.study.figures import ratio_figure
from sagecc.leagues.study.measures import LOGARITHMIC, MEANINGS
from sagecc.leagues.study.networks import CELL_COLUMNS
from sagecc.leagues.study.results import VALUES_SCHEMA, as_number, cells_table, values_table, verdicts_table
from sagecc.leagues.study.runner import lab_runner
from sagecc.schemas.schemes import POLICY_PREFIX

KEPT = path_of("study")
CACHE = Path(".cache/study")
REPEATS = 3
SMALL_GRID = 6
"""Cells: a grid of so many is played whole."""
EXPERIMENTS = tuple(each for each in STUDY.values() if each.in_study)
SAGES = (POOL_POLICY, BEST_POLICY)
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
NAMES = {"cubic": "Cubic", "bbr3": "BBRv3", "vivace": "Vivace", "astraea-1": "Astraea", ORCA: "Orca"}
"""By contestant the study's name for it."""
PANELS = {"dynamics": "order"}
"""By experiment what its rows are apart by, where that is not what its figure's panels differ by."""
ALSO = {"efficiency": ("rtt_ratio",), "convergence": ("stability_mbps", "converged")}
"""By experiment what is shown beside its figure's number."""
PICTURES = {name: Path(f"docs/img/study-{name}.svg") for name in ("fairness", "friendliness")}
KEPT_SCHEMA = pl.Schema({"run": pl.String(), **VALUES_SCHEMA})
"""A contestant's numbers; `run` is what decides them."""


def main() -> None:
    """Play what is not kept yet, judge, and save."""
    orca = published(ORCA, CACHE / "policy")
    if not orca:
        raise SageccError("SAGECC_ORCA names no checkpoint: set it to the folder of Orca's published actor")
    players = CONTESTANTS | {ORCA: orca}
    if sage := published(SAGE, CACHE / SAGE):
        players[SAGE] = sage
    numbers = {name: numbers_of(name, scheme) for name, scheme in players.items()}
    values = pl.concat([each.values for each in numbers.values()])
    cells = cells_table(values, NAMES | {SAGES[0]: "Sage"})
    for name, path in PICTURES.items():
        figure = ratio_figure(STUDY[name], cells, Look(tuple(players)))
        figure.set_size_inches(11.7, 5.2)  # so high that intervals at the same place can be told apart
        save_figure(figure, path)
    save("evaluation", told(values, {name: each.failed for name, each in numbers.items()}))


@dataclass(frozen=True)
class Numbers:
    """A contestant's numbers in every experiment."""

    values: pl.DataFrame
    """VALUES_SCHEMA."""
    failed: Mapping[str, str]
    """By experiment and network why there are none; the next call tries again."""


def numbers_of(name: str, scheme: str) -> Numbers:
    """Return a contestant's numbers, of which what is not kept yet is played.

    Raises:
        SageccError: The kept file cannot be read.
    """
    identity = lab_identity(KERNEL)
    numbers = read_kept(KEPT) if KEPT.exists() else KEPT_SCHEMA.to_frame()
    keys = keys_of(scheme, identity)
    own = numbers.filter(pl.col("scheme") == name, pl.col("run").is_in(list(keys.values())))
    there = set(own.select("experiment", "run").iter_rows())
    left = [run for run, key in keys.items() if (run.experiment, key) not in there]
    collected = collect(left, lab_runner(KERNEL, usable_cores()), CACHE / "runs", identity)
    new = [
        values_table([(run, series)]).with_columns(run=pl.lit(keys[run]), scheme=pl.lit(name))
        for run, series in collected.series()
    ]
    if new:
        own = pl.concat([own, *(table.select(*KEPT_SCHEMA) for table in new)])
        keep(KEPT, name, own)
    failed = {
        f"{run.experiment}, {run.environment.id}, repeat {run.repeat}": why.rpartition(": ")[2]
        for run, why in collected.failures.items()
    }
    return Numbers(own.select(*VALUES_SCHEMA), failed)


def keys_of(scheme: str, identity: Identity) -> dict[StudyRun, str]:
    """Return a contestant's runs, and what decides the numbers of each."""
    return {run: run_key(run, identity(run)) for each in EXPERIMENTS for run in runs_of(each, scheme)}


def runs_of(each: Experiment, scheme: str) -> list[StudyRun]:
    """Return the runs of an experiment: REPEATS of a cell, of a small grid every cell, of another a fifth."""
    return each.runs((scheme,), REPEATS, quick=len(each.grid) > SMALL_GRID)


def told(values: pl.DataFrame, failed: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Return what the page shows: each experiment's numbers by contestant and panel, and every statement judged."""
    return {
        "repeats": REPEATS,
        "runs": values.select("scheme", "experiment", *CELL_COLUMNS, "repeat").n_unique(),
        "failed": {name: dict(runs) for name, runs in failed.items() if runs},
        "names": NAMES,
        "experiments": [shown(each, values.filter(pl.col("experiment") == each.name)) for each in EXPERIMENTS],
        "statements": statements(values),
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


def statements(values: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the study's statements that were measured, judged; one about Sage once for each that stands for it."""
    about = [each for each in CONCLUSIONS if each.measure.experiment in STUDY]
    sages = (*SAGES, *({SAGE} & set(values["scheme"])))
    tables = {sage: verdicts_table(values, NAMES | {sage: "Sage"}, about) for sage in sages}
    rows = []
    for place, each in enumerate(about):
        by_sage = {sage: table.row(place, named=True) for sage, table in tables.items()}
        sides = [side.scheme for side in each.measure.sides]
        for sage, row in by_sage.items():
            if row["verdict"] != "not measured" and ("Sage" in sides or sage == SAGES[0]):
                rows.append(row | {"sage": sage if "Sage" in sides else None})
    return rows


if __name__ == "__main__":
    with errors_in_one_line("evidence.leagues.evaluation"):
        main()
