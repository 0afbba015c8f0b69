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
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
import yaml

from sagecc.collector.kernel.identity import stamp
from sagecc.common.errors import SageccError
from sagecc.leagues import table
from sagecc.leagues.report.folder import read_summary
from scripts import dvc_repro, repro
from tests.conftest import PACKAGES, ROOT, copy_project

SCHEMES = ("cubic", "vegas", "bbr2", "reno")


@pytest.fixture
def clone(tmp_path: Path, kernel: Path) -> Iterator[Path]:
    """A clone of this folder as it is, less what was done, with this folder's kernel and environment."""
    folder = tmp_path / "clone"
    copy_project(folder)
    for lock in repro.LOCKS:
        (folder / lock).unlink(missing_ok=True)
    (folder / "build").mkdir()
    for file in (kernel, stamp(kernel)):
        shutil.copy2(file, folder / "build")
    # What is compiled here already; a clone that compiles all of it takes a minute more (test_compilation.py does).
    for file in (file for package in PACKAGES for file in (ROOT / package).rglob("__pycache__/*.nb[ic]")):
        (folder / file.relative_to(ROOT).parent).mkdir(exist_ok=True)
        shutil.copy2(file, folder / file.relative_to(ROOT))
    yield folder
    # Some of what pytest keeps for looking at later is big.
    shutil.rmtree(folder)


def of_few_schemes(folder: Path) -> None:
    """Let the chain of `folder` collect and compare SCHEMES alone: a scheme more is two stages of the same kinds."""
    params, pipeline = folder / "params.yaml", folder / "dvc.yaml"
    few, count = re.subn(r"(?m)^schemes: .*$", f"schemes: [{', '.join(SCHEMES)}]", params.read_text())
    assert count == 1
    params.write_text(few)
    few, count = re.subn(r"sagecc (?:league|similarity)", rf"\g<0> --schemes {','.join(SCHEMES)}", pipeline.read_text())
    assert count == 2
    pipeline.write_text(few)


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


def ask_as_the_guide_does(folder: Path) -> None:
    """Run the first hour's SQL on the pool of `folder`; it is plain Parquet, as the page says."""
    page = (ROOT / "docs/guide/first-hour.md").read_text()
    questions = re.findall(r'^sagecc sql "(.+?)"', page, re.MULTILINE)
    assert questions
    for question in questions:
        command = [sys.executable, "-m", "sagecc", "sql", question]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, f"{question}: {done.stderr}"
        assert "vegas" in done.stdout or "srtt" in done.stdout
    parts = f"read_parquet('{folder}/datasets/pool/set=*/scheme=*/*.parquet', hive_partitioning = true)"
    with duckdb.connect() as connection:
        assert set(connection.execute(f"SELECT DISTINCT scheme FROM {parts}").fetchall()) == {(s,) for s in SCHEMES}


def test_the_chain_runs_and_repeats_nothing(clone: Path) -> None:
    """With few schemes; test_kills_at_any_moment_leave_no_trace has all of them."""
    of_few_schemes(clone)
    of_schemes = 2 * len(SCHEMES) + 3
    done = start(clone, "--profile", "smoke")
    output, _ = done.communicate()
    assert done.returncode == 0, output
    said = [line for line in output.splitlines() if line.startswith("make repro: stage ")]
    places = [int(re.match(r"make repro: stage (\d+)/", line)[1]) for line in said]  # type: ignore[index]
    assert places == list(range(1, of_schemes + 12))
    assert all(re.fullmatch(rf"make repro: stage \d+/{of_schemes + 11}, about \d+ min left", line) for line in said[3:])
    league = read_summary(clone / "leagues/results")
    assert league["profile"] == "smoke"
    assert {"policy:models/repro", "policy:models/sagecc-10"} <= {row["scheme"] for row in league["ranking"]}
    assert len(league["ranking"]) == len(SCHEMES) + 2
    kinds = "kernel collect kick explore pools train league analysis report DVC"
    went = re.search(r"(?m)^make repro: \d+\.\d min, of which\n((?:  \w+ +\d+\.\d min  .+\n)+)", output)
    assert went and sorted(line.split()[0] for line in went[1].splitlines()) == sorted(kinds.split())
    assert output.rstrip().endswith(f"{table.text(league)}\nreport: leagues/report.html")
    assert (clone / "leagues/report.html").stat().st_size > 10_000

    lock = (clone / "dvc.lock").read_text()
    again = start(clone)
    output, _ = again.communicate()
    assert again.returncode == 0, output
    assert output.count("didn't change, skipping") == 10 + of_schemes
    assert output.rstrip().endswith(f"{table.text(league)}\nreport: leagues/report.html")
    assert (clone / "dvc.lock").read_text() == lock

    status = subprocess.run(
        [sys.executable, "-m", "dvc", "status", "--json", "dvc.yaml"], cwd=clone, capture_output=True, text=True
    )
    assert json.loads(status.stdout) == {"specification": ["always changed"]}
    ask_as_the_guide_does(clone)
    changed = subprocess.run(["git", "status", "--short"], cwd=clone, capture_output=True, text=True).stdout
    assert {line.split()[-1] for line in changed.splitlines()} <= {*repro.LOCKS, "params.yaml", "dvc.yaml"}


@pytest.mark.slow
def test_kills_at_any_moment_leave_no_trace(clone: Path) -> None:
    """Killed again and again, the chain ends with the same bytes as in one go."""
    apart = clone.with_name("apart")
    shutil.copytree(clone, apart, symlinks=True)
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
    # A new lock file has its stages in the order in which they were run.
    killed, whole = (yaml.safe_load((folder / "dvc.lock").read_text()) for folder in (apart, clone))
    assert killed == whole
    shutil.rmtree(apart)


def test_the_time_is_told_by_kinds_of_stages() -> None:
    spent_s = {"kernel": 240.0, "collect@cubic": 30.0, "collect@vegas": 33.0, "pool": 6.0, "kicked-pool": 12.0}
    assert dvc_repro.times({**spent_s, "models/dvc.yaml:labs": 600.0}, 960.0).splitlines() == [
        "make repro: 16.0 min, of which",
        "  kernel       4.0 min  1 stage",
        "  collect      1.1 min  2 stages",
        "  pools        0.3 min  2 stages",
        "  labs        10.0 min  1 stage",
        "  DVC          0.7 min  hashes, lock files",
    ]


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


def test_choosing_a_profile_changes_its_own_words(tmp_path: Path) -> None:
    params = tmp_path / "params.yaml"
    before = (ROOT / "params.yaml").read_text()
    params.write_text(before)
    repro.choose(params, {"profile": "smoke", **repro.CHOICES["smoke"]})
    after = params.read_text().splitlines()
    differing = [(a, b) for a, b in zip(before.splitlines(), after, strict=True) if a != b]
    assert [b for _, b in differing] == [
        "profile: smoke",
        "kicked: smoke",
        "kicks: 100%",
        "wider: datasets/smoke",
        "wider_kicks: 100%",
        "  config: offline-tiny",
        "  labs: labs-tiny",
    ]
    repro.choose(params, {"profile": "small", **repro.CHOICES["small"]})
    assert params.read_text() == before
    repro.choose(params, repro.WHOLE)
    whole = yaml.safe_load(params.read_text())
    assert whole == yaml.safe_load(before) | {"kicks": "100%", "walks": 4, "wider_kicks": "100%", "wider_walks": 3}
