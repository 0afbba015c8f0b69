# SPDX-License-Identifier: Apache-2.0
"""A league's page and pictures as files, each whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sagecc.common.files import write_atomically
from sagecc.leagues.plots import save_png
from sagecc.leagues.report.contents import Contents
from sagecc.leagues.report.folder import load
from sagecc.leagues.report.made import Made
from sagecc.leagues.report.page import render
from sagecc.leagues.report.pictures import league_pictures
from sagecc.leagues.report.series import MAX_TRAJECTORIES


def write(
    contents: Contents,
    page: Path,
    pictures: Path | None = None,
    trajectories: int = MAX_TRAJECTORIES,
    named: Sequence[str] = (),
    made: Made | None = None,
) -> None:
    """Write the page and its still pictures.

    Args:
        contents: what the page shows.
        page: path of the HTML file.
        pictures: folder of the pictures as PNG files, if any; where it is a league's, earlier examples are removed.
        trajectories: as for `render`.
        named: as for `render`.
        made: as for `render`.
    """
    figures = league_pictures(contents)
    text = render(contents, figures, trajectories, named, made)  # first: drawing a figure again moves its axes a little
    page.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(page) as temporary:
        temporary.write_text(text, encoding="utf-8")
    if pictures is None:
        return
    pictures.mkdir(parents=True, exist_ok=True)
    for picture in figures:
        save_png(picture.figure, pictures / f"{picture.name}.png")
    if not (pictures / "league.json").is_file():
        return
    for stale in {p.name for p in pictures.glob("example-*.png")} - {f"{p.name}.png" for p in figures}:
        (pictures / stale).unlink()


def write_beside(league: Path, raw: Path, made: Made | None = None) -> Path:
    """Write a league's report.html and pictures beside its tables.

    Args:
        league: folder of the league.
        raw: folder of the heuristics' trajectories.
        made: as for `render`.

    Returns:
        The page's path.
    """
    page = league / "report.html"
    write(load(league, raw), page, league, made=made)
    return page
