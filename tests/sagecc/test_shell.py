# SPDX-License-Identifier: Apache-2.0
"""`sagecc sql --shell` at both ends of a pipe and of a terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sagecc.pool.derivation import build_pool
from tests.conftest import ROOT
from tests.helpers.processes import sigint
from tests.helpers.raw_episodes import write_partition

pytestmark = pytest.mark.heavy

COMMAND = (sys.executable, "-m", "sagecc", "sql", "--shell", "--pool")
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_partition(folder / "raw", "I", "cubic", rows=(60, 50))
    build_pool(folder / "raw", folder / "pool", progress=False)
    return folder / "pool"


def piped(pool: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, str(pool), *options], input=text, capture_output=True, text=True, timeout=120)


def test_statements_may_span_lines_and_hold_semicolons(pool: Path) -> None:
    done = piped(
        pool,
        "SELECT scheme, -- not the end;\n  episodes\nFROM schemes;\n"
        "SELECT 'a;\nb' AS text; SELECT 2 AS two\n;\nCREATE TEMP TABLE mine AS SELECT 7 AS seven;\n"
        "FROM mine;\nSELECT 8 AS eight",
        "--format",
        "csv",
    )
    assert done.stderr == ""
    assert done.stdout == 'scheme,episodes\ncubic,2\ntext\n"a;\nb"\ntwo\n2\nCount\n1\nseven\n7\neight\n8\n'


def test_commands_of_its_own(pool: Path) -> None:
    done = piped(
        pool, ".tables\n.rows 1\nFROM range(3);\n.format json\nSELECT 1 AS a;\n.columns schemes\n.quit\nSELECT 98765;\n"
    )
    assert done.returncode == 0
    for view in ("columns", "environments", "episodes", "raw", "schemes", "transitions"):
        assert f"\n{view}\n" in done.stdout
    assert "(the first 1 rows; .rows sets how many)" in done.stdout
    assert '[\n  {"a": 1}\n]\n' in done.stdout
    assert '{"name": "loss_rate", "type": "DOUBLE", "meaning": "lost_packets' in done.stdout
    assert "98765" not in done.stdout


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("SELEC 1;\nSELECT 5 AS five;\n", "syntax error"),
        ("SELECT nope FROM episodes;\n", "nope"),
        ("SELECT 'open\n", "unterminated"),
        (".nonsense\n", "'.nonsense' is no command; .help lists them"),
        (".format xml\n", "use one of table, csv, json"),
        (".rows many\n", "is no number of rows"),
        ("FROM league;\n", "there is no view 'league'"),
    ],
)
def test_a_script_ends_at_its_first_error(pool: Path, text: str, says: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, str(pool)], input=text, capture_output=True, text=True, timeout=120, cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 2
    assert says in done.stderr and done.stderr.count("\n") == 1
    assert "five" not in done.stdout


def test_a_question_or_a_shell(pool: Path) -> None:
    command = [sys.executable, "-m", "sagecc", "sql", "--pool", str(pool), "--shell", "SELECT 1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "give either a QUERY, or - for one on standard input, or --shell" in done.stderr


@pytest.mark.parametrize("words", [[], ["-"]])
def test_a_question_on_standard_input(pool: Path, words: list[str]) -> None:
    command = [sys.executable, "-m", "sagecc", "sql", "--pool", str(pool), "--format", "csv", *words]
    done = subprocess.run(command, input="SELECT 1 + 1\n  AS two;\n", capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "two\n2\n")


class PseudoTerminal:
    """The shell on a terminal of its own."""

    def __init__(self, pool: Path, state: Path) -> None:
        environment = os.environ | {"XDG_STATE_HOME": str(state), "TERM": "dumb"}
        with sigint():
            self.child, self._end = pty.fork()
            if self.child == 0:
                os.execvpe(sys.executable, [*COMMAND, str(pool)], environment)
        self._seen = ""

    def type(self, text: str) -> None:
        os.write(self._end, text.encode())

    def interrupt(self) -> None:
        """Press Ctrl-C until something comes: Python's readline is deaf between its prompt and its wait for a key."""
        deadline = time.monotonic() + PATIENCE_S
        self.type("\x03")
        while not select.select([self._end], [], [], 2)[0] and time.monotonic() < deadline:
            self.type("\x03")

    def until(self, text: str) -> str:
        """Wait for a text; return what came up to its end."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self._seen:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._end], [], [], left)[0]:
                raise AssertionError(f"no {text!r} in {self._seen!r}")
            self._seen += os.read(self._end, 4096).decode()
        before, _, self._seen = self._seen.partition(text)
        return before

    def end(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1])


@pytest.fixture
def terminal(pool: Path, tmp_path: Path) -> Iterator[PseudoTerminal]:
    shell = PseudoTerminal(pool, tmp_path)
    shell.until("sagecc> ")
    yield shell
    try:
        os.kill(shell.child, signal.SIGKILL)
        os.waitpid(shell.child, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def test_a_conversation(terminal: PseudoTerminal, pool: Path, tmp_path: Path) -> None:
    terminal.type("SELECT 40 +\n")
    terminal.until("...> ")
    terminal.type("2 AS answer;\n")
    assert "42" in terminal.until("sagecc> ")
    terminal.type("SELECT nonsense;\n")
    assert "error: Binder Error" in terminal.until("sagecc> ")
    terminal.type("SELECT 1 +\n")
    terminal.until("...> ")
    terminal.interrupt()  # drops what was typed
    terminal.until("sagecc> ")
    terminal.type("SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b;\n")
    time.sleep(1)
    terminal.interrupt()  # ends the query
    terminal.until("sagecc> ")
    terminal.type("SELECT 6 * 7 AS again;\n")
    assert "42" in terminal.until("sagecc> ")
    terminal.type("FROM transi\t LIMIT 0;\n")
    assert "pre_act" in terminal.until("(0 rows)")
    terminal.until("sagecc> ")
    terminal.type("\x04")
    assert terminal.end() == 0
    second = PseudoTerminal(pool, tmp_path)
    second.until("sagecc> ")
    second.type("\x10\x10\n")  # the line before the last, of the shell before
    second.until("42")
    second.type(".quit\n")
    assert second.end() == 0
