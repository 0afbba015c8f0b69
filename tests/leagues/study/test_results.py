# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from sagecc.leagues.claims import Bounds, Claim
from sagecc.leagues.intervals import interval, student_t
from sagecc.leagues.study.catalogue import EXPERIMENTS, experiment
from sagecc.leagues.study.comparison import ABOVE, BELOW, Comparison, Side
from sagecc.leagues.study.conclusions import CONCLUSIONS
from sagecc.leagues.study.measures import MEANINGS
from sagecc.leagues.study.networks import Cell
from sagecc.leagues.study.papers import PAPERS
from sagecc.leagues.study.published import POINTS, QUANTILES
from sagecc.leagues.study.results import (
    VALUES_SCHEMA,
    cells_table,
    values_table,
    verdicts_table,
    write_tables,
)
from tests.helpers.study_runs import study_runs_of, study_series

SIX = {"Orca", "Sage", "Astraea", "Vivace", "Cubic", "BBRv3"}


def made_up_values(numbers: dict[tuple[str, float], list[float]], quantity: str = "ratio") -> pl.DataFrame:
    """Return values of `fairness` at 20 ms by scheme and queue, one number per repeat."""
    rows = [
        {"experiment": "fairness", "queue_bdp": queue, "bandwidth_mbps": 100.0, "rtt_ms": 20.0, "scheme": scheme}
        | {"repeat": repeat, "quantity": quantity, "value": value}
        for (scheme, queue), values in numbers.items()
        for repeat, value in enumerate(values)
    ]
    return pl.DataFrame(rows, schema=VALUES_SCHEMA)


def test_student_s_quantiles() -> None:
    assert [student_t(degrees) for degrees in (1, 4, 30)] == [12.706, 2.776, 2.042]
    known = {40: 2.0211, 49: 2.0096, 100: 1.9840, 1000: 1.9623}
    assert {degrees: round(student_t(degrees), 4) for degrees in known} == pytest.approx(known, abs=2e-4)


def test_an_interval_by_hand() -> None:
    found = interval(np.array([1.0, 2.0, 3.0]))
    half = 4.303 / math.sqrt(3)
    assert (found.mean, found.low, found.high) == pytest.approx((2.0, 2 - half, 2 + half))
    assert interval(np.array([5.0])) == type(found)(1, 5.0, None, None)
    assert interval(np.array([])).mean is None


def test_cells_have_their_repeats_and_what_was_published() -> None:
    values = made_up_values({("cubic", 0.2): [0.8, 0.9, 1.0], ("vegas", 0.2): [0.5]})
    cubic, vegas = cells_table(values).rows(named=True)
    assert (cubic["count"], cubic["mean"], cubic["deviation"]) == pytest.approx((3, 0.9, 0.1))
    assert cubic["low"] == pytest.approx(0.9 - 0.43030 / 3**0.5)
    assert cubic["high"] == 1.0  # 1.15, but no ratio exceeds 1
    assert cubic["published"] == 0.85
    assert "INFOCOM 2024" in cubic["source"]
    assert (vegas["count"], vegas["low"], vegas["published"], vegas["study_name"]) == (1, None, None, None)


def test_a_ratio_without_an_upper_end_has_its_mean_of_logarithms() -> None:
    row = cells_table(made_up_values({("cubic", 1.0): [0.1, 10.0]}, "tested_ratio")).row(0, named=True)
    assert row["mean"] == pytest.approx(1.0)
    assert row["low"] * row["high"] == pytest.approx(1.0)
    assert row["low"] > 0


def test_a_number_that_a_run_lacks_is_left_out() -> None:
    values = made_up_values({("cubic", 1.0): [0.5, 0.7]}).with_columns(
        value=pl.when(pl.col("repeat") == 0).then(pl.col("value"))
    )
    assert cells_table(values).row(0, named=True)["count"] == 1


@pytest.mark.parametrize(
    ("left", "right", "bounds", "verdict"),
    [
        ([0.2, 0.21, 0.22], [0.8, 0.82, 0.81], BELOW, "holds"),
        ([0.2, 0.21, 0.22], [0.8, 0.82, 0.81], ABOVE, "changes"),
        ([0.2, 0.9, 0.5], [0.6, 0.4, 0.7], BELOW, "within noise"),
        ([0.5, 0.5], [0.5, 0.5], ABOVE, "within noise"),
        ([0.2], [0.8], BELOW, "no interval"),
        ([], [0.8, 0.9], BELOW, "not measured"),
    ],
)
@pytest.mark.parametrize("quantity", ["ratio", "tested_ratio"])
def test_a_verdict_needs_the_whole_interval(
    left: list[float], right: list[float], bounds: Bounds, verdict: str, quantity: str
) -> None:
    values = made_up_values({("mine", 1.0): left, ("cubic", 1.0): right}, quantity)
    conclusion = Claim("Fig. 1", "text", Comparison("fairness", quantity, Side("Orca"), Side("Cubic")), bounds)
    names = {"mine": "Orca", "cubic": "Cubic"}
    assert verdicts_table(values, names, [conclusion])["verdict"].to_list() == [verdict]


def test_a_verdict_s_numbers() -> None:
    values = made_up_values({("mine", 0.2): [1.0, 1.0], ("mine", 1.0): [0.2, 0.4], ("mine", 4.0): [0.4, 0.4]})
    conclusion = Claim("", "text", Comparison("fairness", "ratio", Side("Orca", (1.0, 4.0)), 0.5), BELOW)
    row = verdicts_table(values, {"mine": "Orca"}, [conclusion]).row(0, named=True)
    assert (row["left"], row["right"], row["count"]) == pytest.approx((0.35, 0.5, 2))
    half = 12.706 * 0.1 / math.sqrt(2) / math.sqrt(2)  # the repeats' means are 0.3 and 0.4
    assert (row["low"], row["high"]) == pytest.approx((-0.15 - half, -0.15 + half))


