# SPDX-License-Identifier: Apache-2.0
"""The command's entry: help without heavy imports, errors in one line, exit codes."""

from __future__ import annotations

import errno
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

import sagecc.cli as entry
from sagecc.common.errors import SageccError
from tests.helpers.commands import sagecc_here
from tests.helpers.processes import at_terminal, sighup, sigint

pytestmark = pytest.mark.heavy

Raising = Callable[[BaseException], tuple[int, str]]
COMMANDS = sorted(path.stem for path in entry.COMMANDS.glob("[a-z]*.py"))
PROBE = """# SPDX-License-Identifier: Apache-2.0
import sys, time
from pathlib import Path
import click

@click.command()
@click.option("--many", is_flag=True)
@click.option("--talk", is_flag=True)
@click.option("--beside", type=click.Path(path_type=Path))
def command(many, talk, beside):
    \"\"\"First sentence
    over two lines.

    The rest.
    \"\"\"
    if many:
        for number in range(1_000_000):
            click.echo(number)
    try:
        beside.write_text("half")
        click.echo("ready")
        sys.stdout.flush()
        end = time.monotonic() + 60
        while time.monotonic() < end:
            time.sleep(0.001 if talk else 60)
            sys.stderr.write(".")
            sys.stderr.flush()
    finally:
        time.sleep(0.1)  # for a second signal
        sys.stderr.write("cleaning up\\n")
        beside.unlink()
"""
LIBRARIES = ("duckdb", "matplotlib.figure", "numba", "numpy", "polars", "pyarrow.parquet", "pydantic")
"""Others' packages that commands import; together they take longer than all that is ours."""

FORKS = """
import importlib, json, os, sys
libraries, folder, commands = json.load(sys.stdin)
for library in libraries:
    importlib.import_module(library)
statuses = []
for command in commands:
    if not (child := os.fork()):
        for name, stream in (("out", 1), ("err", 2)):
            os.dup2(os.open(f"{folder}/{command}.{name}", os.O_WRONLY | os.O_CREAT), stream)
        from sagecc.cli import main
        main([command, "--help"])
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(json.dumps(statuses))
"""


