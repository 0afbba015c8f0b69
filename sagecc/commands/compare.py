# SPDX-License-Identifier: Apache-2.0
"""`sagecc compare`: schemes in one network."""

from __future__ import annotations

import json
import math
import sys
import textwrap
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import click
from tqdm import tqdm

from sagecc.command import Command
from sagecc.common.limits import usable_cores
from sagecc.common.machine_code import telling_of_compilation
from sagecc.execution.agent.compilation import ended, started
from sagecc.leagues.comparison import Played, Summary, compare, propagation_ms, summaries
from sagecc.measured import show_measured
from sagecc.naming import short_names
from sagecc.network import environment_from, exclude, network_options
from sagecc.options import PICTURE, allow_python_option, kernel_option, named_scheme, quiet_option
from sagecc.paths import PATH
from sagecc.schemas.environment import Environment, Link
from sagecc.schemas.repeats import repeat
from sagecc.schemas.schemes import POLICY_PREFIX, TrustedCode
from sagecc.tables import Column, table

COLUMNS: tuple[Column, ...] = (
    ("goodput_mbps", "goodput", "Mbps", 1, 2),
    ("utilisation", "utilisation", "%", 100, 1),
    ("queueing_mean_ms", "queueing mean", "ms", 1, 1),
    ("queueing_p95_ms", "queueing p95", "ms", 1, 1),
    ("loss_rate", "loss", "%", 100, 3),
    ("competitor_mbps", "competitor", "Mbps", 1, 2),
    ("completion_s", "transfer", "s", 1, 3),
    ("competitor_completion_s", "their transfers", "s", 1, 3),
)

COLUMNS_WIDE = 100
"""Of a terminal, for the line of the network."""

TITLE_CHARACTERS = 84
"""Of a line above the picture."""


@click.command(cls=Command)
@click.argument("schemes", nargs=-1, metavar="SCHEME...")
@network_options
@allow_python_option
@click.option(
    "--repeats",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="Runs of each scheme. From the second on, flows start later by a seeded fraction of the RTT.",
)
@click.option("--seed", type=click.IntRange(0, 2**62), default=0, show_default=True, help="Of the first run.")
@click.option("--plot", type=PICTURE, help="Draw goodput and queueing delay. Of the first run, as .png, .svg or .pdf.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--measured",
    multiple=True,
    type=PATH,
    metavar="FOLDER",
    help="Show what 'sagecc measure' left in FOLDER, of all schemes or of those named (repeatable); play nothing.",
)
@click.option(
    "-j", "--jobs", type=click.IntRange(min=1), default=usable_cores, help="Runs at a time (default: one per CPU)."
)
@quiet_option
@kernel_option()
def command(
    schemes: tuple[str, ...],
    allow_python: bool,
    repeats: int,
    seed: int,
    plot: Path | None,
    as_json: bool,
    measured: tuple[Path, ...],
    jobs: int,
    quiet: bool,
    kernel: Path,
    **network: Any,
) -> None:
    """Compare schemes in one network, as a table and a picture.

    \b
    sagecc compare cubic bbr2 sagecc-10 --bandwidth 48mbps --rtt 40ms
    sagecc compare cubic vegas --cross cubic --repeats 5 --plot compared.svg
    sagecc compare reno policy:models/mine --trace cellular.down --json
    sagecc compare --measured measured --plot plane.svg

    Each SCHEME runs alone, or against the competitors that --cross adds. It is one of 'sagecc schemes', a policy that
    comes with sagecc by its name, policy:PATH, or python:PATH.py:CLASS. Utilisation is the goodput of all flows over
    the bottleneck's capacity; headers keep it below 96.6 %. Queueing is one-way delay beyond propagation. Of several
    competitors the mean goodput is shown. A transfer (size_bytes of a network's file) has its completion time. With
    --repeats, numbers are means with 95 % intervals.
    """
    names = list(dict.fromkeys(map(named_scheme, schemes)))
    if measured:
        exclude("--measured", *network, "repeats", "seed", "jobs")
        show_measured(measured, names, plot, as_json)
        return
    if not names:
        raise click.UsageError("name a SCHEME to play, or a FOLDER by --measured")
    environment = environment_from(TrustedCode.named_by(names, allow_python), **network)
    networks = [repeat(environment, number) for number in range(repeats)]
    policy = next((name.removeprefix(POLICY_PREFIX) for name in names if name.startswith(POLICY_PREFIX)), None)
    with (
        ExitStack() as helpers,
        telling_of_compilation(lambda: _compile(policy if jobs > 1 else None, helpers)),
        closing(compare(kernel, networks, names, seed, jobs)) as played,
    ):
        bar = tqdm(played, total=len(names) * repeats, unit="run", leave=False, disable=quiet or None)
        runs = list(bar)
    found, line = summaries(runs, names), network_line(environment, runs)
    if plot is not None:
        _draw(found, environment, line, plot)
    if as_json:
        click.echo(json.dumps(_result(found, environment), indent=1))
    else:
        click.echo("\n".join([*_wrapped(line), "", *_table(found), *_unfinished(found)]))


