# SPDX-License-Identifier: Apache-2.0
"""The documents are in plain English, and the linter that says so can fail."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import click
import pytest

from sagecc.cli import cli
from scripts import commands_page, prose
from tests.conftest import ROOT

LONG = " ".join(["word"] * 26)


def rules(markdown: str) -> list[str]:
    return [fault.rule for fault in prose.faults(markdown)]


@pytest.mark.parametrize("page", prose.pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_read_once(page: Path) -> None:
    found = [f"{fault.line}: {fault.rule}: {fault.text}" for fault in prose.faults(page.read_text())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("page", prose.pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_no_line_begins_with_a_filled_number(page: Path) -> None:
    """Markdown takes a comment at a line's begin for a block of HTML, which ends the paragraph."""
    assert re.findall(r"^ *<!-- = [\w-]+ -->.*\S<!-- / -->.*$", page.read_text(), re.MULTILINE) == []


def test_helps_are_read_once() -> None:
    for command, context in commands_page.commands(cli, click.Context(cli, info_name="sagecc")):
        paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
        text = "\n\n".join(each for each in paragraphs if not each.startswith("\b"))
        options = [param.help or "" for param in command.params if isinstance(param, click.Option)]
        assert rules(text) == [], context.command_path
        assert [rule for option in options for rule in rules(option) if "more than" not in rule] == []


def test_what_make_helps_with_is_read_once() -> None:
    targets = re.findall(r"^[a-z-]+:.*## (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert len(targets) > 40
    assert [(target, rule) for target in targets for rule in rules(target)] == []


def test_all_pages_together_are_short() -> None:
    by_page = prose.words_by_page()
    assert {"README.md", "docs/reference/commands.md", "datasets/README.md", "models/README.md"} <= by_page.keys()
    count, longest = sum(by_page.values()), list(by_page.items())[:5]
    assert prose.BUDGET <= 35_000
    assert count <= prose.BUDGET, f"{count:,} words, more than {prose.BUDGET:,}; the longest pages: {longest}"


def test_records_are_held_to_plain_english_alone() -> None:
    assert {prose.ROOT / name for name in prose.RECORDS} <= {*prose.pages()}
    assert prose.words_by_page().keys().isdisjoint(prose.RECORDS)


def test_words_of_tables_and_code_count_but_no_number_and_no_comment() -> None:
    assert prose.words("<!-- = name -->Two words<!-- / -->, 3 4.5\n| `one` | 6 |\n```\nsagecc run\n```\n") == 5


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (f"{LONG}.", "26 words, more than 25"),
        (f"Short. {LONG}: `code`.", "26 words, more than 25"),
        (f"- an item\n- {LONG}\n", "26 words, more than 25"),
        ("What it does is clear.", "begins with 'What it'"),
        ("Good. Who reads this?", "begins with 'Who reads'"),
        ("- One that waits.", "begins with 'One that'"),
        ("It is done anew.", "'anew' is banned"),
        ("Ranked\nbeside Cubic.", "'beside' is banned"),
    ],
)
def test_a_fault_is_named(text: str, rule: str) -> None:
    assert rules(text) == [rule]


@pytest.mark.parametrize(
    "text",
    [
        "Whatever. Whole. `What it does`.",
        f"```\n{LONG}\n```\n",
        f"| {LONG} |\n",
        f"# {LONG}\n",
        f"<!-- = rows -->{LONG}<!-- / -->",
        "One [two](docs/a%20b/what-is-beside.md) three. " * 9,
        " ".join(["`code`"] * 30) + ".",
        "Fig. 7 of Mazilu et al. (2024) has it, e.g. " + " ".join(["word"] * 14),
    ],
)
def test_code_tables_and_generated_parts_are_not_read(text: str) -> None:
    assert rules(text) == []


def test_a_fault_has_the_line_of_its_paragraph() -> None:
    (fault,) = prose.faults("# Title\n\nGood.\n\n```\ncode\n```\n\nDone\nanew.\n")
    assert (fault.line, fault.text) == (9, "Done anew.")
