# SPDX-License-Identifier: Apache-2.0
"""How runs of evidence/training/runs.yaml share: with their own kind, beside a Cubic, beside many, and in Set II.

`python -m evidence.leagues.company NAME ...` plays the cells of `sagecc study fairness friendliness many-cubics
--quick` once with each run's policy, which is trained first where it is not there; `cubic` is Cubic itself. Their lines
in evidence/training/company.csv are written anew, others stay. A killed call goes on. Virtual time: the figures hang on
the kernel's bytes and the policies' files, not on the machine.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import click
import polars as pl

from evidence.kept import RULES, path_of, read_kept
from evidence.machine import KERNEL
from evidence.training import ARTEFACTS
from evidence.training.run import RUNS, policies_of
from evidence.training.runs import Plan, networks_of, read_plan
from sagecc.cli import errors_in_one_line
from sagecc.common.errors import SageccError
from sagecc.common.files import write_atomically
from sagecc.common.limits import usable_cores
from sagecc.leagues.league import gather, lab_runner
from sagecc.leagues.scores import score
from sagecc.leagues.study import runner as study
from sagecc.leagues.study.collect import collect, lab_identity
from sagecc.leagues.study.experiments import STUDY
from sagecc.leagues.study.results import values_table
from sagecc.schemas.schemes import POLICY_PREFIX

TABLE = Path("evidence/training/company.csv")
COLUMNS = ("policy", "experiment", "queue_bdp", "rtt_ms", "cubics", "ratio")
EXPERIMENTS = ("fairness", "friendliness", "many-cubics")
SHARE = "share"
"""In place of an experiment: the mean goodput over the fair share in Set II of the plan's leagues."""
CUBIC = "cubic"
RUNS_OF_CELLS = Path(".cache/study/runs")

Line = tuple[str, ...]
"""Of COLUMNS."""


def lines_of(name: str, cells: pl.DataFrame, share: float) -> list[Line]:
    """Return the lines of one contestant.

    Args:
        name: what it is called.
        cells: of leagues.study.results.VALUES_SCHEMA; of each experiment the number that its figure shows is taken.
        share: its mean share in Set II.
    """
    lines: list[Line] = []
    for experiment in EXPERIMENTS:
        part = cells.filter(pl.col("experiment") == experiment, pl.col("quantity") == STUDY[experiment].quantity).sort(
            "queue_bdp", "rtt_ms", "cubics"
        )
        for queue_bdp, rtt_ms, cubics, ratio in part.select("queue_bdp", "rtt_ms", "cubics", "value").iter_rows():
            lines.append((name, experiment, str(queue_bdp), str(rtt_ms), str(cubics or ""), str(round(ratio, 4))))
    return [*lines, (name, SHARE, "", "", "", str(round(share, 4)))]


def share_of(scores: pl.DataFrame) -> float:
    """Return the mean over networks of the mean over windows of goodput over fair share, in Set II.

    Args:
        scores: of leagues.scores.SCORE_SCHEMA.
    """
    share = pl.col("goodput_mbps") / pl.col("fair_share_mbps")
    by_network = scores.filter(pl.col("set") == "II").group_by("environment_id").agg(share=share.mean())
    mean = by_network["share"].mean()
    assert isinstance(mean, float)
    return mean


def written_anew(table: Sequence[Line], lines: Mapping[str, Sequence[Line]]) -> list[Line]:
    """Return a table with contestants' lines in place of those that it had of them, new ones before Cubic's."""
    found: dict[str, list[Line]] = {}
    for line in table:
        found.setdefault(line[0], []).append(line)
    found |= {name: list(of) for name, of in lines.items()}
    cubic = {CUBIC: found.pop(CUBIC)} if CUBIC in found else {}
    return [line for of in (found | cubic).values() for line in of]


def measured(name: str, plan: Plan) -> list[Line]:
    """Play what is not there yet of a contestant, and return its lines.

    Raises:
        SageccError: a training or a cell fails.
    """
    jobs = usable_cores()
    scheme = CUBIC if name == CUBIC else f"{POLICY_PREFIX}{policies_of(plan, [name], KERNEL)[name]}"
    runs = [run for each in EXPERIMENTS for run in STUDY[each].runs((scheme,), 1, quick=True)]
    collected = collect(runs, study.lab_runner(KERNEL, jobs), RUNS_OF_CELLS, lab_identity(KERNEL))
    if collected.failures:
        raise SageccError(f"{name}: {len(collected.failures)} runs failed: {next(iter(collected.failures.values()))}")
    scores = [scores_of(name, scheme, league, raw, jobs) for league, raw in plan.leagues.items()]
    return lines_of(name, values_table(collected.series()), share_of(pl.concat(scores)))


def scores_of(name: str, scheme: str, league: str, raw: Path, jobs: int) -> pl.DataFrame:
    """Return a contestant's scores in a league's networks of Set II; Cubic's as they are kept."""
    if scheme == CUBIC:
        return read_kept(path_of(league)).filter(scheme=CUBIC)
    networks = networks_of(league)
    second = tuple(environment for environment in networks.environments if environment.set == "II")
    beside_cubic = replace(networks, environments=second)
    played = gather(beside_cubic, (scheme,), raw, ARTEFACTS / name / league, lab_runner(KERNEL, jobs))
    return score(second, (scheme,), played.episodes, RULES.alpha)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, required=True)
def command(names: tuple[str, ...]) -> None:
    """Measure how these runs' policies share, and write their lines in evidence/training/company.csv."""
    plan = read_plan(RUNS)
    plan.chosen(tuple(name for name in names if name != CUBIC))
    for name in names:
        lines = measured(name, plan)
        with TABLE.open(newline="") as file:
            known = [tuple(line) for line in csv.reader(file)][1:]
        with write_atomically(TABLE) as temporary, temporary.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([COLUMNS, *written_anew(known, {name: lines})])
        click.echo(f"{name}: {len(lines)} lines in {TABLE}", err=True)


if __name__ == "__main__":
    with errors_in_one_line("evidence.leagues.company"):
        command(prog_name="python -m evidence.leagues.company")
