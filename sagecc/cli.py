# SPDX-License-Identifier: Apache-2.0
"""The group of commands: finds them in sagecc/commands/, imports the one that runs, turns errors into one line."""

from __future__ import annotations

import ast
import errno
import importlib
import io
import os
import resource
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import takewhile
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import NoReturn

import click

from sagecc.common.errors import SEE_DOCTOR, SageccError
from sagecc.common.exhaustion import exhausted
from sagecc.common.processes import end_with_parent
from sagecc.common.suggestions import did_you_mean
from sagecc.common.terminals import one_line, outlasting

COMMANDS = Path(__file__).parent / "commands"
GROUPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Run": ("doctor", "kernel", "schemes", "environments", "run"),
        "Data": ("collect", "pool", "sql", "compile", "import"),
        "Train": ("train", "judge", "sweep", "grow"),
        "Compare": ("compare", "bench", "league", "report", "study", "vet", "measure"),
        "Deploy": ("exec", "attach", "detach", "bound", "export"),
        "Analyse": ("distance", "similarity", "tsne"),
    }
)
"""Commands by what they are for, in the order of work; those not named here follow by name."""
OTHER = "Other"

VERBOSE = ("-v", "--verbose")
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
EXIT_ERROR = 2
EXIT_INTERRUPTED = 128 + signal.SIGINT
GRACE_S = 10.0
"""How long a terminated command has to clean up."""

MAX_LINE = 2000
"""Characters of an error's line: what a file holds, which it may quote, has no end."""

MACHINE_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.EAGAIN})
"""Errors of the machine: reported in one line even where Python does not know the file."""


class LazyGroup(click.Group):
    """A group whose commands are the files of sagecc/commands/; each exposes one click command named `command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands' names in the order of work."""
        return [name for names in _grouped().values() for name in names]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first word names; end with a usage error that says which may be meant."""
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"No such command '{args[0]}'{did_you_mean(args[0], self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command of a name; None if there is none."""
        if cmd_name not in self.list_commands(ctx):
            return None
        command = importlib.import_module(f"sagecc.commands.{cmd_name.replace('-', '_')}").command
        if not isinstance(command, click.Command):
            raise TypeError(f"sagecc/commands/{cmd_name}.py: `command` is not a click command")
        command.name = cmd_name
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by group from their docstrings, without importing them."""
        width = max(map(len, self.list_commands(ctx)))
        for group, names in _grouped().items():
            with formatter.section(group):
                formatter.write_dl([(name.ljust(width), _summary(name)) for name in names])


def _grouped() -> dict[str, list[str]]:
    """Return the names of the commands that are there, by group."""
    there = {path.stem.replace("_", "-") for path in COMMANDS.glob("[a-z]*.py")}
    named = {name for names in GROUPS.values() for name in names}
    groups = {group: [name for name in names if name in there] for group, names in GROUPS.items()}
    return {group: names for group, names in {**groups, OTHER: sorted(there - named)}.items() if names}


def _summary(name: str) -> str:
    """Return the first sentence of a command's docstring, read from its source."""
    source = (COMMANDS / f"{name.replace('-', '_')}.py").read_text(encoding="utf-8")
    functions = (node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef))
    text = next((ast.get_docstring(node) or "" for node in functions if node.name == "command"), "")
    return text.split("\n\n")[0].replace("\n", " ").rstrip(".")


