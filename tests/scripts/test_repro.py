# SPDX-License-Identifier: Apache-2.0
"""`make repro`: the whole chain in a clone with the profile smoke, killed, started again, repeated."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from sagecc.common.errors import SageccError
from scripts import repro
from scripts.league_table import BEGIN, END, fill, markdown_table, read_league, text_table
from tests.conftest import ROOT, copy_project

LEAGUE = {
    "profile": "smoke",
    "rules": {"confidence": 0.95},
    "environments": {"I": 2, "II": 1},
    "windows": {"I": 8, "II": 4},
    "ranking": [{"rank": 1, "scheme": "vegas", "mean": 0.75}, {"rank": 2, "scheme": "cubic", "mean": 0.25}],
    "standings": [
        {"set": "I", "scheme": "vegas", "winning_rate": 1.0, "low": 0.5, "high": 1.0},
        {"set": "II", "scheme": "vegas", "winning_rate": 0.5, "low": 0.25, "high": 0.75},
        {"set": "I", "scheme": "cubic", "winning_rate": 0.0, "low": 0.0, "high": 0.125},
        {"set": "II", "scheme": "cubic", "winning_rate": 0.5, "low": 0.5, "high": 0.5},
    ],
}


@pytest.fixture
def clone(tmp_path: Path, kernel: Path) -> Iterator[Path]:
    """A clone of this folder as it is, less what was done, with this folder's kernel and environment."""
    folder = tmp_path / "clone"
    copy_project(folder)
    for lock in repro.LOCKS:
        (folder / lock).unlink(missing_ok=True)
    (folder / "build" / "kernel").mkdir(parents=True)
    shutil.copy2(kernel, folder / "build")
    shutil.copy2(ROOT / "build" / "kernel" / "kernel.json", folder / "build" / "kernel")
    yield folder
    # Some of what pytest keeps for looking at later is big.
    shutil.rmtree(folder)


def start(folder: Path, *args: str) -> subprocess.Popen[str]:
    """Start what `make repro` starts, with the code of `folder`."""
    env = {
        **{name: value for name, value in os.environ.items() if name != "SHELL"},
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(folder),
        "DVC_SITE_CACHE_DIR": str(folder.parent / "site"),
    }
    command = [sys.executable, "-m", "scripts.repro", *args]
    return subprocess.Popen(
        command,
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def ask_as_the_readme_does(folder: Path) -> None:
    """Run the README's SQL on the pool of `folder`: through the command, and in DuckDB on the files as they lie."""
    readme = (ROOT / "README.md").read_text()
    questions = re.findall(r'^sagecc sql "(.+?)"', readme, re.MULTILINE)
    assert questions
    for question in questions:
        command = [sys.executable, "-m", "sagecc", "sql", question]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, f"{question}: {done.stderr}"
        assert "vegas" in done.stdout or "srtt" in done.stdout
    queries = re.findall(r"```sql\n(.+?)```", readme, re.DOTALL)
    assert queries
    for query in queries:
        with duckdb.connect() as connection:
            rows = connection.execute(query.replace("datasets/", f"{folder}/datasets/")).fetchall()
        assert "vegas" in {value for row in rows for value in row}


def test_the_chain_survives_a_kill_and_repeats_nothing(clone: Path) -> None:
    killed = start(clone, "--profile", "smoke")
    raw = clone / "datasets" / "raw"
    until = time.monotonic() + 120
    while not any(raw.rglob("*.parquet")):
        assert killed.poll() is None, killed.communicate()[0]
        assert time.monotonic() < until, "nothing was collected"
        time.sleep(0.1)
    killed.kill()
    killed.communicate()

    done = start(clone, "--profile", "smoke")
    output, _ = done.communicate()
    assert done.returncode == 0, output
    league = read_league(clone / "leagues/results/league.json")
    assert league["profile"] == "smoke"
    assert "policy:models/repro" in {row["scheme"] for row in league["ranking"]}
    assert len(league["ranking"]) >= 13
    assert output.rstrip().endswith(f"{text_table(league)}\nreport: leagues/report.html")
    assert (clone / "leagues/report.html").stat().st_size > 10_000

    lock = (clone / "dvc.lock").read_text()
    again = start(clone)
    output, _ = again.communicate()
    assert again.returncode == 0, output
    assert output.count("didn't change, skipping") == 9 + 26
    assert output.rstrip().endswith(f"{text_table(league)}\nreport: leagues/report.html")
    assert (clone / "dvc.lock").read_text() == lock

    status = subprocess.run(
        [sys.executable, "-m", "dvc", "status", "--json", "dvc.yaml"], cwd=clone, capture_output=True, text=True
    )
    assert json.loads(status.stdout) == {"code": ["always changed"]}
    ask_as_the_readme_does(clone)
    changed = subprocess.run(["git", "status", "--short"], cwd=clone, capture_output=True, text=True).stdout
    assert {line.split()[-1] for line in changed.splitlines()} <= {*repro.LOCKS, "params.yaml"}


@pytest.mark.slow
def test_kills_at_any_moment_leave_no_trace(clone: Path) -> None:
    """Killed again and again, the chain ends with the same bytes as in one go."""
    apart = clone.with_name("apart")
    shutil.copytree(clone, apart)
    done = start(clone, "--profile", "smoke")
    output, _ = done.communicate()
    assert done.returncode == 0, output

    moments = random.Random(1)
    kills = 0
    while True:
        run = start(apart, "--profile", "smoke")
        try:
            # Longer each time: nothing can be done in less than it takes to start.
            output, _ = run.communicate(timeout=moments.uniform(2, 12) * 1.1**kills)
            break
        except subprocess.TimeoutExpired:
            run.kill()
            run.communicate()
            kills += 1
    assert run.returncode == 0, output
    assert kills >= 3
    assert (apart / "dvc.lock").read_text() == (clone / "dvc.lock").read_text()
    shutil.rmtree(apart)


def test_a_second_run_in_the_same_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repro, "PATIENCE_S", 0.1)
    lock = tmp_path / "tmp" / "repro.lock"
    with repro.only_one(lock), pytest.raises(SageccError, match="another 'make repro' runs"), repro.only_one(lock):
        pass
    with repro.only_one(lock):
        pass


