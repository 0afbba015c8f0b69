# SPDX-License-Identifier: Apache-2.0
"""`sagecc sweep`: trainings with several seeds and values, on this machine or on a Ray cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from tqdm import tqdm

from sagecc.command import Command
from sagecc.common.errors import SageccError
from sagecc.common.limits import usable_cores
from sagecc.common.locks import sole_writer
from sagecc.common.remote import Place
from sagecc.engine import engine_options, ray_cluster
from sagecc.options import POOL, kernel_option, pool_cache_option
from sagecc.paths import PATH
from sagecc.places import PLACE, pool_copy

if TYPE_CHECKING:
    from sagecc.learner.sweep import SweepRun

RESULTS = "sweep.csv"


@click.command(cls=Command)
@click.argument("config")
@click.option(
    "--seeds", type=click.IntRange(min=1), default=3, show_default=True, help="Seeds 0 to N - 1 of each cell."
)
@click.option(
    "--over",
    multiple=True,
    metavar="FIELD=V,V",
    help="Values of a field of the configuration, once for each field; each combination is a cell.",
)
@click.option("--pool", type=PLACE, default=POOL, show_default=True)
@click.option(
    "-o",
    "--out",
    type=PATH,
    help="Folder of the policies, logs and results.  [default: sweeps/ and the configuration's name]",
)
@pool_cache_option("Where the pool is compiled to; safe to delete.")
@click.option("-j", "--jobs", type=click.IntRange(min=1), help="Trainings at a time.  [default: one per CPU]")
@engine_options
@kernel_option()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array, an object for each cell.")
@click.option("-n", "--dry-run", is_flag=True, help="Say which trainings these are; run none.")
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def command(
    config: str,
    seeds: int,
    over: tuple[str, ...],
    pool: Place,
    out: Path | None,
    cache: Path,
    jobs: int | None,
    engine: str,
    ray_address: str | None,
    kernel: Path,
    as_json: bool,
    dry_run: bool,
    options: tuple[str, ...],
) -> None:
    """Train a configuration with several seeds and values.

    \b
    sagecc sweep offline --seeds 5 --pool datasets/kicked/pool
    sagecc sweep offline --over alpha=1,4 --over discount=0.95,0.99
    sagecc sweep tiny --seeds 2 -- --evaluate-every 100

    OPTIONS after -- are those of 'sagecc train'. Each training has a folder in --out, CELL/seed-N. A training that is
    done is not repeated; a killed one continues. A failed one is named, and the others run on. On a Ray cluster --out,
    --pool and --cache lie on a file system that all nodes share.
    """
    from sagecc.learner import sweep  # what reads configurations takes time to load: not for --help

    cluster = ray_cluster(engine, ray_address, jobs)
    chosen = sweep.combinations(config, over)
    folder = out or Path("sweeps") / Path(config).stem
    if dry_run:
        for cell in chosen:
            click.echo(f"{cell.name}: {seeds} seeds")
        return
    places = ("--pool", str(pool_copy(pool, cache).absolute()), "--cache", str(cache.absolute()))
    folder.mkdir(parents=True, exist_ok=True)
    with sole_writer(folder):
        every = sweep.sweep_runs(folder, chosen, range(seeds), (*places, *options))
        failed = []
        with tqdm(total=len(every), desc="sweep", unit="training", disable=None, leave=False) as bar:
            for _, failure in _done(kernel, every, jobs or usable_cores(), cluster):
                failed += [failure] if failure else []
                bar.update()
        rows = sweep.results(every)
        if rows:
            sweep.write_results(folder / RESULTS, rows)
    cells = sweep.summary(rows)
    click.echo(json.dumps(cells) if as_json else _table(cells), nl=bool(cells))
    if failed:
        others = f"; and {len(failed) - 1} more" if failed[1:] else ""
        raise SageccError(f"{failed[0]}{others}")


def _done(
    kernel: Path, every: Sequence[SweepRun], jobs: int, cluster: str | None
) -> Iterator[tuple[SweepRun, SageccError | None]]:
    from sagecc.learner import sweep

    if cluster is None:
        return sweep.attempt_all(kernel, every, jobs)
    from sagecc.collector.run.ray_engine import each_on_ray

    return each_on_ray(sweep.attempt, cluster)(kernel, every)


def _table(cells: Sequence[dict[str, Any]]) -> str:
    """Return the cells with mean, lowest and highest of each value, a block of lines each."""
    lines = []
    for cell in cells:
        lines.append(f"{cell['cell']}: {cell['seeds']} seeds")
        spans = {name: of for name, of in cell.items() if isinstance(of, dict)}
        width = max(map(len, spans), default=0)
        for name, of in spans.items():
            lines.append(f"  {name:<{width}}  {of['mean']:.4g} [{of['low']:.4g}, {of['high']:.4g}]")
    return "\n".join(lines)
