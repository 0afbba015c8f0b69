# SPDX-License-Identifier: Apache-2.0
"""What docs/guide/train-your-own.md says is done: its files are read, and its commands run one after another."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import yaml

from sagecc.cli import cli
from sagecc.collector.run.set_file import load_set
from sagecc.execution.environments.rollouts import Rollouts
from sagecc.execution.environments.task import LearningTask
from sagecc.learner.reader import merged
from sagecc.learner.specification import load
from sagecc.online import online_task
from sagecc.policy.artefact import PolicyArtefact
from sagecc.pool import reward
from tests.conftest import ROOT
from tests.helpers.stock import on_stock_kernel

PAGE = (ROOT / "docs/guide/train-your-own.md").read_text()
(REWARD,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
MINE, JUDGE = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [
    shlex.split(line)[1:] if line.startswith("sagecc") else shlex.split(line)[2:]
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
]
SHORT: dict[str, Any] = {
    "steps": 4,
    "batch": 8,
    "labs": {"count": 2, "replay": 2000, "warm_up": 40, "round_steps": 2, "round_decisions": 30},
}


def sagecc(folder: Path, words: list[str]) -> str:
    call = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); from sagecc.cli import main; main()"]
    done = subprocess.run([*call, *words], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_its_files_are_read(kernel: Path, tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text(MINE)
    (tmp_path / "judge.yaml").write_text(JUDGE)
    config = load(str(tmp_path / "my.yaml"))
    assert online_task(config, kernel).control.underlying_scheme == "pure"  # what a stock kernel drives
    assert load_set(str(tmp_path / "judge.yaml")).environments


def test_its_commands_have_such_options() -> None:
    assert [words[0] for words in COMMANDS] == ["train", "run", "collect", "league", "exec"]
    for name, *words in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        command.make_parser(click.Context(command)).parse_args(list(words))


def test_its_reward_is_one_that_flows_earn(kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lines as if they stood at the end of that file, and no others."""
    lines = {**vars(reward), "REWARDS": dict[str, reward.Reward]()}
    exec(textwrap.dedent(REWARD), lines)
    monkeypatch.setitem(reward.REWARDS, "mine", lines["REWARDS"]["mine"])
    plain = yaml.safe_load(MINE)
    plain["task"] |= {"reward": "mine", "networks": {"rate_mbps": 12, "rtt_ms": 20, "queue_bdp": 0.5, "duration_s": 3}}
    (tmp_path / "my.yaml").write_text(yaml.safe_dump(plain))
    config = load(str(tmp_path / "my.yaml"))
    online_task(config, kernel)
    rollouts, earned = Rollouts(LearningTask.of(config.task or {}), kernel=kernel), list[float]()
    try:
        step = rollouts.reset([0])
        while not step.over.any():
            step = rollouts.step(np.ones((~step.over).sum()))
            earned += step.rewards.tolist()
    finally:
        rollouts.close()
    assert len(earned) > 50
    assert 0.8 < max(earned) <= 1  # the link is all but full, and nothing lost
    assert min(earned) < 0  # a twentieth or more lost


@pytest.mark.slow
def test_its_commands_run_one_after_another(kernel: Path, tmp_path: Path) -> None:
    """With a shorter training and shorter networks: what it says they print."""
    (tmp_path / "my.yaml").write_text(yaml.safe_dump(merged(yaml.safe_load(MINE), SHORT)))
    judge = yaml.safe_load(JUDGE)
    judge["grids"][0] |= {"rtt_ms": [15], "queue_bdp": [1], "duration_s": 2, "windows_s": [[1, 2]]}
    (tmp_path / "judge.yaml").write_text(yaml.safe_dump(judge))
    train, run, collect, league, _ = COMMANDS
    assert re.search(r"4 steps in .*\npolicy +models/mine .*\nlogs +logs/mine ", sagecc(tmp_path, train))
    assert PolicyArtefact.load(tmp_path / "models" / "mine").control.underlying_scheme == "pure"
    assert "goodput" in sagecc(tmp_path, run)
    assert (tmp_path / "mine.png").exists()
    assert "4 episodes of 2 schemes in datasets/sets/judge" in sagecc(tmp_path, collect)
    ranking = sagecc(tmp_path, [*league, "--no-report"])
    assert re.search(r"^rank +scheme +Set judge$", ranking, re.MULTILINE)
    assert re.search(r"^\d +policy:models/mine ", ranking, re.MULTILINE)


@pytest.mark.slow
@on_stock_kernel
def test_such_a_policy_drives_a_program_on_a_stock_kernel(tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text(yaml.safe_dump(merged(yaml.safe_load(MINE), SHORT)))
    sagecc(tmp_path, COMMANDS[0])
    command = COMMANDS[-1]
    sagecc(tmp_path, [*command[: command.index("--") + 1], "true"])
