# SPDX-License-Identifier: Apache-2.0
"""The code of docs/guide/your-own-scheme.md and gymnasium.md does what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from sagecc.execution.environments.networks import DEFAULT
from tests.conftest import ROOT
from tests.helpers.modules import code_behind, imported

PAGE = (ROOT / "docs/guide/gymnasium.md").read_text()
OTHERS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(OWN,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/guide/your-own-scheme.md").read_text(), re.DOTALL)
ITS_TEST = (ROOT / "docs/examples/test_gentle.py").read_text()
EXAMPLES = ((ROOT / "docs" / "examples" / f"{name}.py").read_text() for name in ("rollouts", "supersuit_batch"))
SNIPPETS = [code for code in (*OTHERS, *EXAMPLES) if "import" in code and "stable" not in code]


def run(arguments: list[str], folder: Path) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("code", SNIPPETS, ids=["gymnasium", "task", "pettingzoo", "rollouts", "supersuit"])
def test_what_the_page_shows_runs(kernel: Path, tmp_path: Path, code: str) -> None:
    """From any folder."""
    if "import supersuit" in code:
        pytest.importorskip("supersuit")
    assert DEFAULT.id in PAGE
    run(["-c", code], tmp_path)


def test_the_class_passes_its_test(tmp_path: Path) -> None:
    (tmp_path / "gentle.py").write_text(OWN)
    [name] = re.findall(r"def (test_\w+)", ITS_TEST)
    run(["-c", f"{ITS_TEST}\n{name}()"], tmp_path)


def test_the_command_line_does_not_wait_for_them() -> None:
    behind = {ROOT / "sagecc" / "online.py"}  # what learns in environments, loaded when it does
    for command in (ROOT / "sagecc" / "cli.py", *(ROOT / "sagecc" / "commands").glob("*.py")):
        code_behind(command, behind)
    assert ROOT / "execution" / "agent" / "policy_agent.py" in behind
    assert not {name.split(".")[0] for file in behind for name in imported(file)} & {"gymnasium", "pettingzoo"}


@pytest.mark.slow
def test_the_example_learns(kernel: Path, tmp_path: Path) -> None:
    printed = run([str(ROOT / "docs" / "examples" / "cross_entropy.py")], tmp_path)
    rewards = [float(text) for text in re.findall(r"mean reward ([-0-9.]+),", printed)]
    assert len(rewards) == 6
    assert rewards[-1] > 2 * rewards[0] > 0
