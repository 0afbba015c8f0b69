# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from evidence.paper import VARIANTS
from evidence.paper.findings import difference, of_figure
from evidence.paper.learning import IN_LABS
from evidence.paper.variants import compared
from evidence.training.table import read_results
from sagecc.common.shipped import BEST_POLICY
from sagecc.leagues.intervals import Interval
from tests.evidence.paper.made_up import FIG_7, FIG_11, FIG_13, FIG_16, keep_runs


def test_a_difference_by_hand() -> None:
    """Variances of 1 and 4 over 3: 5 over 3; (25/9) / ((1/9) / 2 + (16/9) / 2) = 2.94 degrees, so t of 2: 4.303."""
    found = difference([11, 12, 13], [3, 5, 7])
    assert found.mean == pytest.approx(7)
    assert found.low == pytest.approx(7 - 4.303 * (5 / 3) ** 0.5)
    assert found.high == pytest.approx(7 + 4.303 * (5 / 3) ** 0.5)
    assert difference([1], [3, 5]) == Interval(1, -3, None, None)
    assert difference([2, 2], [1, 1]) == Interval(2, 1, 1, 1)


def test_learning() -> None:
    small, labs = (of_figure("fig-7", FIG_7)[first::2] for first in (0, 1))
    friendly, ahead, gap = small
    assert friendly.verdict == "yes"
    assert friendly.measured.told == (
        "`small`: +10.0 [+10.0, +10.0] points from NewReno at the end; in the mean of 2 from 100% of the steps on, "
        "0.40 CPU-hours"
    )
    assert ahead.verdict == "yes"
    assert "from 75% of the steps on, 0.30 CPU-hours" in ahead.measured.told
    assert "+20.0 [+20.0, +20.0] points in Set I over the last 29%" in gap.measured.told
    assert [finding.verdict for finding in labs] == ["not in the mean"] * 3
    assert labs[0].measured.told == f"`{IN_LABS}`: -5.0 points from NewReno at the end; never"


def test_distances() -> None:
    found = of_figure("fig-11", FIG_11)
    assert [finding.verdict for finding in found] == ["yes", "yes", "no", "yes", "no", "yes"]
    assert found[-1].measured.told == f"{BEST_POLICY} 60.0 Mbps, 40.0 ms; vegas 36.0 Mbps, 45.0 ms"


def test_likeness() -> None:
    found = of_figure("fig-13", FIG_13)
    assert [finding.verdict for finding in found] == ["no", "yes", "yes", "yes"]
    assert found[0].measured.told == "`sagecc-1`: most alike, of 3 networks: vegas 3"
    assert found[3].measured.told == f"`{BEST_POLICY}`: from 0.20 to 0.90"


def test_maps() -> None:
    (found,) = of_figure("fig-16", FIG_16)
    assert found.verdict == "yes"
    # Deviations of 0.01 over three seeds: Welch's half width is 2.776 * 0.01 * sqrt(2 / 3) = 0.0227, with 4 degrees.
    assert found.measured.told.endswith(
        "window-l over window-s: +60.0 [+57.7, +62.3] points; window-l over window-m: +40.0 [+37.7, +42.3] points"
    )


def test_maps_that_hardly_differ_hold_in_the_mean_alone() -> None:
    rows = [{**row, "apart": 0.7 + row["seed"] / 10 + 0.01 * (row["recipe"] == "window-l")} for row in FIG_16["rows"]]
    assert [finding.verdict for finding in of_figure("fig-16", {**FIG_16, "rows": rows})] == ["in the mean"]


def test_ablations(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    keep_runs(path, "small", (0.5, 0.52, 0.48), (0.3, 0.3, 0.3))
    keep_runs(path, "no-rtt-var", (0.5, 0.52, 0.48), (0.1, 0.1, 0.1))
    keep_runs(path, "no-loss-inflight", (0.5, 0.9, 0.1), (0.3, 0.2, 0.1))
    keep_runs(path, "no-gru", (0.9, 0.92, 0.88), (0.3, 0.3, 0.3))
    found = of_figure("fig-12", compared(VARIANTS["fig-12"], read_results(path)))
    assert [(finding.measured.told.partition(":")[0], finding.verdict) for finding in found] == [
        ("no rttVar", "yes"),
        ("no Loss/Inf", "in the mean"),
        ("no GRU", "no"),
        ("all of it over no rttVar", "in the mean"),
    ]


def test_windows_and_pools(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    keep_runs(path, "small", (0.6, 0.6, 0.6), (0.3, 0.3, 0.3))
    keep_runs(path, "window-s", (0.2, 0.2, 0.2), (0.1, 0.1, 0.1))
    assert of_figure("fig-14", compared(VARIANTS["fig-14"], read_results(path))) == []
    keep_runs(path, "window-m", (0.3, 0.3, 0.3), (0.2, 0.2, 0.2))
    keep_runs(path, "window-l", (0.7, 0.7, 0.7), (0.2, 0.2, 0.2))
    found = of_figure("fig-14", compared(VARIANTS["fig-14"], read_results(path)))
    assert [finding.verdict for finding in found] == ["not in the mean", "yes", "no", "yes"]
    assert found[1].measured.told == "Sage-s 20.0 %, Sage-m 30.0 %, Sage-l 70.0 %"
    keep_runs(path, "top", (0.1, 0.1, 0.1), (0.1, 0.1, 0.1))
    found = of_figure("fig-15", compared(VARIANTS["fig-15"], read_results(path)))
    assert [finding.verdict for finding in found] == ["yes"]
    keep_runs(path, "top4", (0.3, 0.3, 0.3), (0.1, 0.1, 0.1))
    found = of_figure("fig-15", compared(VARIANTS["fig-15"], read_results(path)))
    assert [finding.verdict for finding in found] == ["yes", "yes"]
    assert found[1].measured.told == (
        "all of it over Sage-Top4: +25.0 [+25.0, +25.0] points; Sage-Top4 over Sage-Top: +10.0 [+10.0, +10.0] points "
        "in both sets together"
    )
