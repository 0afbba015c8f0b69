# SPDX-License-Identifier: Apache-2.0
"""Self-contained HTML pages, for small screens and screen readers too, from the templates in leagues/templates.

The templates escape every value, of whatever file it comes from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from matplotlib.figure import Figure

from sagecc.leagues.plots import to_svg

PIXELS_PER_INCH = 100
"""Of a still picture at full width: its text is then as large as the page's."""
MIN_WIDTH = 0.65
"""Share of the full width below which a picture scrolls instead of shrinking."""

POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'"
"""What a page may do (Content-Security-Policy): nothing but look as it does."""

_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}

Html = str
"""Of a template's macros: other macros take it as it is, and escape every other text."""

Section = tuple[str, str, Html]
"""An anchor, a title and what stands below it."""


@dataclass(frozen=True)
class TableRow:
    """A row of a table."""

    title: str
    cells: Sequence[Any]
    is_policy: bool = False
    """Whether it is a learned policy's, which stands out."""


def macros(template: str) -> Any:
    """Return a template's macros, as functions that return Html."""
    return _ENVIRONMENT.get_template(template).module


def document(
    title: str, style: str, policy: str, head: Html, sections: Sequence[Section], script: str = "", foot: str = ""
) -> Html:
    """Return a page.

    Args:
        title: shown by the browser.
        style: CSS.
        policy: what the page may do (Content-Security-Policy).
        head: above the links to the sections.
        sections: in their order.
        script: JavaScript, which `policy` must allow.
        foot: below the sections; no footer where it is empty.
    """
    page: Html = _PAGE.document(title, style, policy, head, sections, script, foot)
    return page


def table(kind: str, caption: str, lead: str, head: Iterable[str], rows: Iterable[TableRow]) -> Html:
    """Return a table in a region that scrolls.

    Args:
        kind: the table's CSS class.
        caption: shown, and the region's label.
        lead: title of the rows' titles.
        head: the other columns' titles.
        rows: the rows.
    """
    html: Html = _PAGE.table(kind, caption, lead, head, rows)
    return html


def definitions(entries: Iterable[tuple[str, str]]) -> Html:
    """Return a list of terms, each with its text."""
    html: Html = _PAGE.definitions(entries)
    return html


def figure(drawn: Figure, name: str, label: str, caption: str, region: str) -> Html:
    """Return a figure in a region that scrolls.

    Args:
        drawn: the figure.
        name: prefix of its SVG's ids.
        label: what the picture shows.
        caption: shown.
        region: the region's label.
    """
    width = drawn.get_figwidth() * PIXELS_PER_INCH
    size = f"max-width:{width:.0f}px;min-width:{MIN_WIDTH * width:.0f}px"
    html: Html = _PAGE.figure(to_svg(drawn, name).removeprefix("<svg"), label, size, caption, region)
    return html


_PAGE = macros("page.html.j2")
