# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import Counter
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagecc.collector.lab.spec import episode_spec
from sagecc.common.errors import SageccError
from sagecc.leagues.study.catalogue import EXPERIMENTS, chosen, experiment, plan
from sagecc.leagues.study.experiments import REPEATS, distinct, study_runs
from sagecc.leagues.study.networks import Cell, schedule_of_losses, schedule_of_rtts
from sagecc.schemas.environment import Environment

SIX = ("orca", "sage", "astraea", "vivace", "cubic", "bbr3")
NAMES = [each.name for each in EXPERIMENTS.values() if not each.traced]


def cell(name: str, **wanted: object) -> Cell:
    """Return the one cell of an experiment with these values."""
    (found,) = (c for c in experiment(name).grid if all(getattr(c, key) == value for key, value in wanted.items()))
    return found


def test_six_schemes_are_the_paper_s_6270_runs() -> None:
    runs = study_runs(SIX)
    assert len(runs) == 6270
    by_experiment = Counter(run.experiment for run in runs)
    assert by_experiment["dynamics"] == 90
    assert by_experiment["efficiency"] == 180
    assert by_experiment["responsiveness"] + by_experiment["responsiveness-loss"] == 600
    assert by_experiment["fairness"] == by_experiment["many-cubics"] == 900


def test_what_the_study_shows_twice_is_the_same_network() -> None:
    for each in EXPERIMENTS.values():
        if each.shared_with:
            known = {run.network for run in experiment(each.shared_with).runs(["vegas"])}
            shown = [run for run in each.runs(["vegas"]) if run.cell in each.shared]
            assert shown
            assert {run.network for run in shown} <= known


def test_cubic_beside_itself_is_run_once() -> None:
    runs = plan(chosen(["fairness", "friendliness", "fairness-rtt", "fairness-bandwidth"]), ["cubic"], 2)
    # Friendliness is fairness altogether; at 20 ms unlike RTTs are alike; 100 Mbps and 40 ms are in two grids.
    assert len(runs) == 4 * 60
    assert len(distinct(runs)) == 240 - 60 - 6 - 6
    assert distinct(runs)[:60] == runs[:60]


def test_the_schedules_are_those_of_python_s_seeds() -> None:
    assert schedule_of_rtts(1)[:3] == [(18, 165), (98, 36), (33, 50)]
    assert schedule_of_losses(1)[:2] == [(18, 2.85), (98, 0.32)]
    assert all(len(schedule_of_rtts(number)) == 30 for number in (1, 50))
    means = [sum(rate for rate, _ in schedule_of_rtts(number)) / 30 for number in range(1, 51)]
    assert median(means) == pytest.approx(51.4, abs=0.05)
    means = [sum(rate for rate, _ in schedule_of_losses(number)) / 30 for number in range(1, 51)]
    assert median(means) == pytest.approx(50.5, abs=0.05)


def test_a_schedule_is_what_the_network_does() -> None:
    environment = experiment("responsiveness").run(Cell(schedule=7), "cubic").environment
    schedule = schedule_of_rtts(7)
    delay, bottleneck = environment.links
    assert environment.bottleneck is bottleneck
    assert [step.rate_mbps for step in bottleneck.rates] == [rate for rate, _ in schedule]
    assert [delay.delay_ms, *(step.delay_ms for step in delay.delays)] == [rtt for _, rtt in schedule]
    assert [step.t_s for step in delay.delays] == [10.0 * number for number in range(1, 30)]
    assert delay.delay_reorders
    assert bottleneck.queue_bytes == 655_360
    assert environment.duration_s == 300
    lossy = experiment("responsiveness-loss").run(Cell(schedule=7), "cubic").environment.bottleneck
    shares = [lossy.loss, *(step.loss for step in lossy.losses)]
    assert shares == [percent / 100 for _, percent in schedule_of_losses(7)]


def test_two_flows_of_a_cell() -> None:
    wanted = cell("fairness", queue_bdp=1.0, rtt_ms=80.0)
    environment = experiment("fairness").run(wanted, "vegas").environment
    assert [flow.start_s for flow in environment.all_flows] == [40.0, 0.0]  # 500 RTTs, and the first from the start
    assert environment.duration_s == 160.0
    assert environment.windows_s == ((120.0, 160.0),)
    assert environment.min_rtt_ms == 80
    assert environment.queue_bytes == 1_000_000  # 100 Mbps for 80 ms
    assert [cross.scheme for cross in environment.cross] == ["vegas"]


def test_unlike_rtts() -> None:
    wanted = cell("fairness-rtt", queue_bdp=1.0, rtt_ms=200.0)
    environment = experiment("fairness-rtt").run(wanted, "vegas").environment
    assert environment.min_rtt_ms == 200
    assert [flow.extra_rtt_ms for flow in environment.all_flows] == [180.0, 0.0]
    assert environment.queue_bytes == 250_000  # of the 20 ms path
    assert experiment("fairness-rtt-long-queue").run(wanted, "vegas").environment.queue_bytes == 2_500_000


