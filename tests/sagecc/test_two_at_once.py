# SPDX-License-Identifier: Apache-2.0
"""The second of two commands that write one folder; those that train are in tests/learner."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sagecc.cli import main
from sagecc.pool.checks import check_pool
from tests.helpers.files import hashes
from tests.helpers.locks import another_writer
from tests.helpers.policies import save_policy
from tests.helpers.raw_episodes import write_partition

pytestmark = pytest.mark.heavy

COMMANDS = {
    "pool": ["pool", "--raw", "raw", "--out", "held"],
    "grow": ["grow", "--profile", "smoke", "--out", "held"],
    "league": ["league", "--profile", "smoke", "--raw", "raw", "--out", "held"],
    "report": ["report", "--league", "league", "--pictures", "held", "--out", "page.html"],
    "distance": ["distance", "--profile", "smoke", "--out", "held"],
    "similarity": ["similarity", "--profile", "smoke", "--scheme", "cubic", "--out", "held"],
    "tsne": ["tsne", "--profile", "smoke", "--policy", "policy", "--out", "held"],
    "study": ["study", "fairness", "--quick", "--out", "held"],
    "import": ["import", "orca", "checkpoint", "--out", "held"],
    "export": ["export", "held"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_second_ends_with_one_line_and_writes_nothing(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_partition(Path("raw"), "I", "cubic", rows=(300,))
    save_policy(Path("policy"))
    held = save_policy(Path("held")) if command == "export" else Path("held")
    with another_writer(tmp_path / "held") as (writer, _):
        before = hashes(tmp_path)
        with pytest.raises(SystemExit) as ended:
            main(COMMANDS[command])
        told = capsys.readouterr().err.splitlines()
        assert (ended.value.code, told[-1]) == (
            2,
            f"sagecc: {held}: another sagecc command writes there (process {writer.pid}); wait for it or end it",
        )
        assert "Traceback" not in told
        assert hashes(tmp_path) == before


def test_two_pools_of_one_folder_are_one_pool(tmp_path: Path) -> None:
    """Whoever comes second: it is refused, or finds that all is done."""
    write_partition(tmp_path / "raw", "I", "cubic", rows=(900, 650))
    command = [sys.executable, "-m", "sagecc", "pool", "--raw", str(tmp_path / "raw"), "--out", str(tmp_path / "pool")]
    two = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    ends = [(process.communicate(timeout=100), process.returncode) for process in two]
    assert sorted(status for _, status in ends) in ([0, 0], [0, 2]), ends
    assert all("another sagecc command writes there" in told[1] for told, status in ends if status)
    assert check_pool(tmp_path / "pool", progress=False).faults == ()
