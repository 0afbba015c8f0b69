# SPDX-License-Identifier: Apache-2.0
"""Contestants in experiments of `sagecc study`, and what was said of them; what they did is kept in Git.

A file has a contestant's numbers by what decides them (leagues.study.collect.run_key): a new policy, or one more
repeat, plays alone; a killed call goes on. The numbers hang on the kernel's bytes and the policies' files, not on the
machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from evidence.kept import keep, path_of, read_kept
from evidence.machine import KERNEL
from evidence.published import ORCA, SAGE, published
from sagecc.common.errors import SageccError
from sagecc.common.limits import usable_cores
from sagecc.leagues.study.collect import Identity, collect, lab_identity, run_key
from sagecc.leagues.study.conclusions import CONCLUSIONS
from sagecc.leagues.study.experiments import Experiment, StudyRun
from sagecc.leagues.study.measures import RELATIVE
from sagecc.leagues.study.results import VALUES_SCHEMA, values_table, verdicts_table, with_relatives
from sagecc.leagues.study.runner import lab_runner

CACHE = Path(".cache/study")
REPEATS = 3
NAMES = {"cubic": "Cubic", "bbr3": "BBRv3", "vivace": "Vivace", "astraea-1": "Astraea", ORCA: "Orca"}
"""By contestant the study's name for it."""
_OF_SAGE = "Sage"
KEPT_SCHEMA = pl.Schema({"run": pl.String(), **VALUES_SCHEMA})
"""A contestant's numbers; `run` is what decides them."""


@dataclass(frozen=True)
class Numbers:
    """A contestant's numbers in every experiment."""

    values: pl.DataFrame
    """VALUES_SCHEMA."""
    failed: Mapping[str, str]
    """By experiment and network why there are none; the next call tries again."""


@dataclass(frozen=True)
class Plays:
    """What is played of some experiments."""

    name: str
    """Of the file in which the numbers are kept."""
    experiments: tuple[Experiment, ...]
    small_grid: int
    """Cells: a grid of so many is played whole, of a larger one a fifth."""

    @property
    def kept(self) -> Path:
        """The file."""
        return path_of(self.name)

    def runs(self, each: Experiment, scheme: str) -> list[StudyRun]:
        """Return a contestant's runs of an experiment, REPEATS of a cell."""
        runs = each.runs((scheme,), REPEATS, quick=len(each.grid) > self.small_grid)
        return [run for run in runs if run.scheme == scheme]

    def keys(self, scheme: str, identity: Identity) -> dict[StudyRun, str]:
        """Return a contestant's runs, and what decides the numbers of each."""
        runs = (run for each in self.experiments for run in self.runs(each, scheme))
        return {run: run_key(run, identity(run)) for run in runs}

    def numbers(self, name: str, scheme: str) -> Numbers:
        """Return a contestant's numbers, of which what is not kept yet is played.

        Raises:
            SageccError: The kept file cannot be read.
        """
        identity = lab_identity(KERNEL)
        numbers = read_kept(self.kept) if self.kept.exists() else KEPT_SCHEMA.to_frame()
        keys = self.keys(scheme, identity)
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
            keep(self.kept, name, own)
        failed = {
            f"{run.experiment}, {run.environment.id}, repeat {run.repeat}": why.rpartition(": ")[2]
            for run, why in collected.failures.items()
        }
        return Numbers(own.select(*VALUES_SCHEMA), failed)


def contestants(own: Mapping[str, str]) -> dict[str, str]:
    """Return some contestants by name, with ORCA, and with SAGE where its files are named.

    Raises:
        SageccError: ORCA's files are not named, or are no model of its.
    """
    orca, sage = (published(name, CACHE / folder) for name, folder in ((ORCA, "policy"), (SAGE, SAGE)))
    if not orca:
        raise SageccError("SAGECC_ORCA names no checkpoint: set it to the folder of Orca's published actor")
    return {**own, ORCA: orca, **({SAGE: sage} if sage else {})}


def together(numbers: Iterable[Numbers]) -> pl.DataFrame:
    """Return the numbers of all contestants, with those of one over another's (leagues.study.measures.RELATIVE)."""
    values = pl.concat([each.values for each in numbers])
    return with_relatives(values.filter(~pl.col("quantity").is_in(list(RELATIVE))))


def statements(values: pl.DataFrame, experiments: Iterable[Experiment], sages: Sequence[str]) -> list[dict[str, Any]]:
    """Return what was said of some experiments and was measured, judged; of Sage once for each of `sages`, and SAGE."""
    sages = (*sages, *({SAGE} & set(values["scheme"])))
    names = {each.name for each in experiments}
    about = [each for each in CONCLUSIONS if each.measure.experiment in names]
    tables = {sage: verdicts_table(values, NAMES | {sage: _OF_SAGE}, about) for sage in sages}
    rows = []
    for place, each in enumerate(about):
        by_sage = {sage: table.row(place, named=True) for sage, table in tables.items()}
        sides = [side.scheme for side in each.measure.sides]
        for sage, row in by_sage.items():
            if row["verdict"] != "not measured" and (_OF_SAGE in sides or sage == sages[0]):
                rows.append(row | {"sage": sage if _OF_SAGE in sides else None})
    return rows
