# SPDX-License-Identifier: Apache-2.0
"""The page: plain text of at most 100 columns, coloured on a terminal, written line by line."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import click

from sagecc.doctor.finding import Finding, State

WIDTH, NAME_WIDTH = 100, 16
"""Columns of the page, and of a check's name."""

MIN_WIDTH = 60
MARKS: Mapping[State, tuple[str, str]] = MappingProxyType(
    {State.WORKS: ("ok", "green"), State.FAILS: ("NO", "red"), State.UNNEEDED: ("--", "bright_black")}
)
LEGEND = "(ok works, NO does not, -- is not needed here, or could not be tried)"
RUNNING = ".."
ERASE = "\r\x1b[K"


@dataclass(frozen=True)
class Page:
    """The page's layout."""

    width: int = WIDTH
    """In columns."""
    colour: bool = False
    live: bool = False
    """Whether it is on a terminal, where a line can be overwritten."""

    @classmethod
    def here(cls) -> Page:
        """Return the page for this process's standard output."""
        live = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        width = min(WIDTH, max(MIN_WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns))
        return cls(width, live and not os.environ.get("NO_COLOR"), live)

    def title(self, text: str) -> str:
        """Return a group's heading."""
        return f"\n{click.style(text, bold=True) if self.colour else text}"

    def running(self, name: str) -> str:
        """Return a check's line while it runs; "" where the line cannot be overwritten."""
        return f"  {RUNNING}  {name}" if self.live else ""

    def finding(self, name: str, finding: Finding) -> str:
        """Return a finding's line, and what to do below it."""
        mark, colour = MARKS[finding.state]
        indent = " " * (len("  ok  ") + NAME_WIDTH + 2)
        text = self._wrapped(finding.text, indent, indent)
        if finding.what_to_do:
            text += f"\n{self._wrapped(finding.what_to_do, f'{indent}-> ', f'{indent}   ')}"
        coloured_mark = click.style(mark, fg=colour, bold=True) if self.colour else mark
        return f"{ERASE if self.live else ''}  {coloured_mark}  {name:<{NAME_WIDTH}}  {text[len(indent) :]}"

    def ending(self, text: str, works: bool) -> str:
        """Return the last lines."""
        lines = textwrap.fill(text, self.width, break_on_hyphens=False)
        return f"\n{click.style(lines, fg='green' if works else 'red', bold=True) if self.colour else lines}"

    def _wrapped(self, text: str, first: str, others: str) -> str:
        line = " ".join(text.split()) or "-"
        return textwrap.fill(line, self.width, initial_indent=first, subsequent_indent=others, break_on_hyphens=False)


def write(text: str, newline: bool = True) -> None:
    """Write to standard output; characters that its encoding does not have are escaped."""
    encoding = sys.stdout.encoding or "utf-8"
    click.echo(text.encode(encoding, "backslashreplace").decode(encoding), nl=newline, color=True)