def test_the_parking_lot() -> None:
    wanted = cell("parking-lot", queue_bdp=4.0, rtt_ms=20.0)
    environment = experiment("parking-lot").run(wanted, "vegas").environment
    assert environment.path(environment.flow) == range(3)
    assert [list(environment.path(cross.flow)) for cross in environment.cross] == [[0], [1], [2]]
    assert environment.min_rtt_ms == 20
    assert {flow.extra_rtt_ms for flow in environment.all_flows} == {20.0}
    assert all(link.queue_bytes == 1_000_000 for link in environment.links)
    assert environment.flow.start_s == 10


def test_both_orders_beside_cubic() -> None:
    first, last = (
        experiment("dynamics").run(cell("dynamics", queue_bdp=1.0, order=order), "vegas")
        for order in ("cubic-first", "cubic-last")
    )
    assert [flow.start_s for flow in first.environment.all_flows] == [50.0, 0.0]
    assert [flow.start_s for flow in last.environment.all_flows] == [0.0, 50.0]
    assert first.schemes == last.schemes == ("vegas", "cubic")
    assert first.tested == (0,)


def test_many_cubics_join_at_whole_seconds() -> None:
    wanted = cell("many-cubics", queue_bdp=1.0, cubics=20)
    environment = experiment("many-cubics").run(wanted, "vegas").environment
    starts = [cross.flow.start_s for cross in environment.cross]
    assert len(starts) == 20
    assert all(start_s in range(1, 16) for start_s in starts)
    assert environment.windows_s == ((45.0, 59.0),)
    other = experiment("many-cubics").run(wanted, "vegas", 1).environment
    assert [int(cross.flow.start_s) for cross in other.cross] != starts  # another run draws others


def test_four_flows_overlap_for_25_seconds() -> None:
    environment = experiment("efficiency").run(cell("efficiency", queue_bdp=1.0, rtt_ms=20.0), "vegas").environment
    lives = [(flow.start_s, environment.stop_of(flow)) for flow in environment.all_flows]
    assert lives == [(0, 100), (25, 125), (50, 150), (75, 175)]
    assert environment.windows_s == ((75.0, 100.0),)


@given(st.sampled_from(NAMES), st.integers(1, 4), st.data())
def test_a_repeat_delays_each_flow_by_less_than_a_round_trip(name: str, repeat: int, data: st.DataObject) -> None:
    wanted = data.draw(st.sampled_from(experiment(name).grid))
    one, other = (experiment(name).run(wanted, "vegas", number).environment for number in (0, repeat))
    assert one != other
    assert experiment(name).run(wanted, "vegas", repeat).environment == other
    if name not in ("many-cubics", "astraea-9", "astraea-10"):  # there another repeat draws other starts or flows
        rtt_s = max(one.min_rtt_ms, wanted.rtt_ms or 0) / 1000
        for before, after in zip(one.all_flows, other.all_flows, strict=True):
            assert 0 <= after.start_s - before.start_s <= rtt_s
    if name != "astraea-9":
        assert one.windows_s == other.windows_s


@pytest.mark.parametrize("name", NAMES)
def test_every_cell_is_a_network_that_the_lab_knows(name: str) -> None:
    for wanted in experiment(name).cells(quick=True):
        run = experiment(name).run(wanted, "cubic", 1)
        assert Environment.from_json(run.environment.to_json()) == run.environment
        assert episode_spec(run.environment, run.scheme, run.seed).memory_mb < 4096


@pytest.mark.parametrize("name", NAMES)
def test_quick_is_a_fifth_once(name: str) -> None:
    each = experiment(name)
    quick = each.runs(["cubic"], quick=True)
    assert {run.repeat for run in quick} == {0}
    assert set(each.cells(quick=True)) <= set(each.grid)
    cells = {run.cell for run in quick}
    assert len(cells) == pytest.approx(max(1, len(each.grid) / 5), abs=0.6)
    assert len(quick) == len(cells) * len({run.scheme for run in quick})
    thrice = each.runs(["cubic"], repeats=3, quick=True)
    assert {run.cell for run in thrice} == cells
    assert len(thrice) == len(quick) * (1 if each.repeats == 1 else 3)


def test_repeats_are_the_study_s_unless_asked_for() -> None:
    assert len(experiment("fairness").runs(["cubic"])) == 30 * REPEATS
    assert len(experiment("fairness").runs(["cubic"], 2)) == 60
    assert len(experiment("responsiveness").runs(["cubic"], 3)) == 50  # each schedule is a repeat


def test_an_experiment_that_is_not_there() -> None:
    with pytest.raises(SageccError, match="no experiment 'fair'; there are fairness, windows"):
        experiment("fair")
    with pytest.raises(SageccError, match="unknown scheme 'cubik'"):
        plan(chosen(["fairness"]), ["cubik"])
