# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sagecc.common.errors import SageccError
from sagecc.leagues.flow_metrics import SERIES_SCHEMA, to_arrow
from sagecc.leagues.study.catalogue import chosen, experiment, plan
from sagecc.leagues.study.collect import Outcome, collect, lab_identity, read_series, run_key
from sagecc.leagues.study.experiments import StudyRun
from sagecc.leagues.study.networks import Cell
from sagecc.leagues.study.results import cells_table, values_table
from sagecc.schemas.environment import CrossFlow
from tests.helpers.flows import LabRunner
from tests.helpers.study_runs import MadeUpRunner, study_series


def identity(run: StudyRun) -> str:
    return "lab-1"


def test_a_run_is_one_small_file(tmp_path: Path) -> None:
    runs = experiment("fairness").runs(["cubic"], quick=True)
    collected = collect(runs, MadeUpRunner(), tmp_path, identity)
    assert list(collected.files) == runs
    assert not collected.failures
    files = sorted(tmp_path.iterdir())
    assert len(files) == 6
    assert all(file.stat().st_size < 60_000 for file in files)
    metadata = pq.read_schema(collected.files[runs[0]]).metadata
    assert metadata[b"environment"].decode() == runs[0].environment.to_json()
    assert metadata[b"identity"] == b"lab-1"
    for run, series in collected.series():
        assert series.equals(study_series(run).select(SERIES_SCHEMA.names))


def test_a_killed_study_goes_on(tmp_path: Path) -> None:
    runs = experiment("fairness").runs(["cubic"], quick=True)
    with pytest.raises(KeyboardInterrupt):
        collect(runs, MadeUpRunner(killed_after=4), tmp_path, identity)
    runner = MadeUpRunner()
    assert len(collect(runs, runner, tmp_path, identity).files) == 6
    assert len(runner.asked) == 2
    again = MadeUpRunner()
    collect(runs, again, tmp_path, identity)
    assert not again.asked


def test_longest_first(tmp_path: Path) -> None:
    runner = MadeUpRunner()
    collect(experiment("fairness").runs(["cubic"], quick=True), runner, tmp_path, identity)
    durations = [run.environment.duration_s for run in runner.asked]
    assert durations == sorted(durations, reverse=True)


def test_one_network_is_run_once_for_all_that_show_it(tmp_path: Path) -> None:
    runs = plan(chosen(["dynamics", "friendliness"]), ["cubic"], 1)
    runner = MadeUpRunner()
    collected = collect(runs, runner, tmp_path, identity)
    assert len(runner.asked) == len(list(tmp_path.iterdir())) == 33  # 30, and Cubic last at each queue
    assert len(collected.files) == 36
    assert {run.experiment for run, _ in collected.series()} == {"dynamics", "friendliness"}


def test_a_run_that_fails_is_a_line_and_is_tried_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = experiment("dynamics").runs(["cubic", "vegas"], 1)
    collected = collect(runs, MadeUpRunner(failing="vegas"), tmp_path, identity)
    assert {run.scheme for run in collected.files} == {"cubic"}
    assert set(collected.failures.values()) == {"the guest panicked"}
    told = [line for line in capsys.readouterr().err.splitlines() if "panicked" in line]
    assert len(told) == len(collected.failures) == 6
    assert all(line.startswith("failed: dynamics, study-100mbps-100ms") for line in told)
    runner = MadeUpRunner()
    assert not collect(runs, runner, tmp_path, identity).failures
    assert {run.scheme for run in runner.asked} == {"vegas"}


def test_what_a_runner_leaves_out_has_failed(tmp_path: Path) -> None:
    def lazy(runs: Sequence[StudyRun]) -> Iterator[tuple[StudyRun, Outcome]]:
        return iter(())

    collected = collect(experiment("windows").runs(["cubic"], 1), lazy, tmp_path, identity)
    assert set(collected.failures.values()) == {"it was not run"}


def test_what_was_not_asked_for_is_an_error(tmp_path: Path) -> None:
    runs = experiment("windows").runs(["cubic"], 2)

    def wrong(_: Sequence[StudyRun]) -> Iterator[tuple[StudyRun, Outcome]]:
        yield runs[1], to_arrow(study_series(runs[1]))

    with pytest.raises(SageccError, match="which it was not given"):
        collect(runs[:1], wrong, tmp_path, identity)

    def no_series(given: Sequence[StudyRun]) -> Iterator[tuple[StudyRun, Outcome]]:
        yield given[0], pa.table({"flow": pa.array([0], pa.int32())})

    with pytest.raises(SageccError, match="has no column 'scheme'"):
        collect(runs[:1], no_series, tmp_path, identity)


def test_a_damaged_file_is_made_again(tmp_path: Path) -> None:
    runs = experiment("windows").runs(["cubic"], 1)
    files = collect(runs, MadeUpRunner(), tmp_path, identity).files
    files[runs[0]].write_bytes(files[runs[0]].read_bytes()[:500])
    with pytest.raises(SageccError, match="remove it, and the run is made again"):
        read_series(files[runs[0]])
    runner = MadeUpRunner()
    collect(runs, runner, tmp_path, identity)
    assert runner.asked == runs[:1]


def test_a_key_hangs_on_all_that_makes_a_run() -> None:
    run = experiment("efficiency").runs(["cubic"], 1)[0]
    other = replace(run.environment, cross=(CrossFlow("vegas", run.environment.cross[0].flow),))
    changed = [
        replace(run, scheme="vegas"),
        replace(run, seed=7),
        replace(run, environment=other),
        replace(run, interval_s=1.0),
    ]
    keys = {run_key(each, "lab-1") for each in (run, *changed)} | {run_key(run, "lab-2")}
    assert len(keys) == 6
    assert run_key(replace(run, experiment="convergence"), "lab-1") == run_key(run, "lab-1")


def test_the_lab_s_identity_has_the_policies_files(kernel: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy"
    policy.mkdir()
    (policy / "card.json").write_text("{}")
    (policy / "weights").write_text("1")
    scheme = f"policy:{policy}"
    run = experiment("friendliness").runs([scheme], 1)[0]
    before = lab_identity(kernel)(run)
    assert "tcp_pure.c=" in before
    (policy / "weights").write_text("2")
    assert lab_identity(kernel)(run) != before
    cubic = experiment("friendliness").runs(["cubic"], 1)[0]
    assert "policy" not in lab_identity(kernel)(cubic)


def test_two_cubics_in_the_lab(kernel: Path, tmp_path: Path) -> None:
    fairness = experiment("fairness")
    wanted = Cell(queue_bdp=1.0, bandwidth_mbps=10.0, rtt_ms=20.0)
    runs = [fairness.run(wanted, "cubic", repeat) for repeat in (0, 1)]
    collected = collect(runs, LabRunner(kernel), tmp_path, lab_identity(kernel))
    assert not collected.failures
    one, other = (series for _, series in collected.series())
    assert one.filter(flow=0)["t_s"].min() == 10  # 500 RTTs of 20 ms
    assert one.filter(flow=1)["t_s"].min() == 0
    assert one["capacity_mbps"].to_list() == pytest.approx([10.0] * len(one), rel=1e-3)
    assert not one.equals(other)  # the lab is deterministic, the repeats are no copies
    rows = {row["quantity"]: row for row in cells_table(values_table(collected.series())).rows(named=True)}
    assert rows["ratio"]["count"] == 2
    assert 0.2 < rows["ratio"]["mean"] <= 1
    assert 0.9 < rows["utilisation"]["mean"] <= 0.97
