# SPDX-License-Identifier: Apache-2.0
"""`sagecc tsne`: a map of policies' last hidden layer."""

from __future__ import annotations

import click
import polars as pl
from tqdm import tqdm

from sagecc.analysis import AnalysisSettings, named_schemes, options, save
from sagecc.command import Command
from sagecc.common import shipped
from sagecc.common.shipped import A_POLICY
from sagecc.leagues.analysis_plots import map_figure
from sagecc.leagues.scores import read_rows
from sagecc.leagues.trajectories import describe
from sagecc.schemas.schemes import POLICY_PREFIX

POINTS = 300


@click.command(cls=Command, renamed={"--count": "--draw", "--environment": "--network"})
@click.option(
    "--policy",
    "policies",
    multiple=True,
    required=True,
    metavar="PATH",
    help=f"Repeatable: {A_POLICY}.",
)
@click.option(
    "--draw", type=click.IntRange(min=1), default=7, show_default=True, help="Environments to draw if none is named."
)
@click.option("--set", "set_name", help="The set of the profile that they are drawn from.  [default: II]")
@click.option(
    "--points", type=click.IntRange(min=2), default=POINTS, show_default=True, help="Decisions of each trajectory."
)
@options("tsne", pool=False)
def command(
    settings: AnalysisSettings, policies: tuple[str, ...], draw: int, set_name: str | None, points: int
) -> None:
    """Draw what a policy's last hidden layer tells apart (t-SNE).

    \b
    sagecc tsne --policy models/mine
    sagecc tsne --policy sagecc-1 --policy sagecc-10
    sagecc tsne --policy models/mine --out maps

    As section 7.4 and Fig. 16 of the paper: seven environments of Set II, one point per decision, one panel per policy.
    """
    from sagecc.leagues.hidden import HiddenLayer, draw_map, last_hidden  # scikit-learn: an extra

    schemes = named_schemes("", policies)
    environments = settings.choose(draw, set_name or (None if settings.networks.own_name else "II"))
    episodes = settings.episodes(environments, schemes)
    tables, maps = [], []
    for scheme in schemes:
        layers = []
        for environment in tqdm(environments, desc=scheme, unit="trajectory", disable=None, leave=False):
            if (environment.id, scheme) in episodes:
                t_s, values, _ = last_hidden(
                    shipped.policy(scheme.removeprefix(POLICY_PREFIX)), read_rows(episodes[environment.id, scheme])
                )
                layers.append(HiddenLayer(environment.set, environment.id, t_s, values))
        table, summary = draw_map(scheme, layers, points, settings.seed)
        tables.append(table)
        maps.append(summary)
        apart, by_chance = summary["apart"], summary["by_chance"]
        click.echo(f"{scheme}: {apart:.0%} of neighbours are of the same network, {by_chance:.0%} by chance")
    titles = {e.id: describe(e) for e in environments}
    table = pl.concat(tables)
    figure = map_figure(table, titles, {str(summary["policy"]): float(str(summary["apart"])) for summary in maps})
    save(settings.out, "tsne", table, {"seed": settings.seed, "environments": titles, "maps": maps}, figure)