def test_a_cell_that_lacks_a_repeat_is_left_out_of_a_verdict() -> None:
    values = made_up_values({("mine", 0.2): [0.9], ("mine", 1.0): [0.2, 0.4], ("mine", 4.0): [0.4, 0.4]})
    conclusion = Claim("", "text", Comparison("fairness", "ratio", Side("Orca"), 0.5), BELOW)
    row = verdicts_table(values, {"mine": "Orca"}, [conclusion]).row(0, named=True)
    assert (row["left"], row["count"]) == pytest.approx((0.35, 2))
    assert (row["cells"], row["cells_asked"]) == (2, 30)


def test_two_schemes_are_compared_where_both_were_measured() -> None:
    values = made_up_values({("mine", 0.2): [0.4, 0.5], ("cubic", 0.2): [0.6, 0.6], ("cubic", 1.0): [0.1, 0.1]})
    conclusion = Claim("", "text", Comparison("fairness", "ratio", Side("Orca"), Side("Cubic")), BELOW)
    row = verdicts_table(values, {"mine": "Orca", "cubic": "Cubic"}, [conclusion]).row(0, named=True)
    assert (row["left"], row["right"], row["cells"]) == pytest.approx((0.45, 0.6, 2))


def test_a_verdict_on_a_logarithm_is_a_factor() -> None:
    values = made_up_values({("mine", 1.0): [2.0, 8.0]}, "tested_ratio")
    conclusion = Claim("", "text", Comparison("fairness", "tested_ratio", Side("Orca"), 2.0), ABOVE)
    row = verdicts_table(values, {"mine": "Orca"}, [conclusion]).row(0, named=True)
    assert (row["left"], row["right"], row["difference"]) == pytest.approx((4.0, 2.0, 2.0))


def test_schedules_are_the_repeats_of_responsiveness() -> None:
    values = values_table(study_runs_of("responsiveness", ["cubic"], quick=True))
    rows = cells_table(values).filter(pl.col("quantity") == "optimal_share").rows(named=True)
    assert [row["count"] for row in rows] == [10]
    assert rows[0]["mean"] == pytest.approx(0.95, rel=0.02)


def test_tables_are_written(tmp_path: Path) -> None:
    values = values_table(study_runs_of("dynamics", ["cubic", "vegas"], quick=True))
    write_tables(values, tmp_path / "tables")
    assert pl.read_parquet(tmp_path / "tables" / "values.parquet").equals(values)
    assert pl.read_parquet(tmp_path / "tables" / "cells.parquet").equals(cells_table(values))
    assert len(pl.read_parquet(tmp_path / "tables" / "verdicts.parquet")) == len(CONCLUSIONS)


@pytest.mark.parametrize("conclusion", CONCLUSIONS, ids=lambda each: each.sentence)
def test_a_conclusion_speaks_of_what_is_measured(conclusion: Claim[Comparison]) -> None:
    asked = conclusion.measure
    assert asked.quantity in MEANINGS
    assert asked.left != asked.right
    grid = experiment(asked.experiment).grid
    measured = {row["quantity"] for row in _values_of(asked.experiment).rows(named=True)}
    assert asked.quantity in measured
    for side in asked.sides:
        assert side.scheme in SIX
        cells = [cell for cell in grid if side.has(cell)]
        assert cells
        assert set(side.queues_bdp) <= {cell.queue_bdp for cell in cells}


def test_every_figure_of_a_paper_that_can_be_judged_has_statements() -> None:
    """Not the reward's weights, whose policies are not published, and traces, which the user has."""
    said = {each.measure.experiment for each in CONCLUSIONS}
    assert set(PAPERS) - said == {"astraea-18", "astraea-21"}


def test_a_side_has_the_cells_of_a_case_and_of_some_flows() -> None:
    cells = PAPERS["sage-23"].grid
    assert [cell.case for cell in cells if Side("Sage", case="codel").has(cell)] == ["codel"]
    cells = PAPERS["astraea-11"].grid
    assert [cell.flows for cell in cells if Side("Astraea", flows=(2, 6)).has(cell)] == [2, 4, 6]


def _values_of(name: str) -> pl.DataFrame:
    each = EXPERIMENTS[name]
    run = each.run(each.grid[0], "cubic")
    return values_table([(run, study_series(run))])


def test_published_points_lie_on_the_grids() -> None:
    for point in POINTS:
        assert point.cell in experiment(point.experiment).grid
        assert point.quantity in _values_of(point.experiment)["quantity"]
        assert point.scheme in SIX
    assert {quantiles.experiment for quantiles in QUANTILES} == {"responsiveness", "responsiveness-loss"}
    found = {(point.experiment, point.cell, point.scheme, point.quantity): point.value for point in POINTS}
    assert len(found) == len(POINTS)
    at_80_ms = Cell(queue_bdp=4.0, bandwidth_mbps=100.0, rtt_ms=80.0)
    assert found["fairness", at_80_ms, "Orca", "ratio"] == 0.94
    long = Cell(queue_bdp=4.0, bandwidth_mbps=100.0, rtt_ms=200.0)
    assert found["efficiency", long, "BBRv3", "utilisation_0_100"] == 0.905
    assert found["efficiency", long, "BBRv3", "rtt_ratio_life"] == 2.09
