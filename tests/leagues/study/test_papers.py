# SPDX-License-Identifier: Apache-2.0
"""The figures of Sage, Orca and Astraea: their networks, and what is measured in flows that are made up."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from sagecc.common.errors import SageccError
from sagecc.leagues.study.catalogue import EXPERIMENTS, GROUPS, chosen, experiment, plan
from sagecc.leagues.study.experiments import StudyRun
from sagecc.leagues.study.measures import Numbers
from sagecc.leagues.study.papers import PAPERS, with_traces
from sagecc.leagues.study.results import cells_table, values_table
from tests.helpers.study_runs import study_runs_of, study_series


def run_of(name: str, repeat: int = 0, **cell: object) -> StudyRun:
    (wanted,) = (c for c in experiment(name).grid if all(getattr(c, key) == value for key, value in cell.items()))
    return experiment(name).run(wanted, "vegas", repeat)


def measured(run: StudyRun, shares: list[float]) -> Numbers:
    return experiment(run.experiment).measure(study_series(run, shares), run.environment, run.interval_s)


def lives(run: StudyRun) -> list[tuple[float, float]]:
    return [(flow.start_s, run.environment.stop_of(flow)) for flow in run.environment.all_flows]


def test_every_figure_that_is_asked_for_has_a_name() -> None:
    figures = {"sage": (17, 18, 19, 22, 23, 24), "orca": (1, 9, 12, 13, 14, 16)}
    astraea = (*range(6, 12), 14, *range(18, 23))
    names = [f"{paper}-{number}" for paper, numbers in (figures | {"astraea": astraea}).items() for number in numbers]
    assert list(PAPERS) == names
    assert GROUPS["papers"] == tuple(names)
    assert not set(GROUPS["all"]) & set(names)
    assert all(each.chosen for each in PAPERS.values())


def test_a_group_and_a_name_are_each_experiment_once() -> None:
    assert [each.name for each in chosen(["orca-9", "papers", "orca-9"])][:2] == ["orca-9", "sage-17"]
    assert len(chosen(["all", "papers"])) == len(EXPERIMENTS)


def test_sage_s_scenarios() -> None:
    doubles = run_of("sage-17", case="rate doubles").environment.bottleneck
    assert [(step.t_s, step.rate_mbps) for step in doubles.rates] == [(0, 24), (30, 48)]
    beside = run_of("sage-17", case="beside Cubic")
    assert beside.schemes == ("vegas", "cubic")
    assert {beside.environment.queue_bytes, doubles.queue_bytes} == {450_000}
    assert beside.tested == run_of("sage-17", case="rate halves").tested == (0,)


def test_sage_beside_cubics_and_queue_disciplines() -> None:
    seven = run_of("sage-19", cubics=7)
    assert seven.schemes == ("vegas", *["cubic"] * 7)
    assert seven.environment.queue_bytes == 240_000  # 48 Mbps for 40 ms
    links = [run.environment.bottleneck for run in experiment("sage-23").runs(["vegas"], 1)]
    assert [link.discipline for link in links] == ["tail-drop", "head-drop", "codel", "pie", "bode"]
    assert {link.queue_bytes for link in links} == {240_000}


def test_sage_s_samples_of_set_ii() -> None:
    small, large = (run.environment for run in experiment("sage-24").runs(["vegas"], 1))
    assert [small.queue_bytes, large.queue_bytes] == [120_000, 1_920_000]  # as appendix F.1 says
    assert lives(run_of("sage-24", queue_bdp=1.0)) == [(5, 125), (0, 125)]


def test_orca_s_disciplines_and_astraea_s_cubics() -> None:
    links = [run.environment.bottleneck for run in experiment("orca-16").runs(["vegas"], 1)]
    assert [link.discipline for link in links] == ["tail-drop", "head-drop", "codel", "pie", "bode"]
    many = run_of("astraea-14", cubics=16)
    assert many.schemes == ("vegas", *["cubic"] * 16)
    assert many.environment.queue_bytes == 375_000  # 100 Mbps for 30 ms
    assert measured(many, [2, *[1] * 16])["goodput_ratio"] == pytest.approx(2)


def test_a_wan_of_10_gbps() -> None:
    wan = run_of("astraea-22").environment
    assert (wan.bottleneck.base_mbps, wan.min_rtt_ms, wan.queue_bytes) == (10_000, 10, 12_500_000)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sage-18", [(0, 120), (25, 120), (50, 120), (75, 120)]),
        ("orca-13", [(0, 100), (25, 100), (50, 100), (75, 100)]),
        ("astraea-6", [(0, 120), (40, 160), (80, 200)]),
    ],
)
def test_flows_that_join(name: str, expected: list[tuple[float, float]]) -> None:
    run = run_of(name)
    assert lives(run) == expected
    assert run.tested == tuple(range(len(expected)))


def test_the_satellite_link_loses_at_random() -> None:
    run = run_of("astraea-20", 3)
    assert (run.environment.bottleneck.loss, run.environment.min_rtt_ms, run.environment.duration_s) == (
        0.0074,
        800,
        100,
    )
    assert run.seed == 3  # repeats lose other packets


def test_unlike_rtts_of_five_flows() -> None:
    run = run_of("astraea-8")
    environment = run.environment
    rtts = [environment.links[0].delay_ms + flow.extra_rtt_ms for flow in environment.all_flows]
    assert rtts == [40, 80, 120, 160, 200]
    assert environment.queue_bytes == 2_500_000  # 100 Mbps for 200 ms
    numbers = measured(run, [5, 4, 3, 2, 1])
    assert numbers["mbps_at_40_ms"] == pytest.approx(5 / 15 * 95, rel=0.01)
    assert numbers["mbps_at_200_ms"] == pytest.approx(1 / 15 * 95, rel=0.01)
    assert numbers["jain"] == pytest.approx(15**2 / (5 * 55))


def test_networks_are_drawn_with_two_to_eight_flows() -> None:
    counts = [
        run_of("astraea-9", repeat, bandwidth_mbps=50.0, rtt_ms=30.0).environment.flow_count for repeat in range(60)
    ]
    assert set(counts) == set(range(2, 9))
    run = run_of("astraea-9", counts.index(3), bandwidth_mbps=50.0, rtt_ms=30.0)
    starts_and_stops = [(round(start_s), stop_s) for start_s, stop_s in lives(run)]
    assert starts_and_stops == [(0, 60), (20, 80), (40, 100)]


def test_a_crowd_starts_within_a_second() -> None:
    environment = run_of("astraea-10", 1, flows=50).environment
    starts = [flow.start_s for flow in environment.all_flows]
    assert len(set(starts)) == 50
    assert max(starts) < 1
    assert starts != [flow.start_s for flow in run_of("astraea-10", 2, flows=50).environment.all_flows]


@pytest.mark.parametrize(
    ("flows", "long_mbps", "short_mbps"),
    [(4, 10.0, 20.0), (8, 10.0, 10.0), (12, 100 / 14, 100 / 14)],  # where link 1 becomes the common bottleneck
)
def test_max_min_shares_of_two_bottlenecks(flows: int, long_mbps: float, short_mbps: float) -> None:
    run = run_of("astraea-11", flows=flows)
    assert [len(run.environment.path(flow)) for flow in run.environment.all_flows] == [2, 2, *[1] * flows]
    numbers = measured(run, [])
    assert numbers["long_fair_mbps"] == pytest.approx(long_mbps)
    assert numbers["short_fair_mbps"] == pytest.approx(short_mbps)


def test_slots_with_one_flow_do_not_count() -> None:
    run = run_of("astraea-7")
    assert measured(run, [1, 1, 1])["jain"] == pytest.approx(1.0)
    # Two flows at 1:3 have 0.8, from 40 to 80 s; three have 25/33, till 120 s; then two at 3:1, till 160 s.
    assert measured(run, [1, 3, 1])["jain"] == pytest.approx((0.8 + 25 / 33 + 0.8) / 3, rel=1e-3)


def test_events_are_starts_and_stops() -> None:
    run = run_of("astraea-6")
    even = measured(run, [1, 1, 1])
    assert (even["convergence_s"], even["converged"]) == (0.0, 1.0)
    # The second flow never has its share, nor does any beside it: 40 s of each event; the last has the link to itself.
    uneven = measured(run, [1, 3, 1])
    assert uneven["converged"] == pytest.approx(1 / 5)
    assert uneven["convergence_s"] == pytest.approx(40 * 4 / 5)


def test_the_tested_flow_s_numbers() -> None:
    run = run_of("sage-17", case="beside Cubic")
    numbers = measured(run, [1, 3])
    assert numbers["goodput_mbps"] == pytest.approx(24 * 0.95 / 4, rel=0.01)
    assert numbers["other_mbps"] == pytest.approx(24 * 0.95 * 3 / 4, rel=0.01)
    assert numbers["rtt_ratio"] == pytest.approx(1.5, rel=0.01)
    assert numbers["power"] == pytest.approx(24 * 0.95 / 4 / 30, rel=0.01)
    assert measured(run_of("astraea-19", queue_bdp=0.1), [1])["loss_rate"] == pytest.approx(0.01, rel=0.01)
    assert "other_mbps" not in measured(run_of("orca-1"), [1])
    assert measured(run_of("orca-14", rtt_ms=20.0), [1, 3])["goodput_ratio"] == pytest.approx(1 / 3)


def test_power_is_over_cubic_s_in_the_same_network() -> None:
    runs = plan(chosen(["orca-12"]), ["vegas"], 2, quick=True)
    assert {run.scheme for run in runs} == {"vegas", "cubic"}  # which takes part unasked
    assert len(plan(chosen(["orca-12"]), ["cubic"], 2, quick=True)) == len(runs) / 2

    def series(run: StudyRun) -> pl.DataFrame:
        made_up = study_series(run)
        return made_up.with_columns(pl.col("goodput_mbps") / 2) if run.scheme == "vegas" else made_up

    cells = cells_table(values_table((run, series(run)) for run in runs)).filter(pl.col("quantity") == "power_ratio")
    ratios = {scheme: part["mean"].to_list() for (scheme,), part in cells.group_by("scheme")}
    assert ratios == {"vegas": pytest.approx([0.5] * 4), "cubic": pytest.approx([1.0] * 4)}


def test_traces_are_cells(tmp_path: Path) -> None:
    for name in ("b", "a", ".hidden"):
        (tmp_path / name).write_text("1\n2\n3\n")
    traced = with_traces(PAPERS["astraea-21"], tmp_path)
    assert [cell.case for cell in traced.grid] == ["a", "b"]
    run = traced.runs(["vegas"], 1)[1]
    assert run.environment.bottleneck.trace is not None
    assert run.environment.bottleneck.trace.name == "b"
    assert run.environment.min_rtt_ms == 40
    with pytest.raises(SageccError, match="--traces"):
        PAPERS["astraea-21"].run(traced.grid[0], "vegas")


@pytest.mark.parametrize("name", ["astraea-6", "astraea-7"])
def test_what_astraea_printed_stands_beside_a_policy_of_its_name(name: str) -> None:
    cells = cells_table(values_table(study_runs_of(name, ["vegas"])), {"vegas": "Astraea"})
    published = {row["quantity"]: row["published"] for row in cells.drop_nulls("published").iter_rows(named=True)}
    expected = {"astraea-6": {"convergence_s": 0.408, "stability_mbps": 2.124}, "astraea-7": {"jain": 0.991}}
    assert published == expected[name]
