# SPDX-License-Identifier: Apache-2.0
"""`sagecc bound`: the same network under another bound."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sagecc.cli import main
from sagecc.policy.artefact import PolicyArtefact
from tests.helpers.policies import save_still_policy


def bound(*args: object) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bound", *map(str, args)])
    assert ended.value.code == 0


def test_a_policy_under_another_bound(tmp_path: Path) -> None:
    first = PolicyArtefact.load(save_still_policy(tmp_path / "free", 0.5))
    bound(first.path, "--out", tmp_path / "a", "--window-bound", 2, "--loss", 0.01)
    bound(tmp_path / "a", "--out", tmp_path / "b")
    bound(first.path, "--out", tmp_path / "c", "--window-bound", 2, "--loss", 0.01, "--drains")
    bounded, free = PolicyArtefact.load(tmp_path / "a"), PolicyArtefact.load(tmp_path / "b")
    assert (bounded.control.window_bound, bounded.control.window_bound_loss) == (2, 0.01)
    drains = PolicyArtefact.load(tmp_path / "c").control
    assert drains == dataclasses.replace(bounded.control, window_bound_drains=True) != bounded.control
    assert bounded.control != first.control == free.control
    careful_rules = ("--slow", "1.2mbps", "--recovery-floor", 0.5)
    bound(first.path, "--out", tmp_path / "d", "--window-bound", 2, "--loss", 0.01, *careful_rules)
    careful = dataclasses.replace(bounded.control, window_bound_slow_mbps=1.2, recovery_floor=0.5)
    assert PolicyArtefact.load(tmp_path / "d").control == careful
    bound(tmp_path / "d", "--out", tmp_path / "e")
    cards = (
        PolicyArtefact.load(folder).card for folder in (first.path, tmp_path / "a", tmp_path / "d", tmp_path / "e")
    )
    assert [card["format_version"] for card in cards] == ["2.3", "2.3", "2.4", "2.3"]
    for name, weights in first.weights.items():
        assert np.array_equal(weights, bounded.weights[name]) and np.array_equal(weights, free.weights[name])
    assert bounded.intact_files() == first.intact_files()


def test_the_other_formats_come_along(tmp_path: Path) -> None:
    shipped = PolicyArtefact.load("sagecc-1")
    bound("models/sagecc-1", "--out", tmp_path / "a", "--window-bound", 2)
    bounded = PolicyArtefact.load(tmp_path / "a")
    assert len(bounded.intact_files()) == len(shipped.intact_files()) > 2
    assert bounded.card["export_errors"] == shipped.card["export_errors"]


def test_the_same_bytes_each_time(tmp_path: Path) -> None:
    for seed in "12345":
        command = [sys.executable, "-m", "sagecc", "bound", "sagecc-1", "--out", str(tmp_path / seed)]
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": seed})
    assert len({(tmp_path / seed / "card.json").read_bytes() for seed in "12345"}) == 1


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--window-bound", "0.5"], "the bound: a window's bound is 1 to 100 times"),
        (["--loss", "0.01"], "the bound: no bound on the window tightens at a loss of 0.01"),
        (["--window-bound", "2", "--drains"], "no bound on the window drains as True where it does not tighten"),
        (["--slow", "1.2"], "the bound: no bound on the window is for flows slower than 1.2 Mbps"),
        (["--recovery-floor", "1.5"], "the bound: no window is at least 1.5 of what is delivered in an RTT"),
        (["--out", "."], ". exists already: name another folder with --out"),
    ],
)
def test_bad_input(options: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["bound", "models/sagecc-1", "--out", str(tmp_path / "out"), *options])
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert line in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()
