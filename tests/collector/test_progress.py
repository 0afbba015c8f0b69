# SPDX-License-Identifier: Apache-2.0
"""How far a collection is, in a log and on a terminal."""

from __future__ import annotations

import io
import itertools
import re
import time

import numpy as np
import pytest

from sagecc.collector.run.grid import profile_environments
from sagecc.collector.run.progress import Progress
from sagecc.collector.run.task import Task
from sagecc.schemas.schemes import SCHEMES

TASKS = [Task(environment, scheme, 0, "") for scheme in SCHEMES for environment in profile_environments("full")]
LINE = r"(\d+)% .*14,287/14,287 episodes, 68\.\dM rows, \d+ virtual s/s"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at it takes a second, and every episode two or three looks."""
    seconds = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: next(seconds))


def count_all() -> None:
    with Progress(TASKS) as shown:
        for task in TASKS:
            shown.add(task, rows=round(task.environment.duration_s * 100) if task.environment.set == "I" else 11_997)


def test_a_log_gets_a_line_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    monkeypatch.setattr("sys.stderr", log)
    count_all()
    lines = log.getvalue().splitlines()
    assert len(TASKS) * 1.5 / 60 <= len(lines) <= len(TASKS) * 3 / 60 + 1
    assert "\r" not in log.getvalue()
    assert re.fullmatch(f"collect {LINE}, [0-9:]+ spent, 00:00 left", lines[-1])


def test_no_time_is_left_in_whatever_order_episodes_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs, which are floats, add up to another sum in another order."""
    log = io.StringIO()
    monkeypatch.setattr("sys.stderr", log)
    for seed in range(10):
        with Progress(TASKS) as shown:
            for i in np.random.default_rng(seed).permutation(len(TASKS)):
                shown.add(TASKS[i], rows=1)
        assert log.getvalue().endswith(" 00:00 left\n")


@pytest.mark.parametrize("columns", [80, 120])
def test_a_terminal_gets_one_line_that_fits(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr("tqdm.std._screen_shape_wrapper", lambda: lambda file: (columns - 1, 24))
    count_all()
    lines = [line for line in re.split(r"[\r\n]+", terminal.getvalue()) if line.strip()]
    assert max(len(line) for line in lines) < columns
    assert re.match(f"collect {LINE}, 00:00 left", lines[-1])


def test_nothing_to_do_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress([]):
        pass
    with Progress(TASKS, show=False) as shown:
        shown.add(TASKS[0], 1)
    assert capsys.readouterr().err == ""
