# SPDX-License-Identifier: Apache-2.0
"""`sagecc report`: a league and the analyses of its schemes on one page."""

from __future__ import annotations

from pathlib import Path

import click

from sagecc.common.errors import SageccError
from sagecc.leagues.report.files import write
from sagecc.leagues.report.folder import load
from sagecc.leagues.report.series import MAX_TRAJECTORIES
from sagecc.options import LEAGUE, RAW


@click.command()
@click.option(
    "--league", type=click.Path(path_type=Path), default=LEAGUE, show_default=True, help="What 'sagecc league' wrote."
)
@click.option(
    "--raw", type=click.Path(path_type=Path), default=RAW, show_default=True, help="Trajectories of the heuristics."
)
@click.option(
    "--analysis",
    type=click.Path(path_type=Path),
    default=Path("leagues/analysis"),
    show_default=True,
    help="Where 'sagecc distance', 'similarity' and 'tsne' left their tables, if they did.",
)
@click.option("--out", type=click.Path(path_type=Path), default=Path("leagues/report.html"), show_default=True)
@click.option("--pictures", type=click.Path(path_type=Path), help="A folder for the still pictures as PNG files.")
@click.option(
    "--trajectories",
    type=click.IntRange(min=0),
    default=MAX_TRAJECTORIES,
    show_default=True,
    help="How many may be looked at in the page, about 1 kB each; of a larger league it has a sample of networks.",
)
@click.option("--environment", "ids", multiple=True, metavar="ID", help="A network to have in any case (repeatable).")
def command(
    league: Path,
    raw: Path,
    analysis: Path,
    out: Path,
    pictures: Path | None,
    trajectories: int,
    ids: tuple[str, ...],
) -> None:
    """Write a league as one HTML page that opens without a network.

    It shows standings, where each scheme wins, any trajectory over time, friendliness, how policies were trained,
    and, where they were measured, distance to the pool, similarity and t-SNE.
    """
    contents = load(league, raw, analysis)
    unknown = set(ids) - {environment.id for environment in contents.environments}
    if unknown:
        raise SageccError(f"--environment {min(unknown)}: the league has no trajectory in a network of that id")
    write(contents, out, pictures, trajectories, ids)
    click.echo(f"report: {out} ({out.stat().st_size / 1e6:.1f} MB)")
