# SPDX-License-Identifier: Apache-2.0
"""Writes docs/reference/commands.md from the commands themselves: what `--help` says, and nothing else."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import click

from sagecc.cli import cli

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "commands.md"
HEAD = """# Commands

Written by `make pages` from the commands: what `sagecc COMMAND --help` says. Bad input ends with one line and exit
status 2.
"""
VERBATIM = "\b\n"
"""How click marks a paragraph that keeps its lines."""


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


def section(command: click.Command, context: click.Context) -> str:
    """Return a command's part of the page."""
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    parts = [f"## {context.command_path}\n", f"```text\n{usage}\n```\n"]
    for text in inspect.cleandoc(command.help or "").split("\n\n"):
        is_verbatim = text.startswith(VERBATIM)
        parts.append(f"```sh\n{text.removeprefix(VERBATIM)}\n```\n" if is_verbatim else f"{' '.join(text.split())}\n")
    records = [option.get_help_record(context) for option in command.params if isinstance(option, click.Option)]
    rows = [f"| `{_cell(names)}` | {_cell(text)} |" for names, text in filter(None, records)]
    if rows:
        parts += ["| option | what |\n|---|---|\n" + "\n".join(rows) + "\n"]
    return "\n".join(parts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def page() -> str:
    """Return the page."""
    return "\n".join([HEAD, *(section(*each) for each in commands(cli, click.Context(cli, info_name="sagecc")))])
