# SPDX-License-Identifier: Apache-2.0
"""Hooks of MkDocs: the version on each page, links that lead out of docs/ as text, cells as the documents mean them."""

from __future__ import annotations

import posixpath
import re
from configparser import ConfigParser
from pathlib import Path
from typing import Any

LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>\.\./[^)#]*)(?:#[^)]*)?\)")
CELL = re.compile(r"<td\b.*?</td>", re.DOTALL)
CODE = re.compile(r"<code>[^<]*</code>")


def inside(markdown: str, source: str) -> str:
    """Return the Markdown of the page at `source`, relative to docs/, without links that lead out of it."""

    def one(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), found["target"]))
        return found["text"] if target.startswith("../") else found[0]

    return LINK.sub(one, markdown)


def bars_in_code(html: str) -> str:
    r"""Return a page's HTML with `\|` in the code of its tables as the bar it stands for.

    Tables on GitHub need the backslash; Python-Markdown shows it.
    """

    def cell(found: re.Match[str]) -> str:
        return CODE.sub(lambda code: code[0].replace("\\|", "|"), found[0])

    return CELL.sub(cell, html)


def version(folder: Path) -> str:
    """Return the project's version, from setup.cfg in `folder`."""
    setup = ConfigParser()
    setup.read(folder / "setup.cfg")
    return setup["metadata"]["version"]


def on_config(config: Any) -> None:
    """Put the version at the head and the foot of each page."""
    config.repo_name = f"sagecc {version(Path(config.config_file_path).parent)}"
    config.copyright = f"{config.repo_name}; Apache-2.0, GPL-2.0-only in the kernel"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Take the links out of docs/ from each page that MkDocs reads."""
    return inside(markdown, page.file.src_uri)


def on_page_content(html: str, **_: Any) -> str:
    """Mend the cells of each page that MkDocs made."""
    return bars_in_code(html)
