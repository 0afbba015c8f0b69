# SPDX-License-Identifier: Apache-2.0
"""`python -m evidence.training.run`: train, export and judge what a plan such as runs.yaml lists and is not done yet.

Every part goes on where a killed one stopped: collecting and playing by episode, training by checkpoint. A run is done
when its line of the plan's results has its present fingerprint. Several of these commands may work side by
side: each takes the runs that no other is at.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import polars as pl

from evidence.kept import contest
from evidence.machine import describe
from evidence.training import ARTEFACTS, CARRIED, LOGS, METER
from evidence.training.carry import take_up
from evidence.training.growing import grown_policy, train_grown
from evidence.training.judging import Judge, read_points
from evidence.training.meter import Meter
from evidence.training.runs import Plan, Run, learned_from, networks_of, read_plan
from evidence.training.table import RESULT_VERSION, RESULTS, keep_result, read_results, results_of
from sagecc.collector.kernel.identity import kernel_identity
from sagecc.common.errors import SageccError
from sagecc.common.locks import locked
from sagecc.execution.lab.giving_up import GiveUp
from sagecc.leagues.candidate import MEAN_RATE
from sagecc.leagues.harm import REFERENCE, beside_reference
from sagecc.leagues.league import PlayOptions, gather, lab_runner
from sagecc.leagues.scores import StoredEpisode
from sagecc.leagues.standings import sets
from sagecc.learner.compiled import CompiledPool, compile_pool
from sagecc.learner.evaluation import Evaluation
from sagecc.learner.experience import Experience
from sagecc.learner.judging.judge import evaluation_of
from sagecc.learner.online.beginning import policy_identity
from sagecc.learner.online.lab_source import LabExperience
from sagecc.learner.online.labs import OnlineTask
from sagecc.learner.pool_source import PoolExperience
from sagecc.learner.runs import SCORES
from sagecc.learner.train import Outcome, train
from sagecc.learner.validation import training_part
from sagecc.online import online_task
from sagecc.options import kernel_option
from sagecc.policy.artefact import PolicyArtefact
from sagecc.schemas.environment import Environment
from sagecc.schemas.schemes import POLICY_PREFIX, SCHEMES

RUNS = Path("evidence/training/runs.yaml")
POOL_CACHE = Path(".cache/pool")
ROUNDS = "rounds"
"""In a run's folder: the rounds of a pool that grows."""
BASELINE = "reno"
"""Its winning rate in Set II is where TCP-friendliness begins (footnote 7 of the paper, to section 5.2)."""

PATIENCE = PlayOptions(give_up=GiveUp())
"""Where only harm counts, an episode that floods need not be played to its end."""


def carry_out(
    run: Run,
    plan: Plan,
    fingerprint: str,
    training: str,
    source: CompiledPool | OnlineTask,
    kernel: Path,
    jobs: int,
    folder: Path,
) -> dict[str, Any]:
    """Train a run's policy in `folder`, let it play the plan's leagues, and return its result.

    A training that fails (it diverged, say) is a result too: `failure` is its reason, and it played nowhere.
    """
    result: dict[str, Any] = {
        "version": RESULT_VERSION,
        "name": run.name,
        "fingerprint": fingerprint,
        "base": run.base,
        "changes": dict(run.changes),
        "seed": run.seed,
        "steps": run.config.steps,
        "pool": None,
    }
    pool = pool_in_replay(run) if isinstance(source, OnlineTask) else source
    if pool:
        result["pool"] = {
            "path": str(run.pool),
            "identity": pool.identity,
            "rows": pool.rows,
            "episodes": len(pool.starts),
        }
    if start := start_of(run):
        result["from"] = {"run": run.start, "identity": policy_identity(start)}
    policy, evaluation = policy_folder(run, folder), None
    if run.in_labs:
        result["actors"] = run.actors
    if run.grow:
        result["grow"] = asdict(run.grow)
    if run.keep_best:
        result["keep_best"] = run.keep_best.record()
    with Meter(folder / METER, training) as meter:
        if of := run.keep_best:
            judge = Judge(plan.leagues, kernel, folder / "candidates", jobs, meter, of.league, of.curve)
            evaluation = Evaluation(judge, of.every, judge.identity, MEAN_RATE)
        try:
            outcome = trained(run, source, folder, evaluation, kernel, jobs)
        except SageccError as error:
            return {**result, "failure": str(error)}
    if run.keep_best:
        result["kept_step"] = outcome.step
        if run.keep_best.curve:
            result["curve"] = {"league": run.keep_best.curve, "points": read_points(policy / SCORES)}
    scheme, leagues, harm = f"{POLICY_PREFIX}{policy}", {}, {}
    for name, raw in {**plan.leagues, **plan.harm}.items():
        say(f"{run.name}: playing {name}")
        of_league = name in plan.leagues
        networks, options = networks_of(name), PlayOptions() if of_league else PATIENCE
        rivals = tuple(SCHEMES) if of_league else (REFERENCE,)
        known = contest(name, networks, {each: each for each in rivals}, raw, kernel, jobs)
        runner = lab_runner(kernel, jobs, options=options)
        played = gather(networks, (scheme,), raw, folder / name, runner, options=options)
        harm[name] = harm_of({**known.episodes, **played.episodes}, scheme)
        if of_league:
            leagues[name] = standing(
                known.joined_by(scheme, played.episodes).standings(), networks.environments, scheme
            )
            result["policy_sha256"] = played.policies[scheme]
    return {
        **result,
        "machine": describe(),
        "parameters": outcome.parameters,
        "training": {"cpu_h": meter.cpu_s / 3600, "wall_h": meter.wall_s / 3600, "metrics": outcome.metrics},
        "leagues": leagues,
        "harm": harm,
    }


