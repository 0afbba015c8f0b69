# SPDX-License-Identifier: Apache-2.0
"""`sagecc bench`: one number for a scheme."""

from __future__ import annotations

import json
from pathlib import Path

import click

from sagecc.common.limits import usable_cores
from sagecc.common.locks import sole_writer
from sagecc.leagues.bench import NAME, BenchScore, Rate, run
from sagecc.options import kernel_option, named_scheme, quiet_option
from sagecc.paths import PATH
from sagecc.playing import batch_option

OUT = Path("leagues/bench-plays")


@click.command()
@click.argument("scheme", metavar="SCHEME")
@click.option(
    "-o",
    "--out",
    type=PATH,
    default=OUT,
    show_default=True,
    help="Folder of the trajectories; those that it has are not played again.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, which a submission holds.")
@click.option(
    "-j", "--jobs", type=click.IntRange(min=1), default=usable_cores, help="Processes (default: one per CPU)."
)
@batch_option
@quiet_option
@kernel_option()
def command(scheme: str, out: Path, as_json: bool, jobs: int, batch: int, quiet: bool, kernel: Path) -> None:
    """Score a scheme by sagecc-bench-1: 60 networks, one number.

    \b
    sagecc bench sagecc-10
    sagecc bench policy:models/mine --json > mine.json
    sagecc bench python:gentle.py:Gentle

    SCHEME is one of 'sagecc schemes', a policy that comes with sagecc by its name, policy:PATH, or
    python:PATH.py:CLASS. It plays in 40 networks alone and in 20 next to Cubic. The score is the mean of its winning
    rates there against the 13 heuristics of the pool, whose plays come with sagecc. The interval is a bootstrap over
    networks. docs/guide/benchmark.md has the rules.
    """
    name = named_scheme(scheme)
    with sole_writer(out):
        found = run(name, kernel, out, jobs, batch, progress=not quiet)
    click.echo(json.dumps(found.document(), indent=1) if as_json else _text(found))


def _text(found: BenchScore) -> str:
    lines = [
        f"{NAME} of {found.scheme}: {_percent(found.score)}, rank {found.rank} of {len(found.ranking)}",
        *(f"Set {name}: {_percent(rate)}" for name, rate in sorted(found.sets.items())),
    ]
    if found.harm:
        lines.append(
            f"loss {100 * found.harm['loss_mean']:.2f} % on average; floods {found.harm['flooded']} of"
            f" {found.harm['networks']} networks"
        )
    lines += [f"lost: {network}: {reason}" for network, reason in found.failures.items()]
    width = max(map(len, found.ranking["scheme"]))
    rows = (
        f"{row['rank']:>4}  {row['scheme']:<{width}}  {100 * row['winning_rate']:5.1f} %"
        for row in found.ranking.to_dicts()
    )
    return "\n".join((*lines, "", f"{'rank':>4}  {'scheme':<{width}}    score", *rows))


def _percent(rate: Rate) -> str:
    return f"{100 * rate.rate:.1f} % [{100 * rate.low:.1f}, {100 * rate.high:.1f}]"
