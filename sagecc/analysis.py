# SPDX-License-Identifier: Apache-2.0
"""What the commands distance, similarity and tsne share: their options, and how their files are written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import wraps
from pathlib import Path
from typing import Any

import click
import polars as pl
from matplotlib.figure import Figure

from sagecc.common.limits import usable_cores
from sagecc.common.locks import sole_writer
from sagecc.leagues import analysis
from sagecc.leagues.league import lab_runner
from sagecc.leagues.plots import save_png
from sagecc.leagues.scores import StoredEpisode
from sagecc.leagues.trajectories import choose, find_or_play
from sagecc.leagues.transitions import PoolTransitions
from sagecc.options import (
    analysis_folder,
    kernel_option,
    league_folder,
    league_option,
    parse_schemes,
    raw_folder,
    raw_option,
)
from sagecc.paths import PATH
from sagecc.policy.scaling import InputTransform
from sagecc.schemas.environment import Environment
from sagecc.schemas.environment_set import EnvironmentSet
from sagecc.schemas.partitions import ROUNDS
from sagecc.schemas.schemes import POLICY_PREFIX
from sagecc.sets import networks_options


@dataclass(frozen=True)
class AnalysisSettings:
    """The options of an analysis, by name."""

    networks: EnvironmentSet
    ids: tuple[str, ...]
    """Environments of these that are named."""
    raw: Path
    """Folder of the heuristics' trajectories."""
    league: Path
    """Folder of a league that policies may have played."""
    out: Path
    """Folder of the analysis's files."""
    seed: int
    """Of all that is drawn."""
    jobs: int
    """Episodes at a time."""
    kernel: Path
    """The lab's kernel."""
    grown: Path | None
    """Folder of a growing pool, whose rounds' trajectories are there."""

    def choose(self, count: int, set_name: str | None = None) -> tuple[Environment, ...]:
        """Return the named environments, or `count` drawn ones (of one set, if given)."""
        return choose(self.networks.environments, self.ids, count, self.seed, set_name)

    def episodes(
        self, environments: Sequence[Environment], schemes: Sequence[str]
    ) -> Mapping[tuple[str, str], StoredEpisode]:
        """Return episodes by (environment id, scheme); those of policies that have not played are run now."""
        runner = lab_runner(self.kernel, self.jobs)
        return find_or_play(
            replace(self.networks, environments=tuple(environments)),
            schemes,
            raw=self.raw,
            league=self.league,
            out=self.out,
            run_policies=runner,
            rounds=sorted(self.grown.glob(ROUNDS)) if self.grown else (),
        )


@dataclass(frozen=True)
class PoolSettings:
    """The options of an analysis that compares with the pool, by name."""

    pool: Path
    """Folder of the pool."""
    cache: Path
    """Folder of what is made from the pool."""
    scaling: InputTransform
    """What is done to a column before mean and deviation."""

    def transitions(self) -> PoolTransitions:
        """Return the pool's transitions; the pool is compiled where that is not done."""
        return PoolTransitions.load(self.pool, self.cache / "pool", self.scaling)


POOL_OPTIONS = (
    click.option("--pool", type=PATH, default="datasets/pool", show_default=True),
    click.option(
        "--cache",
        type=PATH,
        default=".cache",
        show_default=True,
        help="Where the compiled pool lies (CACHE/pool) and its index (CACHE/neighbours); safe to delete.",
    ),
    click.option(
        "--scaling",
        type=click.Choice(["symlog", "linear", "none"]),
        default="symlog",
        show_default=True,
        help="Scaling of every column before the cosine. symlog and linear: mean 0, deviation 1 over the pool.",
    ),
)


def options(name: str, pool: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds an analysis's options to its command.

    Args:
        name: the analysis's; its files go to leagues/analysis/name by default.
        pool: also add the pool's options.

    Returns:
        The decorator; the command gets the argument `settings`, and `pool_settings` with `pool`.
    """
    decorators = (
        networks_options,
        click.option("--network", "ids", multiple=True, metavar="ID", help="A network of these (repeatable)."),
        raw_option("--raw", "Trajectories of the heuristics."),
        league_option("--league", "A league that the policies may have played already; else they play now."),
        click.option(
            "-o",
            "--out",
            type=PATH,
            show_default=f"{analysis_folder(None) / name}, of a set {analysis_folder('NAME') / name}",
        ),
        click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of all that is drawn."),
        click.option("-j", "--jobs", type=click.IntRange(min=1), default=usable_cores, help="Episodes at a time."),
        kernel_option(),
        click.option(
            "--grown",
            type=PATH,
            metavar="FOLDER",
            help="Of 'sagecc grow': its rounds are schemes too, policy:NAME@ROUND, with the trajectories played there.",
        ),
    )

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def run(**arguments: Any) -> Any:
            own = arguments["networks"].own_name
            arguments["raw"] = arguments["raw"] or raw_folder(own)
            arguments["league"] = arguments["league"] or league_folder(own)
            arguments["out"] = arguments["out"] or analysis_folder(own) / name

            def take(settings: type[Any]) -> Any:
                return settings(**{field.name: arguments.pop(field.name) for field in fields(settings)})

            arguments["settings"] = take(AnalysisSettings)
            if pool:
                arguments["pool_settings"] = take(PoolSettings)
            with sole_writer(arguments["settings"].out):
                return command(**arguments)

        decorated: Callable[..., Any] = run
        for option in reversed((*(POOL_OPTIONS if pool else ()), *decorators)):
            decorated = option(decorated)
        return decorated

    return decorate


def named_schemes(schemes: str, policies: tuple[str, ...]) -> tuple[str, ...]:
    """Return the policies and then the other schemes that the options name, each once."""
    policy_schemes = (f"{POLICY_PREFIX}{policy.rstrip('/')}" for policy in policies)
    return tuple(dict.fromkeys((*policy_schemes, *parse_schemes(schemes))))


def save(out: Path, name: str, table: pl.DataFrame, summary: Mapping[str, object], figure: Figure) -> None:
    """Write out/name.parquet, .json and .png, each whole or not at all; see leagues.analysis.save."""
    analysis.save(out, name, table, summary)
    save_png(figure, out / f"{name}.png")
    click.echo(f"files: {out / name}.parquet, .json, .png")