def trained(
    run: Run, source: CompiledPool | OnlineTask, folder: Path, evaluation: Evaluation | None, kernel: Path, jobs: int
) -> Outcome:
    """Train a run's policy; raises SageccError where that fails. It lies at `policy_folder` then."""
    policy, logs = policy_folder(run, folder), folder / LOGS
    if run.grow:
        return train_grown(run, folder / ROUNDS, POOL_CACHE, kernel, jobs)
    experience: Experience
    if isinstance(source, OnlineTask):
        beside = (run.pool, POOL_CACHE) if run.pool else None
        experience = LabExperience(run.config, source, run.seed, run.actors, policy=start_of(run), pool=beside)
    else:
        assert run.pool is not None
        experience = PoolExperience(run.config, run.pool, POOL_CACHE, run.seed)
        evaluation = evaluation_of(run.config, run.pool, POOL_CACHE, evaluation)
    outcome = train(run.config, experience, policy, logs, run.seed, evaluation=evaluation)
    assert outcome is not None, "a run in one process is its own chief"
    return outcome


def policy_folder(run: Run, folder: Path) -> Path:
    """Return where a run that has its files in `folder` keeps its policy."""
    return grown_policy(run, folder / ROUNDS) if run.grow else folder / "policy"


def start_of(run: Run) -> PolicyArtefact | None:
    """Return the policy that a run goes on from in labs, which another run has trained; None for none."""
    return PolicyArtefact.load(start_folder(run)) if run.start else None


def start_folder(run: Run) -> Path:
    """Return the folder of the policy that a run goes on from."""
    return ARTEFACTS / run.start / "policy"


def pool_in_replay(run: Run) -> CompiledPool | None:
    """Return the pool that is in the replay of a run in labs; None for none."""
    return compile_pool(run.pool, POOL_CACHE) if run.in_labs and run.pool else None


def learned(run: Run, source: CompiledPool | OnlineTask) -> str:
    """Return the identity of all that a run learns from; `source` is `source_of`'s."""
    start, pool = start_of(run), pool_in_replay(run)
    return learned_from(source.identity, policy_identity(start) if start else None, pool.identity if pool else None)


def source_of(run: Run, kernel: Path, pools: dict[Path, CompiledPool]) -> CompiledPool | OnlineTask:
    """Return what a run learns from: its part of a pool, compiled once into `pools`, or a task in labs."""
    if run.in_labs:
        return online_task(run.config, kernel)
    data = run.config.data
    assert run.pool is not None and data is not None
    if run.pool not in pools:
        pools[run.pool] = compile_pool(run.pool, POOL_CACHE)
    return training_part(pools[run.pool].select(data.selection), data.validation_share)


def harm_of(episodes: Mapping[tuple[str, str], StoredEpisode], scheme: str) -> dict[str, Any]:
    """Return in how many networks a policy floods or starves by Cubic's measure, which, and its worst figures."""
    table = beside_reference(episodes, scheme)
    return {
        "networks": len(table),
        "floods": table.filter("floods")["environment_id"].to_list(),
        "starves": table.filter("starves")["environment_id"].to_list(),
        "loss_worst": table["loss"].max(),
        "goodput_share_least": table["goodput_share"].min(),
    }


