# SPDX-License-Identifier: Apache-2.0
"""`sagecc study`: a quick experiment in the lab, gone on with, and what it refuses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl
import pytest

from sagecc.cli import main
from sagecc.common.errors import SageccError
from sagecc.leagues.study.experiments import StudyRun, experiment
from sagecc.leagues.study.testbed import PREDECESSOR
from tests.helpers.messages import facts


def study(*args: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(["study", *args])
    return int(stopped.value.code or 0)


def test_a_quick_experiment_and_what_is_there_is_not_run_again(
    kernel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("fairness-bandwidth", "--quick", "--schemes", "cubic", "--out", str(tmp_path), "--kernel", str(kernel))
    assert study(*options, "--jobs", "2") == 0
    values = pl.read_parquet(tmp_path / "values.parquet")
    assert set(values["scheme"]) == {"cubic"}
    assert (tmp_path / "cells.parquet").exists()
    assert (tmp_path / "fairness-bandwidth.png").exists()
    assert "fairness-bandwidth" in (tmp_path / "study.html").read_text()
    runs = sorted((tmp_path / "runs").iterdir())
    assert len(runs) == 6
    before = {path: path.stat().st_mtime_ns for path in runs}
    runs[0].unlink()  # as if it had been killed before that one was kept
    assert study(*options, "--jobs", "1") == 0
    after = {path: path.stat().st_mtime_ns for path in sorted((tmp_path / "runs").iterdir())}
    assert after.keys() == before.keys()
    assert {path for path in after if after[path] != before[path]} == {runs[0]}
    assert pl.read_parquet(tmp_path / "values.parquet").equals(values)  # in any number of processes
    assert str(tmp_path / "study.html") in capsys.readouterr().out


def test_the_testbed_s_networks_are_run_where_asked_for(
    kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[StudyRun] = []

    def runner(runs: Sequence[StudyRun]) -> Iterator[tuple[StudyRun, SageccError]]:
        asked.extend(runs)
        return ((run, SageccError("not here")) for run in runs)

    monkeypatch.setattr("sagecc.commands.study.lab_runner", lambda *_: runner)
    assert study("fairness", "--quick", "--testbed", "--out", str(tmp_path), "--kernel", str(kernel)) == 2
    ours = experiment("fairness").runs(("cubic", "bbr2", "vegas"), quick=True)
    assert set(asked) == {PREDECESSOR.run(run) for run in ours}
    assert "not here" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("fairnes",), "'fairnes'…fairness, "),
        (("fairness", "--schemes", "tahoe"), "'tahoe'"),
        (("fairness", "--as", "cubic"), "--as cubic…SCHEME=NAME"),
        (("fairness", "--policy", "none"), "policy:none…sagecc train"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    tmp_path: Path, kernel: Path, capsys: pytest.CaptureFixture[str], args: tuple[str, ...], text: str
) -> None:
    assert study(*args, "--quick", "--out", str(tmp_path / "out"), "--kernel", str(kernel)) == 2
    error = capsys.readouterr().err
    assert len([line for line in error.splitlines() if line.startswith("sagecc: ")]) == 1
    assert re.search(facts(text), error)
    assert not (tmp_path / "out" / "values.parquet").exists()
