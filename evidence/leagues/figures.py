# SPDX-License-Identifier: Apache-2.0
"""Figures of the papers of Sage, Orca and Astraea, played here, and whether what their texts say holds.

SAGECC_ORCA names the folder of Orca's published checkpoint; where SAGECC_SAGE names that of Sage's, it plays too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from evidence.leagues.experiments import NAMES, REPEATS, Plays, contestants, statements, together
from evidence.machine import save
from sagecc.cli import errors_in_one_line
from sagecc.common.shipped import BEST_POLICY, SAFEST_POLICY
from sagecc.leagues.study.experiments import Experiment
from sagecc.leagues.study.measures import LABELS, LOGARITHMIC
from sagecc.leagues.study.paper_conclusions import PAPER_STATEMENTS
from sagecc.leagues.study.papers import PAPERS
from sagecc.schemas.schemes import POLICY_PREFIX

SPOKEN_OF = {experiment for _, experiment, _ in PAPER_STATEMENTS}
"""What the papers' texts say something of."""
PLAYS = Plays("figures", tuple(each for name, each in PAPERS.items() if name in SPOKEN_OF), small_grid=20)
SAGES = (SAFEST_POLICY, BEST_POLICY)
"""What stands for Sage, one after the other; SAGE too, where it plays."""
OURS = ("astraea-1", *SAGES)
CONTESTANTS = {"cubic": "cubic", "vivace": "vivace", **{name: f"{POLICY_PREFIX}models/{name}" for name in OURS}}
"""By name what the lab calls them; ORCA plays too."""


def main() -> None:
    """Play what is not kept yet, judge, and save."""
    players = contestants(CONTESTANTS)
    numbers = {name: PLAYS.numbers(name, scheme) for name, scheme in players.items()}
    failed = {name: dict(each.failed) for name, each in numbers.items() if each.failed}
    save("figures", told(together(numbers.values()), failed))


def told(values: pl.DataFrame, failed: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Return what the page shows: each figure's number by contestant, and every statement judged."""
    return {
        "repeats": REPEATS,
        "failed": failed,
        "names": NAMES,
        "figures": [shown(each, values.filter(experiment=each.name)) for each in PLAYS.experiments],
        "statements": statements(values, PLAYS.experiments, SAGES),
    }


def shown(each: Experiment, own: pl.DataFrame) -> dict[str, Any]:
    """Return a figure's row of the page: the mean of its number over cells and repeats, by contestant."""
    known = own.filter(quantity=each.quantity).drop_nulls("value")
    value = pl.col("value").log().mean().exp() if each.quantity in LOGARITHMIC else pl.col("value").mean()
    means = known.group_by("scheme", maintain_order=True).agg(value)
    return {
        "name": each.name,
        "title": each.title,
        "figure": each.figure,
        "label": LABELS[each.quantity],
        "cells": len({run.cell for run in PLAYS.runs(each, "cubic")}),
        "means": dict(means.iter_rows()),
    }


if __name__ == "__main__":
    with errors_in_one_line("evidence.leagues.figures"):
        main()