def sagecc(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sagecc", *args]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env}, timeout=60)


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Raising:
    """Run a command that raises; return the exit status and what stderr says."""

    def run(error: BaseException) -> tuple[int, str]:
        @click.command()
        def command() -> None:
            raise error

        monkeypatch.setattr(entry.LazyGroup, "get_command", lambda self, ctx, name: command)
        with pytest.raises(SystemExit) as ended:
            entry.main(["probe"])
        assert isinstance(ended.value.code, int)
        return ended.value.code, capsys.readouterr().err

    return run


def test_what_a_file_is_called_or_says_drives_no_terminal(raising: Raising) -> None:
    said, shown = "\x1b[2J\x07 café \udcff \u202e\n b", r"\x1b[2J\x07 café \udcff \u202e b"
    assert raising(SageccError(said)) == (2, f"sagecc: {shown}\n")
    assert raising(PermissionError(errno.EACCES, "not allowed", said)) == (2, f"sagecc: {shown}: not allowed\n")


@pytest.mark.parametrize("name", [b"\xff.yaml", b"\x1b[2J.yaml", b"\xc3\xa9\xff/x.yaml"])
def test_names_that_are_no_text_are_one_line(name: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network = tmp_path / "network.yaml"
    network.write_text("links: [{rate_mbps: 12, queue_bdp: 1}]\nrtt_ms: 20\nduration_s: 3\n")
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/" + name)
    Path(odd).parent.mkdir(exist_ok=True)
    lines = [
        ("environments", "--environments", odd),
        ("run", "--environment", str(network), "--scheme", f"policy:{odd}"),
        ("collect", "--environments", odd, "--schemes", f"policy:{odd}"),
        ("train", "--config", odd),
        ("sql", "--pool", odd, "SELECT 1"),
    ]
    done = sagecc("environments", odd)
    for status, _, said in ((done.returncode, "", done.stderr), *(sagecc_here(capsys, *line) for line in lines)):
        assert status == 2
        assert said.count("\n") == 1
        assert said[:-1].isprintable()
    Path(odd).write_bytes(network.read_bytes())
    assert sagecc("environments", odd).returncode == 0


def test_a_terminal_that_has_not_every_character(tmp_path: Path) -> None:
    path = tmp_path / "ł.down"
    path.write_text("1\n2\n")
    (tmp_path / "a.yaml").write_text("links: [{trace: ł.down, queue_packets: 9}]\nrtt_ms: 20\nduration_s: 3\n")
    done = sagecc("environments", str(tmp_path / "a.yaml"), PYTHONIOENCODING="latin-1")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u0142" in done.stdout


def test_a_line_has_an_end(raising: Raising) -> None:
    status, said = raising(SageccError(f"mine.yaml: no {'x' * 10**6}: mend it"))
    assert said.startswith("sagecc: mine.yaml: no xxx")
    assert said.endswith("xxx: mend it\n")
    assert (status, len(said)) == (2, len("sagecc:  ... \n") + 2000)


@pytest.fixture
def probe(tmp_path: Path) -> list[str]:
    """Return a command line whose sagecc has the one command `probe`."""
    (tmp_path / "probe.py").write_text(PROBE)
    start = (
        "import sys, pathlib, sagecc.cli as c, sagecc.commands as p;"
        f"folder = pathlib.Path({str(tmp_path)!r}); c.COMMANDS = folder; p.__path__.insert(0, str(folder)); c.main()"
    )
    return [sys.executable, "-c", start, "probe"]


def test_help_lists_every_command_and_imports_none_of_them() -> None:
    script = (
        "import sys, sagecc.cli\n"
        "try: sagecc.cli.main(['--help'])\n"
        "finally: print('LOADED', *sorted(m for m in sys.modules if '.' not in m))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    listing, _, loaded = done.stdout.partition("LOADED")
    for name in COMMANDS:
        assert f"\n  {name} " in listing
    assert not {"numpy", "pyarrow", "polars", "tensorflow", "matplotlib", "duckdb", "collector"} & set(loaded.split())


def test_help_is_in_the_order_of_work() -> None:
    names = entry.LazyGroup().list_commands(click.Context(entry.cli))
    assert names.index("kernel") < names.index("collect") < names.index("pool") < names.index("train")
    assert names == [name for group in entry.GROUPS.values() for name in group], "a command is in no group"


def commands(group: click.Group, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        own = click.Context(command, info_name=name, parent=context)
        yield own.command_path, command
        if isinstance(command, click.Group):
            yield from commands(command, own)


def test_every_help_leads_with_three_examples() -> None:
    for path, command in commands(entry.cli, click.Context(entry.cli, info_name="sagecc")):
        summary, examples, *_ = inspect.cleandoc(command.help or "").split("\n\n")
        assert len(summary) <= 66 and summary.endswith("."), path
        assert examples.startswith("\b\n"), path
        lines = examples.splitlines()[1:]
        assert len(lines) >= 3 and all("sagecc " in line for line in lines), path
        assert any(path in line for line in lines), path


@pytest.fixture(scope="module")
def explained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, str]]:
    """Exit status, output and errors of `--help` by command, each in a process that had imported no module of ours."""
    folder = tmp_path_factory.mktemp("help")
    done = subprocess.run(
        [sys.executable, "-c", FORKS],
        input=json.dumps([LIBRARIES, str(folder), COMMANDS]),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    statuses = dict(zip(COMMANDS, json.loads(done.stdout), strict=True))
    return {
        name: (status, *((folder / f"{name}.{stream}").read_text() for stream in ("out", "err")))
        for name, status in statuses.items()
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str, explained: dict[str, tuple[int, str, str]]) -> None:
    status, help_text, errors = explained[name]
    assert (status, errors) == (0, "")
    assert f"Usage: sagecc {name}" in help_text
    assert len(entry._summary(name)) > 10


def test_no_arguments_show_the_help() -> None:
    done = sagecc()
    assert done.returncode == 0
    assert [line for line in done.stdout.splitlines() if re.fullmatch(r"[A-Z]\w+:", line)] == [
        "Options:",
        *(f"{group}:" for group in entry.GROUPS),
    ]


def test_version() -> None:
    assert sagecc("--version").stdout.startswith("sagecc ")


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (("trian",), "sagecc: No such command 'trian'; did you mean train? (see"),
        (("x",), "sagecc: No such command 'x' (see"),
        (("run", "--schem", "cubic"), "sagecc run: No such option '--schem'. (Did you mean one of: '--scheme'"),
        (("--no-such",), "sagecc: No such option '--no-such'"),
        (("environments", "--profile", "tiny"), "sagecc environments: Invalid value for '--profile'"),
    ],
)
def test_usage_errors_are_one_line_that_says_where_help_is(
    args: tuple[str, ...], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, said = sagecc_here(capsys, *args)
    assert status == 2
    assert said.startswith(line)
    assert said.count("\n") == 1
    assert "--help')" in said


def test_an_error_is_one_line(raising: Raising) -> None:
    assert raising(SageccError("pool: two\n  lines")) == (2, "sagecc: pool: two lines\n")


@pytest.mark.parametrize("option", ["-v", "--verbose"])
def test_verbose_says_where_an_error_arose(option: str) -> None:
    brief, whole = (sagecc(*given, "run", "--scheme", "cubic", "--bandwidth", "0") for given in ([], [option]))
    assert brief.returncode == whole.returncode == 2
    lines = whole.stderr.splitlines()
    assert lines[0].startswith("Traceback") and lines[-1:] == brief.stderr.splitlines()


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "build/x"), "sagecc: build/x: Permission denied\n"),
        (OSError(errno.ENOSPC, "No space left on device", "a/b"), "sagecc: a/b: No space left on device\n"),
        (OSError(errno.ENOSPC, "No space left on device"), "sagecc: No space left on device\n"),
        (OSError(errno.EXDEV, "Cross-device link", "a", None, "b"), "sagecc: a -> b: Cross-device link\n"),
        (click.FileError("x.yaml", "cannot be read"), "sagecc: Could not open file 'x.yaml': cannot be read\n"),
    ],
)
def test_what_the_machine_refuses_is_one_line(raising: Raising, error: BaseException, line: str) -> None:
    assert raising(error) == (2, line)


