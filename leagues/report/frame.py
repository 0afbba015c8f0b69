# SPDX-License-Identifier: Apache-2.0
"""The frame of a page with scripts: its style, what it may do, and its footer."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

from sagecc.leagues import html
from sagecc.leagues.html import Html, Section
from sagecc.leagues.report.made import Made

STYLES = ("report.css", "league.css")
"""Of every such page."""

_HERE = Path(__file__).parent


def framed(
    title: str,
    head: Html,
    sections: Sequence[Section],
    scripts: Sequence[str],
    made: Made | None,
    styles: Sequence[str] = (),
) -> Html:
    """Return a page that may run its own scripts, and nothing else.

    Args:
        title: shown by the browser.
        head: above the links to the sections.
        sections: in their order.
        scripts: files of this folder.
        made: what its footer says; None for no footer.
        styles: files of this folder, after STYLES.
    """
    script = _source(*scripts)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"{html.POLICY}; img-src data:; script-src 'sha256-{digest}'"
    foot = "" if made is None else f"sagecc {made.version}: {made.command}."
    return html.document(title, _source(*STYLES, *styles), policy, head, sections, script, foot)


def _source(*names: str) -> str:
    return "".join((_HERE / name).read_text(encoding="utf-8") for name in names)
