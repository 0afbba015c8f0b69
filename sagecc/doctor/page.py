# SPDX-License-Identifier: Apache-2.0
"""The page: plain text of at most 100 columns, coloured where a terminal wants it, grown line by line."""

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
"""Columns: of the page, and of a check's name."""

LEAST_WIDTH = 60
MARKS: Mapping[State, tuple[str, str]] = MappingProxyType(
    {State.WORKS: ("ok", "green"), State.FAILS: ("NO", "red"), State.UNNEEDED: ("--", "bright_black")}
)
LEGEND = "(ok works, NO does not, -- is not needed here, or could not be tried)"
RUNNING = ".."
ERASE = "\r\x1b[K"


@dataclass(frozen=True)
class Page:
    """How to lay it out. width: in columns. live: on a terminal, where a line can be written over."""

    width: int = WIDTH
    colour: bool = False
    live: bool = False

    @classmethod
    def here(cls) -> Page:
        """Return the page for this process's standard output."""
        live = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        width = min(WIDTH, max(LEAST_WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns))
        return cls(width, live and not os.environ.get("NO_COLOR"), live)

    def title(self, text: str) -> str:
        """Return a group's heading."""
        return f"\n{click.style(text, bold=True) if self.colour else text}"

    def running(self, name: str) -> str:
        """Return what stands there while a check runs; empty where it cannot be taken back."""
        return f"  {RUNNING}  {name}" if self.live else ""

    def finding(self, name: str, found: Finding) -> str:
        """Return a finding's line; what to do is below it."""
        mark, colour = MARKS[found.state]
        indent = " " * (len("  ok  ") + NAME_WIDTH + 2)
        text = self._wrapped(found.text, indent, indent)
        if found.what_to_do:
            text += f"\n{self._wrapped(found.what_to_do, f'{indent}-> ', f'{indent}   ')}"
        styled = click.style(mark, fg=colour, bold=True) if self.colour else mark
        return f"{ERASE if self.live else ''}  {styled}  {name:<{NAME_WIDTH}}  {text[len(indent) :]}"

    def ending(self, text: str, works: bool) -> str:
        """Return the last lines."""
        wrapped = textwrap.fill(text, self.width, break_on_hyphens=False)
        return f"\n{click.style(wrapped, fg='green' if works else 'red', bold=True) if self.colour else wrapped}"

    def _wrapped(self, text: str, first: str, others: str) -> str:
        plain = " ".join(text.split()) or "-"
        return textwrap.fill(plain, self.width, initial_indent=first, subsequent_indent=others, break_on_hyphens=False)


def write(text: str, newline: bool = True) -> None:
    """Write to standard output, whatever its encoding cannot say replaced."""
    encoding = sys.stdout.encoding or "utf-8"
    click.echo(text.encode(encoding, "backslashreplace").decode(encoding), nl=newline, color=True)