def test_ctrl_c_is_130(raising: Raising) -> None:
    status, text = raising(KeyboardInterrupt())
    assert (status, text.strip()) == (130, "sagecc: interrupted")


@pytest.mark.parametrize("error", [ZeroDivisionError("a bug"), ConnectionError("a bug"), ValueError("a bug")])
def test_a_bug_keeps_its_traceback(raising: Raising, error: Exception) -> None:
    with pytest.raises(type(error), match="a bug"):
        raising(error)


def test_a_reader_that_goes_away_is_no_error(probe: list[str]) -> None:
    with subprocess.Popen([*probe, "--many"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"0\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == 1


def test_a_terminated_command_cleans_up(probe: list[str], tmp_path: Path) -> None:
    half = tmp_path / "half"
    with subprocess.Popen([*probe, "--beside", str(half)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 143
    assert not half.exists()


@pytest.mark.parametrize("ignored", [False, True])
def test_an_interrupted_command_ends_unless_it_was_started_to_ignore_that(
    probe: list[str], tmp_path: Path, ignored: bool
) -> None:
    command = [*probe, "--beside", str(tmp_path / "half")]
    with (
        sigint(ignored),
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        if ignored:
            time.sleep(0.2)
            process.send_signal(signal.SIGTERM)
        assert process.wait(30) == (143 if ignored else 130)


@pytest.mark.parametrize("talking", [False, True])
def test_a_command_whose_terminal_is_closed_cleans_up(probe: list[str], tmp_path: Path, talking: bool) -> None:
    """What it writes meanwhile has no place to go to, and is no error."""
    half = tmp_path / "half"
    process, terminal = at_terminal([*probe, "--beside", str(half), *(["--talk"] if talking else [])])
    assert os.read(terminal, 5) == b"ready"
    os.close(terminal)
    assert process.wait(30) == 129
    assert not half.exists()


@pytest.mark.parametrize("numbers", [[signal.SIGHUP] * 2, [signal.SIGHUP, signal.SIGTERM]])
def test_signals_that_follow_a_closed_terminal_disturb_no_cleaning_up(
    probe: list[str], tmp_path: Path, numbers: list[signal.Signals]
) -> None:
    """A shell repeats SIGHUP, and a DVC that dies of it has SIGTERM sent to its stage."""
    half = tmp_path / "half"
    with (
        sighup(),
        subprocess.Popen([*probe, "--beside", str(half)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process,
    ):
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"ready\n"
        for number in numbers:
            process.send_signal(number)
            time.sleep(0.05)
        assert process.stderr.read() == b"cleaning up\n"
        assert process.wait(30) == 129
    assert not half.exists()


def test_nohup_is_respected(probe: list[str], tmp_path: Path) -> None:
    command = [*probe, "--beside", str(tmp_path / "half")]
    with sighup(ignored=True), subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGHUP)
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 143


def test_a_terminated_command_that_cannot_end_is_ended(tmp_path: Path) -> None:
    stuck = (
        "import signal, time, sagecc.cli as c; c.GRACE_S = 0.2\n"
        "signal.signal(signal.SIGTERM, c._terminate)\n"
        "try: signal.raise_signal(signal.SIGTERM)\n"
        "finally: time.sleep(60)"
    )
    assert subprocess.run([sys.executable, "-c", stuck], timeout=30).returncode == -signal.SIGALRM


def test_a_stage_ends_with_its_dvc(probe: list[str], tmp_path: Path) -> None:
    half = tmp_path / "half"
    stage = [*probe, "--beside", str(half)]
    parent = f"import subprocess, time; subprocess.Popen({stage!r}); time.sleep(60)"
    env = {**os.environ, "DVC_STAGE": "collect"}
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True, env=env) as dvc:
        assert dvc.stdout is not None
        assert dvc.stdout.readline() == "ready\n"
        dvc.kill()
        assert dvc.stdout.read() == ""  # the stage held the other end
    assert not half.exists()
