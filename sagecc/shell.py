# SPDX-License-Identifier: Apache-2.0
"""`sagecc sql --shell`: SQL statements of any number of lines, each ended by a semicolon, and a few commands."""

from __future__ import annotations

import os
import readline
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from pathlib import Path

import click
import duckdb

from sagecc.answers import LAYOUTS, Asked, Print, one_line_errors, print_table, run_query
from sagecc.common.errors import SageccError
from sagecc.common.terminals import one_line

PROMPT, MORE = "sagecc> ", "   ...> "
ROWS = 40
HISTORY_LINES = 1000
HELP = """\
Any SQL that DuckDB knows, over as many lines as it takes, ended by a semicolon. For example:
  SELECT * FROM schemes;
  FROM columns WHERE "table" = 'transitions';
Ctrl-C drops what was typed, or ends a query that runs; Ctrl-D leaves.
.tables         the views, and what has been created here
.columns VIEW   the columns of one of them
.format NAME    how results are printed: table, csv or json
.rows N         how many rows a table shows
.help           this
.quit           leave"""


class Shell:
    """Reads statements from standard input and prints their results.

    On a terminal there are prompts, lines can be edited and recalled, Tab completes names, and the shell goes on after
    an error; otherwise the first error ends it, as with any other command.
    """

    def __init__(self, asked: Asked, layout: str = "table") -> None:
        """Read nothing yet.

        Args:
            asked: what the questions are put to.
            layout: of LAYOUTS, for results.
        """
        self._asked, self._layout = asked, layout
        self._rows = ROWS
        self._terminal = sys.stdin.isatty()
        self._commands: Mapping[str, Callable[[str], None]] = {
            ".tables": lambda _: self._execute(
                "SELECT table_name AS name FROM duckdb_tables() UNION ALL "
                "SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY name"
            ),
            ".columns": self._describe,
            ".format": self._set_layout,
            ".rows": self._set_rows,
            ".help": lambda _: click.echo(HELP),
        }

    def run(self) -> None:
        """Read and run statements until the input ends."""
        if not self._terminal:
            while self._read_and_run(_piped_line):
                pass
            return
        click.echo("SQL over the pool (DuckDB); .help explains, .tables lists the views, .quit leaves")
        for view, advice in self._asked.missing_views.items():
            click.echo(f"no view '{view}': {advice}")
        _complete_with(self._names())
        with _history():
            while self._converse():
                pass

    def _converse(self) -> bool:
        """Read and run one statement or command on a terminal; return whether to go on."""
        try:
            return self._read_and_run(input)
        except KeyboardInterrupt:
            click.echo("^C")
        except SageccError as error:
            click.echo(f"error: {one_line(str(error))}", err=True)
        return True

    def _read_and_run(self, read: Callable[[str], str]) -> bool:
        """Read and run one statement or command; return whether to go on.

        Args:
            read: returns the next line, given what to prompt with; raises EOFError after the last.
        """
        statement = ""
        while not _is_complete(statement):
            try:
                line = read(MORE if statement else PROMPT)
            except EOFError:
                if self._terminal:
                    click.echo()
                elif statement:
                    self._execute(statement)
                return False
            if not statement and line.startswith("."):
                return self._run_command(line)
            statement = f"{statement}\n{line}".lstrip()
        self._execute(statement)
        return True

    def _run_command(self, line: str) -> bool:
        """Run one of the shell's commands; return whether to go on. Raises SageccError for an unknown one."""
        name, _, argument = line.strip().partition(" ")
        if name in (".quit", ".exit"):
            return False
        if name not in self._commands:
            raise SageccError(f"'{name}' is no command; .help lists them")
        self._commands[name](argument.strip())
        return True

    def _execute(self, text: str) -> None:
        with one_line_errors(self._asked):
            statements = self._asked.connection.extract_statements(text)
        for statement in statements:
            names, batches = run_query(self._asked, statement.query)
            rows = next(batches, [])
            if statement.type == duckdb.StatementType.SELECT or rows:
                self._print()(names, chain([rows], batches))

    def _print(self) -> Print:
        if self._layout != "table":
            return LAYOUTS[self._layout]
        return partial(print_table, limit=self._rows, how_to_see_all=".rows sets how many")

    def _describe(self, view: str) -> None:
        if not view:
            raise SageccError("say of which view: .columns transitions")
        self._execute(
            f"SELECT column_name AS name, column_type AS type, coalesce(comment, '') AS meaning FROM (DESCRIBE {view}) "
            f"LEFT JOIN (SELECT column_name, comment FROM duckdb_columns() WHERE table_name = '{view}') "
            "USING (column_name)"
        )

    def _set_layout(self, layout: str) -> None:
        if layout not in LAYOUTS:
            raise SageccError(f"format '{layout}': use one of {', '.join(LAYOUTS)}")
        self._layout = layout

    def _set_rows(self, text: str) -> None:
        if not text.isdigit() or int(text) < 1:
            raise SageccError(f"'{text}' is no number of rows")
        self._rows = int(text)

    def _names(self) -> list[str]:
        """Return what Tab completes: views, their columns, commands."""
        rows = self._asked.connection.execute(
            "SELECT DISTINCT unnest([table_name, column_name]) FROM duckdb_columns() WHERE NOT internal"
        ).fetchall()
        return sorted({str(name) for (name,) in rows} | {"episode"} | self._commands.keys() | {".quit"})


def _piped_line(_: str) -> str:
    try:
        line = sys.stdin.buffer.readline().decode()
    except UnicodeDecodeError as error:
        raise SageccError("standard input is no UTF-8") from error
    if not line:
        raise EOFError
    return line.removesuffix("\n")


def _is_complete(text: str) -> bool:
    """Tell whether the text ends with a semicolon that is neither in a string nor in a comment."""
    tokens = [start for start, kind in duckdb.tokenize(text) if kind != duckdb.token_type.comment]
    return bool(tokens) and text.encode()[tokens[-1] :].startswith(b";")  # DuckDB counts bytes


def _state_folder() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "sagecc"


@contextmanager
def _history() -> Iterator[None]:
    """Recall the lines of earlier shells, and save this one's where there is a folder to write to."""
    path = _state_folder() / "sql_history"
    readline.set_history_length(HISTORY_LINES)
    with suppress(OSError):
        readline.read_history_file(path)
    try:
        yield
    finally:
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(path)


def _complete_with(names: list[str]) -> None:
    def complete(text: str, state: int) -> str | None:
        matches = [name for name in names if name.startswith(text)]
        return matches[state] if state < len(matches) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" \t\n,()=<>*/+;")
    readline.parse_and_bind("tab: complete")