def standing(standings: pl.DataFrame, environments: Sequence[Environment], scheme: str) -> dict[str, Any]:
    """Return where a policy stands in each set, beside the best heuristic there and NewReno.

    Args:
        standings: of leagues.standings.standings.
        environments: where it played.
        scheme: the policy.
    """
    columns = ["scheme", "rank", "winning_rate", "low", "high"]
    ranks = {}
    for name in sets(standings):
        table = standings.filter(pl.col("set") == name).sort("rank", "scheme").select(columns)
        others = table.filter(~pl.col("scheme").str.starts_with(POLICY_PREFIX))
        by_scheme = {row["scheme"]: row for row in table.to_dicts()}
        ranks[name] = {
            "schemes": len(table),
            "environments": sum(e.set == name for e in environments),
            "policy": {key: value for key, value in by_scheme[scheme].items() if key != "scheme"},
            "best_heuristic": others.row(0, named=True),
            BASELINE: by_scheme[BASELINE],
        }
    return ranks


def is_done(result: Mapping[str, Any] | None, fingerprint: str) -> bool:
    """Tell whether a result is that of the run with this fingerprint, and no failure."""
    return result is not None and result.get("fingerprint") == fingerprint and "failure" not in result


def policies_of(plan: Plan, names: Sequence[str], kernel: Path) -> dict[str, Path]:
    """Train the policies of runs that have not trained theirs, without judging them; return their folders by name.

    Raises:
        SageccError: a training fails, or another process is at one.
    """
    pools: dict[Path, CompiledPool] = {}
    folders = {}
    for run in plan.chosen(tuple(names)) if names else ():
        source, folder = source_of(run, kernel, pools), ARTEFACTS / run.name
        folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as holding:
            try:
                holding.enter_context(locked(folder / ".lock"))
            except BlockingIOError:
                raise SageccError(f"{run.name}: another process is at it; try again when it has ended") from None
            _take_up(run, folder)
            holding.enter_context(Meter(folder / METER, run.training(learned(run, source))))
            trained(run, source, folder, None, kernel, jobs=1)
        folders[run.name] = policy_folder(run, folder)
    return folders


def run_all(plan: Plan, names: tuple[str, ...], kernel: Path, jobs: int, results: Path = RESULTS) -> list[str]:
    """Do the chosen runs that `results` has not as done; return the names of those whose training failed.

    Where none is chosen, all are but those whose own pool, or the policy that they go on from, is not there.
    """
    identity = kernel_identity(kernel, (*SCHEMES, POLICY_PREFIX))
    pools: dict[Path, CompiledPool] = {}
    failed = []
    for run in plan.chosen(names):
        needed = [run.pool] if run.pool not in (None, plan.pool) else []
        needed += [start_folder(run)] if run.start else []
        if not names and (lacking := [path for path in needed if path and not path.exists()]):
            say(f"{run.name}: there is no {lacking[0]}; left out")
            continue
        source = source_of(run, kernel, pools)
        learned_by = learned(run, source)
        fingerprint = run.fingerprint(learned_by, identity, plan)
        folder = ARTEFACTS / run.name
        folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as holding:
            try:
                holding.enter_context(locked(folder / ".lock"))
            except BlockingIOError:
                say(f"{run.name}: another process is at it")
                continue
            if is_done(read_results(results).get(run.name), fingerprint):
                say(f"{run.name}: done")
                continue
            _take_up(run, folder)
            result = carry_out(run, plan, fingerprint, run.training(learned_by), source, kernel, jobs, folder)
            keep_result(results, result)
            if "failure" in result:
                failed.append(run.name)
                say(f"{run.name}: {result['failure']}")
    return failed


def _take_up(run: Run, folder: Path) -> None:
    carried = take_up(CARRIED / run.name, folder)
    say(f"{run.name}: training{f' on from {CARRIED / run.name}' if carried else ''}")


def say(text: str) -> None:
    """Tell on stderr how far it is."""
    click.echo(text, err=True)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", "names", multiple=True, metavar="NAME", help="Only this run (repeatable).")
@click.option(
    "--plan",
    type=click.Path(path_type=Path),
    default=RUNS,
    show_default=True,
    help="The runs; NAME.yaml has its results in evidence/NAME.jsonl.",
)
@click.option("--jobs", type=click.IntRange(min=1), default=os.cpu_count(), help="Episodes at a time.  [default: CPUs]")
@kernel_option()
def command(names: tuple[str, ...], plan: Path, jobs: int, kernel: Path) -> None:
    """Train and judge every run of a plan that is not done."""
    try:
        failed = run_all(read_plan(plan), names, kernel, jobs, results_of(plan))
    except SageccError as error:
        click.echo(f"training: {error}", err=True)
        sys.exit(2)
    if failed:
        click.echo(f"training: training failed in {', '.join(failed)}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    command(prog_name="python -m evidence.training.run")
