# SPDX-License-Identifier: Apache-2.0
"""Fig. 7: the winning rates of policies in training, over the CPU time that was spent on them.

Each is judged in `heldout`, at even distances. With one process that plays, evaluations do not change what is learned.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.machine import save
from sagecc.collector.kernel.identity import kernel_identity
from sagecc.collector.run.grid import profile_set
from sagecc.common.errors import SageccError
from sagecc.common.locks import locked
from sagecc.leagues.candidate import OPTIONS, CandidateLeague
from sagecc.leagues.league import lab_runner, play
from sagecc.learner.compiled import CompiledPool
from sagecc.learner.evaluation import Evaluation
from sagecc.learner.runs import SCORES
from sagecc.schemas.schemes import POLICY_PREFIX, SCHEMES
from studies.paper import BASE, FOLDER, RESULTS, SEEDS
from studies.training import METER
from studies.training.run import Meter, policy_folder, say, source_of, trained
from studies.training.runs import Plan, seed_name

NAME = "fig-7"
LEAGUE = "heldout"
RECIPES = (BASE, "sagecc-4")
"""Learned from the pool, and in labs."""
POINTS = 10
"""Evaluations of a training."""
CPU_H, POLICY = "cpu_h", "policy"


@dataclass(frozen=True)
class Judge:
    """Plays a policy in training as leagues.candidate does; called as learner.evaluation.Score.

    The scores are every scheme's winning rates, `SET/SCHEME`, and the training's CPU time so far.
    """

    kernel: Path
    raw: Path
    """The heuristics' trajectories."""
    out: Path
    """Those of the last policy."""
    jobs: int
    meter: Meter
    """The training's; it stands still meanwhile."""

    def __call__(self, policy: Path, step: int) -> dict[str, float]:
        """Return a policy's scores."""
        scheme = f"{POLICY_PREFIX}{policy}"
        with self.meter.paused():
            cpu_h = self.meter.cpu_s / 3600
            runner = lab_runner(self.kernel, self.jobs, options=OPTIONS)
            league = play(profile_set(LEAGUE), (*SCHEMES, scheme), self.raw, self.out, runner, options=OPTIONS)
        rates = {
            f"{row['set']}/{POLICY if row['scheme'] == scheme else row['scheme']}": row["winning_rate"]
            for row in league.standings.to_dicts()
        }
        return {CPU_H: cpu_h, **dict(sorted(rates.items()))}  # one order: they become a table


def trainings() -> list[tuple[str, int, str]]:
    """Return recipe, seed and name of each training."""
    return [(recipe, seed, seed_name(recipe, seed)) for recipe in RECIPES for seed in SEEDS]


def make(plan: Plan, kernel: Path, jobs: int) -> None:
    """Train and judge what is not done, and keep it in studies/results/fig-7.json after each training.

    Raises:
        SageccError: trainings failed; the others are kept.
    """
    identity = kernel_identity(kernel, (*SCHEMES, POLICY_PREFIX))
    raw = plan.leagues[LEAGUE]
    there = kept(RESULTS / f"{NAME}.json")
    pools: dict[Path, CompiledPool] = {}
    failed = []
    for recipe, seed, name in trainings():
        run = replace(plan.runs[recipe], name=name, seed=seed, actors=1, keep_best=None)
        source = source_of(run, kernel, pools)
        every = run.config.steps // POINTS
        fingerprint = f"{run.fingerprint(source.identity, identity, Plan({}, {LEAGUE: raw}))}/{every}"
        if there.get(name, {}).get("fingerprint") == fingerprint:
            say(f"{NAME}, {name}: done")
            continue
        folder = FOLDER / NAME / name
        folder.mkdir(parents=True, exist_ok=True)
        league = CandidateLeague(profile_set(LEAGUE), tuple(SCHEMES), kernel, raw, folder / "league", jobs)
        league.prepare()
        say(f"{NAME}, {name}: training")
        try:
            with locked(folder / ".lock"), Meter(folder / METER, fingerprint) as meter:
                judge = Judge(kernel, raw, folder / "league", jobs, meter)
                trained(run, source, folder, Evaluation(judge, every, league.identity), kernel, jobs)
        except BlockingIOError:
            failed.append(f"{name} (another process is at it)")
            continue
        except SageccError as error:
            failed.append(f"{name} ({error})")
            continue
        there[name] = {
            "name": name,
            "recipe": recipe,
            "seed": seed,
            "fingerprint": fingerprint,
            "steps": run.config.steps,
            "points": points(policy_folder(run, folder) / SCORES),
        }
        wanted = [there[name] for _, _, name in trainings() if name in there]
        save(NAME, {"league": LEAGUE, "runs": wanted}, RESULTS)
    if failed:
        raise SageccError(f"{NAME}: {'; '.join(failed)}")


def kept(path: Path) -> dict[str, Any]:
    """Return the runs of an earlier result by name; none where there is no such file."""
    try:
        return {run["name"]: run for run in json.loads(path.read_text())["result"]["runs"]}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError) as error:
        raise SageccError(f"{path}: cannot be read ({error}); remove it and make the figure again") from None


def points(path: Path) -> list[dict[str, Any]]:
    """Return the evaluations of a training from the table beside its policy.

    Returns:
        One of each: `step`, `cpu_h`, and `rates`, by set and scheme.
    """
    with path.open(newline="") as file:
        return [_point(row) for row in csv.DictReader(file)]


def _point(row: Mapping[str, str]) -> dict[str, Any]:
    rates: dict[str, dict[str, float]] = {}
    for name, value in row.items():
        set_name, slash, scheme = name.partition("/")
        if slash:
            rates.setdefault(set_name, {})[scheme] = float(value)
    return {"step": int(row["step"]), CPU_H: float(row[CPU_H]), "rates": rates}