@click.group(cls=LazyGroup, context_settings=CONTEXT, invoke_without_command=True)
@click.version_option(package_name="sagecc", message="%(prog)s %(version)s")
@click.option(*VERBOSE, is_flag=True, help="Before an error's line, print where in the program it arose.")
@click.pass_context
def cli(ctx: click.Context, verbose: bool) -> None:
    """Open policy pool, offline-RL learner and league for Internet congestion control.

    Collect what kernel schemes do in emulated networks, train a policy from that pool alone, and rank it
    against the heuristics. `sagecc COMMAND --help` explains one command.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit: 0 done, 2 bad input or a failed run (one line), 128 + N ended by signal N.

    Any other exception is a bug and keeps its traceback.

    Args:
        args: the arguments, by default the process's.
    """
    signal.signal(signal.SIGTERM, _terminate)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # `nohup` has it ignored
        signal.signal(signal.SIGHUP, _terminate)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name may hold what the terminal's encoding has not
            stream.reconfigure(errors="backslashreplace")
    sys.stdout, sys.stderr = outlasting(sys.stdout), outlasting(sys.stderr)
    if "DVC_STAGE" in os.environ:
        end_with_parent()  # a second run could otherwise start beside what a killed `dvc repro` left running
    leading = takewhile(lambda arg: arg.startswith("-"), sys.argv[1:] if args is None else args)
    verbose = not set(VERBOSE).isdisjoint(leading)
    with errors_in_one_line(), _traced() if verbose else nullcontext():
        status = cli.main(args, prog_name="sagecc", standalone_mode=False)
        sys.stdout.flush()
    sys.exit(status if isinstance(status, int) else 0)


def _terminate(signum: int, frame: FrameType | None) -> NoReturn:
    """Let a terminated command clean up for at most GRACE_S: an exit in the middle of anything can deadlock.

    SIGTERM again ends it at once. A closed terminal may bring several SIGHUP, and SIGTERM by who dies of it: they do
    not count.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL if signum == signal.SIGTERM else signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, GRACE_S)  # the alarm's default action ends the process
    sys.exit(128 + signum)


@contextmanager
def errors_in_one_line(program: str = "sagecc") -> Iterator[None]:
    """Turn what a user can mend into one line on stderr, `program` before it, and exit 2 (130 for Ctrl-C)."""
    try:
        yield
    except SageccError as error:
        _fail(str(error), prefix=program)
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else program
        _fail(f"{error.format_message().rstrip('.')} (see '{path} --help')", prefix=path)
    except click.ClickException as error:
        _fail(error.format_message(), prefix=program)
    except (click.Abort, KeyboardInterrupt):
        _fail("interrupted", EXIT_INTERRUPTED, prefix=program)
    except BrokenPipeError:
        # The reader is gone: there is nothing to say, and Python must not try to flush the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        # Of memory that ends, the file that Python came to by then tells nothing.
        if error.errno == errno.ENOMEM or (error.filename is None and error.errno not in MACHINE_ERRORS):
            _fail_exhausted(error, program)
            raise
        _fail(f"{_paths_prefix(error)}{error.strerror or error}", prefix=program)
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":  # of a library in Rust
            _fail_exhausted(error, program)
        raise


@contextmanager
def _traced() -> Iterator[None]:
    """Print the traceback of what `errors_in_one_line` would tell in one line alone."""
    try:
        yield
    except (SageccError, OSError) as error:
        if not isinstance(error, BrokenPipeError):
            traceback.print_exc()
        raise


def _fail_exhausted(error: BaseException, program: str) -> None:
    """End in one line where an exception is about memory or descriptors, whatever library raised it."""
    if what := exhausted(error):
        limits = {
            "out of memory": (resource.RLIMIT_AS, "ulimit -v"),
            "too many open files": (resource.RLIMIT_NOFILE, "ulimit -n"),
        }
        number, command = limits[what]
        limit, _ = resource.getrlimit(number)
        why = "" if limit == resource.RLIM_INFINITY else f" ('{command}' allows {limit:,})"
        _fail(f"{what}{why}; {SEE_DOCTOR}", prefix=program)


def _paths_prefix(error: OSError) -> str:
    names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
    return f"{' -> '.join(names)}: " if names else ""


def _fail(text: str, status: int = EXIT_ERROR, *, prefix: str) -> NoReturn:
    line = one_line(text)
    if len(line) > MAX_LINE:
        line = f"{line[: MAX_LINE * 3 // 4]} ... {line[-MAX_LINE // 4 :]}"
    click.echo(f"{prefix}: {line}", err=True)
    sys.exit(status)
