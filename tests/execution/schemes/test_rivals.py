# SPDX-License-Identifier: Apache-2.0
"""Rivals are found by their folders; tasks, cards and `sagecc train` know them by what lies there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sagecc.execution.agent.sources import SOURCES
from sagecc.execution.environments.task import LearningTask
from sagecc.execution.schemes.registry import CLASSES
from sagecc.execution.schemes.rival import Rival
from sagecc.execution.schemes.rivals import RIVALS, rewards
from sagecc.learner.specification import load
from sagecc.schemas.schemes import USER_SPACE
from tests.conftest import ROOT

FOLDER = ROOT / "execution" / "schemes"


def test_each_folder_is_a_rival_of_its_name() -> None:
    assert [rival.name for rival in RIVALS] == sorted(path.parent.name for path in FOLDER.glob("*/__init__.py"))
    assert {rival.name for rival in RIVALS} >= {"astraea", "aurora", "indigo", "orca", "sage", "sprout", "vivace"}


@pytest.mark.parametrize("rival", [rival for rival in RIVALS if rival.observation], ids=lambda rival: rival.name)
def test_a_task_names_what_a_rival_observes_does_and_earns(rival: Rival) -> None:
    assert rival.observation and rival.control
    earning = rival.rewards[0].name if rival.rewards else "power"
    task = LearningTask.of({"observation": rival.name, "control": rival.name, "reward": earning})
    assert (task.source, task.observations, task.control) == (
        rival.observation.source,
        rival.observation.names,
        rival.control,
    )
    assert SOURCES[task.source[0]] == rival.observation.source[1]
    for reward in rival.rewards:
        assert rewards()[reward.name] is reward
        assert all((reward.formula, reward.source, reward.function.__doc__))


def test_each_scheme_in_user_space_is_a_rivals() -> None:
    assert CLASSES.keys() == USER_SPACE.keys()


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*/*.yaml")), ids=lambda path: path.stem)
def test_a_configuration_in_a_rivals_folder_goes_by_its_name(path: Path) -> None:
    specification = load(path.stem)
    assert specification.task is not None
    assert specification.task["observation"] == path.parent.name


def test_a_folder_is_all_that_a_new_rival_takes(tmp_path: Path) -> None:
    """In a copy of the package: a folder beside the others, and its reward and control have names."""
    package = tmp_path / "sagecc"
    package.mkdir()
    for name in ("common", "schemas", "policy", "pool", "collector", "execution"):
        shutil.copytree(ROOT / name, package / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "sagecc" / "__init__.py", package)
    mine = package / "execution" / "schemes" / "mine"
    mine.mkdir()
    (mine / "__init__.py").write_text(
        "from sagecc.execution.schemes.rival import Rival\n"
        "from sagecc.policy.artefact import Control\n"
        "from sagecc.pool.reward import Reward, power_of\n"
        'RIVAL = Rival("mine", control=Control(period_ms=40), rewards=(Reward("wish", "R1", "mine", power_of),))\n'
    )
    code = (
        "from sagecc.execution.environments.task import LearningTask\n"
        "task = LearningTask.of({'control': 'mine', 'reward': 'wish'})\n"
        "print(task.control.period_ms, task.reward)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-P", "-c", code]
    found = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (found.stdout, found.returncode) == ("40 wish\n", 0), found.stderr
