# SPDX-License-Identifier: Apache-2.0
"""Pieces of self-contained HTML pages: frame, tables and figures, for small screens and screen readers too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from matplotlib.figure import Figure

from sagecc.leagues.plots import to_svg

PIXELS_PER_INCH = 100
"""Of a still picture at full width: its text is then as large as the page's."""
MIN_WIDTH = 0.65
"""Share of the full width below which a picture scrolls instead of shrinking."""

Section = tuple[str, str, str]
"""An anchor, a title as text, and HTML."""

Row = tuple[str, str, str]
"""Of a table: the attributes of its <tr> (with a space before them), its title as text, and its cells, <td>s."""


def document(title: str, style: str, policy: str, head: str, sections: Sequence[Section], script: str = "") -> str:
    """Return a page.

    Args:
        title: shown by the browser, as HTML.
        style: CSS.
        policy: what the page may load (Content-Security-Policy).
        head: HTML above the links to the sections.
        sections: in their order.
        script: JavaScript, which `policy` must allow.
    """
    links = "".join(f'<li><a href="#{name}">{escape(text)}</a></li>\n' for name, text, _ in sections)
    body = "".join(
        f'<section aria-labelledby="{name}"><h2 id="{name}">{escape(text)}</h2>\n{content}</section>\n'
        for name, text, content in sections
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>\n{style}</style>\n</head>\n"
        f'<body>\n<header>\n{head}<nav aria-label="Sections"><ul>\n{links}</ul></nav>\n</header>\n'
        f"<main>\n{body}</main>\n{f'<script>{script}</script>{chr(10)}' if script else ''}</body>\n</html>\n"
    )


def table(kind: str, caption: str, lead: str, head: Iterable[str], rows: Iterable[Row]) -> str:
    """Return a table in a region that scrolls.

    Args:
        kind: the table's CSS class.
        caption: shown, and the region's label, as text.
        lead: title of the rows' titles, as text.
        head: the other columns' titles, as HTML.
        rows: the rows.
    """
    titles = "".join(f'<th scope="col">{text}</th>' for text in head)
    body = "".join(
        f'<tr{attributes}><th scope="row">{escape(title)}</th>{cells}</tr>\n' for attributes, title, cells in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table class="{kind}">'
        f'<caption>{escape(caption)}</caption>\n<thead><tr><th scope="col">{escape(lead)}</th>{titles}</tr></thead>\n'
        f"<tbody>\n{body}</tbody></table></div>\n"
    )


def figure(drawn: Figure, name: str, label: str, caption: str, region: str) -> str:
    """Return a figure in a region that scrolls.

    Args:
        drawn: the figure.
        name: prefix of its SVG's ids.
        label: what the picture shows, as text.
        caption: shown, as text.
        region: the region's label, as text.
    """
    width = drawn.get_figwidth() * PIXELS_PER_INCH
    size = f"max-width:{width:.0f}px;min-width:{MIN_WIDTH * width:.0f}px"
    svg = to_svg(drawn, name).replace("<svg", f'<svg role="img" aria-label="{escape(label)}" style="{size}"', 1)
    return (
        f"<figure><figcaption>{escape(caption)}</figcaption>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(region)}">{svg}</div></figure>\n'
    )
