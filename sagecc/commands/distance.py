# SPDX-License-Identifier: Apache-2.0
"""`sagecc distance`: how far schemes' transitions are from the pool."""

from __future__ import annotations

import click

from sagecc.analysis import AnalysisSettings, PoolSettings, named_schemes, options, save
from sagecc.command import Command
from sagecc.common.errors import SageccError
from sagecc.common.shipped import A_POLICY
from sagecc.leagues.analysis_plots import distance_figure
from sagecc.leagues.distance import Search, distances, exact_in_pool, exact_in_sample, summary
from sagecc.leagues.trajectories import describe, query, step_up

SAMPLE = 1_000_000


@click.command(cls=Command, renamed={"--sample": "--transitions", "--environment": "--network"})
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="PATH",
    help=f"Repeatable: {A_POLICY}.",
)
@click.option("--schemes", default="vegas", show_default=True, help="Comma-separated; compared next to the policies.")
@click.option(
    "--search",
    "kind",
    type=click.Choice(["sample", "index", "pool"]),
    default="sample",
    show_default=True,
    help="Search a sample of the pool, an index of it, or all of it (docs/method/leagues.md).",
)
@click.option(
    "--transitions",
    "sample",
    type=click.IntRange(min=1),
    default=SAMPLE,
    show_default=True,
    help="Transitions of the sample.",
)
@click.option(
    "--every", type=click.IntRange(min=1), default=1, show_default=True, help="Look at one tick in so many only."
)
@options("distance", pool=True)
def command(
    settings: AnalysisSettings,
    pool_settings: PoolSettings,
    policies: tuple[str, ...],
    schemes: str,
    kind: str,
    sample: int,
    every: int,
) -> None:
    """Measure how far schemes' transitions are from the pool.

    \b
    sagecc distance --policy models/mine --schemes vegas,cubic
    sagecc distance --policy sagecc-10 --network ID
    sagecc distance --policy models/mine --out distances

    The smallest cosine distance of each, and its CDF. As section 7.1 of the paper, by default in its environment, whose
    rate changes from 24 to 96 Mbps. A scheme of the pool is compared with the pool without that very episode.
    """
    names = named_schemes(schemes, policies)
    if not names:
        raise SageccError("distance: name a scheme with --schemes or a policy with --policy")
    environments = settings.choose(len(settings.ids)) if settings.ids else step_up(settings.networks.environments)
    episodes = settings.episodes(environments, names)
    transitions = pool_settings.transitions()
    queries = [
        query(transitions, episodes[e.id, s], every) for e in environments for s in names if (e.id, s) in episodes
    ]
    search: Search
    if kind == "index":
        from sagecc.leagues.neighbours import in_index, prepare  # faiss: an extra

        search = in_index(transitions, prepare(transitions, pool_settings.cache / "neighbours"))
    else:
        search = exact_in_pool(transitions) if kind == "pool" else exact_in_sample(transitions, sample, settings.seed)
    table = distances(transitions, queries, search)
    rows = summary(table)
    content = {
        "pool": transitions.pool.identity,
        "pool_transitions": transitions.count,
        "search": kind,
        "searched": min(sample, transitions.count) if kind == "sample" else transitions.count,
        "scaling": pool_settings.scaling,
        "seed": settings.seed,
        "every": every,
        "environments": {e.id: describe(e) for e in environments},
        "trajectories": rows,
    }
    figure = distance_figure(table, {e.id: describe(e) for e in environments})
    for row in rows:
        quantiles: dict[str, float] = row["quantiles"]  # type: ignore[assignment]
        median, p95 = quantiles["0.5"], quantiles["0.95"]
        click.echo(f"{row['scheme']} in {row['environment_id']}: median {median:.2g}, 95th percentile {p95:.2g}")
    save(settings.out, "distance", table, content, figure)
