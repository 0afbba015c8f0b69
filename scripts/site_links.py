# SPDX-License-Identifier: Apache-2.0
"""A hook of MkDocs: a link that leads out of docs/, to code or a notebook, stays as its text."""

from __future__ import annotations

import posixpath
import re
from typing import Any

LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>\.\./[^)#]*)(?:#[^)]*)?\)")


def inside(markdown: str, source: str) -> str:
    """Return the Markdown of the page at `source`, relative to docs/, without links that lead out of it."""

    def one(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), found["target"]))
        return found["text"] if target.startswith("../") else found[0]

    return LINK.sub(one, markdown)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Do that to each page that MkDocs reads."""
    return inside(markdown, page.file.src_uri)
