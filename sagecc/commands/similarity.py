# SPDX-License-Identifier: Apache-2.0
"""`sagecc similarity`: which schemes one scheme resembles, and where."""

from __future__ import annotations

import click
import polars as pl
from tqdm import tqdm

from sagecc.analysis import AnalysisSettings, PoolSettings, options, save
from sagecc.command import Command
from sagecc.common.errors import SageccError
from sagecc.leagues.analysis_plots import similarity_figure
from sagecc.leagues.similarity import similarities
from sagecc.leagues.trajectories import describe, query
from sagecc.options import parse_schemes
from sagecc.schemas.schemes import POLICY_PREFIX, check_scheme


@click.command(cls=Command, renamed={"--count": "--draw", "--environment": "--network"})
@click.option("--scheme", required=True, help="Whose trajectories: policy:PATH or a kernel scheme.")
@click.option("--schemes", default="all", show_default=True, help="Comma-separated, to compare with; all: the pool's.")
@click.option(
    "--draw", type=click.IntRange(min=1), default=8, show_default=True, help="Environments to draw if none is named."
)
@options("similarity", pool=True)
def command(settings: AnalysisSettings, pool_settings: PoolSettings, scheme: str, schemes: str, draw: int) -> None:
    """Tell how alike the trajectories of schemes are.

    \b
    sagecc similarity --scheme policy:models/mine
    sagecc similarity --scheme vegas --network ID
    sagecc similarity --scheme policy:sagecc-10 --out alike

    In the same networks, by the cosine of their transitions. As section 7.2 of the paper: the Similarity Index is the
    mean over the scheme's trajectory, 1 for perfect likeness.
    """
    policy = scheme.startswith(POLICY_PREFIX)
    scheme = scheme.rstrip("/") if policy else check_scheme(scheme)
    others = [name for name in parse_schemes(schemes) if name != scheme]
    if not others:
        raise SageccError("similarity: name schemes to compare with in --schemes")
    environments = settings.choose(draw)
    episodes = settings.episodes(environments, (scheme, *others))
    transitions = pool_settings.transitions()
    tables = []
    for environment in tqdm(environments, desc="similarity", unit="environment", disable=None, leave=False):
        trajectories = {
            key: query(transitions, episode) for key, episode in episodes.items() if key[0] == environment.id
        }
        tables.append(similarities(trajectories, scheme, others, [environment.id]))
    table = pl.concat(tables)
    if table.is_empty():
        raise SageccError(f"similarity: {scheme} has no episode in the environments chosen")
    titles = {e.id: describe(e) for e in environments}
    best = table.sort("index", descending=True, nulls_last=True).group_by("environment_id", maintain_order=True).first()
    summary = {
        "pool": transitions.pool.identity,
        "scaling": pool_settings.scaling,
        "seed": settings.seed,
        "scheme": scheme,
        "environments": titles,
        "similarities": table.to_dicts(),
    }
    for row in best.join(pl.DataFrame({"environment_id": list(titles)}), on="environment_id").to_dicts():
        click.echo(f"{row['environment_id']}: most like {row['other']}, index {row['index'] or 0:.3f}")
    save(settings.out, "similarity", table, summary, similarity_figure(table, titles))
