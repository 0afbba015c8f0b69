# SPDX-License-Identifier: Apache-2.0
"""Fills the pages with what was measured: no number and no table there is typed.

In README.md, models/ and docs/ a text stands between `<!-- = name -->` and `<!-- / -->`, which no reader sees; the
templates of evidence/ and tests/torture/ hold the texts by name (scripts/templates.py). datasets/README.md,
croissant.json, and the pages of commands and configuration are made as a whole. `--check` writes nothing and says what
is out of date.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from evidence.leagues import results
from evidence.machine import RESULTS
from evidence.paper import page as paper
from sagecc.common.errors import SageccError
from sagecc.common.files import write_atomically
from scripts import columns, commands_page, configuration_page, croissant, dataset_card
from scripts.templates import ROOT, texts

TORTURE = ROOT / "tests" / "torture" / "torture.md.j2"
OPEN = "<!-- = "
MARK = re.compile(rf"{OPEN}(?P<name>[\w-]+) -->(?P<text>.*?)<!-- / -->", re.DOTALL)
LINK = re.compile(r"\]\((?P<page>[\w-]+\.md)(?P<anchor>#[\w-]*)?\)")
"""In a template, to a page of docs/ wherever that lies."""


def sources() -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yield every template whose texts pages show, with what it is filled with."""
    contexts: Mapping[Path, Callable[[], Mapping[str, Any]]] = {
        results.TEMPLATE: results.context,
        paper.TEMPLATE: paper.context,
    }
    for template in (*sorted((ROOT / "evidence").rglob("*.md.j2")), TORTURE):
        yield template, contexts[template]() if template in contexts else _measured(template)
    yield columns.TEMPLATE, columns.context()


def _measured(template: Path) -> Mapping[str, Any]:
    path = RESULTS / template.name.replace(".md.j2", ".json")
    try:
        figures: Mapping[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        raise SageccError(f"{path.relative_to(ROOT)}: was not measured yet; run the module beside") from None
    except ValueError as error:
        raise SageccError(f"{path.relative_to(ROOT)}: not JSON ({error}); measure it again") from None
    return figures


@cache
def named() -> Mapping[str, str]:
    """Return every text by its name; SageccError where two templates have the same."""
    found: dict[str, str] = {}
    where: dict[str, Path] = {}
    for template, context in sources():
        for name, text in texts(template, context).items():
            if name in found:
                raise SageccError(f"{template.name} and {where[name].name} both have a text '{name}'; rename one")
            found[name], where[name] = text, template
    return found


def filled_pages() -> list[Path]:
    """Return the pages with places to fill."""
    folders = [sorted((ROOT / folder).rglob("*.md")) for folder in ("models", "docs")]
    return [ROOT / "README.md", *(path for found in folders for path in found)]


def names(page: str) -> set[str]:
    """Return the names of the texts that a page shows."""
    return {mark["name"] for mark in MARK.finditer(page)}


def fill(path: Path, page: str) -> str:
    """Return the page with its texts as they are now.

    Raises SageccError for a name that no template has, and for a place that is not closed.
    """

    def now(found: re.Match[str]) -> str:
        name = found["name"]
        if OPEN in found["text"]:
            raise SageccError(f"{path.relative_to(ROOT)}: '{name}' is not closed with <!-- / -->")
        if name not in named():
            raise SageccError(f"{path.relative_to(ROOT)}: no template has a text '{name}'")
        text = linked(path, named()[name])
        # A table is one only between blank lines.
        return f"{OPEN}{name} -->\n\n{text}\n\n<!-- / -->" if "\n" in text else f"{OPEN}{name} -->{text}<!-- / -->"

    if page.count(OPEN) > page.count("<!-- / -->"):
        raise SageccError(f"{path.relative_to(ROOT)}: a place is not closed with <!-- / -->")
    return MARK.sub(now, page)


def linked(path: Path, text: str) -> str:
    """Return a text whose links to pages by their bare names lead there from the page at `path`."""

    def lead(found: re.Match[str]) -> str:
        pages = list((ROOT / "docs").rglob(found["page"]))
        if len(pages) != 1:
            raise SageccError(f"a link for {path.relative_to(ROOT)}: {len(pages)} pages of docs/ are {found['page']}")
        return f"]({os.path.relpath(pages[0], path.parent)}{found['anchor'] or ''})"

    return LINK.sub(lead, text)


def made() -> dict[Path, str]:
    """Return every page as what it is made from has it."""
    contents = {path: fill(path, path.read_text()) for path in filled_pages()}
    contents[dataset_card.PAGE] = linked(dataset_card.PAGE, dataset_card.page())
    contents[croissant.PAGE] = croissant.page()
    contents[commands_page.PAGE] = commands_page.page()
    contents[configuration_page.PAGE] = configuration_page.page()
    return contents


def main() -> int:
    """Write what is out of date, or say it; return the exit status."""
    parser = argparse.ArgumentParser(description="Fill the pages with what was measured.")
    parser.add_argument("--check", action="store_true", help="Write nothing; say which pages are out of date.")
    check = parser.parse_args().check
    try:
        pages = made()
    except SageccError as error:
        print(f"pages: {error}", file=sys.stderr)
        return 2
    late = {path: text for path, text in pages.items() if path.read_text() != text}
    for path, text in late.items():
        print(f"{path.relative_to(ROOT)}{': out of date, make pages' if check else ''}")
        if not check:
            with write_atomically(path) as temporary:
                temporary.write_text(text)
    return int(check and bool(late))


if __name__ == "__main__":
    sys.exit(main())