def _compile(policy: str | None, helpers: ExitStack) -> None:
    """Say that something is compiled, and let a process that does so for a policy help until `helpers` ends."""
    tqdm.write("compiling once, for some seconds", file=sys.stderr)
    if policy:
        helpers.callback(ended, started(policy))


def network_line(environment: Environment, runs: Sequence[Played]) -> str:
    """Return a network in a line: capacity and propagation of the path first."""
    link, competitors = environment.bottleneck, [flow.scheme for flow in environment.cross]
    least_ms = propagation_ms(environment)
    varies = any(environment.links[index].delays for index in environment.path(environment.flow))
    path = f"{'at least ' if varies else ''}{least_ms:g} ms propagation one way ({environment.min_rtt_ms:g} ms RTT)"
    queue = environment.queue_text
    if environment.queue_bytes:
        queue += f" ({environment.queue_bytes * 8 / environment.bandwidth_mbps / 1000:.3g} ms)"
    parts = [_capacity(link, runs[0].capacity_mbps), path, queue]
    if link.discipline != "tail-drop":
        parts.append(link.discipline)
    if len(environment.links) > 1:
        parts.append(f"the narrowest of {len(environment.links)} links")
    counts = {name: competitors.count(name) for name in competitors}
    beside = [name if count == 1 else f"{count} {name} flows" for name, count in counts.items()]
    against = f", against {', '.join(beside)}" if beside else ""
    return f"Link: {', '.join(parts)}; {environment.duration_s:g} s{against}"


def _capacity(link: Link, mean_mbps: float) -> str:
    rates = {step.rate_mbps for step in link.rates}
    if len(rates) == 1:
        return f"{link.base_mbps:g} Mbps"
    name = f"{link.trace.name}, " if link.trace else f"{min(rates):g} to {max(rates):g} Mbps, "
    return f"{name}{mean_mbps:.3g} Mbps on average"


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, COLUMNS_WIDE, subsequent_indent="      ", break_on_hyphens=False)


def _table(found: Sequence[Summary]) -> list[str]:
    names = short_names([each.scheme for each in found])
    return table(list(names.values()), [each.measures for each in found], COLUMNS)


def _unfinished(found: Sequence[Summary]) -> list[str]:
    """Return a line for each scheme in whose runs transfers did not end, which no completion time counts."""
    lines = []
    for each in found:
        ends = [
            completion_s
            for run in each.runs
            for flow, completion_s in zip(
                run.environment.all_flows, (run.completion_s, *run.competitors_completion_s), strict=True
            )
            if flow.size_bytes is not None
        ]
        if missing := ends.count(None):
            lines.append(f"{each.scheme}: {missing} of {len(ends)} transfers did not end")
    return lines


def _draw(found: Sequence[Summary], environment: Environment, line: str, path: Path) -> None:
    from sagecc.leagues.colours import strokes
    from sagecc.leagues.plots import Track, comparison_figure, save_figure  # matplotlib takes as long as a run

    look, names = strokes(each.scheme for each in found), short_names([each.scheme for each in found])
    tracks = [
        Track(names[run.scheme], run.rows, look[run.scheme], run.competitors_bytes)
        for run in (each.runs[0] for each in found)
    ]
    title = textwrap.fill(line.removeprefix("Link: "), TITLE_CHARACTERS)
    save_figure(comparison_figure(tracks, propagation_ms(environment), title), path)


def _result(found: Sequence[Summary], environment: Environment) -> dict[str, Any]:
    """Return what --json prints; a number that no packet was there for is None."""
    link, capacity_mbps = environment.bottleneck, found[0].runs[0].capacity_mbps
    return {
        "network": {
            "id": environment.id,
            "capacity_mbps": capacity_mbps if math.isfinite(capacity_mbps) else None,
            "propagation_ms": propagation_ms(environment),
            "min_rtt_ms": environment.min_rtt_ms,
            "queue_bytes": environment.queue_bytes,
            "discipline": link.discipline,
            "duration_s": environment.duration_s,
            "competitors": [flow.scheme for flow in environment.cross],
        },
        "schemes": [
            {
                "scheme": each.scheme,
                **{name: value.mean for name, value in each.measures.items()},
                "intervals": {
                    name: [value.low, value.high] for name, value in each.measures.items() if value.low is not None
                },
                "runs": [
                    {
                        "seed": run.seed,
                        "goodput_mbps": run.goodput_mbps,
                        "competitors_mbps": list(run.competitors_mbps),
                        "completion_s": run.completion_s,
                        "competitors_completion_s": list(run.competitors_completion_s),
                        "jain_index": run.jain_index,
                        "sha256": run.sha256,
                    }
                    for run in each.runs
                ],
            }
            for each in found
        ],
    }
