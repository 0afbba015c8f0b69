# SPDX-License-Identifier: Apache-2.0
"""What distance, similarity and tsne share: options, and files that are whole or not there."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import polars as pl
from matplotlib.figure import Figure

from collector.grid import PROFILES
from collector.schemes import POLICY_PREFIX
from leagues.plots import save_png
from sagecc.options import RAW, kernel_option, parse_schemes
from schemas.files import write_atomically

ANALYSIS_VERSION = "1.0"
"""Of the tables and JSON files that these commands write."""

POOL_OPTIONS = (
    click.option("--pool", type=click.Path(path_type=Path), default="datasets/pool", show_default=True),
    click.option(
        "--cache",
        type=click.Path(path_type=Path),
        default=".cache",
        show_default=True,
        help="Where the compiled pool lies (CACHE/pool) and its index (CACHE/neighbours); safe to delete.",
    ),
    click.option(
        "--scaling",
        type=click.Choice(["symlog", "linear", "none"]),
        default="symlog",
        show_default=True,
        help="What is done to every column before the cosine: mean 0 and deviation 1 over the pool, after symlog or as"
        " it is; or nothing.",
    ),
)


def options(name: str, pool: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the options of an analysis: where episodes are found, and where its files go."""
    listed = (
        click.option("--profile", type=click.Choice(PROFILES), default="small", show_default=True),
        click.option(
            "--environment", "ids", multiple=True, metavar="ID", help="An environment of the profile (repeatable)."
        ),
        click.option(
            "--raw", type=click.Path(path_type=Path), default=RAW, show_default=True, help="Heuristics' trajectories."
        ),
        click.option(
            "--league",
            type=click.Path(path_type=Path),
            default="leagues/results",
            show_default=True,
            help="A league that the policies may have played already; else they play now.",
        ),
        click.option("--out", type=click.Path(path_type=Path), default=f"leagues/analysis/{name}", show_default=True),
        click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of all that is drawn."),
        click.option("--jobs", type=click.IntRange(min=1), default=os.cpu_count(), help="Episodes at a time."),
        kernel_option(),
    )

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed((*(POOL_OPTIONS if pool else ()), *listed)):
            command = option(command)
        return command

    return decorate


def named_schemes(schemes: str, policies: tuple[str, ...]) -> tuple[str, ...]:
    """Return the policies and then the other schemes that the options name, each once."""
    own = (f"{POLICY_PREFIX}{policy.rstrip('/')}" for policy in policies)
    return tuple(dict.fromkeys((*own, *parse_schemes(schemes))))


def save(out: Path, name: str, table: pl.DataFrame, summary: Mapping[str, object], figure: Figure) -> None:
    """Write out/name.parquet, .json and .png, each whole or not at all."""
    out.mkdir(parents=True, exist_ok=True)
    with write_atomically(out / f"{name}.parquet") as beside:
        table.write_parquet(beside, compression="zstd", metadata={"sagecc.analysis_version": ANALYSIS_VERSION})
    with write_atomically(out / f"{name}.json") as beside:
        beside.write_text(json.dumps({"version": ANALYSIS_VERSION, **summary}, indent=2) + "\n")
    save_png(figure, out / f"{name}.png")
    click.echo(f"files: {out / name}.parquet, .json, .png")
