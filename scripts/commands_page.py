# SPDX-License-Identifier: Apache-2.0
"""Writes docs/reference/commands.md from the commands themselves: the first sentences of their help."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import click

from sagecc.cli import cli

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "commands.md"
HEAD = """# Commands

Commands, and options by the first sentence of their text, written by `make pages`. [Shared](#shared-options) options
stand at the end. `sagecc COMMAND --help` has the rest: examples, values, defaults, ranges. Bad input ends with one line
and exit status 2.
"""
Record = tuple[str, str]
"""An option's names, and its text."""
SHARED = 2
"""Commands that have an option, from which on its text stands once, at the page's end."""
LONG = re.compile(r"--[\w-]+")
TYPE = re.compile(r" (?:INTEGER|FLOAT)(?: RANGE)?$| (?:TEXT|PATH|FILE|FOLDER|DIRECTORY|BOOLEAN|N|S|MS)$| \[\S+\|\S+\]$")
"""Of an option's value, where a plain name says no more than the option's; choices are among a help's values."""
EXTRA = re.compile(r" *\[(?:default:|required|[^]]*[<>])[^]]*\]| *\((?:default: [^)]*|docs/[^)]*)\)")
"""In an option's text, its default, the bounds of its number, and the page that says more."""
REST = re.compile(r"[.;](?= |$).*", re.DOTALL)
"""What follows a text's first sentence."""


def commands(group: click.Group, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """Yield every command of a group, each before those that it has itself."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        own = click.Context(command, info_name=name, parent=context)
        yield command, own
        if isinstance(command, click.Group):
            yield from commands(command, own)


def shared(every: Iterable[tuple[click.Command, click.Context]]) -> list[Record]:
    """Return the options that at least SHARED commands have with the same text."""
    counts = Counter(record for each in every for record in options(*each))
    return sorted(record for record, count in counts.items() if count >= SHARED)


def options(command: click.Command, context: click.Context) -> list[Record]:
    """Return a command's options as help shows them: names and text."""
    records = [option.get_help_record(context) for option in command.params if isinstance(option, click.Option)]
    return [(TYPE.sub("", names), _first_sentence(text)) for names, text in filter(None, records)]


def _first_sentence(text: str) -> str:
    needed = " (required)" if "required]" in text else ""
    return f"{REST.sub('', EXTRA.sub('', text)).strip()}{needed}"


def section(command: click.Command, context: click.Context, common: Collection[Record]) -> str:
    """Return a command's part of the page; of the `common` options it has the names alone."""
    names = [param.make_metavar(context) for param in command.params if isinstance(param, click.Argument)]
    arguments = " ".join(names)
    parts = [f"## {context.command_path}\n", *([f"Arguments: `{arguments}`\n"] if arguments else [])]
    purpose, *_ = inspect.cleandoc(command.help or "").split("\n\n")
    parts.append(f"{' '.join(purpose.split())}\n")
    records = options(command, context)
    parts += _table([record for record in records if record not in common])
    if also := [f"`{LONG.findall(names)[0]}`" for names, text in records if (names, text) in common]:
        parts += [f"Shared: {', '.join(also)}.\n"]
    return "\n".join(parts)


def _table(records: Iterable[Record]) -> list[str]:
    rows = [f"| `{_cell(names)}` | {_cell(text)} |" for names, text in records]
    return ["| option | effect |\n|---|---|\n" + "\n".join(rows) + "\n"] if rows else []


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def page() -> str:
    """Return the page."""
    every = list(commands(cli, click.Context(cli, info_name="sagecc")))
    common = shared(every)
    return "\n".join([HEAD, *(section(*each, common) for each in every), "## Shared options\n", *_table(common)])
