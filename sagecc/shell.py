# SPDX-License-Identifier: Apache-2.0
"""`sagecc sql --shell`: statements of any number of lines, each ended by a semicolon; a few commands of its own."""

from __future__ import annotations

import os
import readline
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import click
import duckdb

from sagecc.answers import LAYOUTS, Print, ask, one_line_errors, print_table
from sagecc.common.errors import SageccError

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
.format NAME    how answers are printed: table, csv or json
.rows N         how many rows a table shows
.help           this
.quit           leave"""


class Shell:
    """Asks for statements on standard input and prints their answers.

    absent: views that the connection does not have, each with what to do about it. On a terminal there are prompts,
    lines can be edited and recalled, Tab completes names, and an error is told and forgotten; otherwise the first error
    ends it, as with any other command.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, absent: Mapping[str, str], layout: str = "table") -> None:
        self._connection, self._absent, self._layout = connection, absent, layout
        self._rows = ROWS
        self._terminal = sys.stdin.isatty()
        self._commands: Mapping[str, Callable[[str], None]] = {
            ".tables": lambda _: self._answer(
                "SELECT table_name AS name FROM duckdb_tables() UNION ALL "
                "SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY name"
            ),
            ".columns": self._describe,
            ".format": self._set_layout,
            ".rows": self._set_rows,
            ".help": lambda _: click.echo(HELP),
        }

    def run(self) -> None:
        """Read and answer until the input ends."""
        if not self._terminal:
            self._answer_all(sys.stdin)
            return
        click.echo("SQL over the pool (DuckDB); .help explains, .tables lists the views, .quit leaves")
        for view, advice in self._absent.items():
            click.echo(f"no view '{view}': {advice}")
        with _history(), _completion(self._names()):
            while self._turn():
                pass

    def _answer_all(self, lines: Iterator[str]) -> None:
        statement = ""
        for line in lines:
            if not statement.strip() and line.startswith("."):
                if not self._obey(line):
                    return
                continue
            statement += line
            if _is_complete(statement):
                self._answer(statement)
                statement = ""
        if statement.strip():
            self._answer(statement)

    def _turn(self) -> bool:
        """Take one statement or command; return whether to go on."""
        statement = ""
        try:
            while True:
                line = input(MORE if statement else PROMPT)
                if not statement and line.startswith("."):
                    return self._obey(line)
                statement = f"{statement}\n{line}" if statement else line
                if not statement.strip():
                    statement = ""
                elif _is_complete(statement):
                    self._answer(statement)
                    return True
        except EOFError:
            click.echo()
            return False
        except KeyboardInterrupt:
            click.echo("^C" if not statement else "")
        except SageccError as error:
            click.echo(f"error: {error}", err=True)
        return True

    def _obey(self, line: str) -> bool:
        """Run a command of the shell's own; return whether to go on. Raises SageccError for an unknown one."""
        name, _, argument = line.strip().partition(" ")
        if name in (".quit", ".exit"):
            return False
        if name not in self._commands:
            raise SageccError(f"'{name}' is no command; .help lists them")
        self._commands[name](argument.strip())
        return True

    def _answer(self, text: str) -> None:
        with one_line_errors(self._absent):
            statements = self._connection.extract_statements(text)
        for statement in statements:
            names, batches = ask(self._connection, statement.query, self._absent)
            rows = next(batches, [])
            if statement.type == duckdb.StatementType.SELECT or rows:
                self._print()(names, _after(rows, batches))

    def _print(self) -> Print:
        if self._layout != "table":
            return LAYOUTS[self._layout]
        return partial(print_table, limit=self._rows, how_to_see_all=".rows sets how many")

    def _describe(self, view: str) -> None:
        if not view:
            raise SageccError("say of which view: .columns transitions")
        self._answer(f"SELECT column_name AS name, column_type AS type FROM (DESCRIBE {view})")

    def _set_layout(self, layout: str) -> None:
        if layout not in LAYOUTS:
            raise SageccError(f"format '{layout}': use one of {', '.join(LAYOUTS)}")
        self._layout = layout

    def _set_rows(self, text: str) -> None:
        if not text.isdigit() or int(text) < 1:
            raise SageccError(f"'{text}' is no number of rows")
        self._rows = int(text)

    def _names(self) -> list[str]:
        """What Tab completes: views, their columns, commands."""
        rows = self._connection.execute(
            "SELECT DISTINCT unnest([table_name, column_name]) FROM duckdb_columns() WHERE NOT internal"
        ).fetchall()
        return sorted({str(name) for (name,) in rows} | {"episode"} | self._commands.keys() | {".quit"})


def _after(
    first: list[tuple[object, ...]], rest: Iterator[list[tuple[object, ...]]]
) -> Iterator[list[tuple[object, ...]]]:
    if first:
        yield first
    yield from rest


def _is_complete(text: str) -> bool:
    """Whether the text ends with a semicolon that is neither in a string nor in a comment."""
    tokens = [start for start, kind in duckdb.tokenize(text) if kind != duckdb.token_type.comment]
    return bool(tokens) and text[tokens[-1]] == ";"


def _state_folder() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "sagecc"


@contextmanager
def _history() -> Iterator[None]:
    """Recall the lines of earlier shells, and keep this one's; without a place to write there is none."""
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


@contextmanager
def _completion(names: list[str]) -> Iterator[None]:
    def complete(text: str, state: int) -> str | None:
        found = [name for name in names if name.startswith(text)]
        return found[state] if state < len(found) else None

    before = readline.get_completer()
    readline.set_completer(complete)
    readline.set_completer_delims(" \t\n,()=<>*/+;")
    readline.parse_and_bind("tab: complete")
    try:
        yield
    finally:
        readline.set_completer(before)
