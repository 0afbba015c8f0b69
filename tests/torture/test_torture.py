# SPDX-License-Identifier: Apache-2.0
"""The torture benchmark itself: repeatable, resumable, and no judge that lets everything pass."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.torture import inputs
from tests.torture.agents import not_reno
from tests.torture.inputs import KINDS, Damage, RefusedError, hurt, kind_of
from tests.torture.journal import Journal
from tests.torture.kills import is_told, lines_of
from tests.torture.mutations import judged, refused
from tests.torture.stages import lost

EXAMPLES = next(kind for kind in KINDS if kind.name == "environment")


@pytest.fixture
def material(tmp_path: Path) -> Path:
    folder = tmp_path / "material"
    (folder / "environments").mkdir(parents=True)
    for file in (ROOT / "schemas/environments").iterdir():
        (folder / "environments" / file.name).write_bytes(file.read_bytes())
    return folder


def test_the_same_seed_does_the_same_damage(material: Path, tmp_path: Path) -> None:
    def all_files(name: str) -> list[tuple[str, bytes]]:
        found = []
        for number in range(40):
            work = tmp_path / name / str(number)
            done = hurt(EXAMPLES, material, work, random.Random(f"13 {number}"))
            path = work / done.file
            found.append((done.how, path.read_bytes() if path.is_file() else b""))
        return found

    sound = {path.name: path.read_bytes() for path in (material / "environments").iterdir()}
    once = all_files("a")
    assert once == all_files("b")
    assert len({content for _, content in once}) > 30
    assert sound == {path.name: path.read_bytes() for path in (material / "environments").iterdir()}


def test_every_kind_has_its_share_of_the_first_ten_thousand() -> None:
    counts = Counter(kind_of(index).name for index in range(10_000))
    assert counts == {kind.name: kind.share for kind in KINDS}
    assert {kind_of(index).name for index in range(1000)} == counts.keys()


def test_a_journal_goes_on_after_a_line_that_was_cut_short(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "x" / "rows.jsonl")
    for number in range(3):
        journal.add({"number": number})
    path = tmp_path / "x" / "rows.jsonl"
    path.write_bytes(path.read_bytes()[:-4])
    again = Journal(path)
    again.add({"number": 9})
    assert [row["number"] for row in Journal(path).rows] == [0, 1, 9] == [row["number"] for row in again.rows]


def test_what_was_finished_must_stay() -> None:
    assert lost({"a": 0, "steps": 5}, {"a": 0, "b": 0, "steps": 10}) == []
    assert lost({"a": 0, "steps": 5}, {"b": 0, "steps": 4}) == ["a", "steps"]


def test_progress_is_no_word() -> None:
    text = (
        "\rpool:   0%|          | 0.00/37.6k [00:00<?, ? rows/s]\rpool:  32%|###  | 12.0k/37.6k [00:00<00:02]\n"
        "collect  62% 3/6 episodes, 27.4k rows, 68 virtual s/s, 00:04 spent, 00:02 left\n"
        "sagecc: a worker was killed\nTraceback (most recent call last):\n"
    )
    assert lines_of(text) == ["sagecc: a worker was killed", "Traceback (most recent call last):"]


@pytest.mark.parametrize(
    ("lines", "verdict"),
    [
        (["sagecc: x/codel.yaml: no YAML"], "one line"),
        (["sagecc: no YAML"], "no file named"),
        (["sagecc: codel.yaml: no YAML", "and more"], "several lines"),
        (["Traceback of codel.yaml"], "several lines"),
        ([], "several lines"),
    ],
)
def test_a_refusal_is_one_line_that_names_the_file(lines: list[str], verdict: str, tmp_path: Path) -> None:
    damage = Damage(EXAMPLES, Path("codel.yaml"), "bits", anew=False)
    assert refused(RefusedError(lines), damage, tmp_path)[0] == verdict


@pytest.mark.parametrize(
    ("kind", "anew", "verdict"),
    [
        ("environment", False, "different"),
        ("raw data, to the pool", False, "accepted"),
        ("raw data, to the pool", True, "different"),
        ("pool, to compile", True, "accepted"),
        ("pool, in SQL", False, "different"),
    ],
)
def test_another_result_is_right_where_no_checksum_tells(kind: str, anew: bool, verdict: str) -> None:
    of = next(each for each in inputs.KINDS if each.name == kind)
    assert judged(Damage(of, Path("x"), "bits", anew))[0] == verdict


def sawtooth(begin_s: float, end_s: float) -> list[tuple[float, int, int]]:
    """A window sampled each 20 ms that rises by a packet in 40 ms up to 50, and halves there."""
    count = int((end_s - begin_s) / 0.02)
    return [(begin_s + 0.02 * n, 25 + (n // 2) % 26, 0) for n in range(count)]


def test_reno_is_told_from_a_window_that_is_stuck_or_runs_away() -> None:
    assert not_reno(sawtooth(0, 5), 1, 5) == []
    assert "did not move" in not_reno([(t / 50, 30, 0) for t in range(250)], 1, 5)[0]
    frozen_later = sawtooth(0, 2) + [(2 + t / 50, 30, 0) for t in range(150)]
    assert any("does not rise" in why for why in not_reno(frozen_later, 1, 5))
    running_away = [(t / 50, 10 + 3 * t, 0) for t in range(250)]
    assert {why.split(" packets")[0] for why in not_reno(running_away, 1, 5)} >= {"the window rises to 757"}


def test_a_process_that_stays_behind_is_found_and_ended() -> None:
    code = (
        "import subprocess\n"
        "from tests.torture.processes import adopt_orphans, below, left_behind\n"
        "adopt_orphans()\n"
        "subprocess.run(['sh', '-c', 'sleep 60 & sleep 0.1 & exit'])\n"
        "print([str(seen) for seen in left_behind(1)])\n"
        "print(left_behind(1), below())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["['other in state S (sleep 60)']", "[] []"]


def test_failed_episodes_may_be_named_before_the_one_line() -> None:
    assert is_told(["sagecc: no space left"])
    assert is_told(["failed: a: killed", "sagecc: 1 of 6 episodes failed"])
    assert is_told(["another process compiles this pool: waiting for it", "sagecc: logs: another command writes there"])
    assert not is_told([])
    assert not is_told(["sagecc: one", "sagecc: two"])
    assert not is_told(["Traceback (most recent call last):", "sagecc: one"])
