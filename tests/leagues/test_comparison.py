# SPDX-License-Identifier: Apache-2.0
"""What `sagecc compare` says of runs, against what the lab's own summary and other measures say of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sagecc.collector.run import engines
from sagecc.execution.lab.controllers import play_episode
from sagecc.leagues.comparison import Played, compare, measured, propagation_ms, summaries
from sagecc.leagues.flow_metrics import flow_series, utilisation_over_time
from sagecc.schemas.environment import CrossFlow, DelayStep, Environment, Flow, Link, RateStep, dumbbell
from sagecc.schemas.repeats import repeat

pytestmark = pytest.mark.heavy


def network(*cross: CrossFlow, rate_mbps: float = 12.0, duration_s: float = 4.0) -> Environment:
    link = Link((RateStep(0, rate_mbps),), 10, queue_packets=40)
    return dumbbell("custom", link, 10, duration_s, ((0, duration_s),), cross=cross)


@pytest.fixture(scope="module")
def beside_cubic(kernel: Path) -> Played:
    environment = network(CrossFlow("cubic", Flow(start_s=1.0)))
    return measured(play_episode(kernel, environment, "reno", every_flow=True))


def test_a_run_alone(kernel: Path) -> None:
    run = measured(play_episode(kernel, network(), "cubic"))
    assert run.capacity_mbps == pytest.approx(12, rel=0.01)
    assert run.utilisation == pytest.approx(run.goodput_mbps / 12, rel=0.01)
    assert 0 < run.queueing_mean_ms < run.queueing_p95_ms <= 40 * 1500 * 8 / 12_000 + 1
    assert (run.competitors_mbps, run.competitors_bytes, run.jain_index) == ((), None, None)


def test_utilisation_counts_competitors(kernel: Path, beside_cubic: Played) -> None:
    environment = network(CrossFlow("cubic", Flow(start_s=1.0)))
    series = flow_series(play_episode(kernel, environment, "reno", every_flow=True).every_flow)
    assert beside_cubic.utilisation == pytest.approx(utilisation_over_time(series)["utilisation"].mean(), rel=0.02)
    assert beside_cubic.goodput_mbps / 12 < 0.9 * beside_cubic.utilisation


def test_what_competitors_got_is_told_at_every_row(beside_cubic: Played) -> None:
    got = beside_cubic.competitors_bytes
    assert got is not None and len(got) == beside_cubic.rows.num_rows
    assert (np.diff(got) >= 0).all()
    assert not got[beside_cubic.rows["t_s"].to_numpy() < 1.0].any()
    (goodput_mbps,) = beside_cubic.competitors_mbps
    assert got[-1] * 8 / 3e6 == pytest.approx(goodput_mbps, rel=0.01)


def test_a_competitor_elsewhere_does_not_use_the_bottleneck(kernel: Path) -> None:
    links = (Link((RateStep(0, 12),), 5, queue_packets=40), Link((RateStep(0, 24),), 5, queue_packets=40))
    far = CrossFlow("cubic", Flow(links=(1, 1)))
    environment = Environment("custom", links, (Link(delay_ms=5),) * 2, 3.0, ((0, 3.0),), cross=(far,))
    run = measured(play_episode(kernel, environment, "cubic", every_flow=True))
    assert run.competitors_mbps[0] > 5
    assert run.utilisation == pytest.approx(run.goodput_mbps / 12, rel=0.02)


def test_transfers_have_completion_times(kernel: Path) -> None:
    """One that is stopped has none, and the bottleneck's use is over the time of the tested transfer."""
    cross = (
        CrossFlow("cubic", Flow(start_s=2, size_bytes=20_000)),
        CrossFlow("cubic", Flow(stop_s=1, size_bytes=10**9)),
    )
    run = measured(
        play_episode(kernel, replace(network(*cross), flow=Flow(size_bytes=300_000)), "cubic", every_flow=True)
    )
    assert run.completion_s is not None
    assert run.goodput_mbps == pytest.approx(300_000 * 8e-6 / run.completion_s)
    ended_s, unended = run.competitors_completion_s
    assert ended_s is not None and 0.02 < ended_s < 0.5 and unended is None
    assert run.utilisation > 0.6
    (summary,) = summaries([run], ["cubic"])
    assert summary.measures["competitor_completion_s"].mean == ended_s


def test_queueing_is_what_lies_beyond_the_least_propagation() -> None:
    link = Link((RateStep(0, 12),), 20, queue_packets=40, delays=(DelayStep(1, 15), DelayStep(2, 30)))
    assert propagation_ms(dumbbell("custom", link, 10, 4.0, ())) == 15


@pytest.mark.parametrize("jobs", [1, 2])
def test_runs_are_the_same_in_any_number_of_processes(jobs: int, kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "MIN_WORKER_CPU_S", 0.01)
    networks = [repeat(network(duration_s=1.0), number) for number in range(2)]
    runs = list(compare(kernel, networks, ["cubic", "vegas"], 5, jobs))
    cubic, vegas = summaries(runs, ["cubic", "vegas"])
    assert [run.seed for run in cubic.runs] == [run.seed for run in vegas.runs] == [5, 6]
    assert cubic.runs[1].sha256 == play_episode(kernel, networks[1], "cubic", 6).sha256
    goodput = cubic.measures["goodput_mbps"]
    assert goodput.count == 2 and goodput.mean == np.mean([run.goodput_mbps for run in cubic.runs])
    assert cubic.measures["competitor_mbps"].mean is None
