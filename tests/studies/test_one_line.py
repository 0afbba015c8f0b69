# SPDX-License-Identifier: Apache-2.0
"""A study or a benchmark that lacks what it needs says so in one line, as every command does."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BEGIN = 'if __name__ == "__main__":'
PROGRAMS = [path for folder in ("studies", "benchmarks") for path in sorted((ROOT / folder).glob("*.py"))]


@pytest.mark.parametrize("path", [path for path in PROGRAMS if BEGIN in path.read_text()], ids=lambda path: path.stem)
def test_every_program_reports_errors_in_one_line(path: Path) -> None:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    assert f'{BEGIN}\n    with errors_in_one_line("{name}"):\n' in path.read_text()


def test_what_is_missing_is_told_without_a_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "studies.evaluation"], cwd=ROOT, env={}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == (
        "studies.evaluation: SAGECC_ORCA names no checkpoint: set it to the folder of Orca's published actor\n"
    )
