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
from sagecc.leagues.study.catalogue import experiment
from sagecc.leagues.study.experiments import StudyRun
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
        (("fairnes",), "'fairnes'…fairness, …sage-17, …papers"),
        (("fairness", "--schemes", "tahoe"), "'tahoe'"),
        (("fairness", "--as", "cubic"), "--as cubic…SCHEME=NAME"),
        (("fairness", "--as", "vegas=Orca", "--schemes", "cubic"), "'vegas' does not take part…cubic"),
        (("fairness", "--as", "vegas=Orka"), "nothing is published of 'Orka'…Orca"),
        (("fairness", "--as", "vegas=Cubic"), "cubic stands for Cubic already"),
        (("fairness", "--policy", "none"), "no policy at none…sagecc train"),
        (("fairness", "--policy", "damaged"), "damaged"),
        (("fairness", "--ray-address", "127.0.0.2:1"), "--ray-address goes with --engine ray"),
        (("astraea-21",), "astraea-21 replays traces…--traces"),
        (("astraea-21", "--traces", "none"), "--traces none: no such folder"),
        (("astraea-21", "--traces", "empty"), "--traces empty: there is no trace"),
        (("astraea-21", "--traces", "damaged"), "--traces damaged: there is no trace in damaged"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    tmp_path: Path,
    kernel: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    args: tuple[str, ...],
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("damaged").mkdir()
    Path("damaged/weights").write_text("no number")
    assert study(*args, "--quick", "--out", str(tmp_path / "out"), "--kernel", str(kernel)) == 2
    error = capsys.readouterr().err
    assert len([line for line in error.splitlines() if line.startswith("sagecc: ")]) == 1
    assert re.search(facts(text), error)
    assert not (tmp_path / "out").exists()


def test_no_repeats_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert study("fairness", "--repeats", "0") == 2
    assert "'--repeats': 0 is not in the range" in capsys.readouterr().err


def test_a_damaged_run_is_named_and_no_table_written(
    kernel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("orca-9", "--quick", "--schemes", "cubic", "--kernel", str(kernel), "--runs", str(tmp_path / "runs"))
    assert study(*options, "--out", str(tmp_path / "one")) == 0
    (run,) = (tmp_path / "runs").iterdir()
    content = bytearray(run.read_bytes())
    end = len(content) - 8 - int.from_bytes(content[-8:-4], "little")  # the footer, which has the columns, stays
    content[4:end] = bytes(end - 4)
    run.write_bytes(content)
    assert study(*options, "--out", str(tmp_path / "two")) == 2
    assert f"sagecc: {run} is damaged" in capsys.readouterr().err
    assert not (tmp_path / "two").exists()


def test_cellular_links_replay_the_users_traces(kernel: Path, tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    for name, gap_ms in (("fast", 1), ("slow", 4)):
        (tmp_path / "traces" / name).write_text("".join(f"{time}\n" for time in range(0, 1000, gap_ms)))
    options = ("astraea-21", "--schemes", "cubic", "--repeats", "1", "--traces", str(tmp_path / "traces"))
    assert study(*options, "--kernel", str(kernel), "--out", str(tmp_path / "out")) == 0
    cells = pl.read_parquet(tmp_path / "out" / "cells.parquet").filter(pl.col("quantity") == "goodput_mbps")
    fast, slow = (cells.filter(pl.col("case") == name)["mean"].item() for name in ("fast", "slow"))
    assert fast == pytest.approx(4 * slow, rel=0.2)


def test_what_replays_traces_is_left_out_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert study("papers", "--out", str(tmp_path / "out"), "--kernel", str(tmp_path / "none")) == 2  # no kernel
    assert "astraea-21: left out, for it replays traces; name their folder by --traces" in capsys.readouterr().err
