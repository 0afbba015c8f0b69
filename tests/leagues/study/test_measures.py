# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from sagecc.leagues.study.catalogue import experiment
from sagecc.leagues.study.experiments import StudyRun
from sagecc.leagues.study.measures import LABELS, MEANINGS, Numbers, efficiency_points
from sagecc.leagues.study.networks import Cell
from tests.helpers.study_runs import study_series


def measured(name: str, shares: list[float], **cell: object) -> Numbers:
    """Return an experiment's numbers of a run whose flows share the link like this."""
    (wanted,) = (c for c in experiment(name).grid if all(getattr(c, key) == value for key, value in cell.items()))
    run = experiment(name).run(wanted, "vegas")
    return experiment(name).measure(study_series(run, shares), run.environment, run.interval_s)


def run_of(name: str, **cell: object) -> StudyRun:
    (wanted,) = (c for c in experiment(name).grid if all(getattr(c, key) == value for key, value in cell.items()))
    return experiment(name).run(wanted, "vegas")


def test_fairness() -> None:
    numbers = measured("fairness", [1, 3], queue_bdp=1.0, rtt_ms=20.0)
    assert numbers["ratio"] == pytest.approx(1 / 3)
    assert numbers["jain"] == pytest.approx(0.8)
    assert numbers["utilisation"] == pytest.approx(0.95, rel=0.02)


def test_windows() -> None:
    numbers = measured("windows", [1, 3], queue_bdp=1.0)
    # 95 Mbps for 1.5 times 80 ms are 950 packets, of which one has half more than the other
    assert numbers["window_gap_pkts"] == pytest.approx(950 / 2, rel=0.1)


def test_the_parking_lot_takes_the_highest_of_one_hop() -> None:
    assert measured("parking-lot", [1, 2, 4, 3], queue_bdp=1.0, rtt_ms=20.0)["hop_ratio"] == pytest.approx(0.25)


def test_beside_cubic() -> None:
    numbers = measured("friendliness", [3, 1], queue_bdp=1.0, rtt_ms=20.0)
    assert numbers["tested_ratio"] == pytest.approx(3.0)
    tested, other = numbers["tested_mbps"], numbers["other_mbps"]
    assert tested is not None
    assert other is not None
    assert numbers["symmetric_ratio"] == pytest.approx((other + 1) / (tested + 1), rel=1e-3)


def test_a_starved_flow_counts_one_mbps() -> None:
    assert measured("friendliness", [0, 1], queue_bdp=1.0, rtt_ms=20.0)["tested_ratio"] == pytest.approx(
        1 / 95, rel=0.02
    )
    numbers = measured("many-cubics", [1, *[0] * 20], queue_bdp=1.0, cubics=20)
    assert numbers["tested_ratio"] == pytest.approx(95, rel=0.02)
    assert "symmetric_ratio" not in numbers  # there are more than two


def test_efficiency() -> None:
    numbers = measured("efficiency", [1, 1, 1, 1], queue_bdp=1.0, rtt_ms=20.0)
    assert numbers["utilisation"] == pytest.approx(0.95, rel=0.02)
    assert numbers["utilisation_0_100"] == pytest.approx(0.95, rel=0.02)
    assert numbers["rtt_ratio"] == pytest.approx(1.5, rel=0.02)
    assert numbers["retransmission_rate"] == pytest.approx(0.1, rel=0.05)
    run = run_of("efficiency", queue_bdp=1.0, rtt_ms=20.0)
    points = efficiency_points(study_series(run), run.environment, run.interval_s)
    assert points["t_s"].to_list() == [float(second) for second in range(75, 100)]


def test_convergence() -> None:
    fair = measured("convergence", [1, 1, 1, 1], queue_bdp=1.0, rtt_ms=20.0)
    assert (fair["convergence_s"], fair["converged"]) == (0.0, 1.0)
    assert fair["jain"] == pytest.approx(1.0)
    unfair = measured("convergence", [9, 1, 1, 1], queue_bdp=1.0, rtt_ms=20.0)
    assert unfair["convergence_s"] == 25.0  # each time the next event came first
    assert unfair["converged"] == 0.0
    assert unfair["stability_mbps"] is None


def test_responsiveness() -> None:
    numbers = measured("responsiveness", [1], schedule=3)
    rates = [step.rate_mbps for step in run_of("responsiveness", schedule=3).environment.bottleneck.rates]
    assert numbers["optimal_mbps"] == pytest.approx(sum(rates) / 30)
    assert numbers["optimal_share"] == pytest.approx(0.95, rel=0.02)


@pytest.mark.parametrize("name", ["fairness", "parking-lot", "dynamics", "efficiency", "convergence", "responsiveness"])
def test_every_number_says_what_it_is(name: str) -> None:
    run = experiment(name).run(experiment(name).grid[0], "vegas")
    numbers = experiment(name).measure(study_series(run), run.environment, run.interval_s)
    assert set(numbers) <= set(MEANINGS)
    assert set(LABELS) == set(MEANINGS)
    assert numbers[experiment(name).quantity] is not None


def test_a_cell_is_one_of_the_grid() -> None:
    assert Cell(queue_bdp=0.2, bandwidth_mbps=100.0, rtt_ms=20.0) in experiment("fairness").grid
