# SPDX-License-Identifier: Apache-2.0
"""`sagecc study`: the evaluation study of learned schemes and figures of papers, one experiment or all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click
import polars as pl

from sagecc.command import Command
from sagecc.common.errors import SageccError
from sagecc.common.limits import usable_cores
from sagecc.common.locks import sole_writer
from sagecc.engine import engine_options, ray_cluster
from sagecc.leagues.study.catalogue import chosen, plan
from sagecc.leagues.study.collect import Collected, collect, lab_identity
from sagecc.leagues.study.experiments import Experiment, StudyRun, distinct
from sagecc.leagues.study.page import StudyContents, is_drawn, write
from sagecc.leagues.study.published import study_names
from sagecc.leagues.study.results import STUDY_MARK, values_table, write_tables
from sagecc.leagues.study.runner import check_policies, lab_runner, ray_runner
from sagecc.leagues.study.testbed import PREDECESSOR
from sagecc.options import kernel_option, parse_schemes
from sagecc.paths import PATH, LocalPath
from sagecc.schemas.schemes import POLICY_PREFIX

REPEATS = 20
"""Of each cell; the study has 5."""


@click.command(cls=Command)
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--schemes", default="cubic,bbr2,vegas", show_default=True, help="Comma-separated kernel schemes.")
@click.option("--policy", "policies", multiple=True, metavar="PATH", help="A policy that takes part too (repeatable).")
@click.option(
    "--as",
    "renamed",
    multiple=True,
    metavar="SCHEME=NAME",
    help="Which published scheme one of ours stands for, such as policy:models/orca=Orca (repeatable).",
)
@click.option(
    "--repeats",
    type=click.IntRange(min=1),
    default=REPEATS,
    show_default=True,
    help="Of each cell (the study has 5); all but the first shift when flows start.",
)
@click.option("--traces", type=PATH, metavar="FOLDER", help="Traces for astraea-21.")
@click.option("--quick", is_flag=True, help="A fifth of each grid, one repeat.")
@click.option("--testbed", is_flag=True, help="Networks and times measured as in the study's predecessor.")
@click.option(
    "-o",
    "--out",
    type=LocalPath(file_okay=False),
    default=Path("leagues/study-results"),
    show_default=True,
)
@click.option(
    "--runs",
    "kept",
    type=LocalPath(file_okay=False),
    show_default="OUT/runs",
    help="Where runs are kept, for several calls to share.",
)
@click.option("-j", "--jobs", type=click.IntRange(min=1), help="Runs at a time on this machine (default: a core each).")
@engine_options
@kernel_option()
def command(
    names: tuple[str, ...],
    schemes: str,
    policies: tuple[str, ...],
    renamed: tuple[str, ...],
    repeats: int,
    traces: Path | None,
    quick: bool,
    testbed: bool,
    out: Path,
    kept: Path | None,
    jobs: int | None,
    engine: str,
    ray_address: str | None,
    kernel: Path,
) -> None:
    """Run experiments of several flows: the evaluation study, papers.

    \b
    sagecc study fairness --schemes cubic,bbr2
    sagecc study all --quick --policy sagecc-10
    sagecc study papers --policy models/mine

    Finished runs are kept, so a killed study resumes. Experiments are fairness, parking-lot, friendliness and others,
    and figures of papers such as sage-17, orca-14 and astraea-9; an unknown name lists them all.
    """
    cluster = ray_cluster(engine, ray_address, jobs)
    tested = tuple(
        dict.fromkeys((*parse_schemes(schemes), *(f"{POLICY_PREFIX}{policy.rstrip('/')}" for policy in policies)))
    )
    names_of = study_names(renamed, tested)
    experiments = _with_their_traces(chosen(names, traces))
    runs = plan(experiments, tested, 1 if quick else repeats, quick)
    if testbed:
        runs = [PREDECESSOR.run(run) for run in runs]
    check_policies(tested)
    runner = lab_runner(kernel, jobs or usable_cores()) if cluster is None else ray_runner(kernel, cluster, tested)
    STUDY_MARK.check(out)
    click.echo(_plan_line(runs), err=True)
    with sole_writer(out):
        collected = collect(runs, runner, kept or out / "runs", lab_identity(kernel))
        if not collected.files:
            reason = next(iter(collected.failures.values()))
            raise SageccError(f"study: none of its {len(runs)} runs ended well: {reason}")
        _save(collected, out, names_of)
    click.echo(f"tables and figures: {out}\npage: {out / 'study.html'}")
    if collected.failures:
        raise SageccError(f"study: {len(collected.failures)} runs failed; the same command tries them again")


def _save(collected: Collected, out: Path, names: Mapping[str, str]) -> None:
    samples: list[tuple[StudyRun, pl.DataFrame]] = []

    def read() -> Iterator[tuple[StudyRun, pl.DataFrame]]:
        """Yield each run once, for there may be thousands; those that are drawn stay."""
        for run, series in collected.series():
            if is_drawn(run):
                samples.append((run, series))
            yield run, series

    tables = write_tables(values_table(read()), out, names)
    write(StudyContents(**tables, runs=samples, names=names), out / "study.html", out)


def _plan_line(runs: Sequence[StudyRun]) -> str:
    once = distinct(runs)
    hours = sum(run.environment.duration_s for run in once) / 3600
    return f"{len(runs)} runs, {len(once)} networks, {hours:.1f} virtual hours"


def _with_their_traces(wanted: Sequence[Experiment]) -> list[Experiment]:
    """Return the experiments that have what they replay; tell of the others.

    Raises:
        SageccError: None has.
    """
    without = [each.name for each in wanted if each.traced and not each.grid]
    if len(without) == len(wanted):
        raise SageccError(f"study: {', '.join(without)} replays traces; name their folder by --traces")
    for name in without:
        click.echo(f"{name}: left out, for it replays traces; name their folder by --traces", err=True)
    return [each for each in wanted if each.name not in without]