@pytest.mark.parametrize("content", ["", '{"read": {}, "wri', '{"write": {"/x": {"pid": 1, "cmd": "not dvc"}}}'])
def test_locks_of_a_killed_dvc_are_removed(tmp_path: Path, content: str) -> None:
    holders = tmp_path / ".dvc" / "tmp" / "rwlock"
    holders.parent.mkdir(parents=True)
    holders.write_text(content)
    repro.remove_leftovers(tmp_path)
    assert not holders.exists()


def test_locks_of_a_dvc_that_runs_are_kept(tmp_path: Path) -> None:
    waiting = [sys.executable, "-c", "print(flush=True); input()", "dvc"]
    with subprocess.Popen(waiting, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        holders = tmp_path / ".dvc" / "tmp" / "rwlock"
        holders.parent.mkdir(parents=True)
        holders.write_text(json.dumps({"read": {"/x": [{"pid": process.pid, "cmd": "dvc repro"}]}, "write": {}}))
        repro.remove_leftovers(tmp_path)
        assert holders.exists()
        process.send_signal(signal.SIGKILL)
    repro.remove_leftovers(tmp_path)
    assert not holders.exists()


WHOLE = """schema: '2.0'
stages:
  kernel:
    cmd: sagecc kernel
    outs:
    - path: build/sagecc-linux
      hash: md5
      md5: 68b329da9893e34099c7d8ad5cb9c940
      size: 1
"""


@pytest.mark.parametrize(
    ("content", "kept"), [(WHOLE, True), ("", False), (WHOLE[:60], False), ("schema: '2.0'\nsta: [", False)]
)
def test_a_lock_file_that_was_cut_short_is_removed(tmp_path: Path, content: str, kept: bool) -> None:
    lock = tmp_path / "dvc.lock"
    lock.write_text(content)
    repro.remove_leftovers(tmp_path)
    assert lock.exists() == kept


def test_choosing_a_profile_changes_two_words(tmp_path: Path) -> None:
    params = tmp_path / "params.yaml"
    before = (ROOT / "params.yaml").read_text()
    params.write_text(before)
    repro.choose_profile(params, "smoke")
    after = params.read_text().splitlines()
    differing = [(a, b) for a, b in zip(before.splitlines(), after, strict=True) if a != b]
    assert [b for _, b in differing] == ["profile: smoke", "  config: tiny"]
    repro.choose_profile(params, "small")
    assert params.read_text().splitlines() == [
        {"profile: smoke": "profile: small", "  config: tiny": "  config: small"}.get(line, line) for line in after
    ]


def test_the_table_for_a_terminal() -> None:
    assert text_table(LEAGUE) == (
        "rank  scheme  Set I                  Set II\n"
        "1     vegas   100.0 % [50.0, 100.0]  50.0 % [25.0, 75.0]\n"
        "2     cubic   0.0 % [0.0, 12.5]      50.0 % [50.0, 50.0]"
    )


def test_the_table_for_the_readme() -> None:
    text = markdown_table(LEAGUE, "docs/img/standings.png")
    assert "2 schemes in 2 environments of Set I (8 scoring windows) and 1 environment of Set II" in text
    assert "| 1 | vegas | 100.0 % [50.0, 100.0] | 50.0 % [25.0, 75.0] |" in text
    readme = f"a\n{BEGIN}\nold\n{END}\nb\n"
    assert fill(fill(readme, text), text) == f"a\n{BEGIN}\n{text}\n{END}\nb\n"
    with pytest.raises(SageccError, match="marks"):
        fill("no marks", text)


def test_no_league_yet_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SageccError, match="there is no league yet"):
        read_league(tmp_path / "league.json")
    (tmp_path / "league.json").write_text("{")
    with pytest.raises(SageccError, match="not JSON"):
        read_league(tmp_path / "league.json")
