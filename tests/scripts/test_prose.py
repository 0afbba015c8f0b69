# SPDX-License-Identifier: Apache-2.0
"""The documents are in plain English, and the linter that says so can fail."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts import prose
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


def test_pages_not_yet_rewritten_exist() -> None:
    assert [name for name in prose.NOT_YET if not (ROOT / name).is_file()] == []


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
