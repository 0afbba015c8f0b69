# SPDX-License-Identifier: Apache-2.0
"""`sagecc report`: a league and the analyses of its schemes on one page."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from sagecc.command import Command
from sagecc.common.errors import SageccError
from sagecc.common.locks import sole_writer
from sagecc.execution.measure.folders import load_measured
from sagecc.leagues.report.files import write
from sagecc.leagues.report.folder import load
from sagecc.leagues.report.made import Made
from sagecc.leagues.report.measured import write_measured
from sagecc.leagues.report.series import MAX_TRAJECTORIES
from sagecc.network import exclude
from sagecc.options import (
    LEAGUE,
    analysis_folder,
    environments_option,
    league_folder,
    league_option,
    raw_folder,
    raw_option,
)
from sagecc.paths import PATH
from sagecc.schemas.schemes import ANY_CODE

PAGE = "report.html"


@click.command(cls=Command, renamed={"--environment": "--network"})
@environments_option(text="Of a league over a set:")
@league_option("--league", "A league's folder, as 'sagecc league' wrote it.")
@raw_option("--raw", "Trajectories of the heuristics.")
@click.option(
    "--analysis",
    type=PATH,
    show_default=f"{analysis_folder(None)}, of a set {analysis_folder('NAME')}",
    help="Where 'sagecc distance', 'similarity' and 'tsne' left their tables, if they did.",
)
@click.option(
    "-o",
    "--out",
    type=PATH,
    show_default=f"{LEAGUE.parent / PAGE}, of a set {league_folder('NAME') / PAGE}, of measured paths FOLDER/{PAGE}",
)
@click.option("--pictures", type=PATH, help="A folder for the still pictures as PNG files.")
@click.option(
    "--trajectories",
    type=click.IntRange(min=0),
    default=MAX_TRAJECTORIES,
    show_default=True,
    help="How many may be looked at in the page, about 1 kB each; of a larger league it has a sample of networks.",
)
@click.option(
    "--measured",
    multiple=True,
    type=PATH,
    metavar="FOLDER",
    help="Measured paths in FOLDER, instead of a league (repeatable).",
)
@click.option("--network", "ids", multiple=True, metavar="ID", help="A network to have in any case (repeatable).")
def command(
    environments: str | None,
    league: Path | None,
    raw: Path | None,
    analysis: Path | None,
    out: Path | None,
    pictures: Path | None,
    trajectories: int,
    measured: tuple[Path, ...],
    ids: tuple[str, ...],
) -> None:
    """Write a league, or measured paths, as one HTML page.

    \b
    sagecc report
    sagecc report --league leagues/results --out mine.html
    sagecc report --environments cellular --pictures pictures
    sagecc report --measured measured

    It shows standings, where each scheme wins, trajectories, friendliness and trainings. Distance to the pool,
    similarity and t-SNE are in it where they were measured.
    """
    if measured:
        exclude("--measured", "environments", "league", "raw", "analysis", "pictures", "trajectories", "ids")
        page = out or measured[0] / PAGE
        write_measured(load_measured(measured), page, Made.by(sys.argv[1:]))
        _told(page)
        return
    own = None
    if environments is not None:
        from sagecc.collector.run.set_file import load_set  # pydantic takes time to load

        own = load_set(environments, ANY_CODE).name
    league = league or league_folder(own)
    out = out or (league / PAGE if own else LEAGUE.parent / PAGE)
    with sole_writer(*([pictures] if pictures else [])):
        contents = load(league, raw or raw_folder(own), analysis or analysis_folder(own))
        unknown = set(ids) - {environment.id for environment in contents.environments}
        if unknown:
            raise SageccError(f"--network {min(unknown)}: the league has no trajectory in a network of that id")
        write(contents, out, pictures, trajectories, ids, Made.by(sys.argv[1:]))
    _told(out)


def _told(page: Path) -> None:
    click.echo(f"report: {page} ({page.stat().st_size / 1e6:.1f} MB)")
