# SPDX-License-Identifier: Apache-2.0
"""A study or a benchmark that lacks what it needs says so in one line, as every command does."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BEGIN = 'if __name__ == "__main__":'
PROGRAMS = sorted((ROOT / "evidence").rglob("*.py"))


@pytest.mark.parametrize("path", [path for path in PROGRAMS if BEGIN in path.read_text()], ids=str)
def test_every_program_reports_errors_in_one_line(path: Path) -> None:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
    begin = path.read_text().partition(BEGIN)[2].lstrip()
    assert begin.startswith((f'with errors_in_one_line("{name}"):\n', f'command(prog_name="python -m {name}")'))


def test_what_is_missing_is_told_without_a_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "evidence.leagues.evaluation"],
        cwd=ROOT,
        env={},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == (
        "evidence.leagues.evaluation: SAGECC_ORCA names no checkpoint: set it to the folder of Orca's published actor\n"
    )
